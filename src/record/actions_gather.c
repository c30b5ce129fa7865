/* SPDX-License-Identifier: Apache-2.0 */
#include "record/actions_gather.h"

#include "base/mem.h"
#include "record/action_merge.h"

#include <stdlib.h>
#include <string.h>

typedef struct all_rows {
  petra_trace_row *rows;
  int64_t count, capacity;
  int64_t *first; /* of each rank; one more is the end */
} all_rows;

static petra_status take_rows(void *context, int rank, const void *data, size_t size) {
  all_rows *all = context;
  (void)rank;
  const int64_t more = (int64_t)(size / sizeof *all->rows);
  PETRA_TRY(petra_array_reserve(&all->rows, &all->capacity, all->count + more, sizeof *all->rows));
  if (more)
    memcpy(all->rows + all->count, data, size);
  all->count += more;
  return PETRA_OK;
}

/* The rows of each stage together, in the order in which they were done: first[j] is where those of stage j + 1 begin. That of
 * a rank may be gone, where the run went on from a checkpoint of other ranks. */
static petra_status group_by_stage(all_rows *all, int32_t stages) {
  petra_trace_row *grouped;
  int64_t *next = all->first + 1;
  for (int64_t i = 0; i < all->count; i++)
    if (all->rows[i].action.stage < stages)
      next[all->rows[i].action.stage]++;
  for (int32_t j = 1; j < stages; j++)
    next[j] += next[j - 1];
  PETRA_TRY(petra_allocate_raw(&grouped, (size_t)all->count, sizeof *grouped));
  for (int64_t i = 0; i < all->count; i++)
    grouped[next[all->rows[i].action.stage - 1]++] = all->rows[i];
  petra_free(all->rows);
  all->rows = grouped;
  return PETRA_OK;
}

static int by_end(const void *a, const void *b) {
  const petra_trace_row *one = a, *other = b;
  if (one->end_ns != other->end_ns)
    return one->end_ns > other->end_ns ? 1 : -1;
  return (one->action.stage > other->action.stage) - (one->action.stage < other->action.stage);
}

static petra_status log_actions(const all_rows *all, petra_runlog *runlog) {
  for (int64_t i = 0; i < all->count; i++) {
    const petra_trace_row *row = &all->rows[i];
    const petra_runlog_action out = {.start_ns = row->start_ns,
                                     .end_ns = row->end_ns,
                                     .stage = row->action.stage,
                                     .kind = (int32_t)row->action.kind,
                                     .microbatch = row->action.microbatch,
                                     .version_read = row->result.version_read,
                                     .version_written = row->result.version_written};
    PETRA_TRY(petra_runlog_action_row(runlog, &out));
  }
  return PETRA_OK;
}

static petra_status trace_actions(const all_rows *all, petra_observer *trace) {
  for (int64_t i = 0; i < all->count; i++)
    PETRA_TRY(trace->ops->ended(trace, &all->rows[i]));
  return PETRA_OK;
}

/* Times from the first start on. */
static void shift_times(const all_rows *all) {
  int64_t first_ns = INT64_MAX;
  for (int64_t i = 0; i < all->count; i++)
    if (all->rows[i].start_ns < first_ns)
      first_ns = all->rows[i].start_ns;
  for (int64_t i = 0; i < all->count; i++) {
    all->rows[i].start_ns -= first_ns;
    all->rows[i].end_ns -= first_ns;
  }
}

petra_status petra_actions_gather(petra_ranks *ranks, const petra_program_options *program, const petra_trace_row *rows,
                                  int64_t count, petra_runlog *runlog, petra_observer *trace) {
  all_rows all = {0};
  petra_status status;
  PETRA_TRY(petra_allocate(&all.first, (size_t)program->stages + 1, sizeof *all.first));
  PETRA_TRY_GOTO(status, petra_ranks_gather(ranks, rows, (size_t)count * sizeof *rows, take_rows, &all), done);
  if (ranks->rank == 0)
    PETRA_TRY_GOTO(status, group_by_stage(&all, program->stages), done);
  if (ranks->rank == 0)
    PETRA_TRY_GOTO(status, petra_merge_actions(all.rows, all.first, program->stages, program), done);
  shift_times(&all);
  if (runlog)
    PETRA_TRY_GOTO(status, log_actions(&all, runlog), done);
  if (all.count > 0)
    qsort(all.rows, (size_t)all.count, sizeof *all.rows, by_end);
  status = trace ? trace_actions(&all, trace) : PETRA_OK;
done:
  petra_free(all.first);
  petra_free(all.rows);
  return status;
}
