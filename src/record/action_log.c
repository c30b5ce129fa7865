/* SPDX-License-Identifier: Apache-2.0 */
#include "record/action_log.h"

#include "base/log.h"

#include <stdlib.h>
#include <string.h>

struct petra_action_log {
  petra_observer base;
  const petra_program_options *program;
  petra_run_h5 *run_h5;
  /* rows that were added; under the virtual clock only rows that are not written yet; end -1: the action is running */
  petra_trace_row *rows;
  int64_t count, capacity;
  int64_t written; /* number of rows that were written before them */
  /* Under the virtual clock, per stage: numbers of the rows of its F, its W and its other action in progress. */
  int64_t *running;
};

static petra_status add(petra_action_log *log, const petra_trace_row *row) {
  PETRA_TRY(petra_array_reserve(&log->rows, &log->capacity, log->count + 1, sizeof *log->rows));
  log->rows[log->count++] = *row;
  return PETRA_OK;
}

/* --- by the wall clock --- */

static petra_status ended_by_wall(petra_observer *base, const petra_trace_row *row) {
  return add((petra_action_log *)base, row);
}

/* --- under the virtual clock --- */

static int64_t *running_of(petra_action_log *log, const petra_action *action) {
  const int line = action->kind == PETRA_ACTION_FORWARD ? 0 : action->kind == PETRA_ACTION_WEIGHT_GRADIENT ? 1 : 2;
  return &log->running[PETRA_STEP_ACTIONS * (action->stage - 1) + line];
}

static petra_status started(petra_observer *base, int64_t now_ns, const petra_action *actions,
                            const petra_action_result *results, int count) {
  petra_action_log *log = (petra_action_log *)base;
  for (int i = 0; i < count; i++) {
    *running_of(log, &actions[i]) = log->written + log->count;
    PETRA_TRY(add(log, &(petra_trace_row){actions[i], now_ns, -1, results[i], 0}));
  }
  return PETRA_OK;
}

static petra_status ended(petra_observer *base, const petra_trace_row *row) {
  petra_action_log *log = (petra_action_log *)base;
  const int64_t at = *running_of(log, &row->action) - log->written;
  int64_t done = 0;
  if (at < 0 || at >= log->count || log->rows[at].action.microbatch != row->action.microbatch ||
      log->rows[at].action.kind != row->action.kind)
    return petra_fail(PETRA_INTERNAL, "stage %d: an action ends that did not start", row->action.stage);
  log->rows[at].start_ns = petra_trace_row_start_ns(row);
  log->rows[at].end_ns = row->end_ns;
  while (log->run_h5 && done < log->count && log->rows[done].end_ns >= 0)
    PETRA_TRY(petra_run_h5_action_row(log->run_h5, &log->rows[done++]));
  log->written += done;
  log->count -= done;
  if (done > 0)
    memmove(log->rows, log->rows + done, (size_t)log->count * sizeof *log->rows);
  return PETRA_OK;
}

const petra_trace_row *petra_action_log_rows(const petra_action_log *log, int64_t *count) {
  *count = log->count;
  return log->rows;
}

petra_observer *petra_action_log_observer(petra_action_log *log) {
  return &log->base;
}

PETRA_DESTROYS(petra_action_log_destroy, petra_action_log)

petra_status petra_action_log_create(const petra_program_options *program, bool by_wall, petra_run_h5 *run_h5,
                                     petra_action_log **out) {
  static const petra_observer_ops ops = {.started = started, .ended = ended}, wall_ops = {.ended = ended_by_wall};
  PETRA_DESTROYED(petra_action_log_destroy) petra_action_log *log = NULL;
  PETRA_TRY(petra_allocate(&log, 1, sizeof *log));
  log->base.ops = by_wall ? &wall_ops : &ops;
  log->program = program;
  log->run_h5 = run_h5;
  PETRA_TRY(petra_allocate(&log->running, PETRA_STEP_ACTIONS * (size_t)program->stages, sizeof *log->running));
  *out = petra_take(&log);
  return PETRA_OK;
}

void petra_action_log_destroy(petra_action_log *log) {
  if (!log)
    return;
  PETRA_FREE_ALL(log->running, log->rows, log);
}

/* --- checkpoints --- */

static const int64_t LATEST_NS = INT64_C(1) << 61; /* limit of a recorded time: 70 years */
enum { ROW = 6 };                                  /* kind, microbatch, start, end, version read, version written */

static void pack(const petra_trace_row *row, int64_t out[ROW]) {
  const int64_t values[ROW] = {(int64_t)row->action.kind, row->action.microbatch,     row->start_ns, row->end_ns,
                               row->result.version_read,  row->result.version_written};
  memcpy(out, values, sizeof values);
}

