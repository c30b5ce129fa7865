/* SPDX-License-Identifier: Apache-2.0 */
#include "execute/worker_ranks.h"

#include "base/clock.h"
#include "base/mem.h"
#include "execute/transport_ranks.h"

#include <stddef.h>
#include <string.h>

typedef struct worker_ranks {
  petra_worker base, before; /* `before` is for what a checkpoint has done */
  petra_worker_ranks_options options;
  petra_worker *counting;
  petra_trace_row *rows;
  int64_t count, capacity;
  petra_worker_ranks_times took;
} worker_ranks;

static petra_status record(worker_ranks *w, const petra_action *action, const petra_action_result *result,
                           int64_t start_ns, int64_t end_ns) {
  PETRA_TRY(petra_array_reserve(&w->rows, &w->capacity, w->count + 1, sizeof *w->rows));
  w->rows[w->count++] =
      (petra_trace_row){*action, start_ns - w->options.origin_ns, end_ns - w->options.origin_ns, *result};
  return PETRA_OK;
}

/* An action of a stage that is here, or an evaluation, which all ranks do together when the last stage has reached it. */
static petra_status perform_here(worker_ranks *w, int64_t virtual_ns, const petra_action *action,
                                 petra_action_result *result) {
  const int64_t start_ns = petra_clock_ns(), waited_ns = petra_carrier_counted(w->options.carrier).wait_ns;
  const int64_t copied_ns = petra_transport_ranks_copying_ns(w->options.transport);
  PETRA_TRY(w->options.worker->ops->perform(w->options.worker, virtual_ns, action, 1, result));
  const int64_t end_ns = petra_clock_ns();
  const int64_t waiting_ns = petra_carrier_counted(w->options.carrier).wait_ns - waited_ns;
  w->took.busy_ns += end_ns - start_ns;
  w->took.waited_ns += waiting_ns;
  w->took.copied_ns += petra_transport_ranks_copying_ns(w->options.transport) - copied_ns;
  petra_rank_times_add(w->options.times, action, start_ns - w->options.origin_ns, end_ns - w->options.origin_ns,
                       end_ns - start_ns - waiting_ns);
  if (!w->options.record || !petra_stages_has(&w->options.stages, action->stage))
    return PETRA_OK;
  const int64_t took_ns = petra_transport_ranks_took_ns(w->options.transport);
  const bool waited = action->kind != PETRA_ACTION_EVALUATE && took_ns > start_ns; /* for its message */
  return record(w, action, result, waited ? took_ns : start_ns, end_ns);
}

static petra_status perform(petra_worker *base, int64_t virtual_ns, const petra_action *actions, int count,
                            petra_action_result *results) {
  worker_ranks *w = (worker_ranks *)base;
  PETRA_TELL(petra_stage_observer, w->options.groups, begins, observer, virtual_ns, actions, count);
  for (int i = 0; i < count; i++) {
    PETRA_TRY(petra_transport_ranks_count(w->options.transport, w->options.program, &actions[i], false));
    const bool here = petra_stages_has(&w->options.stages, actions[i].stage);
    if (here || actions[i].kind == PETRA_ACTION_EVALUATE)
      PETRA_TRY(perform_here(w, virtual_ns, &actions[i], &results[i]));
    if (!here)
      PETRA_TRY(w->counting->ops->perform(w->counting, virtual_ns, &actions[i], 1, &results[i]));
  }
  PETRA_TRY(petra_transport_ranks_step(w->options.transport));
  PETRA_TELL(petra_stage_observer, w->options.groups, done, observer);
  return w->options.between ? w->options.between(w->options.context) : PETRA_OK;
}

static petra_status perform_before(petra_worker *base, int64_t virtual_ns, const petra_action *actions, int count,
                                   petra_action_result *results) {
  worker_ranks *w = (worker_ranks *)((char *)base - offsetof(worker_ranks, before));
  for (int i = 0; i < count; i++)
    PETRA_TRY(petra_transport_ranks_count(w->options.transport, w->options.program, &actions[i], true));
  return w->counting->ops->perform(w->counting, virtual_ns, actions, count, results);
}

