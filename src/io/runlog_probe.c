#include "io/runlog_probe.h"

#include "base/log.h"
#include "base/mem.h"
#include "io/hdf5_file.h"
#include "io/runlog_private.h"

#include <hdf5.h>

#include <math.h>
#include <stdio.h>
#include <string.h>

enum {
  CHUNK_BYTES = 16 * 1024, /* of figures: about 15 rows an epoch come in, of some hundred values */
  CHUNK_ROWS = 64,
  INDEX_BYTES = 40 * 1024, /* two nodes of a data set's index (hdf5_file.h: up to 257 keys each), and its header */
  RANK = 5
};

/* A data set of one row a probe. */
typedef struct set {
  hid_t id;
  int rank;             /* the probe's dimension first */
  hsize_t extent[RANK]; /* of one row */
  hid_t type;           /* in memory */
} set;

struct petra_runlog_probe {
  petra_runlog *log;
  petra_runlog_probe_options options;
  set *sets; /* in the order in which write_row goes through them */
  int count;
  hsize_t rows;
  int64_t row_bytes; /* the most that a row adds to the file */
  double *values;    /* of one raw gradient */
  char *names;       /* the table of parameters */
  int32_t *stages, *zeros;
};

static const char *const probe_dimension = "probe";

/* --- creation --- */

static hid_t properties(const set *s, int chunk_rows, bool real, bool compressed) {
  hid_t list = petra_hdf5_untimed(H5P_DATASET_CREATE);
  hsize_t chunk[RANK];
  double no_real = NAN;
  int32_t no_integer = -1;
  memcpy(chunk, s->extent, sizeof chunk);
  chunk[0] = (hsize_t)chunk_rows;
  if (list < 0)
    return -1;
  bool done =
      H5Pset_chunk(list, s->rank, chunk) >= 0 && H5Pset_fill_value(list, real ? H5T_NATIVE_DOUBLE : H5T_NATIVE_INT32,
                                                                   real ? (void *)&no_real : (void *)&no_integer) >= 0;
  if (compressed && H5Zfilter_avail(H5Z_FILTER_DEFLATE) > 0)
    done = done && H5Pset_shuffle(list) >= 0 && H5Pset_deflate(list, 4) >= 0;
  else if (!compressed)
    done = done && H5Pset_alloc_time(list, H5D_ALLOC_TIME_EARLY) >= 0;
  if (done)
    return list;
  H5Pclose(list);
  return -1;
}

/* The rows of a data set that is there already: as many as in every other. */
static bool count_rows(petra_runlog_probe *probe, const set *s) {
  hsize_t extent[H5S_MAX_RANK];
  hid_t space = H5Dget_space(s->id);
  bool same = space >= 0 && H5Sget_simple_extent_dims(space, extent, NULL) == s->rank;
  for (int d = 1; d < s->rank && same; d++)
    same = extent[d] == s->extent[d];
  if (space >= 0)
    H5Sclose(space);
  if (!same || (probe->count > 1 && extent[0] != probe->rows))
    return false;
  probe->rows = extent[0];
  return true;
}

/* Appends a data set to the list; `dimensions` without the probe's. One row is allocated and taken back, as
 * in runlog_columns.c: a reader is not to find a data set whose index is still on its way. */
