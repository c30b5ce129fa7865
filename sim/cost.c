#include "sim/cost.h"

#include <math.h>

static int64_t nanoseconds(double seconds) {
  return llround(seconds * 1e9);
}

petra_cost petra_cost_from_config(const petra_config *config) {
  if (config->cluster.cost.model == PETRA_COST_UNIT)
    return (petra_cost){.forward_ns = nanoseconds(1), .backward_ns = nanoseconds(2), .reconstruct_ns = nanoseconds(1)};
  return (petra_cost){.forward_ns = nanoseconds(config->cluster.cost.forward_s),
                      .backward_ns = nanoseconds(config->cluster.cost.backward_s),
                      .reconstruct_ns = nanoseconds(config->cluster.cost.reconstruct_s),
                      .update_ns = nanoseconds(config->cluster.cost.update_s)};
}
