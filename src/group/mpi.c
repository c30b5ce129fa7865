/* SPDX-License-Identifier: Apache-2.0 */
/* Sends bytes between processes by MPI. Compiled with PETRA_WITHOUT_MPI, this file only reports that this petra has no
 * MPI. */
#include "config.h"

#include "base/log.h"
#include "group/wire.h"

#ifdef PETRA_WITHOUT_MPI

petra_status petra_wire_mpi_create(petra_wire **out) {
  (void)out;
  return petra_fail(PETRA_UNSUPPORTED, "run.mode: execute: this petra was built without MPI; install an MPI library "
                                       "(Debian: libopenmpi-dev) and run ./configure --with-mpi=yes");
}

const char *petra_wire_mpi_version(void) {
  return NULL;
}

#else

#include "base/mem.h"

#include <limits.h>
#include <mpi.h>
#ifdef PETRA_HAVE_MPI_EXT
#include <mpi-ext.h>
#endif
#include <string.h>

typedef enum request_state { FREE, SENDING, RECEIVING, DONE } request_state;

typedef struct wire_mpi {
  petra_wire base;
  MPI_Comm world;
  int count;             /* sizes of the arrays below, by number of the request */
  MPI_Request *requests; /* MPI_REQUEST_NULL unless under way */
  request_state *state;
  size_t *size; /* bytes received, once done */
  int *found;   /* requests that MPI_Testsome found, with their statuses */
  MPI_Status *statuses;
  long *sent, *received; /* numbers of small messages to and from each rank */
} wire_mpi;

enum {
  SMALL = 2048
}; /* size up to which a library copies the bytes as a send begins, so that the receiver may take them at any time */

static petra_status check(int code, const char *what) {
  char text[MPI_MAX_ERROR_STRING];
  int length = 0;
  if (code == MPI_SUCCESS)
    return PETRA_OK;
  MPI_Error_string(code, text, &length);
  return petra_fail(PETRA_BACKEND, "MPI: %s: %.*s", what, length, text);
}

/* Doubles the size of the arrays, to at least 64 elements. */
static petra_status grow(wire_mpi *wire) {
  int64_t capacity[5] = {wire->count, wire->count, wire->count, wire->count, wire->count};
  const int count = wire->count ? 2 * wire->count : 64;
  PETRA_TRY(petra_array_reserve(&wire->requests, &capacity[0], count, sizeof *wire->requests));
  PETRA_TRY(petra_array_reserve(&wire->state, &capacity[1], count, sizeof *wire->state));
  PETRA_TRY(petra_array_reserve(&wire->size, &capacity[2], count, sizeof *wire->size));
  PETRA_TRY(petra_array_reserve(&wire->found, &capacity[3], count, sizeof *wire->found));
  PETRA_TRY(petra_array_reserve(&wire->statuses, &capacity[4], count, sizeof *wire->statuses));
  for (; wire->count < count; wire->count++)
    wire->requests[wire->count] = MPI_REQUEST_NULL;
  return PETRA_OK;
}

/* Takes a free number for a request that is about to begin. */
static petra_status take_request(wire_mpi *wire, request_state state, int *out) {
  int i = 0;
  while (i < wire->count && wire->state[i] != FREE)
    i++;
  if (i == wire->count)
    PETRA_TRY(grow(wire));
  wire->state[i] = state;
  *out = i;
  return PETRA_OK;
}

static petra_status check_size(size_t size) {
  return size <= INT_MAX ? PETRA_OK
                         : petra_fail(PETRA_UNSUPPORTED, "a message of %zu bytes; expected at most %d", size, INT_MAX);
}

static void count_received(wire_mpi *wire, const MPI_Status *status, int bytes) {
  wire->received[status->MPI_SOURCE] += bytes <= SMALL;
}

