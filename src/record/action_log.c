/* SPDX-License-Identifier: Apache-2.0 */
#include "record/action_log.h"

#include "base/log.h"
#include "base/mem.h"

/* An action that has started; written when it and all before it have ended. */
typedef struct begun {
  petra_runlog_action row;
  bool ended;
} begun;

typedef struct action_log {
  petra_observer base;
  petra_runlog *runlog;
  begun *ring; /* by number, modulo capacity (a power of two) */
  int64_t first, next, capacity;
  int64_t *running; /* per stage: the number of its F, and of its other action, in progress */
} action_log;

static petra_status make_room(action_log *log) {
  int64_t capacity = log->capacity ? 2 * log->capacity : 64;
  begun *ring;
  if (log->next - log->first < log->capacity)
    return PETRA_OK;
  PETRA_TRY(petra_allocate(&ring, (size_t)capacity, sizeof *ring));
  for (int64_t i = log->first; i < log->next; i++)
    ring[i & (capacity - 1)] = log->ring[i & (log->capacity - 1)];
  petra_free(log->ring);
  log->ring = ring;
  log->capacity = capacity;
  return PETRA_OK;
}

static int64_t *running_of(action_log *log, const petra_action *action) {
  return &log->running[2 * (action->stage - 1) + (action->kind != PETRA_ACTION_FORWARD)];
}

static petra_status note_start(action_log *log, int64_t now_ns, const petra_action *action,
                               const petra_action_result *result) {
  PETRA_TRY(make_room(log));
  log->ring[log->next & (log->capacity - 1)] = (begun){.row = {.start_ns = now_ns,
                                                               .stage = action->stage,
                                                               .kind = (int32_t)action->kind,
                                                               .microbatch = action->microbatch,
                                                               .version_read = result->version_read,
                                                               .version_written = result->version_written}};
  *running_of(log, action) = log->next++;
  return PETRA_OK;
}

static petra_status started(petra_observer *base, int64_t now_ns, const petra_action *actions,
                            const petra_action_result *results, int count) {
  for (int i = 0; i < count; i++)
    PETRA_TRY(note_start((action_log *)base, now_ns, &actions[i], &results[i]));
  return PETRA_OK;
}

static petra_status ended(petra_observer *base, const petra_trace_row *row) {
  action_log *log = (action_log *)base;
  begun *one = &log->ring[*running_of(log, &row->action) & (log->capacity - 1)];
  if (one->row.microbatch != row->action.microbatch || one->row.kind != (int32_t)row->action.kind)
    return petra_fail(PETRA_INTERNAL, "stage %d: an action ends that did not start", row->action.stage);
  one->row.end_ns = row->end_ns;
  one->ended = true;
  for (; log->first < log->next; log->first++) {
    const begun *oldest = &log->ring[log->first & (log->capacity - 1)];
    if (!oldest->ended)
      break;
    PETRA_TRY(petra_runlog_action_row(log->runlog, &oldest->row));
  }
  return PETRA_OK;
}

petra_status petra_action_log_create(petra_runlog *runlog, int32_t stages, petra_observer **out) {
  static const petra_observer_ops ops = {.started = started, .ended = ended};
  action_log *log;
  PETRA_TRY(petra_allocate(&log, 1, sizeof *log));
  log->base.ops = &ops;
  log->runlog = runlog;
  petra_status status = petra_allocate(&log->running, 2 * (size_t)stages, sizeof *log->running);
  if (status != PETRA_OK)
    petra_action_log_destroy(&log->base);
  else
    *out = &log->base;
  return status;
}

void petra_action_log_destroy(petra_observer *base) {
  action_log *log = (action_log *)base;
  if (!log)
    return;
  petra_free(log->running);
  petra_free(log->ring);
  petra_free(log);
}
