/* A group of columns while it is written: rows are buffered and appended in blocks. Private to src/io. */
#ifndef PETRA_IO_RUNLOG_COLUMNS_H
#define PETRA_IO_RUNLOG_COLUMNS_H

#include "base/status.h"
#include "io/runlog_schema.h"

#include <stdbool.h>
#include <stdint.h>

typedef struct petra_columns {
  const petra_column_group *group;
  int64_t sets[PETRA_RUNLOG_MAX_COLUMNS]; /* HDF5's identifiers of the data sets */
  char *rows;                             /* group->chunk_rows rows, of which `buffered` are not yet in HDF5 */
  char *values;                           /* one column of them */
  int buffered;
  int64_t written; /* rows in HDF5 */
} petra_columns;

/* Allocates the buffers; `columns` is zeroed before. After a failure petra_columns_free is still due. */
petra_status petra_columns_init(petra_columns *columns, const petra_column_group *group);
void petra_columns_free(petra_columns *columns);

/* These call HDF5 (between petra_hdf5_begin and petra_hdf5_end) and are false where it failed. */
bool petra_columns_create(petra_columns *columns, int64_t file);
bool petra_columns_open(petra_columns *columns, int64_t file); /* of a file that has them: goes on behind their rows */
bool petra_columns_append(petra_columns *columns); /* moves the buffered rows into HDF5, in all columns alike */
bool petra_columns_close(petra_columns *columns);

/* Buffers a row; true if the buffer is now full and must be appended before the next. */
bool petra_columns_put(petra_columns *columns, const void *row);

#endif
