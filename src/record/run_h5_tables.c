/* SPDX-License-Identifier: Apache-2.0 */
/* The tables of run.h5 that are written once, and /memory/peak_bytes and /memory/total_peak_bytes. */
#include "base/log.h"
#include "base/mem.h"
#include "record/run_h5_columns.h"
#include "io/hdf5_file.h"

#include <hdf5.h>

#include <math.h>
#include <stdio.h>
#include <string.h>
#include <stddef.h>

/* --- a table of columns --- */

/* Returns the values of a column; NULL: it is not written. */
static const void *values_of(const petra_table_writing *table, const petra_column *column) {
  const char *member = (const char *)table->values + column->offset;
  const void *values = member;
  double real = 0;
  if (column->dimensions[0] != PETRA_DIMENSION_NONE)
    memcpy(&values, member, sizeof values);
  else if (column->optional)
    memcpy(&real, member, sizeof real);
  return isnan(real) ? NULL : values;
}

/* Describes the data set of a column, and writes its dimensions to `labels`. Returns the size of its values in
 * memory. */
static int64_t describe(const petra_table_writing *table, const petra_column *column, const char **labels,
                        petra_hdf5_set *out) {
  int64_t bytes = 8;
  *out = (petra_hdf5_set){.type = petra_column_file_type(column->type),
                          .rank = petra_column_rank(column),
                          .values = values_of(table, column),
                          .units = column->units};
  for (int d = 0; d < out->rank; d++) {
    const petra_dimension_facts *facts = &petra_dimension_table[column->dimensions[d]];
    out->extent[d] = facts->count > 0 ? facts->count : table->extents[column->dimensions[d]];
    out->dimensions = labels;
    labels[d] = facts->name;
    bytes *= out->extent[d];
    if (facts->legend) {
      out->legend = facts->legend;
      out->texts = facts->places;
      out->text_count = facts->count;
    }
  }
  return bytes;
}

/* Overwrites a data set with the same extent. */
static bool write_again(hid_t file, const petra_hdf5_set *set) {
  hid_t id = H5Dopen2(file, set->name, H5P_DEFAULT), type = H5Tget_native_type(set->type, H5T_DIR_ASCEND);
  bool done = H5Dwrite(id, type, H5S_ALL, H5S_ALL, H5P_DEFAULT, set->values) >= 0;
  H5Tclose(type);
  return H5Dclose(id) >= 0 && done;
}

static bool put_column(petra_run_h5 *log, const petra_table_writing *table, const petra_column *column) {
  const char *labels[PETRA_COLUMN_RANK];
  char name[64];
  petra_hdf5_set set;
  describe(table, column, labels, &set);
  snprintf(name, sizeof name, "%s/%s", table->group->name, column->name);
  set.name = name;
  if (!set.values || table->again)
    return !set.values || write_again(log->file, &set);
  hid_t id = petra_hdf5_write_set(log->file, &set);
  bool done = id >= 0;
  if (table->noted && strcmp(column->name, table->noted) == 0)
    done = done && petra_hdf5_put_texts(id, table->attribute, table->texts, table->text_count) >= 0;
  return H5Dclose(id) >= 0 && done;
}

static bool put_table(petra_run_h5 *log, const void *what) {
  const petra_table_writing *table = what;
  for (int c = 0; c < table->group->count; c++)
    if (!put_column(log, table, &table->group->columns[c]))
      return false;
  return true;
}

petra_status petra_run_h5_put_table(petra_run_h5 *log, const petra_table_writing *table) {
  const char *labels[PETRA_COLUMN_RANK];
  petra_hdf5_set set;
  int64_t bytes = 0;
  for (int c = 0; c < table->group->count; c++)
    bytes += describe(table, &table->group->columns[c], labels, &set);
  return petra_run_h5_extend(log, put_table, table, bytes);
}

/* --- /model/stages --- */

typedef struct stages_table {
  const char *records; /* as in petra_run_h5_stage_type in memory */
  size_t name_bytes;
  int32_t count;
} stages_table;