static petra_status unpack(const petra_archive *archive, int32_t stage, int64_t microbatches, const int64_t in[ROW],
                           petra_trace_row *out) {
  PETRA_TRY(petra_archive_within(archive, "actions", "a kind", in[0], 0, PETRA_ACTION_KINDS - 1));
  PETRA_TRY(petra_archive_within(archive, "actions", "a microbatch", in[1], 0, microbatches - 1));
  PETRA_TRY(petra_archive_within(archive, "actions", "a time", in[2], -LATEST_NS, LATEST_NS));
  PETRA_TRY(petra_archive_within(archive, "actions", "a time", in[3], in[2], LATEST_NS));
  *out = (petra_trace_row){.action = {.stage = stage, .kind = (petra_action_kind)in[0], .microbatch = in[1]},
                           .start_ns = in[2],
                           .end_ns = in[3],
                           .result = {.version_read = in[4], .version_written = in[5]}};
  return PETRA_OK;
}

static int64_t count_rows(const petra_action_log *log, int32_t stage) {
  int64_t count = 0;
  for (int64_t i = 0; i < log->count; i++)
    count += log->rows[i].action.stage == stage;
  return count;
}

static petra_status archive_rows(petra_action_log *log, int32_t stage, int64_t later_ns, petra_archive *archive,
                                 int64_t count) {
  PETRA_FREED int64_t *values = NULL;
  int64_t packed = 0;
  PETRA_TRY(petra_archive_require(archive, "actions", PETRA_ARCHIVE_I64, ROW * count));
  PETRA_TRY(petra_allocate(&values, (size_t)count, ROW * sizeof *values));
  for (int64_t i = 0; i < log->count && !archive->reading; i++)
    if (log->rows[i].action.stage == stage)
      pack(&log->rows[i], values + ROW * packed++);
  PETRA_TRY(petra_archive_integers(archive, "actions", values, ROW * count));
  if (!archive->reading)
    return PETRA_OK;
  PETRA_TRY(petra_array_reserve(&log->rows, &log->capacity, log->count + count, sizeof *log->rows));
  for (int64_t i = 0; i < count; i++) {
    petra_trace_row *row = &log->rows[log->count];
    PETRA_TRY(unpack(archive, stage, log->program->microbatches, values + ROW * i, row));
    row->start_ns += later_ns;
    row->end_ns += later_ns;
    log->count++;
  }
  return PETRA_OK;
}

petra_status petra_action_log_archive(petra_action_log *log, int32_t stage, int64_t later_ns, petra_archive *archive,
                                      bool *there) {
  int64_t count = log ? count_rows(log, stage) : -1;
  PETRA_TRY(petra_archive_integers(archive, "actions-count", &count, 1));
  PETRA_TRY(petra_archive_within(archive, "actions-count", "actions", count, -1, INT32_MAX));
  *there = count >= 0;
  return log && count > 0 ? archive_rows(log, stage, later_ns, archive, count) : PETRA_OK;
}

/* --- one order --- */

enum { FORWARD = 1, BACKWARD = 2 }; /* passes */

typedef struct merge {
  const petra_program_options *program;
  /* The passes that have a row but no position in the order yet, by stage (from 1) and microbatch. A message whose
   * sender has no row was sent before the recording began. */
  uint8_t *waiting;
} merge;

static uint8_t *waiting_at(const merge *m, int32_t stage, int64_t microbatch) {
  return &m->waiting[(stage - 1) * m->program->microbatches + microbatch];
}

/* Returns true if the action does the stage's F. */
static bool does_forward(const merge *m, const petra_action *a) {
  return a->kind == PETRA_ACTION_FORWARD ||
         (a->kind == PETRA_ACTION_BACKWARD && petra_program_fused(m->program, a->stage));
}

/* Returns true if the pass that sent the message of the action has its position in the order already, or came before
 * all rows. */
static bool may_follow(const merge *m, const petra_action *a) {
  if (does_forward(m, a))
    return a->stage == 1 || !(*waiting_at(m, a->stage - 1, a->microbatch) & FORWARD);
  if (a->kind == PETRA_ACTION_BACKWARD && !petra_program_has_loss(m->program, a->stage))
    return !(*waiting_at(m, a->stage + 1, a->microbatch) & BACKWARD);
  return true;
}

/* Records whether the passes of an action still wait for their position in the order. */
static void note(merge *m, const petra_action *a, bool waits) {
  const int passes = (does_forward(m, a) ? FORWARD : 0) | (a->kind == PETRA_ACTION_BACKWARD ? BACKWARD : 0);
  uint8_t *waiting = waiting_at(m, a->stage, a->microbatch);
  *waiting = (uint8_t)(waits ? *waiting | passes : *waiting & ~passes);
}

/* Returns the process whose next action may follow and began first; -1: none. */
static int choose(const merge *m, const petra_trace_row *rows, const int64_t *next, const int64_t *first, int count) {
  int found = -1;
  for (int p = 0; p < count; p++)
    if (next[p] < first[p + 1] && (found < 0 || rows[next[p]].start_ns < rows[next[found]].start_ns) &&
        may_follow(m, &rows[next[p]].action))
      found = p;
  return found;
}

