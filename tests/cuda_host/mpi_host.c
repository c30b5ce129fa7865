/* SPDX-License-Identifier: Apache-2.0 */
/* In place of the MPI library's own: whether it reads the memory of devices. It can where these are stand-ins, whose memory is
 * the host's; it says so with the environment variable PETRA_MPI_HOST_CUDA. Like a real library it then needs a device in every
 * thread that makes progress: once a message has been from or to a device, a thread without one ends the process. */
#include "config.h"

#ifdef PETRA_HAVE_MPI_CUDA
#include "cuda_host/control.h"

#include <mpi.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>

int MPIX_Query_cuda_support(void);

static atomic_bool has_devices;

static void look_at(const void *data) {
  if (petra_cuda_host_is_device(data))
    has_devices = true;
}

int MPIX_Query_cuda_support(void) {
  return getenv("PETRA_MPI_HOST_CUDA") != NULL;
}

int MPI_Isend(const void *data, int count, MPI_Datatype type, int to, int tag, MPI_Comm comm, MPI_Request *request) {
  look_at(data);
  return PMPI_Isend(data, count, type, to, tag, comm, request);
}

int MPI_Irecv(void *data, int count, MPI_Datatype type, int from, int tag, MPI_Comm comm, MPI_Request *request) {
  look_at(data);
  return PMPI_Irecv(data, count, type, from, tag, comm, request);
}

int MPI_Testsome(int count, MPI_Request requests[], int *found, int indices[], MPI_Status statuses[]) {
  if (has_devices && !petra_cuda_host_bound()) {
    fprintf(stderr, "petra: mpi_host: a thread without a device makes progress on messages between devices\n");
    abort();
  }
  return PMPI_Testsome(count, requests, found, indices, statuses);
}
#endif
