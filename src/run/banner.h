/* SPDX-License-Identifier: Apache-2.0 */
/* The lines that petra train prints before it begins: the network, the method, the folder of the results, and an
 * estimate of the cost. Wall time is estimated by a profile, memory and disk by counting. Each figure is printed with
 * its source, or is omitted. */
#pragma once

#include "nn/optim.h"
#include "setup/plan.h"

#include <stdio.h>

typedef struct petra_estimate {
  /* of an emulation, which does all stages in sequence, according to the profile; NaN: no profile */
  double microbatch_s;
  int64_t memory_bytes;  /* sum of the peaks of the stages of all replicas, in tensors; -1: not counted */
  bool runs_away;        /* memory grows with the length of the run, so it is not counted */
  int64_t weights_bytes; /* size of the parameters in weights.h5 */
} petra_estimate;

/* Estimates the run of the plan's config; the plan has its method and partition. `microbatches` is the length of the
 * run; 0: not limited. Figures that cannot be counted, because petra simulate refuses the plan, are omitted.
 * PETRA_NO_MEMORY. */
petra_status petra_estimate_of(const petra_plan *plan, int64_t microbatches, petra_estimate *out);

/* Prints the lines "time", "memory" and "disk". `microbatches` is the length of the run, of which `done` microbatches
 * are done already. It is 0 if the length is not known, because the data are not read. */
void petra_estimate_print(const petra_plan *plan, const petra_estimate *estimate, int64_t microbatches, int64_t done,
                          FILE *out);

/* Prints the banner of a run whose first `done` microbatches are done, with its estimate.
 * The last line is empty. Errors: the errors of petra_estimate_of. */
petra_status petra_banner_print(const petra_plan *plan, const petra_lr *lr, int64_t done, const char *folder,
                                FILE *out);
