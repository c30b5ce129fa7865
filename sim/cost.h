/* Costs: how long the parts of a stage's work take on the virtual clock. */
#ifndef PETRA_SIM_COST_H
#define PETRA_SIM_COST_H

#include "base/config.h"

#include <stdint.h>

typedef struct petra_cost {
  int64_t forward_ns;     /* F */
  int64_t backward_ns;    /* B without what follows */
  int64_t reconstruct_ns; /* reconstruction or recomputation inside B */
  int64_t update_ns;      /* U */
} petra_cost;

/* cost.model: unit is F = 1 s, B = 2 s, reconstruction or recomputation 1 s, U = 0; constant takes the config's four. */
petra_cost petra_cost_from_config(const petra_config *config);

#endif