static petra_status begin_send(petra_wire *base, int to, int tag, const void *data, size_t size, int *request) {
  wire_mpi *wire = (wire_mpi *)base;
  PETRA_TRY(check_size(size));
  PETRA_TRY(take_request(wire, SENDING, request));
  wire->sent[to] += size <= SMALL;
  return check(MPI_Isend(data, (int)size, MPI_BYTE, to, tag, wire->world, &wire->requests[*request]), "MPI_Isend");
}

static petra_status begin_receive(petra_wire *base, int from, int tag, void *data, size_t capacity, int *request) {
  wire_mpi *wire = (wire_mpi *)base;
  PETRA_TRY(check_size(capacity));
  PETRA_TRY(take_request(wire, RECEIVING, request));
  return check(MPI_Irecv(data, (int)capacity, MPI_BYTE, from, tag, wire->world, &wire->requests[*request]),
               "MPI_Irecv");
}

static petra_status progress(petra_wire *base) {
  wire_mpi *wire = (wire_mpi *)base;
  int count = 0, bytes = 0;
  PETRA_TRY(check(MPI_Testsome(wire->count, wire->requests, &count, wire->found, wire->statuses), "MPI_Testsome"));
  for (int i = 0; i < count; i++) { /* MPI_UNDEFINED is negative: nothing is under way */
    PETRA_TRY(check(MPI_Get_count(&wire->statuses[i], MPI_BYTE, &bytes), "MPI_Get_count"));
    if (wire->state[wire->found[i]] == RECEIVING)
      count_received(wire, &wire->statuses[i], bytes);
    wire->state[wire->found[i]] = DONE;
    wire->size[wire->found[i]] = bytes > 0 ? (size_t)bytes : 0;
  }
  return PETRA_OK;
}

static bool done(petra_wire *base, int *request, size_t *size) {
  wire_mpi *wire = (wire_mpi *)base;
  if (*request == PETRA_WIRE_NONE || wire->state[*request] != DONE)
    return false;
  *size = wire->size[*request];
  wire->state[*request] = FREE;
  *request = PETRA_WIRE_NONE;
  return true;
}

static void cancel(petra_wire *base, int *request) {
  wire_mpi *wire = (wire_mpi *)base;
  if (*request == PETRA_WIRE_NONE)
    return;
  if (wire->state[*request] == RECEIVING) {
    MPI_Status status;
    int cancelled = 0, bytes = 0;
    MPI_Cancel(&wire->requests[*request]);
    MPI_Wait(&wire->requests[*request], &status);
    MPI_Test_cancelled(&status, &cancelled);
    if (!cancelled && MPI_Get_count(&status, MPI_BYTE, &bytes) == MPI_SUCCESS)
      count_received(wire, &status, bytes);
  }
  wire->state[*request] = FREE;
  *request = PETRA_WIRE_NONE;
}

static void end_all(petra_wire *base, int code) {
  MPI_Abort(((wire_mpi *)base)->world, code);
}

/* Receives one message that nobody waits for any more. A large message stays in the library, because its sender may be
 * gone. */
static void discard_message(wire_mpi *wire, int from) {
  unsigned char bytes[SMALL];
  MPI_Message message;
  MPI_Status status;
  int found = 0, size = 0;
  if (MPI_Improbe(from, MPI_ANY_TAG, wire->world, &found, &message, &status) != MPI_SUCCESS || !found)
    return;
  MPI_Get_count(&status, MPI_BYTE, &size);
  count_received(wire, &status, size);
  if (size <= SMALL)
    MPI_Mrecv(bytes, size, MPI_BYTE, &message, &status);
}

/* Beats and acknowledgements may be under way when the run ends. Libraries print warnings about messages that nobody
 * received (UCX on standard output). So all ranks report how many small messages they sent, and receive the remaining
 * small messages. */
