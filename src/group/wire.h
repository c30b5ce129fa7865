/* SPDX-License-Identifier: Apache-2.0 */
/* The processes (ranks) of one run, and bytes sent between them: what an MPI library gives, by a table of functions. No
 * two functions may run at the same time: whoever shares a wire between threads locks (progress_thread.h). */
#pragma once

#include "base/status.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct petra_wire petra_wire;

enum { PETRA_WIRE_NONE = -1 }; /* no request */

/* A send or receive under way is named by a number, the request. Messages of one sender, receiver and tag arrive in the
 * order in which they were sent. Failures: PETRA_BACKEND, logged with the library's own words. */
typedef struct petra_wire_ops {
  /* Begins to send; `data` stays as it is until the request is done. `size` is 2^31 - 1 at most. */
  petra_status (*send)(petra_wire *wire, int to, int tag, const void *data, size_t size, int *request);
  /* Begins to receive a message of at most `capacity` bytes. */
  petra_status (*receive)(petra_wire *wire, int from, int tag, void *data, size_t capacity, int *request);
  /* Moves what is under way, and finds what is done. */
  petra_status (*progress)(petra_wire *wire);
  /* Whether the last progress found the request done: *request is PETRA_WIRE_NONE then, and *size what was received (of
   * a receive). PETRA_WIRE_NONE is never done. */
  bool (*done)(petra_wire *wire, int *request, size_t *size);
  /* Gives up a receive; PETRA_WIRE_NONE is allowed. */
  void (*cancel)(petra_wire *wire, int *request);
  /* Ends every process of the run at once, this one too, with the exit status `code`. */
  void (*abort)(petra_wire *wire, int code);
  /* Ends the use of the library; every rank has to come here. */
  void (*destroy)(petra_wire *wire);
} petra_wire_ops;

struct petra_wire {
  const petra_wire_ops *ops;
  int rank, ranks; /* this process, from 0, of how many */
  int local;       /* its place, from 0, among those of its host */
  int tags;        /* tags are 0 .. tags - 1 */
  bool cuda;       /* `data` of send and receive may be memory of a CUDA device */
};

/* The wire of the processes that mpirun (or srun) started together with this one; without it one rank. PETRA_UNSUPPORTED
 * where petra was built without MPI, or the library cannot be called from several threads in turn. */
petra_status petra_wire_mpi_create(petra_wire **out);

/* "Open MPI v4.1.4, ..." ; NULL where petra was built without MPI. */
const char *petra_wire_mpi_version(void);

static inline void petra_wire_destroy(petra_wire *wire) {
  if (wire)
    wire->ops->destroy(wire);
}