/* Writes the units of the table's members, in their order. */
static bool write_stages(petra_run_h5 *log, const void *what) {
  const stages_table *table = what;
  const petra_column_group *group = &petra_run_h5_stage_group;
  const char *units[PETRA_RUN_H5_MAX_COLUMNS];
  for (int c = 0; c < group->count; c++)
    units[c] = petra_run_h5_stage_units(&group->columns[c], log->samples);
  const petra_hdf5_set set = {.name = "model/stages",
                              .type = petra_run_h5_stage_type(table->name_bytes, false),
                              .memory = petra_run_h5_stage_type(table->name_bytes, true),
                              .rank = 1,
                              .extent = {table->count},
                              .values = table->records,
                              .dimensions = &petra_dimension_table[group->dimension].name,
                              .legend = "units",
                              .texts = units,
                              .text_count = group->count};
  bool done = set.type >= 0 && set.memory >= 0 && petra_hdf5_put_set(log->file, &set);
  H5Tclose(set.type);
  H5Tclose(set.memory);
  return done;
}

petra_status petra_run_h5_stages(petra_run_h5 *log, const petra_run_h5_stage *rows, int32_t count) {
  size_t name_bytes = 1;
  char *records = NULL;
  if (log->has_stages)
    return petra_fail(PETRA_INTERNAL, "%s: the stages are written twice", log->path);
  for (int32_t row = 0; row < count; row++)
    if (strlen(rows[row].name) > name_bytes)
      name_bytes = strlen(rows[row].name);
  const size_t bytes = sizeof *rows + name_bytes;
  PETRA_TRY(petra_allocate(&records, (size_t)count, bytes));
  for (int32_t row = 0; row < count; row++) {
    char *record = records + (size_t)row * bytes;
    memcpy(record, &rows[row], sizeof *rows);
    memcpy(record + sizeof *rows, rows[row].name, strlen(rows[row].name));
  }
  const stages_table table = {records, name_bytes, count};
  petra_status status = petra_run_h5_extend(log, write_stages, &table, (int64_t)bytes * count);
  petra_free(records);
  log->has_stages = true;
  return status;
}

/* --- /memory --- */

petra_status petra_run_h5_memory(petra_run_h5 *log, const petra_account *accounts, int32_t stages) {
  if (log->memory_stages > 0 && stages != log->memory_stages)
    return petra_fail(PETRA_INTERNAL, "%s: memory of %d stages, expected %d", log->path, (int)stages,
                      (int)log->memory_stages);
  int64_t *peak = NULL; /* (J, category), then the totals (J) */
  PETRA_TRY(petra_allocate_raw(&peak, (size_t)stages * (PETRA_MEMORY_CATEGORIES + 1), sizeof *peak));
  int64_t *total = peak + (size_t)stages * PETRA_MEMORY_CATEGORIES;
  for (int32_t stage = 0; stage < stages; stage++) {
    memcpy(peak + (size_t)stage * PETRA_MEMORY_CATEGORIES, accounts[stage].peak_bytes,
           sizeof accounts[stage].peak_bytes);
    total[stage] = accounts[stage].total_peak_bytes;
  }
  petra_status status =
      petra_run_h5_put_table(log, &(petra_table_writing){.group = &petra_run_h5_memory_group,
                                                         .values = &(petra_run_h5_peaks){peak, total},
                                                         .extents = {[PETRA_DIMENSION_STAGE] = stages},
                                                         .again = log->memory_stages > 0});
  log->memory_stages = stages;
  petra_free(peak);
  return status;
}

petra_status petra_run_h5_locals(petra_run_h5 *log, const petra_run_h5_local *values, int64_t epochs, int32_t stages) {
  return petra_run_h5_put_table(
      log, &(petra_table_writing){.group = &petra_run_h5_local_group,
                                  .values = values,
                                  .extents = {[PETRA_DIMENSION_EPOCH] = epochs, [PETRA_DIMENSION_STAGE] = stages}});
}

petra_status petra_run_h5_backends(petra_run_h5 *log, const petra_run_h5_backend *rows, int32_t count) {
  _Static_assert(sizeof *rows == PETRA_RUN_H5_BACKEND_PARTS * sizeof(int64_t), "a row of the data set");
  return petra_run_h5_put_table(log, &(petra_table_writing){.group = &petra_run_h5_backend_group,
                                                            .values = &rows,
                                                            .extents = {[PETRA_DIMENSION_RANK] = count}});
}

