#include "cli/recorder.h"

#include "base/log.h"
#include "base/mem.h"

#include <string.h>

/* An action that has started; written when it and all before it have ended. */
typedef struct started {
  petra_runlog_action row;
  bool ended;
} started;

struct petra_recorder {
  petra_worker base;
  petra_recorder_options options;
  petra_account *told; /* per stage: what the trace was told last */
  started *ring;       /* by number, modulo capacity (a power of two) */
  int64_t first, next, capacity;
  int64_t *running; /* per stage: the number of its F, and of its other action, in progress */
};

static petra_status make_room(petra_recorder *recorder) {
  int64_t capacity = recorder->capacity ? 2 * recorder->capacity : 64;
  started *ring;
  if (recorder->next - recorder->first < recorder->capacity)
    return PETRA_OK;
  PETRA_TRY(petra_allocate(&ring, (size_t)capacity, sizeof *ring));
  for (int64_t i = recorder->first; i < recorder->next; i++)
    ring[i & (capacity - 1)] = recorder->ring[i & (recorder->capacity - 1)];
  petra_free(recorder->ring);
  recorder->ring = ring;
  recorder->capacity = capacity;
  return PETRA_OK;
}

static int64_t *running_of(petra_recorder *recorder, const petra_action *action) {
  return &recorder->running[2 * (action->stage - 1) + (action->kind != PETRA_ACTION_FORWARD)];
}

static petra_status note_start(petra_recorder *recorder, int64_t now_ns, const petra_action *action,
                               const petra_action_result *result) {
  PETRA_TRY(make_room(recorder));
  recorder->ring[recorder->next & (recorder->capacity - 1)] =
      (started){.row = {.start_ns = now_ns,
                        .stage = action->stage,
                        .kind = (int32_t)action->kind,
                        .microbatch = action->microbatch,
                        .version_read = result->version_read,
                        .version_written = result->version_written}};
  *running_of(recorder, action) = recorder->next++;
  return PETRA_OK;
}

petra_status petra_recorder_ended(petra_recorder *recorder, const petra_trace_row *row) {
  if (!recorder->options.runlog)
    return PETRA_OK;
  started *one = &recorder->ring[*running_of(recorder, &row->action) & (recorder->capacity - 1)];
  if (one->row.microbatch != row->action.microbatch || one->row.kind != (int32_t)row->action.kind)
    return petra_fail(PETRA_INTERNAL, "stage %d: an action ends that did not start", row->action.stage);
  one->row.end_ns = row->end_ns;
  one->ended = true;
  for (; recorder->first < recorder->next; recorder->first++) {
    const started *oldest = &recorder->ring[recorder->first & (recorder->capacity - 1)];
    if (!oldest->ended)
      break;
    PETRA_TRY(petra_runlog_action_row(recorder->options.runlog, &oldest->row));
  }
  return PETRA_OK;
}

/* Tells the trace what a stage holds, if that has changed. */
static petra_status tell_memory(petra_recorder *recorder, int32_t stage, int64_t now_ns) {
  if (stage < 1 || stage > recorder->options.stages)
    return PETRA_OK;
  const petra_account *now = recorder->options.account(recorder->options.account_context, stage);
  petra_account *told = &recorder->told[stage - 1];
  /* Not the workspace, which is the last category. */
  if (memcmp(now->bytes, told->bytes, PETRA_MEMORY_WORKSPACE * sizeof *now->bytes) == 0)
    return PETRA_OK;
  *told = *now;
  return petra_trace_add_memory(recorder->options.trace, stage, now_ns, now);
}

static petra_status perform(petra_worker *base, int64_t virtual_ns, const petra_action *actions, int count,
                            petra_action_result *results) {
  petra_recorder *recorder = (petra_recorder *)base;
  petra_worker *worker = recorder->options.worker;
  PETRA_TRY(worker->ops->perform(worker, virtual_ns, actions, count, results));
  for (int i = 0; i < count; i++) {
    if (recorder->options.runlog)
      PETRA_TRY(note_start(recorder, virtual_ns, &actions[i], &results[i]));
    for (int32_t stage = actions[i].stage - 1; recorder->told && stage <= actions[i].stage + 1; stage++)
      PETRA_TRY(tell_memory(recorder, stage, virtual_ns));
  }
  return PETRA_OK;
}

static petra_status finish_inner(petra_worker *base) {
  return petra_worker_finish(((petra_recorder *)base)->options.worker);
}

petra_status petra_recorder_create(const petra_recorder_options *options, petra_recorder **out) {
  static const petra_worker_ops ops = {.perform = perform, .finish = finish_inner};
  petra_recorder *recorder;
  petra_status status;
  size_t stages = (size_t)options->stages;
  PETRA_TRY(petra_allocate(&recorder, 1, sizeof *recorder));
  recorder->base.ops = &ops;
  recorder->options = *options;
  PETRA_TRY_GOTO(status, petra_allocate(&recorder->running, 2 * stages, sizeof *recorder->running), fail);
  if (options->trace && options->account)
    PETRA_TRY_GOTO(status, petra_allocate(&recorder->told, stages, sizeof *recorder->told), fail);
  *out = recorder;
  return PETRA_OK;
fail:
  petra_recorder_destroy(recorder);
  return status;
}

void petra_recorder_destroy(petra_recorder *recorder) {
  if (!recorder)
    return;
  petra_free(recorder->running);
  petra_free(recorder->ring);
  petra_free(recorder->told);
  petra_free(recorder);
}

petra_worker *petra_recorder_worker(petra_recorder *recorder) {
  return &recorder->base;
}
