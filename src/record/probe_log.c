/* SPDX-License-Identifier: Apache-2.0 */
#include "record/probe_log.h"

#include "backend/backend.h"
#include "base/mem.h"
#include "record/run_h5_columns.h"

#include <hdf5.h>

#include <stdio.h>
#include <string.h>

#define NAME(name, text, ...) text,
static const char *const gradient_names[] = {PETRA_GRADIENT_LIST(NAME)};
static const char *const pair_names[] = {PETRA_PAIR_LIST(NAME)};
static const char *const measure_names[] = {PETRA_MEASURE_LIST(NAME)};
#undef NAME
/* Names of the dimensions of a parameter, by its rank. */
static const char *const dimension_names[5][4] = {{0}, {"channel"}, {"out", "in"}, {0}, {"out", "in", "kh", "kw"}};

enum {
  CHUNK_BYTES = 16 * 1024, /* chunks of figures: about 15 rows per epoch, each with a few hundred values */
  CHUNK_ROWS = 64,
  INDEX_BYTES = 40 * 1024, /* two nodes of a data set's index (hdf5_file.h: up to 257 keys each), and its header */
};

/* A parameter tensor of the network: its row in the table of parameters, and its shape. */
typedef struct parameter {
  petra_run_h5_parameter row;
  petra_tensor_spec spec;
} parameter;

/* A data set with one row per probe. */
typedef struct set {
  hid_t id;
  int rank;                        /* the probe's dimension first */
  int64_t extent[PETRA_HDF5_RANK]; /* extents of one row */
  hid_t type;                      /* type in memory */
} set;

struct petra_probe_log {
  petra_run_h5 *log;
  const petra_network *network;
  parameter *parameters; /* parameters in the order of a row */
  int32_t parameter_count;
  int gradients; /* raw gradients that are logged: PETRA_GRADIENTS or 0 */
  bool resumed;
  set *sets; /* data sets in the order in which write_row writes them */
  int count;
  int64_t rows;
  int64_t row_bytes; /* maximum number of bytes that a row adds to the file */
  double *values;    /* the values of one raw gradient */
  char *members;     /* a column of the table of parameters */
};

/* --- creation --- */

/* Gets the number of rows of a data set that exists, which must be equal in all data sets. */
static bool count_rows(petra_probe_log *probe, const set *s, int class) {
  int64_t extent[PETRA_HDF5_RANK];
  if (!petra_hdf5_extent(s->id, class, s->rank, extent) ||
      memcmp(extent + 1, s->extent + 1, (size_t)(s->rank - 1) * sizeof *extent) != 0 ||
      (probe->count > 1 && extent[0] != probe->rows))
    return false;
  probe->rows = extent[0];
  return true;
}

/* Appends a data set to the list. `dimensions` does not include the dimension of the probes. */
static bool create_set(petra_probe_log *probe, const char *name, hid_t type, hid_t memory, int rank,
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
  s->id = probe->resumed ? H5Dopen2(probe->log->file, name, H5P_DEFAULT)
                         : petra_hdf5_create_growing(probe->log->file, &made, (int)rows, compressed);
  if (s->id < 0)
    return false;
  probe->count++;
  probe->row_bytes += 2 * rows * row_bytes + INDEX_BYTES;
  return !probe->resumed || count_rows(probe, s, H5Tget_class(type));
}

/* Returns the numbers of measures and pairs for which a column has data sets. */
static int measures_of(const petra_column *column) {
  return strstr(column->name, "MEASURE") ? PETRA_MEASURES : 1;
}

static int pairs_of(const petra_column *column) {
  return strstr(column->name, "PAIR") ? PETRA_PAIRS : 1;
}

/* Writes the name of a figure, such as "probe/cosine/method_delayed", by a pattern with MEASURE and PAIR. */
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
static int32_t values_of(const petra_probe_log *probe, const petra_column *column) {
  return column->dimensions[0] == PETRA_DIMENSION_STAGE ? probe->network->plan->partition.stages
                                                        : probe->parameter_count;
}