static void receive_the_rest(wire_mpi *wire) {
  PETRA_FREED long *expected = NULL;
  if (petra_allocate(&expected, (size_t)wire->base.ranks, sizeof *expected) != PETRA_OK)
    return;
  MPI_Alltoall(wire->sent, 1, MPI_LONG, expected, 1, MPI_LONG, wire->world);
  for (int r = 0; r < wire->base.ranks; r++)
    while (wire->received[r] < expected[r])
      discard_message(wire, r);
}

static void destroy(petra_wire *base) {
  wire_mpi *wire = (wire_mpi *)base;
  receive_the_rest(wire);
  MPI_Comm_free(&wire->world);
  MPI_Finalize();
  PETRA_FREE_ALL(wire->requests, wire->state, wire->size, wire->found, wire->statuses, wire->sent, wire->received,
                 wire);
}

petra_status petra_wire_mpi_create(petra_wire **out) {
  static const petra_wire_ops ops = {.send = begin_send,
                                     .receive = begin_receive,
                                     .progress = progress,
                                     .done = done,
                                     .cancel = cancel,
                                     .abort = end_all,
                                     .destroy = destroy};
  wire_mpi *wire;
  MPI_Comm host;
  void *highest = NULL;
  int level = 0, found = 0;
  PETRA_TRY(check(MPI_Init_thread(NULL, NULL, MPI_THREAD_SERIALIZED, &level), "MPI_Init_thread"));
  if (level < MPI_THREAD_SERIALIZED) {
    MPI_Finalize();
    return petra_fail(PETRA_UNSUPPORTED,
                      "MPI gives thread level %d; expected MPI_THREAD_SERIALIZED (%d): another "
                      "thread moves messages while this one computes",
                      level, MPI_THREAD_SERIALIZED);
  }
  PETRA_TRY(petra_allocate(&wire, 1, sizeof *wire));
  wire->base.ops = &ops;
  wire->base.tags = 32767; /* guaranteed by the standard */
  PETRA_TRY(check(MPI_Comm_dup(MPI_COMM_WORLD, &wire->world), "MPI_Comm_dup"));
  MPI_Comm_set_errhandler(wire->world, MPI_ERRORS_RETURN);
  MPI_Comm_rank(wire->world, &wire->base.rank);
  MPI_Comm_size(wire->world, &wire->base.ranks);
  PETRA_TRY(petra_allocate(&wire->sent, (size_t)wire->base.ranks, sizeof *wire->sent));
  PETRA_TRY(petra_allocate(&wire->received, (size_t)wire->base.ranks, sizeof *wire->received));
  PETRA_TRY(
      check(MPI_Comm_split_type(wire->world, MPI_COMM_TYPE_SHARED, 0, MPI_INFO_NULL, &host), "MPI_Comm_split_type"));
  MPI_Comm_rank(host, &wire->base.local);
  MPI_Comm_free(&host);
  MPI_Comm_get_attr(wire->world, MPI_TAG_UB, &highest, &found);
  if (found && *(int *)highest > wire->base.tags)
    wire->base.tags = *(int *)highest;
#ifdef PETRA_HAVE_MPI_CUDA
  wire->base.cuda = MPIX_Query_cuda_support() == 1;
#endif
  *out = &wire->base;
  return PETRA_OK;
}

/* Keeps the text before a comma or a control character, without its label ("MPICH Version:\t4.0.2
 * ..."). */
static void first_words(char *text) {
  char *label = strstr(text, " Version:");
  if (label && label < text + strcspn(text, ",\n")) {
    const char *number = label + strlen(" Version:");
    number += strspn(number, " \t");
    memmove(label + 1, number, strlen(number) + 1);
  }
  for (char *c = text; *c; c++)
    if (*c == ',' || (unsigned char)*c < ' ')
      *c = 0;
}

const char *petra_wire_mpi_version(void) {
  static char text[MPI_MAX_LIBRARY_VERSION_STRING];
  int length = 0;
  MPI_Get_library_version(text, &length);
  first_words(text);
  return *text ? text : "MPI";
}

#endif
