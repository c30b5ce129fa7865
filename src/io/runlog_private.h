/* For files of this folder that write to run.h5 what is no row of a group of columns. */
#ifndef PETRA_IO_RUNLOG_PRIVATE_H
#define PETRA_IO_RUNLOG_PRIVATE_H

#include "io/runlog.h"

#include <stdbool.h>

/* Makes room for `bytes`, the most that `write` adds to the file, has it write to `file` (HDF5's identifier),
 * and flushes. A failure of `write` (false) gives the log up, like every failed write. */
petra_status petra_runlog_extend(petra_runlog *log, int64_t bytes, bool (*write)(void *context, int64_t file),
                                 void *context);

#endif
