/* From the gradients of a window to the numbers of its row. */
#include "exec/probe_private.h"

#include "nn/invariant.h"

#include <math.h>

/* Mean of what is defined. */
typedef struct mean {
  double sum;
  int count;
} mean;

static void put(mean *m, double value) {
  if (!isfinite(value))
    return;
  m->sum += value;
  m->count++;
}

static double get(const mean *m) {
  return m->count ? m->sum / m->count : NAN;
}

/* All tensors of a stage (from 0). Tensors whose gradient is rounding are measured, but left out of what is
 * the stage's. */
static petra_status compare(petra_probe *probe, petra_probe_window *window, int32_t j) {
  const petra_stage *stage = petra_probe_stage(probe, j);
  const int32_t stages = probe->options.stages.count;
  mean means[PETRA_MEASURES][PETRA_PAIRS] = {0};
  petra_products whole = {0};
  for (int b = petra_stage_first(stage); b < petra_stage_end(stage); b++)
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
            put(&means[m][p], value);
        }
    }
  for (int p = 0; p < PETRA_PAIRS; p++) {
    window->concatenated[p * stages + j] = petra_products_measure(&whole, PETRA_MEASURE_COSINE, (petra_pair)p);
    for (int m = 0; m < PETRA_MEASURES; m++)
      window->stage[(m * PETRA_PAIRS + p) * stages + j] = get(&means[m][p]);
  }
  return PETRA_OK;
}

static bool is_complete(const petra_probe_window *window, int32_t j) {
  return window->updated[j] && window->delayed_left == 0 && window->end_to_end_left[j] == 0;
}

static void release_sums(const petra_stage *stage, petra_probe_window *window) {
  for (int g = 0; g < PETRA_GRADIENTS; g++)
    for (int b = petra_stage_first(stage); b < petra_stage_end(stage); b++)
      petra_tensor_set_release(&window->sums[g][b]);
}

static petra_status compare_due(petra_probe *probe, petra_probe_window *window) {
  for (int32_t j = 0; j < probe->options.stages.count; j++) {
    if (window->compared[j] || !is_complete(window, j))
      continue;
    PETRA_TRY(compare(probe, window, j));
    window->compared[j] = true;
    window->compared_count++;
    if (!probe->options.gradients)
      release_sums(petra_probe_stage(probe, j), window);
  }
  return PETRA_OK;
}

static petra_status hand_out(petra_probe *probe, const petra_probe_window *window) {
  petra_probe_row row = {.microbatch = window->first,
                         .stages = probe->options.stages.count,
                         .parameters = probe->parameters,
                         .stage = window->stage,
                         .concatenated = window->concatenated,
                         .reconstruction = window->reconstruction,
                         .parameter = window->parameter};
  for (int g = 0; g < PETRA_GRADIENTS; g++)
    row.gradients[g] = probe->options.gradients ? window->sums[g] : NULL;
  return probe->options.row ? probe->options.row(probe->options.context, &row) : PETRA_OK;
}

petra_status petra_probe_finish_due(petra_probe *probe) {
  for (petra_probe_window *window = probe->windows; window; window = window->next)
    PETRA_TRY(compare_due(probe, window));
  while (probe->windows && probe->windows->compared_count == probe->options.stages.count) {
    PETRA_TRY(hand_out(probe, probe->windows));
    petra_probe_close(probe, probe->windows);
  }
  return PETRA_OK;
}
