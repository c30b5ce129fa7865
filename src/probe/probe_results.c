/* SPDX-License-Identifier: Apache-2.0 */
/* The results of a window: each process of replica 0 compares the gradients of its stages; rank 0 gathers the figures
 * and delivers them as a row. */
#include "probe/probe_private.h"

#include <math.h>

/* --- figures --- */

/* Returns the mean of the values that are defined. */
typedef struct mean {
  double sum;
  int count;
} mean;

static void count_in(mean *m, double value) {
  if (!isfinite(value))
    return;
  m->sum += value;
  m->count++;
}

static double mean_of(const mean *m) {
  return m->count ? m->sum / m->count : NAN;
}

/* Sums all tensors of a stage. Tensors whose gradient is only rounding error are measured, but excluded from the
 * stage's sums. */
static petra_status compare(petra_probe *probe, petra_probe_window *window, int32_t j) {
  const int32_t stages = probe->stages;
  mean means[PETRA_MEASURES][PETRA_PAIRS] = {0};
  petra_products whole = {0};
  for (int b = petra_probe_first(probe, j); b < petra_probe_end(probe, j); b++)
    for (int i = 0; i < window->sums[0][b].count; i++) {
      const petra_tensor *tensors[PETRA_GRADIENTS];
      petra_products products;
      bool counts = !petra_block_parameter_is_invariant(probe->model, &probe->model->blocks[b], i);
      for (int g = 0; g < PETRA_GRADIENTS; g++)
        tensors[g] = window->sums[g][b].tensor[i];
      PETRA_TRY(petra_products_compute(&probe->compute, tensors, &products));
      if (counts)
        petra_products_add(&whole, &products);
      for (int m = 0; m < PETRA_MEASURES; m++)
        for (int p = 0; p < PETRA_PAIRS; p++) {
          double value = petra_products_measure(&products, (petra_measure)m, (petra_pair)p);
          window->parameter[(m * PETRA_PAIRS + p) * probe->parameters + probe->offset[b] + i] = value;
          if (counts)
            count_in(&means[m][p], value);
        }
    }
  for (int p = 0; p < PETRA_PAIRS; p++) {
    window->concatenated[p * stages + j] = petra_products_measure(&whole, PETRA_MEASURE_COSINE, (petra_pair)p);
    for (int m = 0; m < PETRA_MEASURES; m++)
      window->stage[(m * PETRA_PAIRS + p) * stages + j] = mean_of(&means[m][p]);
  }
  return PETRA_OK;
}

/* A process without the stage marks it as compared as soon as it is complete. */
static petra_status compare_due(petra_probe *probe, petra_probe_window *window) {
  if (petra_probe_waves_have(probe, window))
    return PETRA_OK;
  for (int32_t j = 0; j < probe->stages; j++) {
    if (window->compared[j] || !petra_probe_is_complete(probe, window, j))
      continue;
    window->compared[j] = true;
    if (!petra_probe_has(probe, j) || !petra_probe_compares(probe))
      continue;
    PETRA_TRY(compare(probe, window, j));
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

/* Computes the mean over all parts of the window, added in the order of their B's and of replicas; NaN if nothing is
 * reconstructed. */
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
