/* SPDX-License-Identifier: Apache-2.0 */
/* The columns of run.h5, once for the writer and the reader. Private to src/io; described in docs/hdf5-schema.md. */
#ifndef PETRA_RECORD_RUN_H5_SCHEMA_H
#define PETRA_RECORD_RUN_H5_SCHEMA_H

#include "record/run_h5.h" /* circle: columns are members of the rows that it is given */

#include <stdbool.h>
#include <stddef.h>

enum { PETRA_RUNLOG_SCHEMA_VERSION = 1, PETRA_RUNLOG_MAX_COLUMNS = 12 };

typedef enum petra_column_type {
  PETRA_COLUMN_I32,
  PETRA_COLUMN_I64,
  PETRA_COLUMN_F64,
  PETRA_COLUMN_TEXT
} petra_column_type;

typedef struct petra_column {
  const char *name;
  petra_column_type type;
  size_t offset; /* of the member in the row's structure */
  const char *units;
} petra_column;

/* A group of columns of equal length: one data set a column. */
typedef struct petra_column_group {
  const char *name;      /* of the group in the file */
  const char *dimension; /* what one row is */
  int chunk_rows;        /* rows in a chunk of each data set, and in the buffer */
  size_t row_bytes;      /* of the row's structure */
  const petra_column *columns;
  int count;
} petra_column_group;

extern const petra_column_group petra_runlog_train_group; /* rows are petra_runlog_train */
/* Rows are petra_runlog_epoch; there is no recalibration of tokens. */
const petra_column_group *petra_runlog_epoch_group(petra_sample_kind samples, bool recalibrates);
extern const petra_column_group petra_runlog_action_group; /* rows are petra_runlog_action */

/* The members of the compound /model/stages; rows are petra_runlog_stage. Its chunk_rows is unused. */
extern const petra_column_group petra_runlog_stage_group;
/* The unit of one of them in a run on such samples. */
const char *petra_runlog_stage_units(const petra_column *column, petra_sample_kind samples);

/* What the figures of the categories of memory are of; their total behind them. */
extern const char *const petra_runlog_categories[PETRA_MEMORY_CATEGORIES + 1];

/* Bytes of a value of this type (not TEXT) in memory. */
size_t petra_column_bytes(petra_column_type type);

/* HDF5's type, in memory or in a file, of a column that is not TEXT, which the library owns; and its class. */
int64_t petra_column_memory_type(petra_column_type type);
int64_t petra_column_file_type(petra_column_type type);
int petra_column_class(petra_column_type type);

/* The compound type of a row of /model/stages, its members in the order of the columns, `name_bytes` for the name. In
 * the file packed; in memory a petra_runlog_stage, whose pointer is passed over, with the name behind it. Negative on
 * failure; the caller closes it. */
int64_t petra_runlog_stage_type(size_t name_bytes, bool in_memory);

#endif
