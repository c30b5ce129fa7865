/* SPDX-License-Identifier: Apache-2.0 */
#include "record/replay.h"

#include "base/mem.h"
#include "schedule/method.h"
#include "sim/worker_cost.h"

#include <stdlib.h>

/* The maximum number of actions: about 6 GB. */
static const int64_t MAX_ACTIONS = INT64_C(20000000);

static bool computes_loss(const petra_program_options *program, const petra_action *action) {
  return action->stage == program->stages &&
         action->kind == (program->split_head ? PETRA_ACTION_FORWARD : PETRA_ACTION_BACKWARD);
}

/* Follows the actions of each stage: finds the version with which each B inverts, and how long each pass is kept.
 * `forward` is scratch memory for the row of F, by stage and microbatch. */
static void follow(petra_replay *replay, int64_t *forward) {
  const petra_plan *plan = &replay->plan;
  const petra_method *method = &plan->method;
  const petra_version_rule rule = petra_method_versions(method);
  const petra_action_kind release =
      method->program->split_backward ? PETRA_ACTION_WEIGHT_GRADIENT : PETRA_ACTION_BACKWARD;
  for (int64_t i = 0; i < replay->count; i++) {
    const petra_action *action = &replay->rows[i].action;
    const bool fused = petra_program_fused(&plan->program, action->stage);
    int64_t *from = &forward[(action->stage - 1) * plan->program.microbatches];
    replay->inverse[i] = replay->kept_until[i] = -1;
    if (action->kind == (fused ? PETRA_ACTION_BACKWARD : PETRA_ACTION_FORWARD))
      from[action->microbatch] = i;
    if (action->kind == PETRA_ACTION_BACKWARD && method->inverts && !fused)
      replay->inverse[i] =
          petra_backward_version(&rule, method->invert_weights, action->microbatch, replay->updates[action->stage - 1],
                                 replay->rows[from[action->microbatch]].result.version_read);
    if (action->kind == release && from[action->microbatch] < i) /* a fused head keeps nothing after its B */
      replay->kept_until[from[action->microbatch]] = i;
    if (action->kind == PETRA_ACTION_UPDATE)
      replay->updates[action->stage - 1] = replay->rows[i].result.version_written;
    replay->returned += action->kind == PETRA_ACTION_BACKWARD && action->stage == 1;
  }
}

static petra_status find_versions(petra_replay *replay) {
  const petra_program_options *program = &replay->plan.program;
  PETRA_FREED int64_t *forward = NULL;
  PETRA_TRY(petra_allocate_raw(&replay->inverse, (size_t)replay->count, sizeof *replay->inverse));
  PETRA_TRY(petra_allocate_raw(&replay->kept_until, (size_t)replay->count, sizeof *replay->kept_until));
  PETRA_TRY(petra_allocate(&replay->updates, (size_t)program->stages, sizeof *replay->updates));
  PETRA_TRY(petra_allocate_raw(&forward, (size_t)program->stages * (size_t)program->microbatches, sizeof *forward));
  follow(replay, forward);
  return PETRA_OK;
}

/* --- probes --- */

static bool is_fixed(const petra_replay *replay) {
  return replay->plan.method.program->moment != PETRA_MOMENT_CLOCK || replay->plan.stages == 1;
}

static int compare_numbers(const void *a, const void *b) {
  const int64_t one = *(const int64_t *)a, other = *(const int64_t *)b;
  return (one > other) - (one < other);
}

/* Returns the window of a microbatch; -1: it is not probed. */
static int64_t window_of(const petra_replay *replay, int64_t microbatch) {
  const int64_t first = microbatch - microbatch % replay->plan.program.accumulate;
  const int64_t *found = replay->window_count ? bsearch(&first, replay->windows, (size_t)replay->window_count,
                                                        sizeof first, compare_numbers)
                                              : NULL;
  return found ? found - replay->windows : -1;
}