static petra_status put_in_order(merge *m, const petra_trace_row *rows, const int64_t *first, int count, int64_t *next,
                                 petra_trace_row *out) {
  for (int p = 0; p < count; p++)
    next[p] = first[p];
  for (int64_t i = 0; i < first[count]; i++)
    note(m, &rows[i].action, true);
  for (int64_t i = 0; i < first[count]; i++) {
    const int p = choose(m, rows, next, first, count);
    if (p < 0)
      return petra_fail(PETRA_INTERNAL, "the actions that the ranks recorded have no common order");
    out[i] = rows[next[p]++];
    note(m, &out[i].action, false);
  }
  return PETRA_OK;
}

petra_status petra_merge_actions(petra_trace_row *rows, const int64_t *first, int count,
                                 const petra_program_options *program) {
  PETRA_FREED uint8_t *waiting = NULL;
  PETRA_FREED petra_trace_row *ordered = NULL;
  PETRA_FREED int64_t *next = NULL;
  PETRA_TRY(petra_allocate(&waiting, (size_t)program->stages, (size_t)program->microbatches));
  PETRA_TRY(petra_allocate(&next, (size_t)count, sizeof *next));
  PETRA_TRY(petra_allocate_raw(&ordered, (size_t)first[count], sizeof *ordered));
  PETRA_TRY(put_in_order(&(merge){program, waiting}, rows, first, count, next, ordered));
  if (first[count] > 0)
    memcpy(rows, ordered, (size_t)first[count] * sizeof *rows);
  return PETRA_OK;
}

/* --- from all ranks --- */

typedef struct all_rows {
  petra_trace_row **rows; /* the address of the array */
  int64_t count, capacity;
} all_rows;

static petra_status take_rows(void *context, int rank, const void *data, size_t size) {
  all_rows *all = context;
  (void)rank;
  const int64_t more = (int64_t)(size / sizeof **all->rows);
  PETRA_TRY(petra_array_reserve(all->rows, &all->capacity, all->count + more, sizeof **all->rows));
  if (more)
    memcpy(*all->rows + all->count, data, size);
  all->count += more;
  return PETRA_OK;
}

/* Puts the rows into one order. First it groups the rows by stage, in the order in which the actions were done: the
 * rows of stage j + 1 begin at first[j]. The order of ranks may be lost if the run was resumed from a checkpoint of
 * other ranks. */
static petra_status put_all_in_order(petra_trace_row **rows, int64_t count, const petra_program_options *program) {
  const int32_t stages = program->stages;
  petra_trace_row *grouped;
  PETRA_FREED int64_t *first = NULL;
  PETRA_TRY(petra_allocate(&first, (size_t)stages + 1, sizeof *first));
  PETRA_TRY(petra_allocate_raw(&grouped, (size_t)count, sizeof *grouped));
  int64_t *next = first + 1;
  for (int64_t i = 0; i < count; i++)
    if ((*rows)[i].action.stage < stages)
      next[(*rows)[i].action.stage]++;
  for (int32_t j = 1; j < stages; j++)
    next[j] += next[j - 1];
  for (int64_t i = 0; i < count; i++)
    grouped[next[(*rows)[i].action.stage - 1]++] = (*rows)[i];
  petra_free(*rows);
  *rows = grouped;
  return petra_merge_actions(grouped, first, stages, program);
}

static int by_end(const void *a, const void *b) {
  const petra_trace_row *one = a, *other = b;
  if (one->end_ns != other->end_ns)
    return one->end_ns > other->end_ns ? 1 : -1;
  return (one->action.stage > other->action.stage) - (one->action.stage < other->action.stage);
}

/* Makes the times relative to the start of the first action. */
static void shift_times(petra_trace_row *rows, int64_t count) {
  int64_t first_ns = INT64_MAX;
  for (int64_t i = 0; i < count; i++)
    if (rows[i].start_ns < first_ns)
      first_ns = rows[i].start_ns;
  for (int64_t i = 0; i < count; i++) {
    rows[i].start_ns -= first_ns;
    rows[i].end_ns -= first_ns;
  }
}

petra_status petra_action_log_gather(petra_action_log *log, petra_ranks *ranks, bool gives, petra_run_h5 *run_h5,
                                     petra_observer *trace) {
  const size_t bytes = gives ? (size_t)log->count * sizeof *log->rows : 0;
  PETRA_FREED petra_trace_row *rows = NULL;
  all_rows all = {.rows = &rows};
  PETRA_TRY(petra_ranks_gather(ranks, log->rows, bytes, take_rows, &all));
  if (ranks->rank > 0)
    return PETRA_OK;
  PETRA_TRY(put_all_in_order(&rows, all.count, log->program));
  shift_times(rows, all.count);
  for (int64_t i = 0; i < all.count && run_h5; i++)
    PETRA_TRY(petra_run_h5_action_row(run_h5, &rows[i]));
  if (all.count > 0)
    qsort(rows, (size_t)all.count, sizeof *rows, by_end);
  for (int64_t i = 0; i < all.count && trace; i++)
    PETRA_TRY(trace->ops->ended(trace, &rows[i]));
  return PETRA_OK;
}
