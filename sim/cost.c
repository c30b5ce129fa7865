/* SPDX-License-Identifier: Apache-2.0 */
#include "sim/cost.h"

#include "base/log.h"

#include <math.h>

int64_t petra_nanoseconds(double seconds) {
  return llround(seconds * 1e9);
}

petra_status petra_cost_scale(petra_stage_cost *cost, double speed) {
  int64_t *const durations[] = {&cost->forward_ns, &cost->backward_ns, &cost->reconstruct_ns, &cost->weight_gradient_ns,
                                &cost->update_ns};
  enum { DURATIONS = sizeof durations / sizeof *durations };
  for (int i = 0; i < DURATIONS; i++) {
    double scaled_ns = (double)*durations[i] / speed;
    if (!(scaled_ns < 9e18))
      return petra_fail(PETRA_CONFIG,
                        "cluster.speeds: an action of %g s at speed %g takes %g s; expected less than 9e9 s",
                        1e-9 * (double)*durations[i], speed, 1e-9 * scaled_ns);
    *durations[i] = llround(scaled_ns);
  }
  return PETRA_OK;
}

void petra_cost_durations(const petra_stage_cost *cost, const petra_cost_rule *rule, bool last,
                          int64_t duration_ns[PETRA_ACTION_KINDS]) {
  int64_t weight_ns = rule->split_backward ? cost->weight_gradient_ns : 0;
  duration_ns[PETRA_ACTION_FORWARD] = cost->forward_ns;
  duration_ns[PETRA_ACTION_BACKWARD] = cost->backward_ns - weight_ns;
  if (last && rule->fused_head)
    duration_ns[PETRA_ACTION_BACKWARD] += cost->forward_ns;
  else if (rule->recomputes)
    duration_ns[PETRA_ACTION_BACKWARD] += cost->reconstruct_ns;
  duration_ns[PETRA_ACTION_WEIGHT_GRADIENT] = weight_ns;
  duration_ns[PETRA_ACTION_UPDATE] = cost->update_ns;
  duration_ns[PETRA_ACTION_EVALUATE] = 0;
}
