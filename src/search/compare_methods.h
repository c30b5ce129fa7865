/* SPDX-License-Identifier: Apache-2.0 */
/* Simulates every method as a candidate for one config (candidate.h).
 *
 * All methods have the devices of the config's own method, and the stages per device that they need: one, or two in a
 * loop or a V (in a loop method.chunks, if it is set). */
#pragma once

#include "search/candidate.h"

typedef struct petra_method_figures {
  petra_method method;
  int32_t stages, devices;
  bool exact; /* its gradients are those of the whole network; else they are delayed, or local */
  petra_candidate_figures found;
} petra_method_figures;

/* Fills `out`, one entry for each preset (petra_method_count), by increasing time per microbatch; those that cannot run
 * are last. *devices and *stages are those of the config. Errors: those of petra_candidates_create. */
petra_status petra_compare_methods(const petra_config *config, petra_method_figures *out, int32_t *devices,
                                   int32_t *stages);
