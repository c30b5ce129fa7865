/* SPDX-License-Identifier: Apache-2.0 */
/* What tables an HDF5 file of petra has, found by what its data sets say of themselves: DIMENSION_LABELS, units and names of their
 * last dimension's places. Private to src/io/csv_*. */
#ifndef PETRA_RECORD_CSV_TABLE_H
#define PETRA_RECORD_CSV_TABLE_H

#include "io/hdf5_file.h"

enum { PETRA_CSV_RANK = 3, PETRA_CSV_NAME = 192 };

typedef enum petra_csv_kind { PETRA_CSV_INTEGER, PETRA_CSV_REAL, PETRA_CSV_TEXT } petra_csv_kind;

typedef struct petra_csv_texts {
  char **text;
  int count;
} petra_csv_texts;

/* A data set, or a member of a compound one: one column, or `places.count` of them where its last dimension's places have names. */
typedef struct petra_csv_field {
  char path[PETRA_CSV_NAME], member[PETRA_CSV_NAME]; /* member "": the data set itself */
  char name[PETRA_CSV_NAME], units[PETRA_CSV_NAME];
  petra_csv_kind kind;
  size_t bytes;           /* of a value in memory: 8, or those of a text */
  petra_csv_texts places; /* columns that it makes; none: one */
  petra_csv_texts values; /* names of its values, integers from 0; none: numbers */
} petra_csv_field;

/* All fields of the same group and dimensions, those with named places left out. */
typedef struct petra_csv_table {
  char name[PETRA_CSV_NAME]; /* "train_by_microbatch" */
  int rank;
  char dimension[PETRA_CSV_RANK][PETRA_CSV_NAME];
  int64_t extent[PETRA_CSV_RANK]; /* the first one: that of the shortest field, since a run may be writing them now */
  petra_csv_field *field;
  int64_t count, capacity;
} petra_csv_table;

typedef struct petra_csv_tables {
  petra_csv_table *table;
  int64_t count, capacity;
} petra_csv_tables;

/* petra_csv_tables_fini is due whatever comes back. Data sets of another type or of more dimensions (tensors) are passed over.
 * PETRA_DATA: a data set that does not say what its dimensions are, or does not fit the others of its table. */
petra_status petra_csv_scan(const petra_hdf5_file *file, petra_csv_tables *out);
void petra_csv_tables_fini(petra_csv_tables *tables);

#endif
