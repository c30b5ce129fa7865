/* SPDX-License-Identifier: Apache-2.0 */
#include "record/run_h5_probe.h"

#include "base/log.h"
#include "base/mem.h"
#include "io/hdf5_file.h"
#include "record/run_h5_private.h"

#include <hdf5.h>

#include <stddef.h>
#include <stdio.h>
#include <string.h>

enum {
  CHUNK_BYTES = 16 * 1024, /* of figures: about 15 rows per epoch, of some hundred values */
  CHUNK_ROWS = 64,
  INDEX_BYTES = 40 * 1024, /* two nodes of a data set's index (hdf5_file.h: up to 257 keys each), and its header */
};

/* A data set with one row per probe. */
typedef struct set {
  hid_t id;
  int rank;                        /* the probe's dimension first */
  int64_t extent[PETRA_HDF5_RANK]; /* of one row */
  hid_t type;                      /* in memory */
} set;

struct petra_run_h5_probe {
  petra_run_h5 *log;
  petra_run_h5_probe_options options;
  set *sets; /* in the order of write_row */
  int count;
  int64_t rows;
  int64_t row_bytes; /* maximum that a row adds to the file */
  double *values;    /* of one raw gradient */
  char *members;     /* one of all parameters */
};

/* --- creation --- */

/* Returns the rows of a data set that exists: as many as in every other one. */
static bool count_rows(petra_run_h5_probe *probe, const set *s, int class) {
  int64_t extent[PETRA_HDF5_RANK];
  if (!petra_hdf5_extent(s->id, class, s->rank, extent) ||
      memcmp(extent + 1, s->extent + 1, (size_t)(s->rank - 1) * sizeof *extent) != 0 ||
      (probe->count > 1 && extent[0] != probe->rows))
    return false;
  probe->rows = extent[0];
  return true;
}

/* Appends a data set to the list; `dimensions` without the probe's. */
static bool create_set(petra_run_h5_probe *probe, const char *name, hid_t type, hid_t memory, int rank,
                       const int32_t *shape, const char *const *dimensions, const char *units, bool compressed) {
  set *s = &probe->sets[probe->count];
  const char *labels[PETRA_HDF5_RANK] = {"probe"};
  petra_hdf5_set made = {
      .name = name, .type = type, .rank = rank + 1, .extent = {1}, .units = units, .dimensions = labels};
  int64_t row_bytes = (int64_t)H5Tget_size(type);
  for (int d = 0; d < rank; d++) {
    made.extent[d + 1] = shape[d];
    labels[d + 1] = dimensions[d];
    row_bytes *= shape[d];
  }
  int64_t rows = compressed ? 1 : CHUNK_BYTES / row_bytes;
  rows = rows < 1 ? 1 : rows > CHUNK_ROWS ? CHUNK_ROWS : rows;
  *s = (set){.rank = made.rank, .type = memory};
  memcpy(s->extent, made.extent, sizeof s->extent);
  s->id = probe->options.resumed ? H5Dopen2(probe->log->file, name, H5P_DEFAULT)
                                 : petra_hdf5_create_growing(probe->log->file, &made, (int)rows, compressed);
  if (s->id < 0)
    return false;
  probe->count++;
  probe->row_bytes += 2 * rows * row_bytes + INDEX_BYTES;
  return !probe->options.resumed || count_rows(probe, s, H5Tget_class(type));
}

/* Returns the numbers of measures and pairs for which a column has data sets. */
static int measures_of(const petra_run_h5_probe_options *o, const petra_column *column) {
  return strstr(column->name, "MEASURE") ? o->measure_count : 1;
}

static int pairs_of(const petra_run_h5_probe_options *o, const petra_column *column) {
  return strstr(column->name, "PAIR") ? o->pair_count : 1;
}

/* "probe/cosine/method_delayed" of "MEASURE/PAIR". */
static void name_figure(char name[128], const char *pattern, const char *measure, const char *pair) {
  size_t used = (size_t)snprintf(name, 128, "probe/");
  while (*pattern && used < 128) {
    const bool is_measure = strncmp(pattern, "MEASURE", 7) == 0, is_pair = strncmp(pattern, "PAIR", 4) == 0;
    used += (size_t)snprintf(name + used, 128 - used, "%.*s", is_measure || is_pair ? 64 : 1,
                             is_measure ? measure
                             : is_pair  ? pair
                                        : pattern);
    pattern += is_measure ? 7 : is_pair ? 4 : 1;
  }
}

