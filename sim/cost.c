#include "sim/cost.h"

#include <math.h>

int64_t petra_nanoseconds(double seconds) {
  return llround(seconds * 1e9);
}

void petra_cost_durations(const petra_stage_cost *cost, const petra_cost_rule *rule, bool last, int64_t durations_ns[5]) {
  bool fused = last && rule->fused_head;
  int64_t weight_ns = rule->split_backward ? cost->weight_gradient_ns : 0;
  durations_ns[0] = cost->forward_ns;
  durations_ns[1] = cost->backward_ns - weight_ns;
  if (fused)
    durations_ns[1] += cost->forward_ns;
  else if (rule->recomputes)
    durations_ns[1] += cost->reconstruct_ns;
  durations_ns[2] = weight_ns;
  durations_ns[3] = cost->update_ns;
  durations_ns[4] = 0; /* evaluations take no virtual time */
}
