/* SPDX-License-Identifier: Apache-2.0 */
/* The results of a window: each process of replica 0 compares the gradients of its stages; rank 0 gathers the figures
 * and delivers them as a row. */
#include "probe/probe_private.h"

#include <math.h>

/* Compares the stages that are complete. A process without a stage only marks that stage as compared. */
static petra_status compare_due(petra_probe *probe, petra_probe_window *window) {
  if (petra_probe_waves_have(probe, window))
    return PETRA_OK;
  for (int32_t j = 0; j < probe->stages; j++) {
    if (window->compared[j] || !petra_probe_is_complete(probe, window, j))
      continue;
    window->compared[j] = true;
    if (!petra_probe_has(probe, j) || !petra_probe_compares(probe))
      continue;
    PETRA_TRY(petra_probe_compare_stage(probe, window, j));
    if (!probe->plan->config->probe.gradients)
      petra_probe_release_sums(window, petra_probe_first(probe, j), petra_probe_end(probe, j));
  }
  return PETRA_OK;
}

static bool all_compared(const petra_probe *probe, const petra_probe_window *window) {
  int32_t j = 0;
  while (j < probe->stages && window->compared[j])
    j++;
  return j == probe->stages;
}

/* --- rows --- */

/* Computes the mean reconstruction error of each stage over all parts of the window, added in the order of their B's
 * and of replicas; NaN if nothing is reconstructed. */
static void reconstruct(const petra_probe *probe, petra_probe_window *window) {
  const int replicas = probe->replicas;
  const int64_t k = probe->accumulate;
  for (int32_t j = 0; j < probe->stages; j++) {
    double sum = NAN;
    for (int64_t s = 0; s < k; s++)
      for (int r = 0; r < replicas; r++) {
        const int64_t at = r * probe->stages + j;
        if (s < window->error_count[at])
          sum = (isnan(sum) ? 0 : sum) + window->errors[at * k + s] / (double)(k * replicas);
      }
    window->reconstruction[j] = sum;
  }
}

static petra_status hand_out(petra_probe *probe, petra_probe_window *window) {
  petra_probe_row row = {.microbatch = window->first,
                         .epoch = (int32_t)(window->first / probe->plan->program.batches),
                         .stages = probe->stages,
                         .parameters = probe->parameters,
                         .stage = window->stage,
                         .concatenated = window->concatenated,
                         .reconstruction = window->reconstruction,
                         .parameter = window->parameter};
  for (int g = 0; g < PETRA_GRADIENTS; g++)
    row.gradients[g] = probe->plan->config->probe.gradients ? window->sums[g] : NULL;
  reconstruct(probe, window);
  return probe->row ? probe->row(probe->context, &row) : PETRA_OK;
}

petra_status petra_probe_finish_due(petra_probe *probe, bool wait) {
  for (petra_probe_window *window = probe->windows; window; window = window->next)
    PETRA_TRY(compare_due(probe, window));
  while (probe->windows && all_compared(probe, probe->windows)) {
    bool came = true;
    if (probe->rank == 0)
      PETRA_TRY(petra_probe_gather(probe, wait, &came));
    if (!came)
      return PETRA_OK;
    PETRA_TRY(probe->rank == 0 ? hand_out(probe, probe->windows) : petra_probe_send_found(probe, probe->windows));
    petra_probe_close(probe, probe->windows);
  }
  return PETRA_OK;
}