static bool create_set(petra_runlog_probe *probe, hid_t file, const char *name, hid_t type, hid_t memory, int rank,
                       const int32_t *shape, const char *const *dimensions, const char *units, bool compressed) {
  set *s = &probe->sets[probe->count];
  const char *labels[RANK] = {probe_dimension};
  hsize_t most[RANK], none[RANK], row_bytes = H5Tget_size(type);
  *s = (set){.rank = rank + 1, .extent = {1}, .type = memory};
  for (int d = 0; d < rank; d++) {
    s->extent[d + 1] = (hsize_t)shape[d];
    labels[d + 1] = dimensions[d];
    row_bytes *= s->extent[d + 1];
  }
  memcpy(most, s->extent, sizeof most);
  memcpy(none, s->extent, sizeof none);
  most[0] = H5S_UNLIMITED;
  none[0] = 0;
  hsize_t rows = compressed ? 1 : CHUNK_BYTES / row_bytes;
  rows = rows < 1 ? 1 : rows > CHUNK_ROWS ? CHUNK_ROWS : rows;
  bool real = H5Tget_class(type) == H5T_FLOAT;
  if (probe->options.resumed)
    s->id = H5Dopen2(file, name, H5P_DEFAULT);
  else
    s->id = petra_hdf5_create_set(file, name, type, H5Screate_simple(s->rank, s->extent, most),
                                  properties(s, (int)rows, real, compressed), units, labels, s->rank);
  if (s->id < 0)
    return false;
  probe->count++;
  probe->row_bytes += (int64_t)(2 * rows * row_bytes) + INDEX_BYTES;
  return probe->options.resumed ? count_rows(probe, s) : H5Dset_extent(s->id, none) >= 0;
}

static bool create_figure(petra_runlog_probe *probe, hid_t file, const char *format, const char *measure,
                          const char *pair, int32_t columns, const char *dimension) {
  char name[128];
  snprintf(name, sizeof name, format, measure, pair);
  return create_set(probe, file, name, H5T_IEEE_F64LE, H5T_NATIVE_DOUBLE, 1, &columns, &dimension, "1", false);
}

static bool create_figures(petra_runlog_probe *probe, hid_t file) {
  const petra_runlog_probe_options *o = &probe->options;
  bool done = create_set(probe, file, "probe/microbatch", H5T_STD_I64LE, H5T_NATIVE_INT64, 0, NULL, NULL, "1", false) &&
              create_set(probe, file, "probe/epoch", H5T_STD_I32LE, H5T_NATIVE_INT32, 0, NULL, NULL, "1", false);
  for (int m = 0; m < o->measure_count && done; m++)
    for (int p = 0; p < o->pair_count && done; p++)
      done = create_figure(probe, file, "probe/%s/%s", o->measures[m], o->pairs[p], o->stages, "stage");
  for (int p = 0; p < o->pair_count && done; p++)
    done = create_figure(probe, file, "probe/%s/%s", "concatenated_cosine", o->pairs[p], o->stages, "stage");
  done = done && create_figure(probe, file, "probe/%s%s", "reconstruction_error", "", o->stages, "stage");
  for (int m = 0; m < o->measure_count && done; m++)
    for (int p = 0; p < o->pair_count && done; p++)
      done =
          create_figure(probe, file, "probe/parameter/%s/%s", o->measures[m], o->pairs[p], o->parameters, "parameter");
  return done;
}

static bool create_gradients(petra_runlog_probe *probe, hid_t file) {
  const petra_runlog_probe_options *o = &probe->options;
  bool done = true;
  for (int g = 0; g < o->gradient_count; g++)
    for (int32_t p = 0; p < o->parameters && done; p++) {
      const petra_runlog_parameter *parameter = &o->parameter[p];
      char name[128];
      snprintf(name, sizeof name, "probe/gradients/%s/%s", o->gradients[g], parameter->name);
      done = create_set(probe, file, name, o->single ? H5T_IEEE_F32LE : H5T_IEEE_F64LE, H5T_NATIVE_DOUBLE,
                        parameter->rank, parameter->shape, parameter->dimensions, "nat", true);
    }
  return done;
}

/* A list of one value a parameter, written once. */
static bool write_list(hid_t file, const char *name, hid_t in_file, hid_t in_memory, int32_t count,
                       const void *values) {
  static const char *const dimension = "parameter";
  hsize_t extent = (hsize_t)count;
  hid_t id = petra_hdf5_create_set(file, name, in_file, H5Screate_simple(1, &extent, NULL),
                                   petra_hdf5_untimed(H5P_DATASET_CREATE), "1", &dimension, 1);
  if (id < 0)
    return false;
  bool done = H5Dwrite(id, in_memory, H5S_ALL, H5S_ALL, H5P_DEFAULT, values) >= 0;
  return H5Dclose(id) >= 0 && done;
}