petra_status petra_run_h5_memory_over_time(petra_run_h5 *log, const petra_run_h5_memory_time *memory) {
  return petra_run_h5_put_table(
      log, &(petra_table_writing){
               .group = &petra_run_h5_memory_time_group,
               .values = memory,
               .extents = {[PETRA_DIMENSION_BIN] = memory->bins, [PETRA_DIMENSION_STAGE] = memory->stages},
               .noted = "bytes",
               .attribute = "accounting",
               .texts = &memory->accounting,
               .text_count = -1});
}

/* --- /simulate, /ranks and /pace --- */

petra_status petra_run_h5_simulated(petra_run_h5 *log, const petra_run_h5_simulation *simulation) {
  petra_run_h5_simulation s = *simulation;
  s.makespan_s = 1e-9 * (double)s.makespan_ns;
  if (s.ranks == 0)
    s.of_stage = NULL, s.rank_busy = NULL;
  if (s.critical_kinds == 0)
    s.critical_ns = s.critical_stage_ns = NULL;
  return petra_run_h5_put_table(log, &(petra_table_writing){.group = &petra_run_h5_simulate_group,
                                                            .values = &s,
                                                            .extents = {[PETRA_DIMENSION_STAGE] = s.stages,
                                                                        [PETRA_DIMENSION_RANK] = s.ranks,
                                                                        [PETRA_DIMENSION_PATH_PART] = s.critical_kinds},
                                                            .noted = "critical_ns",
                                                            .attribute = "kinds",
                                                            .texts = s.critical_names,
                                                            .text_count = s.critical_kinds});
}

petra_status petra_run_h5_pace_write(petra_run_h5 *log, const petra_run_h5_pace *pace) {
  const petra_run_h5_pace_table values = {pace->microbatch_s, (const double *)pace->stage_s,
                                          (const double *)pace->busy};
  return petra_run_h5_put_table(
      log, &(petra_table_writing){
               .group = &petra_run_h5_pace_group,
               .values = &values,
               .extents = {[PETRA_DIMENSION_STAGE] = pace->stages, [PETRA_DIMENSION_RANK] = pace->ranks}});
}

petra_status petra_run_h5_ranks(petra_run_h5 *log, const petra_rank_summary *rows, int32_t ranks, int32_t places,
                                const int32_t *of_stage, int32_t stages) {
  enum { TIMES = PETRA_RUN_H5_RANK_TIMES, SENT = PETRA_RUN_H5_RANK_SENT };
  int64_t(*times)[TIMES] = NULL, (*sent)[SENT] = NULL;
  const char **hosts = NULL;
  int32_t *replica = NULL;
  petra_status status;
  PETRA_TRY_GOTO(status, petra_allocate(&times, (size_t)ranks, sizeof *times), done);
  PETRA_TRY_GOTO(status, petra_allocate(&sent, (size_t)ranks, sizeof *sent), done);
  PETRA_TRY_GOTO(status, petra_allocate(&hosts, (size_t)ranks, sizeof *hosts), done);
  PETRA_TRY_GOTO(status, petra_allocate(&replica, (size_t)ranks, sizeof *replica), done);
  for (int32_t r = 0; r < ranks; r++) {
    const petra_rank_summary *row = &rows[r];
    memcpy(times[r], (int64_t[TIMES]){row->computing_ns, row->copying_ns, row->waiting_ns, row->wall_ns},
           sizeof *times);
    memcpy(sent[r], (int64_t[SENT]){row->messages, row->bytes}, sizeof *sent);
    hosts[r] = row->host;
    replica[r] = r / places;
  }
  const petra_run_h5_ranks_table values = {of_stage, replica, *times, *sent};
  status = petra_run_h5_put_table(
      log, &(petra_table_writing){.group = &petra_run_h5_ranks_group,
                                  .values = &values,
                                  .extents = {[PETRA_DIMENSION_STAGE] = stages, [PETRA_DIMENSION_RANK] = ranks},
                                  .noted = "of_stage",
                                  .attribute = "hosts",
                                  .texts = hosts,
                                  .text_count = ranks});
done:
  petra_free(replica);
  petra_free(hosts);
  petra_free(sent);
  petra_free(times);
  return status;
}

/* --- /probe --- */

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