petra_worker *petra_worker_ranks_counting(petra_worker *base) {
  return &((worker_ranks *)base)->before;
}

static petra_status finish(petra_worker *base) {
  return petra_worker_finish(((worker_ranks *)base)->options.worker);
}

petra_status petra_worker_ranks_create(const petra_worker_ranks_options *options, petra_worker **out) {
  static const petra_worker_ops ops = {.perform = perform, .finish = finish};
  static const petra_worker_ops before_ops = {.perform = perform_before};
  worker_ranks *w;
  PETRA_TRY(petra_allocate(&w, 1, sizeof *w));
  w->base.ops = &ops;
  w->before.ops = &before_ops;
  w->options = *options;
  petra_status status = petra_worker_cost_create(&options->counting, &w->counting);
  if (status != PETRA_OK)
    petra_free(w);
  else
    *out = &w->base;
  return status;
}

void petra_worker_ranks_destroy(petra_worker *base) {
  worker_ranks *w = (worker_ranks *)base;
  if (!w)
    return;
  petra_worker_cost_destroy(w->counting);
  petra_free(w->rows);
  petra_free(w);
}

/* --- checkpoints --- */

static const int64_t LATEST_NS = INT64_C(1) << 61; /* of a recorded time: 70 years */
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

static int64_t count_rows(const worker_ranks *w, int32_t stage) {
  int64_t count = 0;
  for (int64_t i = 0; i < w->count; i++)
    count += w->rows[i].action.stage == stage;
  return count;
}

static petra_status archive_rows(worker_ranks *w, int32_t stage, int64_t later_ns, petra_archive *archive,
                                 int64_t count) {
  int64_t *values, packed = 0;
  petra_status status;
  PETRA_TRY(petra_archive_require(archive, "actions", PETRA_ARCHIVE_I64, ROW * count));
  PETRA_TRY(petra_allocate(&values, (size_t)count, ROW * sizeof *values));
  for (int64_t i = 0; i < w->count && !archive->reading; i++)
    if (w->rows[i].action.stage == stage)
      pack(&w->rows[i], values + ROW * packed++);
  PETRA_TRY_GOTO(status, petra_archive_integers(archive, "actions", values, ROW * count), done);
  if (archive->reading && w->options.record)
    PETRA_TRY_GOTO(status, petra_array_reserve(&w->rows, &w->capacity, w->count + count, sizeof *w->rows), done);
  for (int64_t i = 0; i < count && archive->reading && w->options.record; i++) {
    petra_trace_row *row = &w->rows[w->count];
    PETRA_TRY_GOTO(status, unpack(archive, stage, w->options.program->microbatches, values + ROW * i, row), done);
    row->start_ns += later_ns;
    row->end_ns += later_ns;
    w->count++;
  }
done:
  petra_free(values);
  return status;
}

petra_status petra_worker_ranks_archive(petra_worker *base, int32_t stage, int64_t later_ns, petra_archive *archive,
                                        bool *there) {
  worker_ranks *w = (worker_ranks *)base;
  int64_t count = w && w->options.record ? count_rows(w, stage) : -1;
  PETRA_TRY(petra_archive_integers(archive, "actions-count", &count, 1));
  PETRA_TRY(petra_archive_within(archive, "actions-count", "actions", count, -1, INT32_MAX));
  *there = count >= 0;
  return w && count > 0 ? archive_rows(w, stage, later_ns, archive, count) : PETRA_OK;
}

const petra_trace_row *petra_worker_ranks_rows(const petra_worker *base, int64_t *count) {
  const worker_ranks *w = (const worker_ranks *)base;
  *count = w->count;
  return w->rows;
}

petra_worker_ranks_times petra_worker_ranks_took(const petra_worker *base) {
  return ((const worker_ranks *)base)->took;
}
