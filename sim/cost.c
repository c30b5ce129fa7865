#include "cost.h"

#include <math.h>

static const int64_t second_ns = 1000000000;

static int64_t nanoseconds(double seconds) {
  return llround(seconds * 1e9);
}

petra_cost petra_cost_from_config(const petra_config *config, bool recomputes, int32_t stages) {
  petra_cost cost = {second_ns, 2 * second_ns, second_ns, 0, recomputes, stages};
  if (config->cluster.cost.model == PETRA_COST_CONSTANT) {
    cost.forward_ns = nanoseconds(config->cluster.cost.forward_s);
    cost.backward_ns = nanoseconds(config->cluster.cost.backward_s);
    cost.reconstruct_ns = nanoseconds(config->cluster.cost.reconstruct_s);
    cost.update_ns = nanoseconds(config->cluster.cost.update_s);
  }
  return cost;
}

int64_t petra_cost_duration_ns(const petra_cost *cost, const petra_action *action) {
  switch (action->kind) {
  case PETRA_ACTION_FORWARD:
    return cost->forward_ns;
  case PETRA_ACTION_BACKWARD:
    if (action->stage == cost->stages)
      return cost->forward_ns + cost->backward_ns;
    return cost->backward_ns + (cost->recomputes ? cost->reconstruct_ns : 0);
  case PETRA_ACTION_UPDATE:
    return cost->update_ns;
  case PETRA_ACTION_EVALUATE:
  case PETRA_ACTION_KINDS:
    break;
  }
  return 0;
}