/* Finds the windows in which a training begins a probe, if they are not cut off by the end of the run. */
static petra_status find_windows(petra_replay *replay) {
  const petra_program_options *program = &replay->plan.program;
  const int64_t per_epoch = replay->config->probe.per_epoch;
  int64_t capacity = 0;
  for (int64_t first = 0; per_epoch > 0 && first + program->accumulate <= program->microbatches;
       first += program->accumulate) {
    if (!petra_program_is_probed(program, per_epoch, first))
      continue;
    PETRA_TRY(petra_array_reserve(&replay->windows, &capacity, replay->window_count + 1, sizeof *replay->windows));
    replay->windows[replay->window_count++] = first;
  }
  return PETRA_OK;
}

/* Returns true if the run makes all updates that the end-to-end references of a window count. */
static bool reached(const petra_replay *replay, int64_t window) {
  for (int64_t slot = 0; slot < replay->plan.program.accumulate; slot++)
    for (int32_t stage = 1; stage <= replay->plan.stages; stage++)
      for (int32_t of = 1; of <= replay->plan.stages; of++)
        if (petra_replay_reference(replay, window, slot, stage, of) > replay->updates[of - 1])
          return false;
  return true;
}

/* Removes the windows whose probes a training does not log: a stage does not make the update, or a reference is
 * missing. */
static petra_status drop_incomplete(petra_replay *replay) {
  PETRA_FREED int32_t *updated = NULL;
  int64_t complete = 0;
  PETRA_TRY(petra_allocate(&updated, (size_t)replay->window_count, sizeof *updated));
  for (int64_t i = 0; i < replay->count; i++) {
    const petra_action *action = &replay->rows[i].action;
    const int64_t window = action->kind == PETRA_ACTION_UPDATE ? window_of(replay, action->microbatch) : -1;
    if (window >= 0)
      updated[window]++;
  }
  for (int64_t window = 0; window < replay->window_count; window++)
    if (updated[window] == replay->plan.stages && (!is_fixed(replay) || reached(replay, window)))
      replay->windows[complete++] = replay->windows[window];
  replay->window_count = complete;
  return PETRA_OK;
}

/* Returns the versions of the end-to-end network for B of a microbatch at a stage; NULL: it is not probed. */
static int64_t *clock_versions(const petra_replay *replay, const petra_action *action) {
  const petra_program_options *program = &replay->plan.program;
  const int64_t window = action->kind == PETRA_ACTION_BACKWARD ? window_of(replay, action->microbatch) : -1;
  const int64_t slot = action->microbatch % program->accumulate;
  return window < 0 ? NULL
                    : &replay->clock[((window * program->accumulate + slot) * program->stages + action->stage - 1) *
                                     program->stages];
}

/* By the clock, an update of another stage counts if it starts no later than B; an update of the same stage counts if
 * it comes before B. */
static petra_status follow_clock(petra_replay *replay) {
  const size_t stages = (size_t)replay->plan.stages;
  const size_t slots = (size_t)(replay->window_count * replay->plan.program.accumulate);
  PETRA_FREED int64_t *versions = NULL;
  PETRA_TRY(petra_allocate(&replay->clock, slots * stages, stages * sizeof *replay->clock));
  PETRA_TRY(petra_allocate(&versions, stages, sizeof *versions));
  for (int64_t first = 0, end; first < replay->count; first = end) {
    for (end = first; end < replay->count && replay->rows[end].start_ns == replay->rows[first].start_ns; end++) {
      const petra_action *action = &replay->rows[end].action;
      int64_t *own = clock_versions(replay, action);
      if (own)
        own[action->stage - 1] = versions[action->stage - 1];
      versions[action->stage - 1] += action->kind == PETRA_ACTION_UPDATE;
    }
    for (int64_t i = first; i < end; i++) {
      int64_t *all = clock_versions(replay, &replay->rows[i].action);
      for (size_t of = 0; all && of < stages; of++)
        if (of + 1 != (size_t)replay->rows[i].action.stage)
          all[of] = versions[of];
    }
  }
  return PETRA_OK;
}