/* Returns the number of values in a row of a data set of the column. */
static int32_t places_of(const petra_run_h5_probe_options *o, const petra_column *column) {
  return column->dimensions[0] == PETRA_DIMENSION_STAGE ? o->stages : o->parameters;
}

static bool create_figures(petra_run_h5_probe *probe) {
  const petra_run_h5_probe_options *o = &probe->options;
  bool done = true;
  for (int c = 0; c < petra_run_h5_probe_group.count; c++) {
    const petra_column *column = &petra_run_h5_probe_group.columns[c];
    const int32_t places = places_of(o, column);
    const int rank = petra_column_rank(column);
    for (int m = 0; m < measures_of(o, column); m++)
      for (int p = 0; p < pairs_of(o, column) && done; p++) {
        char name[128];
        name_figure(name, column->name, o->measures[m], o->pairs[p]);
        done = create_set(probe, name, petra_column_file_type(column->type), petra_column_memory_type(column->type),
                          rank, &places, &petra_dimension_table[column->dimensions[0]].name, column->units, false);
      }
  }
  return done;
}

static bool create_gradients(petra_run_h5_probe *probe) {
  const petra_run_h5_probe_options *o = &probe->options;
  bool done = true;
  for (int g = 0; g < o->gradient_count; g++)
    for (int32_t p = 0; p < o->parameters && done; p++) {
      const petra_run_h5_parameter *parameter = &o->parameter[p];
      char name[128];
      snprintf(name, sizeof name, "probe/gradients/%s/%s", o->gradients[g], parameter->name);
      done = create_set(probe, name, o->single ? H5T_IEEE_F32LE : H5T_IEEE_F64LE, H5T_NATIVE_DOUBLE, parameter->rank,
                        parameter->shape, parameter->dimensions, "nat", true);
    }
  return done;
}

/* Writes the table of parameters, to which the columns of /probe/parameter refer. */
static bool write_parameters(const petra_run_h5_probe *probe) {
  const petra_column_group *group = &petra_run_h5_parameter_group;
  const int32_t count = probe->options.parameters;
  bool done = true;
  for (int c = 0; c < group->count && done; c++) {
    const petra_column *column = &group->columns[c];
    const bool text = column->type == PETRA_COLUMN_TEXT;
    hid_t type = H5Tcopy(text ? H5T_C_S1 : petra_column_file_type(column->type));
    const size_t bytes = text ? sizeof probe->options.parameter->name : petra_column_bytes(column->type);
    char name[64];
    snprintf(name, sizeof name, "%s/%s", group->name, column->name);
    const petra_hdf5_set made = {.name = name,
                                 .type = type,
                                 .rank = 1,
                                 .extent = {count},
                                 .values = probe->members,
                                 .units = column->units,
                                 .dimensions = &petra_dimension_table[group->dimension].name};
    for (int32_t p = 0; p < count; p++)
      memcpy(probe->members + (size_t)p * bytes, (const char *)&probe->options.parameter[p] + column->offset, bytes);
    done = (!text || (H5Tset_size(type, bytes) >= 0 && H5Tset_strpad(type, H5T_STR_NULLPAD) >= 0)) &&
           petra_hdf5_put_set(probe->log->file, &made);
    H5Tclose(type);
  }
  return done;
}

static bool create(petra_run_h5 *log, const void *what) {
  petra_run_h5_probe *probe = *(petra_run_h5_probe *const *)what;
  (void)log;
  return create_figures(probe) && create_gradients(probe) && (probe->options.resumed || write_parameters(probe));
}

static size_t largest(const petra_run_h5_probe_options *o) {
  size_t maximum = 1;
  for (int32_t p = 0; p < o->parameters; p++) {
    size_t elements = 1;
    for (int d = 0; d < o->parameter[p].rank; d++)
      elements *= (size_t)o->parameter[p].shape[d];
    maximum = elements > maximum ? elements : maximum;
  }
  return maximum;
}