/* The table of parameters: what the columns of /probe/parameter are. */
static petra_status list_parameters(petra_runlog_probe *probe) {
  const petra_runlog_probe_options *o = &probe->options;
  const size_t length = sizeof o->parameter->name, count = (size_t)o->parameters;
  PETRA_TRY(petra_allocate(&probe->names, count, length));
  PETRA_TRY(petra_allocate(&probe->stages, count, sizeof *probe->stages));
  PETRA_TRY(petra_allocate(&probe->zeros, count, sizeof *probe->zeros));
  for (int32_t p = 0; p < o->parameters; p++) {
    memcpy(probe->names + (size_t)p * length, o->parameter[p].name, strlen(o->parameter[p].name));
    probe->stages[p] = o->parameter[p].stage;
    probe->zeros[p] = o->parameter[p].zero;
  }
  return PETRA_OK;
}

static bool write_parameters(const petra_runlog_probe *probe, hid_t file) {
  const int32_t count = probe->options.parameters;
  hid_t text = H5Tcopy(H5T_C_S1);
  bool done = text >= 0 && H5Tset_size(text, sizeof probe->options.parameter->name) >= 0 &&
              H5Tset_strpad(text, H5T_STR_NULLPAD) >= 0 &&
              write_list(file, "probe/parameter/name", text, text, count, probe->names) &&
              write_list(file, "probe/parameter/stage", H5T_STD_I32LE, H5T_NATIVE_INT32, count, probe->stages) &&
              write_list(file, "probe/parameter/zero", H5T_STD_I32LE, H5T_NATIVE_INT32, count, probe->zeros);
  if (text >= 0)
    H5Tclose(text);
  return done;
}

static bool create(int64_t file, const void *what) {
  petra_runlog_probe *probe = *(petra_runlog_probe *const *)what;
  return create_figures(probe, file) && create_gradients(probe, file) &&
         (probe->options.resumed || write_parameters(probe, file));
}

static size_t largest(const petra_runlog_probe_options *o) {
  size_t most = 1;
  for (int32_t p = 0; p < o->parameters; p++) {
    size_t elements = 1;
    for (int d = 0; d < o->parameter[p].rank; d++)
      elements *= (size_t)o->parameter[p].shape[d];
    most = elements > most ? elements : most;
  }
  return most;
}

petra_status petra_runlog_probe_create(petra_runlog *log, const petra_runlog_probe_options *options,
                                       petra_runlog_probe **out) {
  const size_t figures = 3 + (size_t)options->pair_count * (2 * (size_t)options->measure_count + 1);
  const size_t count = figures + (size_t)options->gradient_count * (size_t)options->parameters;
  petra_runlog_probe *probe;
  petra_status status;
  PETRA_TRY(petra_allocate(&probe, 1, sizeof *probe));
  probe->log = log;
  probe->options = *options;
  PETRA_TRY_GOTO(status, petra_allocate(&probe->sets, count, sizeof *probe->sets), fail);
  PETRA_TRY_GOTO(status, list_parameters(probe), fail);
  if (options->gradient_count > 0)
    PETRA_TRY_GOTO(status, petra_allocate(&probe->values, largest(options), sizeof *probe->values), fail);
  PETRA_TRY_GOTO(status, petra_runlog_extend(log, create, &probe, (int64_t)count * INDEX_BYTES), fail);
  *out = probe;
  return PETRA_OK;
fail:
  petra_runlog_probe_destroy(probe);
  return status;
}

void petra_runlog_probe_destroy(petra_runlog_probe *probe) {
  if (!probe)
    return;
  petra_free(probe->zeros);
  petra_free(probe->stages);
  petra_free(probe->names);
  petra_free(probe->values);
  petra_free(probe->sets);
  petra_free(probe);
}

/* --- rows --- */