static petra_status find_probes(petra_replay *replay) {
  PETRA_TRY(find_windows(replay));
  if (replay->window_count == 0)
    return PETRA_OK;
  PETRA_TRY(drop_incomplete(replay));
  return is_fixed(replay) ? PETRA_OK : follow_clock(replay);
}

/* --- the replay --- */

static petra_status simulate(petra_replay *replay) {
  const petra_plan *plan = &replay->plan;
  PETRA_TRY(petra_action_log_create(&plan->program, false, NULL, &replay->log));
  PETRA_TRY(petra_worker_cost_run(&replay->cluster.executor, &plan->method, &plan->program,
                                  petra_action_log_observer(replay->log), NULL));
  replay->rows = petra_action_log_rows(replay->log, &replay->count);
  return PETRA_OK;
}

petra_status petra_replay_init(petra_replay *replay, const petra_config *config) {
  *replay = (petra_replay){.config = config};
  if (config->cluster.cost.model == PETRA_COST_MEASURED)
    return petra_config_fail(config, "cluster.cost.model",
                             "measured: without a training there is nothing to measure; expected another model");
  PETRA_TRY(petra_plan_trained(&replay->plan, config));
  const petra_program_options *program = &replay->plan.program;
  if (program->microbatches > MAX_ACTIONS / (2 * program->stages))
    return petra_config_fail(config, "run.epochs",
                             "%lld microbatches on %d stages are more than %lld actions; expected fewer epochs, or a "
                             "smaller run.max_microbatches",
                             (long long)program->microbatches, program->stages, (long long)MAX_ACTIONS);
  PETRA_TRY(petra_plan_load_profile(&replay->plan));
  PETRA_TRY(petra_cluster_init(&replay->cluster, &replay->plan));
  replay->lr = petra_lr_from_config(config, program->batches);
  PETRA_TRY(simulate(replay));
  PETRA_TRY(find_versions(replay));
  return find_probes(replay);
}

void petra_replay_fini(petra_replay *replay) {
  PETRA_FREE_ALL(replay->clock, replay->windows, replay->updates, replay->kept_until, replay->inverse);
  petra_action_log_destroy(replay->log);
  petra_cluster_fini(&replay->cluster);
  petra_plan_fini(&replay->plan);
}

petra_stage_delay petra_replay_delay(const petra_replay *replay, int32_t stage) {
  const petra_plan *plan = &replay->plan;
  const petra_method *method = &plan->method;
  const bool file = plan->schedule && method->program->moment != PETRA_MOMENT_WINDOW;
  petra_stage_delay delay = {petra_method_distance(method, plan->stages, stage), -1, -1};
  if (file)
    delay.microbatches = plan->distance[stage - 1].delay;
  if (file || method->program->arrival)
    return delay;
  if (method->sync_period == 0)
    delay.updates = petra_method_delay(method, plan->stages, stage);
  delay.descent = petra_method_descent(method, plan->stages, stage);
  return delay;
}

double petra_replay_rate(const petra_replay *replay, const petra_action *action) {
  const petra_plan *plan = &replay->plan;
  return petra_lr_at(&replay->lr,
                     petra_program_rate_index(plan->method.program, &plan->program, action->stage, action->microbatch));
}

int64_t petra_replay_epoch(const petra_replay *replay, const petra_action *action) {
  const petra_plan *plan = &replay->plan;
  if (action->kind == PETRA_ACTION_EVALUATE)
    return action->microbatch / plan->program.batches;
  return computes_loss(&plan->program, action)
             ? petra_program_loss_epoch(plan->method.program, &plan->program, action->microbatch)
             : -1;
}

int64_t petra_replay_reference(const petra_replay *replay, int64_t window, int64_t slot, int32_t stage, int32_t of) {
  const petra_program_options *program = &replay->plan.program;
  if (replay->clock)
    return replay
        ->clock[((window * program->accumulate + slot) * program->stages + stage - 1) * program->stages + of - 1];
  return petra_program_reference(replay->plan.method.program, program, replay->windows[window] + slot, stage, of);
}