static bool create_figures(petra_probe_log *probe) {
  bool done = true;
  for (int c = 0; c < petra_run_h5_probe_group.count; c++) {
    const petra_column *column = &petra_run_h5_probe_group.columns[c];
    const int32_t values = values_of(probe, column);
    const int rank = petra_column_rank(column);
    for (int m = 0; m < measures_of(column); m++)
      for (int p = 0; p < pairs_of(column) && done; p++) {
        char name[128];
        name_figure(name, column->name, measure_names[m], pair_names[p]);
        done = create_set(probe, name, petra_column_file_type(column->type), petra_column_memory_type(column->type),
                          rank, &values, &petra_dimension_table[column->dimensions[0]].name, column->units, false);
      }
  }
  return done;
}

static bool create_gradients(petra_probe_log *probe) {
  const bool single = petra_plan_element_bytes(probe->network->plan, PETRA_TENSOR_FILTER) <= (int64_t)sizeof(float);
  bool done = true;
  for (int g = 0; g < probe->gradients; g++)
    for (int32_t p = 0; p < probe->parameter_count && done; p++) {
      const parameter *of = &probe->parameters[p];
      char name[128];
      snprintf(name, sizeof name, "probe/gradients/%s/%s", gradient_names[g], of->row.name);
      done = create_set(probe, name, single ? H5T_IEEE_F32LE : H5T_IEEE_F64LE, H5T_NATIVE_DOUBLE, of->spec.rank,
                        of->spec.shape, dimension_names[of->spec.rank], "nat", true);
    }
  return done;
}

/* Writes the table of parameters, to which the columns of /probe/parameter refer. */
static bool write_parameters(const petra_probe_log *probe) {
  const petra_column_group *group = &petra_run_h5_parameter_group;
  const int32_t count = probe->parameter_count;
  bool done = true;
  for (int c = 0; c < group->count && done; c++) {
    const petra_column *column = &group->columns[c];
    const bool text = column->type == PETRA_COLUMN_TEXT;
    PETRA_HDF5_CLOSED hid_t type = H5Tcopy(text ? H5T_C_S1 : petra_column_file_type(column->type));
    const size_t bytes = text ? sizeof probe->parameters->row.name : H5Tget_size(type);
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
      memcpy(probe->members + (size_t)p * bytes, (const char *)&probe->parameters[p].row + column->offset, bytes);
    done = (!text || (H5Tset_size(type, bytes) >= 0 && H5Tset_strpad(type, H5T_STR_NULLPAD) >= 0)) &&
           petra_hdf5_put_set(probe->log->file, &made);
  }
  return done;
}

static bool create(petra_run_h5 *log, const void *what) {
  petra_probe_log *probe = *(petra_probe_log *const *)what;
  (void)log;
  return create_figures(probe) && create_gradients(probe) && (probe->resumed || write_parameters(probe));
}

/* Describes the parameters of the network, in the order of a row. Returns the number of elements of the largest
 * parameter. */
static size_t describe_parameters(petra_probe_log *probe) {
  const petra_plan *plan = probe->network->plan;
  parameter *at = probe->parameters;
  size_t maximum = 1;
  for (int j = 0; j < plan->partition.stages; j++)
    for (int b = plan->partition.first[j]; b < plan->partition.first[j + 1]; b++)
      for (int i = 0; i < petra_block_parameter_count(&plan->model.blocks[b]); i++, at++) {
        const petra_block *block = &plan->model.blocks[b];
        size_t elements = 1;
        petra_block_parameter(&plan->model, block, i, &at->spec);
        at->row.stage = j + 1;
        at->row.zero = petra_block_parameter_is_invariant(&plan->model, block, i);
        snprintf(at->row.name, sizeof at->row.name, "%02d/%s", block->number, at->spec.name);
        for (int d = 0; d < at->spec.rank; d++)
          elements *= (size_t)at->spec.shape[d];
        maximum = elements > maximum ? elements : maximum;
      }
  return maximum;
}

PETRA_DESTROYS(petra_probe_log_destroy, petra_probe_log)

