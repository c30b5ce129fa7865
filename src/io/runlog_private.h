/* What the files runlog_*.c share. Private to src/io. */
#ifndef PETRA_IO_RUNLOG_PRIVATE_H
#define PETRA_IO_RUNLOG_PRIVATE_H

#include "io/runlog.h"

/* Lets `write` add objects of together about `bytes` bytes to the open file (HDF5's identifier), and flushes.
 * `write` is false where HDF5 failed. PETRA_IO as the other functions of runlog.h. */
petra_status petra_runlog_extend(petra_runlog *log, bool (*write)(int64_t file, const void *what),
                                 const void *what, int64_t bytes);

#endif
