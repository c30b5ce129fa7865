/* SPDX-License-Identifier: Apache-2.0 */
/* The tables of run.h5 that are written once. */
#include "base/mem.h"
#include "record/run_h5_columns.h"
#include "io/hdf5_file.h"

#include <hdf5.h>

#include <math.h>
#include <stdio.h>
#include <string.h>
#include <stddef.h>

/* --- a table of columns --- */

/* Returns the values of a column; NULL if the column is not written. */
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

static bool put_column(petra_run_h5 *log, const petra_table_writing *table, const petra_column *column) {
  const char *labels[PETRA_COLUMN_RANK];
  char name[64];
  petra_hdf5_set set;
  describe(table, column, labels, &set);
  snprintf(name, sizeof name, "%s/%s", table->group->name, column->name);
  set.name = name;
  if (!set.values)
    return true;
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

/* Writes a table of `stages` stages and of `count` rows of another dimension. */
static petra_status put(petra_run_h5 *log, const petra_column_group *group, const void *values, int32_t stages,
                        petra_dimension other, int64_t count) {
  petra_table_writing table = {.group = group, .values = values, .extents = {[PETRA_DIMENSION_STAGE] = stages}};
  table.extents[other] = count;
  return petra_run_h5_put_table(log, &table);
}

/* --- /model/stages --- */

typedef struct stages_table {
  const petra_stage_summary *rows;
  int32_t count;
  size_t name_bytes; /* length of the longest name */
} stages_table;

/* Returns the unit of a member in a run with samples of this kind. */
static const char *units_of(const petra_column *column, petra_sample_kind samples) {
  const bool flops = column->offset == offsetof(petra_stage_summary, forward_flops);
  return flops && samples == PETRA_SAMPLE_TOKENS ? "FLOP/window" : column->units;
}

/* Inserts the members of a row into its compound type, in the order of the columns: in memory as in
 * petra_stage_summary, in the file packed, with `name_bytes` bytes for the name. The type of the name has a fixed
 * length, because a name of variable length would be an object in h5py's table. */
static bool insert_members(hid_t row, size_t name_bytes, bool in_memory) {
  PETRA_HDF5_CLOSED hid_t name = H5Tcopy(H5T_C_S1);
  bool done = H5Tset_size(name, name_bytes) >= 0 && H5Tset_strpad(name, H5T_STR_NULLPAD) >= 0;
  size_t packed = 0;
  for (int c = 0; c < petra_run_h5_stage_group.count && done; c++) {
    const petra_column *column = &petra_run_h5_stage_group.columns[c];
    hid_t member = column->type == PETRA_COLUMN_TEXT ? name
                   : in_memory                       ? petra_column_memory_type(column->type)
                                                     : petra_column_file_type(column->type);
    done = H5Tinsert(row, column->name, in_memory ? column->offset : packed, member) >= 0;
    packed += H5Tget_size(member);
  }
  return done && (in_memory || H5Tset_size(row, packed) >= 0);
}

/* Writes /model/stages, with the units of its members in their order. */
static bool write_stages(petra_run_h5 *log, const void *what) {
  const stages_table *table = what;
  const petra_column_group *group = &petra_run_h5_stage_group;
  const char *units[PETRA_RUN_H5_MAX_COLUMNS];
  PETRA_HDF5_CLOSED hid_t type = H5Tcreate(H5T_COMPOUND, sizeof *table->rows),
                          memory = H5Tcreate(H5T_COMPOUND, sizeof *table->rows);
  for (int c = 0; c < group->count; c++)
    units[c] = units_of(&group->columns[c], log->samples);
  const petra_hdf5_set set = {.name = "model/stages",
                              .type = type,
                              .memory = memory,
                              .rank = 1,
                              .extent = {table->count},
                              .values = table->rows,
                              .dimensions = &petra_dimension_table[group->dimension].name,
                              .legend = "units",
                              .texts = units,
                              .text_count = group->count};
  return insert_members(type, table->name_bytes, false) && insert_members(memory, sizeof table->rows->name, true) &&
         petra_hdf5_put_set(log->file, &set);
}

petra_status petra_run_h5_stages(petra_run_h5 *log, const petra_stage_summary *rows, int32_t count) {
  stages_table table = {rows, count, 1};
  for (int32_t row = 0; row < count; row++)
    if (strlen(rows[row].name) > table.name_bytes)
      table.name_bytes = strlen(rows[row].name);
  return petra_run_h5_extend(log, write_stages, &table, (int64_t)sizeof *rows * count);
}

/* --- /memory --- */

petra_status petra_run_h5_memory(petra_run_h5 *log, const petra_account *accounts, int32_t stages) {
  PETRA_FREED int64_t *peak = NULL; /* (J, category), then the totals (J) */
  PETRA_TRY(petra_allocate_raw(&peak, (size_t)stages * (PETRA_MEMORY_CATEGORIES + 1), sizeof *peak));
  int64_t *total = peak + (size_t)stages * PETRA_MEMORY_CATEGORIES;
  for (int32_t stage = 0; stage < stages; stage++) {
    memcpy(peak + (size_t)stage * PETRA_MEMORY_CATEGORIES, accounts[stage].peak_bytes,
           sizeof accounts[stage].peak_bytes);
    total[stage] = accounts[stage].total_peak_bytes;
  }
  const petra_run_h5_peaks values = {peak, total};
  return put(log, &petra_run_h5_memory_group, &values, stages, PETRA_DIMENSION_NONE, 0);
}

petra_status petra_run_h5_locals(petra_run_h5 *log, const petra_run_h5_local *values, int64_t epochs, int32_t stages) {
  return put(log, &petra_run_h5_local_group, values, stages, PETRA_DIMENSION_EPOCH, epochs);
}

petra_status petra_run_h5_backends(petra_run_h5 *log, const petra_backend_memory *rows, int32_t count) {
  _Static_assert(sizeof *rows == PETRA_RUN_H5_BACKEND_PARTS * sizeof(int64_t), "a row of the data set");
  return put(log, &petra_run_h5_backend_group, &rows, 0, PETRA_DIMENSION_RANK, count);
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
  return petra_run_h5_put_table(
      log, &(petra_table_writing){.group = &petra_run_h5_simulate_group,
                                  .values = simulation,
                                  .extents = {[PETRA_DIMENSION_STAGE] = simulation->stages,
                                              [PETRA_DIMENSION_RANK] = simulation->ranks,
                                              [PETRA_DIMENSION_PATH_PART] = simulation->critical_kinds},
                                  .noted = "critical_ns",
                                  .attribute = "kinds",
                                  .texts = simulation->critical_names,
                                  .text_count = simulation->critical_kinds});
}

petra_status petra_run_h5_pace_write(petra_run_h5 *log, const petra_run_h5_pace *pace) {
  return put(log, &petra_run_h5_pace_group, pace, pace->stages, PETRA_DIMENSION_RANK, pace->ranks);
}

petra_status petra_run_h5_ranks(petra_run_h5 *log, const petra_rank_summary *rows, int32_t ranks, int32_t places,
                                const int32_t *of_stage, int32_t stages) {
  enum { TIMES = PETRA_RUN_H5_RANK_TIMES, SENT = PETRA_RUN_H5_RANK_SENT };
  PETRA_FREED int64_t(*times)[TIMES] = NULL, (*sent)[SENT] = NULL;
  PETRA_FREED const char **hosts = NULL;
  PETRA_FREED int32_t *replica = NULL;
  PETRA_TRY(petra_allocate(&times, (size_t)ranks, sizeof *times));
  PETRA_TRY(petra_allocate(&sent, (size_t)ranks, sizeof *sent));
  PETRA_TRY(petra_allocate(&hosts, (size_t)ranks, sizeof *hosts));
  PETRA_TRY(petra_allocate(&replica, (size_t)ranks, sizeof *replica));
  for (int32_t r = 0; r < ranks; r++) {
    const petra_rank_summary *row = &rows[r];
    memcpy(times[r], (int64_t[TIMES]){row->computing_ns, row->copying_ns, row->waiting_ns, row->wall_ns},
           sizeof *times);
    memcpy(sent[r], (int64_t[SENT]){row->messages, row->bytes}, sizeof *sent);
    hosts[r] = row->host;
    replica[r] = r / places;
  }
  const petra_run_h5_ranks_table values = {of_stage, replica, *times, *sent};
  return petra_run_h5_put_table(
      log, &(petra_table_writing){.group = &petra_run_h5_ranks_group,
                                  .values = &values,
                                  .extents = {[PETRA_DIMENSION_STAGE] = stages, [PETRA_DIMENSION_RANK] = ranks},
                                  .noted = "of_stage",
                                  .attribute = "hosts",
                                  .texts = hosts,
                                  .text_count = ranks});
}
