/* SPDX-License-Identifier: Apache-2.0 */
/* Replaces mpi.c if petra is built without MPI. */
#include "base/log.h"
#include "group/wire.h"

petra_status petra_wire_mpi_create(petra_wire **out) {
  (void)out;
  return petra_fail(PETRA_UNSUPPORTED, "run.mode: execute: this petra was built without MPI; install an MPI library "
                                       "(Debian: libopenmpi-dev) and run ./configure --with-mpi=yes");
}

const char *petra_wire_mpi_version(void) {
  return NULL;
}
