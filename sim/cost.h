/* Costs: how long an action takes on the virtual clock. */
#ifndef PETRA_SIM_COST_H
#define PETRA_SIM_COST_H

#include "base/config.h"
#include "schedule/action.h"

#include <stdbool.h>

typedef struct petra_cost {
  int64_t forward_ns, backward_ns, reconstruct_ns, update_ns;
  bool recomputes; /* the method's B reconstructs or recomputes first */
  int32_t stages;  /* the last stage does F, loss and B in one action, without recomputation */
} petra_cost;

/* cost.model: unit is F = 1 s, B = 2 s, reconstruction or recomputation 1 s, U = 0; constant takes the config's four. */
petra_cost petra_cost_from_config(const petra_config *config, bool recomputes, int32_t stages);

/* Duration of an action; evaluations take no virtual time. */
int64_t petra_cost_duration_ns(const petra_cost *cost, const petra_action *action);

#endif
