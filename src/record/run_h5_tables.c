/* SPDX-License-Identifier: Apache-2.0 */
/* The tables of run.h5: /model/stages and /ranks, written once, and /memory/peak_bytes and /memory/total_peak_bytes. */
#include "base/log.h"
#include "base/mem.h"
#include "record/run_h5_private.h"

#include <hdf5.h>

#include <string.h>

/* --- /model/stages --- */

typedef struct stages_table {
  const char *records; /* as petra_runlog_stage_type has them in memory */
  size_t name_bytes;
  int32_t count;
} stages_table;

/* The table's units are those of its members, in their order. */
static bool write_stages(petra_runlog *log, const void *what) {
  const stages_table *table = what;
  const petra_column_group *group = &petra_runlog_stage_group;
  const char *units[PETRA_RUNLOG_MAX_COLUMNS];
  for (int c = 0; c < group->count; c++)
    units[c] = petra_runlog_stage_units(&group->columns[c], log->samples);
  const petra_hdf5_set set = {.name = "model/stages",
                              .type = petra_runlog_stage_type(table->name_bytes, false),
                              .memory = petra_runlog_stage_type(table->name_bytes, true),
                              .rank = 1,
                              .extent = {table->count},
                              .values = table->records,
                              .dimensions = &group->dimension,
                              .legend = "units",
                              .texts = units,
                              .text_count = group->count};
  bool done = set.type >= 0 && set.memory >= 0 && petra_hdf5_put_set(log->file, &set);
  H5Tclose(set.type);
  H5Tclose(set.memory);
  return done;
}

petra_status petra_runlog_stages(petra_runlog *log, const petra_runlog_stage *rows, int32_t count) {
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
  petra_status status = petra_runlog_extend(log, write_stages, &table, (int64_t)bytes * count);
  petra_free(records);
  log->has_stages = true;
  return status;
}

/* --- /memory --- */

typedef struct peaks {
  const int64_t *by_category, *total; /* (J, category), (J) */
  int32_t stages;
} peaks;

static bool write_memory(petra_runlog *log, const void *what) {
  static const char *const dimensions[] = {"stage", "category"};
  const peaks *p = what;
  if (log->peak >= 0)
    return H5Dwrite(log->peak, H5T_NATIVE_INT64, H5S_ALL, H5S_ALL, H5P_DEFAULT, p->by_category) >= 0 &&
           H5Dwrite(log->total_peak, H5T_NATIVE_INT64, H5S_ALL, H5S_ALL, H5P_DEFAULT, p->total) >= 0;
  petra_hdf5_set set = {.name = "memory/peak_bytes",
                        .type = H5T_STD_I64LE,
                        .rank = 2,
                        .extent = {p->stages, PETRA_MEMORY_CATEGORIES},
                        .values = p->by_category,
                        .units = "byte",
                        .dimensions = dimensions,
                        .legend = "categories",
                        .texts = petra_runlog_categories,
                        .text_count = PETRA_MEMORY_CATEGORIES};
  log->peak = petra_hdf5_write_set(log->file, &set);
  set.name = "memory/total_peak_bytes";
  set.rank = 1;
  set.values = p->total;
  set.legend = NULL;
  log->total_peak = petra_hdf5_write_set(log->file, &set);
  log->memory_stages = p->stages;
  return log->peak >= 0 && log->total_peak >= 0;
}

petra_status petra_runlog_memory(petra_runlog *log, const petra_account *accounts, int32_t stages) {
  if (log->peak >= 0 && stages != log->memory_stages)
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
  const peaks what = {peak, total, stages};
  petra_status status = petra_runlog_extend(log, write_memory, &what, 0);
  petra_free(peak);
  return status;
}

typedef struct backends {
  const petra_runlog_backend *rows;
  int32_t count;
} backends;

static bool write_backends(petra_runlog *log, const void *what) {
  static const char *const dimensions[] = {"rank", "part"}, *const parts[] = {"tensors", "filters", "scratch"};
  const backends *b = what;
  _Static_assert(sizeof *b->rows == PETRA_RUNLOG_BACKEND_PARTS * sizeof(int64_t), "a row of the data set");
  const petra_hdf5_set set = {.name = "memory/backend_bytes",
                              .type = H5T_STD_I64LE,
                              .rank = 2,
                              .extent = {b->count, PETRA_RUNLOG_BACKEND_PARTS},
                              .values = b->rows,
                              .units = "byte",
                              .dimensions = dimensions,
                              .legend = "parts",
                              .texts = parts,
                              .text_count = PETRA_RUNLOG_BACKEND_PARTS};
  return petra_hdf5_put_set(log->file, &set);
}

