/* SPDX-License-Identifier: Apache-2.0 */
/* What the files run_h5*.c share. Private to src/record. */
#pragma once

#include "io/hdf5_file.h"
#include "record/run_h5.h"
#include "record/run_h5_columns.h"

/* A group of columns while it is written. Rows are buffered and appended in blocks. */
typedef struct petra_columns {
  const petra_column_group *group;
  int64_t sets[PETRA_RUN_H5_MAX_COLUMNS]; /* HDF5's identifiers of the data sets */
  char *rows;                             /* group->chunk_rows rows, of which `buffered` are not yet in HDF5 */
  char *values;                           /* buffer for one column of these rows */
  int buffered;
  int64_t written; /* rows in HDF5 */
} petra_columns;

enum { PETRA_RUN_H5_TRAIN, PETRA_RUN_H5_EPOCH, PETRA_RUN_H5_ACTIONS, PETRA_RUN_H5_GROUPS };

struct petra_run_h5 {
  char *path;
  void *reserve; /* memory that HDF5 needs to close the file */
  int64_t file;  /* HDF5's identifiers */
  int fd;        /* HDF5's own descriptor */
  bool failed;
  petra_columns groups[PETRA_RUN_H5_GROUPS];
  int group_count; /* PETRA_RUN_H5_ACTIONS without the actions */
  petra_sample_kind samples;
  bool has_stages;
  int32_t memory_stages;               /* of /memory/peak_bytes; 0 before the first petra_run_h5_memory */
  double interval_s, flushed_s, row_s; /* flush interval; time of the last flush and of the last row */
};

/* Lets `write` add objects of about `bytes` bytes in total to the open file, and flushes. `write` returns false if HDF5
 * failed; NULL: nothing is added. PETRA_IO as for the functions of run_h5.h. */
petra_status petra_run_h5_extend(petra_run_h5 *log, bool (*write)(petra_run_h5 *log, const void *what),
                                 const void *what, int64_t bytes);

/* A table that is written once, or replaces what exists. */
typedef struct petra_table_writing {
  const petra_column_group *group;
  const void *values;                /* the structure of the table */
  int64_t extents[PETRA_DIMENSIONS]; /* of the dimensions that depend on the run */
  /* One more attribute of column `noted`: a list of `text_count` texts; a single one if that is negative. NULL:
   * none. */
  const char *noted, *attribute;
  const char *const *texts;
  int text_count;
  bool again; /* the data sets exist, and are overwritten */
} petra_table_writing;
petra_status petra_run_h5_put_table(petra_run_h5 *log, const petra_table_writing *table);
