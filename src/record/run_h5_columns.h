/* SPDX-License-Identifier: Apache-2.0 */
/* The tables of run.h5: name, type, unit, dimensions and meaning of each column, in one place. They are used to create,
 * write and read the file, to print epochs, and to generate docs/hdf5-schema.md. */
#pragma once

#include "io/hdf5_file.h"
#include "record/run_h5.h" /* circle: columns are members of the rows in run_h5.h */

#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>

enum { PETRA_RUN_H5_MAX_COLUMNS = 12, PETRA_COLUMN_RANK = 3 };

typedef enum petra_column_type {
  PETRA_COLUMN_I32,
  PETRA_COLUMN_I64,
  PETRA_COLUMN_F64,
  PETRA_COLUMN_TEXT
} petra_column_type;

/* Dimensions of data sets. The indices of some dimensions have names, which an attribute of the data set lists. */
typedef enum petra_dimension {
  PETRA_DIMENSION_NONE, /* after the last dimension of a column */
  PETRA_DIMENSION_MICROBATCH,
  PETRA_DIMENSION_EPOCH,
  PETRA_DIMENSION_ACTION,
  PETRA_DIMENSION_PROBE,
  PETRA_DIMENSION_PARAMETER,
  PETRA_DIMENSION_BIN,
  PETRA_DIMENSION_STAGE,
  PETRA_DIMENSION_RANK,
  PETRA_DIMENSION_CATEGORY,
  PETRA_DIMENSION_CATEGORY_TOTAL, /* the categories, then their total */
  PETRA_DIMENSION_BACKEND_PART,
  PETRA_DIMENSION_TIME_PART,
  PETRA_DIMENSION_SENT_PART,
  PETRA_DIMENSION_PATH_PART,
  PETRA_DIMENSION_FIGURE,
  PETRA_DIMENSIONS
} petra_dimension;

typedef struct petra_column {
  const char *name;
  petra_column_type type;
  const char *units;
  size_t offset; /* offset of the member in the structure of its table */
  const char *meaning;
  /* For tables that are written once, and for /probe after the probe's dimension: a member without dimensions is the
   * value itself. A member with dimensions points to the values, row-major; if it is NULL, the data set is not
   * written. */
  petra_dimension dimensions[PETRA_COLUMN_RANK];
  bool optional; /* NaN is not written */
} petra_column;

/* A table: a group of the file with a data set for each column. */
typedef struct petra_column_group {
  const char *name; /* name of the group in the file */
  /* dimension of the rows; NONE: the table is written once, and columns have their own dimensions */
  petra_dimension dimension;
  int chunk_rows;   /* rows in a chunk of each data set, and in the buffer */
  size_t row_bytes; /* size of the structure of a row */
  const petra_column *columns;
  int count;
} petra_column_group;

extern const petra_column_group petra_run_h5_train_group; /* rows are petra_run_h5_train */
/* Rows are petra_run_h5_epoch; tokens are never recalibrated. */
const petra_column_group *petra_run_h5_epoch_group(petra_sample_kind samples, bool recalibrates);
extern const petra_column_group petra_run_h5_action_group; /* rows are petra_trace_row */

/* The members of the compound /model/stages; rows are petra_stage_summary. Its chunk_rows is unused. */
extern const petra_column_group petra_run_h5_stage_group;

/* /probe: rows are petra_probe_row. MEASURE and PAIR in a name stand for each measure and each pair. */
extern const petra_column_group petra_run_h5_probe_group;
typedef struct petra_run_h5_parameter {
  char name[64]; /* "02/conv1/weight", as in weights.h5 */
  int32_t stage; /* from 1 */
  int32_t zero;  /* 1: its gradient is 0 in exact arithmetic */
} petra_run_h5_parameter;
extern const petra_column_group petra_run_h5_parameter_group; /* rows are petra_run_h5_parameter */

/* Tables that are written once; their structures are here and in run_h5.h. */
typedef struct petra_run_h5_peaks {
  const int64_t *peak_bytes, *total_peak_bytes; /* (J, category), (J) */
} petra_run_h5_peaks;
typedef struct petra_run_h5_ranks_table {
  const int32_t *of_stage, *replica;
  const int64_t *time_ns, *sent; /* (R, PETRA_RUN_H5_RANK_TIMES), (R, PETRA_RUN_H5_RANK_SENT) */
} petra_run_h5_ranks_table;
extern const petra_column_group petra_run_h5_local_group;       /* petra_run_h5_local */
extern const petra_column_group petra_run_h5_memory_group;      /* petra_run_h5_peaks */
extern const petra_column_group petra_run_h5_backend_group;     /* const petra_backend_memory * */
extern const petra_column_group petra_run_h5_memory_time_group; /* petra_run_h5_memory_time */
extern const petra_column_group petra_run_h5_probe_peak_group;  /* const int64_t *, of the categories */
extern const petra_column_group petra_run_h5_ranks_group;       /* petra_run_h5_ranks_table */
extern const petra_column_group petra_run_h5_simulate_group;    /* petra_run_h5_simulation */
extern const petra_column_group petra_run_h5_pace_group;        /* petra_run_h5_pace */

/* The name of a dimension in the file, and the names of its indices, which the attribute `legend` lists. */
typedef struct petra_dimension_facts {
  const char *name;
  const char *legend; /* NULL: indices have no names */
  const char *const *places;
  int count; /* 0: depends on the run */
} petra_dimension_facts;
extern const petra_dimension_facts petra_dimension_table[PETRA_DIMENSIONS];

/* Counts the dimensions of a column, without the dimension of the rows. */
int petra_column_rank(const petra_column *column);

/* Returns the value of a column of reals in a row. */
double petra_column_real(const petra_column *column, const void *row);

/* Prints all tables for docs/hdf5-schema.md, in Markdown. */
void petra_run_h5_print_tables(FILE *out);

/* Return HDF5's type of a column that is not TEXT, in memory or in a file. HDF5 owns the type. */
int64_t petra_column_memory_type(petra_column_type type);
int64_t petra_column_file_type(petra_column_type type);

/* --- declarations that the files run_h5*.c share --- */

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
  double interval_s, flushed_s, row_s; /* flush interval, time of the last flush, time of the last row */
};

/* Lets `write` add objects of about `bytes` bytes in total to the open file, and flushes. `write` returns false if HDF5
 * failed; NULL: nothing is added. PETRA_IO as for the functions of run_h5.h. */
petra_status petra_run_h5_extend(petra_run_h5 *log, bool (*write)(petra_run_h5 *log, const void *what),
                                 const void *what, int64_t bytes);

/* A table that is written once. */
typedef struct petra_table_writing {
  const petra_column_group *group;
  const void *values;                /* the structure of the table */
  int64_t extents[PETRA_DIMENSIONS]; /* extents of the dimensions that depend on the run */
  /* An additional attribute of column `noted`: a list of `text_count` texts, or a single text if `text_count` is
   * negative. NULL: there is no such attribute. */
  const char *noted, *attribute;
  const char *const *texts;
  int text_count;
} petra_table_writing;
petra_status petra_run_h5_put_table(petra_run_h5 *log, const petra_table_writing *table);