static bool append(const petra_runlog_probe *probe, int index, const void *values) {
  const set *s = &probe->sets[index];
  hsize_t extent[RANK], start[RANK] = {probe->rows};
  memcpy(extent, s->extent, sizeof extent);
  extent[0] = probe->rows + 1;
  if (H5Dset_extent(s->id, extent) < 0)
    return false;
  hid_t memory = H5Screate_simple(s->rank, s->extent, NULL), space = H5Dget_space(s->id);
  bool done = memory >= 0 && space >= 0 &&
              H5Sselect_hyperslab(space, H5S_SELECT_SET, start, NULL, s->extent, NULL) >= 0 &&
              H5Dwrite(s->id, s->type, memory, space, H5P_DEFAULT, values) >= 0;
  if (memory >= 0)
    H5Sclose(memory);
  if (space >= 0)
    H5Sclose(space);
  return done;
}

/* What write_row is given and gives back. */
typedef struct writing {
  petra_runlog_probe *probe;
  const petra_runlog_probe_row *row;
  petra_status *fetched;
} writing;

/* Figures of `groups` groups, `columns` values each. */
static bool append_figures(const petra_runlog_probe *probe, int *index, const double *values, int groups,
                           int32_t columns) {
  bool done = true;
  for (int g = 0; g < groups && done; g++)
    done = append(probe, (*index)++, values + (size_t)g * (size_t)columns);
  return done;
}

static bool write_row(int64_t file, const void *what) {
  const writing *w = what;
  petra_runlog_probe *probe = w->probe;
  const petra_runlog_probe_options *o = &probe->options;
  const petra_runlog_probe_row *row = w->row;
  const int groups = o->measure_count * o->pair_count;
  int index = 0;
  (void)file;
  bool done = append(probe, index++, &row->microbatch) && append(probe, index++, &row->epoch) &&
              append_figures(probe, &index, row->stage, groups, o->stages) &&
              append_figures(probe, &index, row->concatenated, o->pair_count, o->stages) &&
              append_figures(probe, &index, row->reconstruction, 1, o->stages) &&
              append_figures(probe, &index, row->parameter, groups, o->parameters);
  for (int g = 0; g < o->gradient_count; g++)
    for (int32_t p = 0; p < o->parameters && done && *w->fetched == PETRA_OK; p++) {
      *w->fetched = row->fetch(row->context, g, p, probe->values);
      if (*w->fetched == PETRA_OK)
        done = append(probe, index++, probe->values);
    }
  probe->rows++;
  return done;
}

petra_status petra_runlog_probe_append(petra_runlog_probe *probe, const petra_runlog_probe_row *row) {
  petra_status fetched = PETRA_OK;
  const writing w = {probe, row, &fetched};
  PETRA_TRY(petra_runlog_extend(probe->log, write_row, &w, probe->row_bytes));
  return fetched;
}

/* --- memory --- */

static bool write_memory(int64_t file, const void *what) {
  static const char *const dimension = "category";
  const petra_account *account = what;
  const char *categories[PETRA_MEMORY_CATEGORIES];
  hsize_t extent = PETRA_MEMORY_CATEGORIES;
  for (int c = 0; c < PETRA_MEMORY_CATEGORIES; c++)
    categories[c] = petra_memory_category_name((petra_memory_category)c);
  hid_t id = petra_hdf5_create_set(file, "probe/peak_bytes", H5T_STD_I64LE, H5Screate_simple(1, &extent, NULL),
                                   petra_hdf5_untimed(H5P_DATASET_CREATE), "byte", &dimension, 1);
  if (id < 0)
    return false;
  bool done = H5Dwrite(id, H5T_NATIVE_INT64, H5S_ALL, H5S_ALL, H5P_DEFAULT, account->peak_bytes) >= 0 &&
              petra_hdf5_put_texts(id, "categories", categories, PETRA_MEMORY_CATEGORIES) >= 0;
  return H5Dclose(id) >= 0 && done;
}

petra_status petra_runlog_probe_memory(petra_runlog_probe *probe, const petra_account *account) {
  return petra_runlog_extend(probe->log, write_memory, account, INDEX_BYTES);
}