petra_status petra_run_h5_probe_create(petra_run_h5 *log, const petra_run_h5_probe_options *options,
                                       petra_run_h5_probe **out) {
  const size_t figures = 3 + (size_t)options->pair_count * (2 * (size_t)options->measure_count + 1);
  const size_t count = figures + (size_t)options->gradient_count * (size_t)options->parameters;
  petra_run_h5_probe *probe;
  petra_status status;
  PETRA_TRY(petra_allocate(&probe, 1, sizeof *probe));
  probe->log = log;
  probe->options = *options;
  PETRA_TRY_GOTO(status, petra_allocate(&probe->sets, count, sizeof *probe->sets), fail);
  PETRA_TRY_GOTO(status, petra_allocate(&probe->members, (size_t)options->parameters, sizeof options->parameter->name),
                 fail);
  if (options->gradient_count > 0)
    PETRA_TRY_GOTO(status, petra_allocate(&probe->values, largest(options), sizeof *probe->values), fail);
  PETRA_TRY_GOTO(status, petra_run_h5_extend(log, create, &probe, (int64_t)count * INDEX_BYTES), fail);
  *out = probe;
  return PETRA_OK;
fail:
  petra_run_h5_probe_destroy(probe);
  return status;
}

void petra_run_h5_probe_destroy(petra_run_h5_probe *probe) {
  if (!probe)
    return;
  petra_free(probe->members);
  petra_free(probe->values);
  petra_free(probe->sets);
  petra_free(probe);
}

/* --- rows --- */

static bool append(const petra_run_h5_probe *probe, int index, const void *values) {
  const set *s = &probe->sets[index];
  hsize_t extent[PETRA_HDF5_RANK] = {(hsize_t)probe->rows + 1};
  for (int d = 1; d < s->rank; d++)
    extent[d] = (hsize_t)s->extent[d];
  return H5Dset_extent(s->id, extent) >= 0 &&
         petra_hdf5_move_rows(s->id, s->type, probe->rows, s->rank, s->extent, NULL, values);
}

/* Arguments and result of write_row. */
typedef struct writing {
  petra_run_h5_probe *probe;
  const petra_run_h5_probe_row *row;
  petra_status *fetched;
} writing;

/* Appends the row's values to the data sets of a column: of each measure, of each pair. */
static bool append_column(const petra_run_h5_probe *probe, const petra_column *column, const void *row, int *index) {
  const petra_run_h5_probe_options *o = &probe->options;
  const char *values = (const char *)row + column->offset;
  bool done = true;
  if (petra_column_rank(column) > 0)
    memcpy(&values, values, sizeof values);
  for (int at = 0; at < measures_of(o, column) * pairs_of(o, column) && done; at++)
    done = append(probe, (*index)++, values + (size_t)at * (size_t)places_of(o, column) * sizeof(double));
  return done;
}

static bool write_row(petra_run_h5 *log, const void *what) {
  const writing *w = what;
  petra_run_h5_probe *probe = w->probe;
  const petra_run_h5_probe_options *o = &probe->options;
  const petra_run_h5_probe_row *row = w->row;
  int index = 0;
  bool done = true;
  (void)log;
  for (int c = 0; c < petra_run_h5_probe_group.count && done; c++)
    done = append_column(probe, &petra_run_h5_probe_group.columns[c], row, &index);
  for (int g = 0; g < o->gradient_count; g++)
    for (int32_t p = 0; p < o->parameters && done && *w->fetched == PETRA_OK; p++) {
      *w->fetched = row->fetch(row->context, g, p, probe->values);
      if (*w->fetched == PETRA_OK)
        done = append(probe, index++, probe->values);
    }
  probe->rows++;
  return done;
}

petra_status petra_run_h5_probe_append(petra_run_h5_probe *probe, const petra_run_h5_probe_row *row) {
  petra_status fetched = PETRA_OK;
  const writing w = {probe, row, &fetched};
  PETRA_TRY(petra_run_h5_extend(probe->log, write_row, &w, probe->row_bytes));
  return fetched;
}

int64_t petra_run_h5_probe_rows(const petra_run_h5_probe *probe) {
  return probe->rows;
}

/* --- memory --- */

petra_status petra_run_h5_probe_memory(petra_run_h5_probe *probe, const petra_account *account) {
  const int64_t *peaks = account->peak_bytes;
  return petra_run_h5_put_table(probe->log,
                                &(petra_table_writing){.group = &petra_run_h5_probe_peak_group, .values = &peaks});
}
