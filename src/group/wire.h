/* SPDX-License-Identifier: Apache-2.0 */
/* The processes (ranks) of one run, and the transfer of bytes between them: the services of an MPI library, as a table
 * of functions. No two functions may run at the same time; threads that share a wire must lock it
 * (progress_thread.h). */
#pragma once

#include "base/status.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct petra_wire petra_wire;

enum { PETRA_WIRE_NONE = -1 }; /* no request */

/* A number, the request, names a send or receive under way. Messages of one sender, receiver and tag arrive in the
 * order in which they were sent. Failures return PETRA_BACKEND and are logged with the library's own words. */
typedef struct petra_wire_ops {
  /* Begins to send; `data` must not change until the request is done. The maximum of `size` is 2^31 - 1. */
  petra_status (*send)(petra_wire *wire, int to, int tag, const void *data, size_t size, int *request);
  /* Begins to receive a message of at most `capacity` bytes. */
  petra_status (*receive)(petra_wire *wire, int from, int tag, void *data, size_t capacity, int *request);
  /* Makes progress on all requests, and finds those that are done. */
  petra_status (*progress)(petra_wire *wire);
  /* Returns true if the last call of `progress` found the request done. It then sets *request to PETRA_WIRE_NONE and,
   * for a receive, *size to the number of bytes received. Returns false for PETRA_WIRE_NONE. */
  bool (*done)(petra_wire *wire, int *request, size_t *size);
  /* Cancels a receive; PETRA_WIRE_NONE is allowed. */
  void (*cancel)(petra_wire *wire, int *request);
  /* Ends every process of the run immediately, including this one, with the exit status `code`. */
  void (*abort)(petra_wire *wire, int code);
  /* Ends the use of the library; every rank must call this. */
  void (*destroy)(petra_wire *wire);
} petra_wire_ops;

struct petra_wire {
  const petra_wire_ops *ops;
  int rank, ranks; /* this process, from 0; the number of processes */
  int local;       /* its number, from 0, among the processes of its host */
  int tags;        /* tags are 0 .. tags - 1 */
  bool cuda;       /* `data` of send and receive may be memory of a CUDA device */
};

/* Returns the wire of the processes that mpirun (or srun) started together with this one; without a launcher, returns a
 * wire of one rank. PETRA_UNSUPPORTED if petra was built without MPI, or if the library does not allow several threads
 * to call it in turn. */
petra_status petra_wire_mpi_create(petra_wire **out);

/* Returns "Open MPI v4.1.4, ..."; NULL if petra was built without MPI. */
const char *petra_wire_mpi_version(void);

static inline void petra_wire_destroy(petra_wire *wire) {
  if (wire)
    wire->ops->destroy(wire);
}
