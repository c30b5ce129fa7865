/* SPDX-License-Identifier: Apache-2.0 */
/* What a run will take, before it begins: wall time by a profile, memory and disk by counting. Each is printed with where it
 * comes from, or is not given. */
#pragma once

#include "plan/plan.h"

typedef struct petra_estimate {
  double microbatch_s; /* of an emulation: by the profile all stages, one after the other; NaN: no profile */
  int64_t
      memory_bytes; /* sum over the stages of all replicas of the most that each holds in tensors; -1: not counted */
  bool runs_away;   /* memory grows with the run, and is not counted for that */
  int64_t weights_bytes; /* parameters of weights.h5 */
} petra_estimate;

/* Of the plan's config; the plan has its method and partition. `microbatches` of the run; 0: as many as one likes. What cannot be counted (a plan that petra simulate refuses) is left
 * out. PETRA_NO_MEMORY. */
petra_status petra_estimate_of(const petra_plan *plan, int64_t microbatches, petra_estimate *out);

/* Lines "time", "memory" and "disk". `microbatches` of the run, of which `done` are done already; 0: not known, as the data are not read. */
void petra_estimate_print(const petra_plan *plan, const petra_estimate *estimate, int64_t microbatches, int64_t done,
                          FILE *out);
