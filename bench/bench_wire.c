/* SPDX-License-Identifier: Apache-2.0 */
/* mpirun -n 2 bench/bench_wire: messages there and back between two ranks, by MPI alone (MPI_Send, MPI_Recv) and by the
 * progress thread (src/group/progress_thread.h), in turn: microseconds one way, for sizes from 4 bytes to 64 MiB. */
#include "base/clock.h"
#include "base/mem.h"
#include "group/progress_thread.h"

#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { ROUNDS = 5, MAXIMUM = 64 << 20 };

typedef struct both {
  petra_progress_thread *progress;
  petra_channel *out, *in;
  int rank;
  char *data;
  int64_t number; /* of the next message by the progress thread */
} both;

static petra_status by_mpi(both *b, size_t size) {
  if (b->rank == 0) {
    MPI_Send(b->data, (int)size, MPI_BYTE, 1, 0, MPI_COMM_WORLD);
    MPI_Recv(b->data, (int)size, MPI_BYTE, 1, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
  } else {
    MPI_Recv(b->data, (int)size, MPI_BYTE, 0, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    MPI_Send(b->data, (int)size, MPI_BYTE, 0, 0, MPI_COMM_WORLD);
  }
  return PETRA_OK;
}

static petra_status send(both *b, size_t size) {
  void *buffer;
  PETRA_TRY(petra_channel_buffer(b->out, b->number - 1, "room", &buffer));
  return petra_channel_send(b->out, b->number, size);
}

static petra_status receive(both *b) {
  const void *data;
  size_t size;
  PETRA_TRY(petra_channel_take(b->in, b->number, "a message", &data, &size));
  return petra_channel_done(b->in, b->number);
}

static petra_status by_progress_thread(both *b, size_t size) {
  if (b->rank == 0)
    PETRA_TRY(send(b, size));
  PETRA_TRY(receive(b));
  if (b->rank == 1)
    PETRA_TRY(send(b, size));
  b->number++;
  return PETRA_OK;
}

/* Microseconds one way. */
static petra_status measure(both *b, petra_status (*trip)(both *b, size_t size), size_t size, double *out) {
  const int trips = size < 65536 ? 2000 : size < 4 << 20 ? 100 : 8;
  PETRA_TRY(trip(b, size));
  const int64_t began_ns = petra_clock_ns();
  for (int i = 0; i < trips; i++)
    PETRA_TRY(trip(b, size));
  *out = 1e-3 * (double)(petra_clock_ns() - began_ns) / (2.0 * trips);
  return PETRA_OK;
}

static int compare(const void *a, const void *b) {
  const double x = *(const double *)a, y = *(const double *)b;
  return (x > y) - (x < y);
}

static petra_status run(both *b) {
  PETRA_TRY(petra_allocate_raw(&b->data, MAXIMUM, 1));
  memset(b->data, 0, MAXIMUM);
  PETRA_TRY(petra_channel_open_out(b->progress, 1 - b->rank, b->rank, MAXIMUM, &b->out));
  PETRA_TRY(petra_channel_open_in(b->progress, 1 - b->rank, 1 - b->rank, MAXIMUM, &b->in));
  if (b->rank == 0)
    printf("   bytes   MPI us   thread us    ratio   (one way, medians of %d in turn)\n", ROUNDS);
  for (size_t size = 4; size <= MAXIMUM; size = size < 1024 ? size * 16 : size * 8) {
    double mpi[ROUNDS], progress[ROUNDS];
    for (int i = 0; i < ROUNDS; i++) {
      PETRA_TRY(measure(b, by_mpi, size, &mpi[i]));
      PETRA_TRY(measure(b, by_progress_thread, size, &progress[i]));
    }
    qsort(mpi, ROUNDS, sizeof *mpi, compare);
    qsort(progress, ROUNDS, sizeof *progress, compare);
    if (b->rank == 0)
      printf("%8zu %8.2f %12.2f %7.2f\n", size, mpi[ROUNDS / 2], progress[ROUNDS / 2],
             progress[ROUNDS / 2] / mpi[ROUNDS / 2]);
  }
  return PETRA_OK;
}

int main(void) {
  petra_wire *wire;
  both b = {0};
  if (petra_wire_mpi_create(&wire) != PETRA_OK)
    return 1;
  if (wire->ranks != 2) {
    fprintf(stderr, "bench_wire: expected mpirun -n 2\n");
    petra_wire_destroy(wire);
    return 2;
  }
  b.rank = wire->rank;
  petra_status status = petra_progress_thread_create(wire, "a rank", INT64_C(60000000000), &b.progress);
  if (status == PETRA_OK)
    status = run(&b);
  petra_free(b.data);
  petra_progress_thread_destroy(b.progress);
  petra_wire_destroy(wire);
  return status == PETRA_OK ? 0 : 1;
}
