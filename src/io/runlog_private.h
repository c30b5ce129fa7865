/* What the files runlog_*.c share. Private to src/io. */
#ifndef PETRA_IO_RUNLOG_PRIVATE_H
#define PETRA_IO_RUNLOG_PRIVATE_H

#include "io/hdf5_file.h"
#include "io/runlog.h"
#include "io/runlog_columns.h"
#include "io/runlog_schema.h"

enum { PETRA_RUNLOG_TRAIN, PETRA_RUNLOG_EPOCH, PETRA_RUNLOG_ACTIONS, PETRA_RUNLOG_GROUPS };

struct petra_runlog {
  char *path;
  void *reserve; /* memory for HDF5 to close the file with */
  int64_t file;  /* HDF5's identifiers */
  int fd;        /* HDF5's own descriptor */
  bool failed;
  petra_columns groups[PETRA_RUNLOG_GROUPS];
  int group_count; /* PETRA_RUNLOG_ACTIONS where these are not wanted */
  bool has_stages;
  int64_t peak, total_peak; /* /memory; negative before the first petra_runlog_memory */
  int32_t memory_stages;
  double interval_s, flushed_s, row_s; /* flush interval; time of the last flush and of the last row */
};

/* Makes room for the next flush behind the `size` bytes that HDF5 uses. 0 or an errno value. */
int petra_runlog_lengthen(const petra_runlog *log, uint64_t size);

/* The memory; calls nothing of HDF5. */
void petra_runlog_free(petra_runlog *log);

/* Lets `write` add objects of together about `bytes` bytes to the open file, and flushes. `write` is false where HDF5
 * failed; NULL: nothing is added. PETRA_IO as the other functions of runlog.h. */
petra_status petra_runlog_extend(petra_runlog *log, bool (*write)(petra_runlog *log, const void *what),
                                 const void *what, int64_t bytes);

#endif
