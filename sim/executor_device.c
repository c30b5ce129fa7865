/* SPDX-License-Identifier: Apache-2.0 */
/* Programs with an order: how a device reads it, the rules by which an action waits (schedule/program.h), and what a
 * stage exchanges with its replicas before an update. */
#include "base/log.h"
#include "sim/executor_virtual_private.h" /* circle: the devices are parts of the executor that they query */

void petra_device_read(const petra_executor_virtual *executor, int32_t device, int engine, petra_engine *reader) {
  petra_counters *counters = &reader->reading;
  petra_action action;
  int64_t round;
  bool joined = false;
  reader->waiting = false;
  while (petra_program_next(executor->program, executor->options, device + 1, &reader->cursor, &action, &round)) {
    if (round != reader->round) {
      reader->round = round;
      counters->round_start = counters->order;
    }
    bool ours = petra_engine_of(executor, action.kind) == engine;
    if (ours && !joined) {
      reader->next.before = *counters;
      reader->next.count = 0;
    }
    if (ours)
      reader->next.action[reader->next.count++] = action;
    reader->waiting |= ours;
    joined = reader->cursor.joined && executor->settings.engines == 1;
    counters->order++;
    if (action.kind == PETRA_ACTION_UPDATE)
      counters->updates_before++;
    else if (action.kind != PETRA_ACTION_EVALUATE)
      counters->passes_before++;
    if (ours && !joined)
      return;
  }
}

/* Returns true if the messages of the action have arrived. A stage's own passes are in the order of its device and need
 * no check. */
static bool fed(const petra_executor_virtual *executor, const petra_action *action) {
  int32_t stage = action->stage;
  if (action->kind == PETRA_ACTION_FORWARD ||
      (action->kind == PETRA_ACTION_BACKWARD && petra_program_fused(executor->options, stage)))
    return stage == 1 || petra_microbatch_set_has(&executor->forward[stage - 1], action->microbatch);
  /* The loss of a split head counts as a message: with two engines its F may still run. */
  if (action->kind == PETRA_ACTION_BACKWARD)
    return petra_microbatch_set_has(&executor->backward[stage - 1], action->microbatch);
  return true;
}

bool petra_device_ready(const petra_executor_virtual *executor, const petra_device *device, const petra_step *step) {
  if (device->done < step->before.round_start)
    return false;
  for (int i = 0; i < step->count; i++)
    if (!fed(executor, &step->action[i]))
      return false;
  switch (step->action[0].kind) {
  case PETRA_ACTION_FORWARD:
  case PETRA_ACTION_BACKWARD:
  case PETRA_ACTION_WEIGHT_GRADIENT:
    return device->updates >= step->before.updates_before;
  case PETRA_ACTION_UPDATE:
    return device->passes >= step->before.passes_before && petra_exchange_done(executor, step->action[0].stage);
  case PETRA_ACTION_EVALUATE:
    return device->done >= step->before.order;
  case PETRA_ACTION_KINDS:
    break;
  }
  return false;
}

/* --- replicas --- */

petra_status petra_exchange_count(petra_executor_virtual *executor, const petra_action *ended) {
  const petra_action_kind completes =
      executor->settings.rule.split_backward ? PETRA_ACTION_WEIGHT_GRADIENT : PETRA_ACTION_BACKWARD;
  petra_exchange *exchange = &executor->exchanges[ended->stage - 1];
  if (ended->kind == PETRA_ACTION_UPDATE)
    *exchange = (petra_exchange){0};
  if (ended->kind != completes)
    return PETRA_OK;
  if (exchange->gradients == executor->options->accumulate)
    return petra_fail(PETRA_SCHEDULE,
                      "stage %d: more than %lld gradients without an update; with cluster.replicas an update takes "
                      "exactly method.accumulate gradients",
                      ended->stage, (long long)exchange->gradients);
  if (++exchange->gradients < executor->options->accumulate)
    return PETRA_OK;
  const petra_packet packet = {.stage = ended->stage, .exchange = true, .microbatch = ended->microbatch};
  const int32_t device = petra_program_device(executor->options, ended->stage) - 1;
  const petra_stage_cost *cost = &executor->costs[executor->settings.cost_count == 1 ? 0 : ended->stage - 1];
  PETRA_TRY(petra_fabric_exchange(executor->fabric, executor->now_ns, device,
                                  petra_cost_exchange_bytes(executor->settings.replicas, cost->gradient_bytes), &packet,
                                  &exchange->done));
  if (!exchange->done)
    PETRA_NOTIFY(petra_observer, executor->observers, sent, observer, ended->stage, &packet, executor->now_ns);
  return PETRA_OK;
}

petra_status petra_exchange_fail(const petra_executor_virtual *executor, const petra_action *update) {
  return petra_fail(PETRA_SCHEDULE,
                    "stage %d: an update after %lld gradients; expected %lld (method.accumulate) with cluster.replicas",
                    update->stage, (long long)executor->exchanges[update->stage - 1].gradients,
                    (long long)executor->options->accumulate);
}