petra_status petra_runlog_backends(petra_runlog *log, const petra_runlog_backend *rows, int32_t count) {
  const backends what = {rows, count};
  return petra_runlog_extend(log, write_backends, &what, 0);
}

/* --- /ranks --- */

typedef struct ranks_table {
  int64_t *times, *sent; /* (R, PETRA_RUNLOG_RANK_TIMES), (R, PETRA_RUNLOG_RANK_SENT) */
  const int32_t *of_stage;
  int32_t *replica; /* (R) */
  const char **hosts;
  int32_t ranks, stages;
} ranks_table;

static bool write_ranks(petra_runlog *log, const void *what) {
  static const char *const rank[] = {"rank", "part"}, *const stage[] = {"stage"};
  static const char *const times[] = {"computing", "copying", "waiting", "wall"}, *const sent[] = {"messages", "bytes"};
  const ranks_table *t = what;
  const petra_hdf5_set sets[] = {{.name = "ranks/of_stage",
                                  .type = H5T_STD_I32LE,
                                  .rank = 1,
                                  .extent = {t->stages},
                                  .values = t->of_stage,
                                  .units = "1",
                                  .dimensions = stage,
                                  .legend = "hosts",
                                  .texts = t->hosts,
                                  .text_count = t->ranks},
                                 {.name = "ranks/replica",
                                  .type = H5T_STD_I32LE,
                                  .rank = 1,
                                  .extent = {t->ranks},
                                  .values = t->replica,
                                  .units = "1",
                                  .dimensions = rank},
                                 {.name = "ranks/time_ns",
                                  .type = H5T_STD_I64LE,
                                  .rank = 2,
                                  .extent = {t->ranks, PETRA_RUNLOG_RANK_TIMES},
                                  .values = t->times,
                                  .units = "ns",
                                  .dimensions = rank,
                                  .legend = "parts",
                                  .texts = times,
                                  .text_count = PETRA_RUNLOG_RANK_TIMES},
                                 {.name = "ranks/sent",
                                  .type = H5T_STD_I64LE,
                                  .rank = 2,
                                  .extent = {t->ranks, PETRA_RUNLOG_RANK_SENT},
                                  .values = t->sent,
                                  .units = "1, byte",
                                  .dimensions = rank,
                                  .legend = "parts",
                                  .texts = sent,
                                  .text_count = PETRA_RUNLOG_RANK_SENT}};
  for (size_t i = 0; i < sizeof sets / sizeof *sets; i++)
    if (!petra_hdf5_put_set(log->file, &sets[i]))
      return false;
  return true;
}

petra_status petra_runlog_ranks(petra_runlog *log, const petra_runlog_rank *rows, int32_t ranks, int32_t places,
                                const int32_t *of_stage, int32_t stages) {
  ranks_table t = {.of_stage = of_stage, .ranks = ranks, .stages = stages};
  petra_status status;
  PETRA_TRY(
      petra_allocate(&t.times, (size_t)ranks * (PETRA_RUNLOG_RANK_TIMES + PETRA_RUNLOG_RANK_SENT), sizeof *t.times));
  PETRA_TRY_GOTO(status, petra_allocate(&t.hosts, (size_t)ranks, sizeof *t.hosts), done);
  PETRA_TRY_GOTO(status, petra_allocate(&t.replica, (size_t)ranks, sizeof *t.replica), done);
  t.sent = t.times + (size_t)ranks * PETRA_RUNLOG_RANK_TIMES;
  for (int32_t r = 0; r < ranks; r++) {
    const petra_runlog_rank *row = &rows[r];
    const int64_t times[PETRA_RUNLOG_RANK_TIMES] = {row->computing_ns, row->copying_ns, row->waiting_ns, row->wall_ns};
    const int64_t sent[PETRA_RUNLOG_RANK_SENT] = {row->messages, row->bytes};
    memcpy(t.times + r * PETRA_RUNLOG_RANK_TIMES, times, sizeof times);
    memcpy(t.sent + r * PETRA_RUNLOG_RANK_SENT, sent, sizeof sent);
    t.hosts[r] = row->host;
    t.replica[r] = r / places;
  }
  status = petra_runlog_extend(log, write_ranks, &t, 0);
done:
  petra_free(t.replica);
  petra_free(t.hosts);
  petra_free(t.times);
  return status;
}
