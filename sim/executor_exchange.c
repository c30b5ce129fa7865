/* SPDX-License-Identifier: Apache-2.0 */
/* Replicas: what a stage exchanges with them before an update, and how the update waits for it. */
#include "base/log.h"
#include "sim/executor_virtual_private.h"

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
    PETRA_TELL(petra_observer, executor->observers, sent, observer, ended->stage, &packet, executor->now_ns);
  return PETRA_OK;
}

petra_status petra_exchange_fail(const petra_executor_virtual *executor, const petra_action *update) {
  return petra_fail(PETRA_SCHEDULE,
                    "stage %d: an update after %lld gradients; expected %lld (method.accumulate) with cluster.replicas",
                    update->stage, (long long)executor->exchanges[update->stage - 1].gradients,
                    (long long)executor->options->accumulate);
}
