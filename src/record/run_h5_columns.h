/* SPDX-License-Identifier: Apache-2.0 */
/* The tables of run.h5: name, type, unit, dimensions and meaning of each column, once. By them the file is created, written and
 * read, epochs are printed, and docs/hdf5-schema.md is made. */
#pragma once

#include "record/run_h5.h" /* circle: columns are members of the rows that it is given */

#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>

enum { PETRA_RUNLOG_SCHEMA_VERSION = 1, PETRA_RUNLOG_MAX_COLUMNS = 12, PETRA_COLUMN_RANK = 3 };

typedef enum petra_column_type {
  PETRA_COLUMN_I32,
  PETRA_COLUMN_I64,
  PETRA_COLUMN_F64,
  PETRA_COLUMN_TEXT
} petra_column_type;

/* Dimensions of data sets. The places of some have names, which an attribute of the data set lists. */
typedef enum petra_dimension {
  PETRA_DIMENSION_NONE, /* behind the last dimension of a column */
  PETRA_DIMENSION_MICROBATCH,
  PETRA_DIMENSION_EPOCH,
  PETRA_DIMENSION_ACTION,
  PETRA_DIMENSION_PROBE,
  PETRA_DIMENSION_PARAMETER,
  PETRA_DIMENSION_BIN,
  PETRA_DIMENSION_STAGE,
  PETRA_DIMENSION_RANK,
  PETRA_DIMENSION_CATEGORY,
  PETRA_DIMENSION_CATEGORY_TOTAL, /* the categories and their total */
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
  size_t offset; /* of the member in the structure of its table */
  const char *meaning;
  /* Of tables that are written once, and of /probe behind the probe: a member without dimensions is the value, any other points to
   * the values, row-major; NULL: the data set is not written. */
  petra_dimension dimensions[PETRA_COLUMN_RANK];
  bool may_lack; /* a value that is NaN is not written */
  /* What petra inspect prints of it: title, factor, decimals (below 0: so many significant digits). NULL: nothing. */
  const char *title;
  double scale;
  int decimals;
} petra_column;

/* A table: a group of the file with a data set for each column. */
typedef struct petra_column_group {
  const char *name; /* of the group in the file */
  petra_dimension
      dimension;    /* what one row is; NONE: the table is written once, and columns have their own dimensions */
  int chunk_rows;   /* rows in a chunk of each data set, and in the buffer */
  size_t row_bytes; /* of the structure of a row */
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

/* /probe: rows are petra_runlog_probe_row. MEASURE and PAIR in a name stand for each measure and each pair. */
extern const petra_column_group petra_runlog_probe_group;
extern const petra_column_group petra_runlog_parameter_group; /* rows are petra_runlog_parameter */

/* Tables that are written once; their structures are here and in run_h5.h. */
typedef struct petra_runlog_peaks {
  const int64_t *peak_bytes, *total_peak_bytes; /* (J, category), (J) */
} petra_runlog_peaks;
typedef struct petra_runlog_ranks_table {
  const int32_t *of_stage, *replica;
  const int64_t *time_ns, *sent; /* (R, PETRA_RUNLOG_RANK_TIMES), (R, PETRA_RUNLOG_RANK_SENT) */
} petra_runlog_ranks_table;
typedef struct petra_runlog_pace_table {
  const double *microbatch_s, *stage_s, *busy; /* (figure), (J, figure), (R, figure) */
} petra_runlog_pace_table;
extern const petra_column_group petra_runlog_memory_group;      /* petra_runlog_peaks */
extern const petra_column_group petra_runlog_backend_group;     /* const petra_runlog_backend * */
extern const petra_column_group petra_runlog_memory_time_group; /* petra_runlog_memory_time */
extern const petra_column_group petra_runlog_probe_peak_group;  /* const int64_t *, of the categories */
extern const petra_column_group petra_runlog_ranks_group;       /* petra_runlog_ranks_table */
extern const petra_column_group petra_runlog_simulate_group;    /* petra_runlog_simulation */
extern const petra_column_group petra_runlog_pace_group;        /* petra_runlog_pace_table */

/* What a dimension is called in the file, and the names of its places: `legend` is the attribute that lists them. */
typedef struct petra_dimension_facts {
  const char *name;
  const char *legend; /* NULL: the places are numbers */
  const char *const *places;
  int count; /* 0: as many as the run has */
} petra_dimension_facts;
extern const petra_dimension_facts petra_dimension_table[PETRA_DIMENSIONS];

/* What the figures of the categories of memory are of; their total behind them. */
extern const char *const petra_runlog_categories[PETRA_MEMORY_CATEGORIES + 1];

/* How many dimensions a column has, without that of the rows. */
int petra_column_rank(const petra_column *column);

/* The value that a row has in a column of reals. */
double petra_column_real(const petra_column *column, const void *row);

/* Prints all tables for docs/hdf5-schema.md, in Markdown. */
void petra_runlog_print_tables(FILE *out);

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