petra_status petra_probe_log_create(petra_run_h5 *log, const petra_network *network, bool resumed,
                                    petra_probe_log **out) {
  const petra_plan *plan = network->plan;
  const size_t figures = 3 + (size_t)PETRA_PAIRS * (2 * (size_t)PETRA_MEASURES + 1);
  PETRA_DESTROYED(petra_probe_log_destroy) petra_probe_log *probe = NULL;
  PETRA_TRY(petra_allocate(&probe, 1, sizeof *probe));
  *probe = (petra_probe_log){.log = log,
                             .network = network,
                             .gradients = plan->config->probe.gradients ? PETRA_GRADIENTS : 0,
                             .resumed = resumed};
  for (int b = 0; b < plan->model.block_count; b++)
    probe->parameter_count += petra_block_parameter_count(&plan->model.blocks[b]);
  const size_t parameters = (size_t)probe->parameter_count, count = figures + (size_t)probe->gradients * parameters;
  PETRA_TRY(petra_allocate(&probe->parameters, parameters, sizeof *probe->parameters));
  PETRA_TRY(petra_allocate(&probe->sets, count, sizeof *probe->sets));
  PETRA_TRY(petra_allocate(&probe->members, parameters, sizeof probe->parameters->row.name));
  const size_t largest = describe_parameters(probe);
  if (probe->gradients > 0)
    PETRA_TRY(petra_allocate(&probe->values, largest, sizeof *probe->values));
  PETRA_TRY(petra_run_h5_extend(log, create, &probe, (int64_t)count * INDEX_BYTES));
  *out = petra_take(&probe);
  return PETRA_OK;
}

void petra_probe_log_destroy(petra_probe_log *probe) {
  if (!probe)
    return;
  PETRA_FREE_ALL(probe->parameters, probe->members, probe->values, probe->sets, probe);
}

/* --- rows --- */

static bool append(const petra_probe_log *probe, int index, const void *values) {
  const set *s = &probe->sets[index];
  hsize_t extent[PETRA_HDF5_RANK] = {(hsize_t)probe->rows + 1};
  for (int d = 1; d < s->rank; d++)
    extent[d] = (hsize_t)s->extent[d];
  return H5Dset_extent(s->id, extent) >= 0 &&
         petra_hdf5_write_rows(s->id, s->type, probe->rows, s->rank, s->extent, values);
}

/* Arguments and result of write_row. */
typedef struct writing {
  petra_probe_log *probe;
  const petra_probe_row *row;
  petra_status *fetched;
} writing;

/* Appends the row's values to the data sets of a column: one for each measure and each pair. */
static bool append_column(const petra_probe_log *probe, const petra_column *column, const void *row, int *index) {
  const char *values = (const char *)row + column->offset;
  bool done = true;
  if (petra_column_rank(column) > 0)
    memcpy(&values, values, sizeof values);
  for (int at = 0; at < measures_of(column) * pairs_of(column) && done; at++)
    done = append(probe, (*index)++, values + (size_t)at * (size_t)values_of(probe, column) * sizeof(double));
  return done;
}

static bool write_row(petra_run_h5 *log, const void *what) {
  const writing *w = what;
  petra_probe_log *probe = w->probe;
  const petra_probe_row *row = w->row;
  int index = 0;
  bool done = true;
  (void)log;
  for (int c = 0; c < petra_run_h5_probe_group.count && done; c++)
    done = append_column(probe, &petra_run_h5_probe_group.columns[c], row, &index);
  for (int g = 0; g < probe->gradients; g++)
    for (int b = 0; b < probe->network->plan->model.block_count; b++)
      for (int i = 0; i < row->gradients[g][b].count && done && *w->fetched == PETRA_OK; i++) {
        *w->fetched =
            petra_op_download(probe->network->backend, row->gradients[g][b].tensor[i], probe->values, PETRA_HOST_F64);
        if (*w->fetched == PETRA_OK)
          done = append(probe, index++, probe->values);
      }
  probe->rows++;
  return done;
}

petra_status petra_probe_log_row(void *context, const petra_probe_row *row) {
  petra_probe_log *probe = context;
  petra_status fetched = PETRA_OK;
  const writing w = {probe, row, &fetched};
  PETRA_TRY(petra_run_h5_extend(probe->log, write_row, &w, probe->row_bytes));
  return fetched;
}

int64_t petra_probe_log_rows(const petra_probe_log *probe) {
  return probe->rows;
}

/* --- memory --- */

petra_status petra_probe_log_memory(petra_probe_log *probe, const petra_account *account) {
  const int64_t *peaks = account->peak_bytes;
  return petra_run_h5_put_table(probe->log,
                                &(petra_table_writing){.group = &petra_run_h5_probe_peak_group, .values = &peaks});
}
