/* SPDX-License-Identifier: Apache-2.0 */
/* The results of a window: each process of replica 0 compares the gradients of its stages; rank 0 gathers the figures
 * and delivers them as a row. */
#include "probe/probe_private.h"

#include "base/log.h"
#include "base/mem.h"

#include <math.h>
#include <string.h>

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

static void release_sums(const petra_probe *probe, petra_probe_window *window, int32_t j) {
  for (int g = 0; g < PETRA_GRADIENTS; g++)
    for (int b = petra_probe_first(probe, j); b < petra_probe_end(probe, j); b++)
      petra_tensor_set_release(&window->sums[g][b]);
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
    if (!probe->options.config->probe.gradients)
      release_sums(probe, window, j);
  }
  return PETRA_OK;
}

static bool all_compared(const petra_probe *probe, const petra_probe_window *window) {
  int32_t j = 0;
  while (j < probe->stages && window->compared[j])
    j++;
  return j == probe->stages;
}

/* --- from the other processes ---
 * A message contains all figures of the window, of which those of the sender's stages count, and the reconstruction
 * errors of its replica. If gradients were requested, those of its parameters follow, as separate messages. */

static size_t errors_of(const petra_probe *probe) {
  return (size_t)probe->stages * (size_t)probe->accumulate;
}

size_t petra_probe_found_bytes(const petra_probe *probe) {
  return (petra_probe_numbers(probe) + errors_of(probe)) * sizeof(double) + (size_t)probe->stages * sizeof(int64_t);
}

/* Visits the parameters of a stage, in the order of a row. */
static petra_status each_gradient(petra_probe *probe, petra_probe_window *window, int rank, int32_t j,
                                  petra_status (*each)(petra_probe_link *link, petra_probe_message kind, int key,
                                                       petra_tensor *tensor)) {
  for (int g = 0; g < PETRA_GRADIENTS; g++)
    for (int b = petra_probe_first(probe, j); b < petra_probe_end(probe, j); b++)
      for (int i = 0; i < window->sums[g][b].count; i++)
        PETRA_TRY(each(probe->link, PETRA_PROBE_FOUND, rank, window->sums[g][b].tensor[i]));
  return PETRA_OK;
}

static petra_status send_gradient(petra_probe_link *link, petra_probe_message kind, int key, petra_tensor *tensor) {
  return petra_probe_link_send_tensor(link, kind, key, tensor);
}

static petra_status send_found(petra_probe *probe, petra_probe_window *window) {
  const size_t errors = errors_of(probe), own = (size_t)probe->first, stages = (size_t)probe->stages;
  void *buffer;
  PETRA_TRY(petra_probe_link_room(probe->link, PETRA_PROBE_FOUND, probe->rank, &buffer));
  double *numbers = buffer, *to = numbers + petra_probe_numbers(probe);
  memcpy(numbers, window->stage, petra_probe_numbers(probe) * sizeof *numbers);
  memcpy(to, window->errors + own * errors, errors * sizeof *to);
  memcpy(to + errors, window->error_count + own * stages, stages * sizeof *window->error_count);
  PETRA_TRY(petra_probe_link_send(probe->link, PETRA_PROBE_FOUND, probe->rank, petra_probe_found_bytes(probe)));
  for (int32_t j = 0; j < probe->stages && probe->options.config->probe.gradients; j++)
    if (petra_probe_has(probe, j) && petra_probe_compares(probe))
      PETRA_TRY(each_gradient(probe, window, probe->rank, j, send_gradient));
  return PETRA_OK;
}

/* Copies the figures of a stage. */
static void take_stage(const petra_probe *probe, petra_probe_window *window, const double *from, int32_t j) {
  const int measures = PETRA_MEASURES * PETRA_PAIRS, stages = probe->stages;
  const int first = probe->offset[petra_probe_first(probe, j)], end = probe->offset[petra_probe_end(probe, j)];
  const double *parameters = from + (window->parameter - window->stage);
  for (int m = 0; m < measures + PETRA_PAIRS; m++) /* the concatenated figures follow the measures */
    window->stage[m * stages + j] = from[m * stages + j];
  for (int m = 0; m < measures; m++)
    memcpy(window->parameter + (size_t)m * (size_t)probe->parameters + first,
           parameters + (size_t)m * (size_t)probe->parameters + first, (size_t)(end - first) * sizeof *from);
}

static petra_status take_gradients(petra_probe *probe, petra_probe_window *window, int rank, int32_t j) {
  for (int g = 0; g < PETRA_GRADIENTS; g++)
    for (int b = petra_probe_first(probe, j); b < petra_probe_end(probe, j); b++)
      PETRA_TRY(petra_tensor_set_create(&probe->compute, probe->model, &probe->model->blocks[b], false,
                                        PETRA_MEMORY_GRADIENTS, &window->sums[g][b]));
  return each_gradient(probe, window, rank, j, petra_probe_link_take_tensor);
}

static petra_status take_found(petra_probe *probe, petra_probe_window *window, int rank) {
  const petra_probe_ranks *ranks = &probe->options.ranks;
  const size_t errors = errors_of(probe), stages = (size_t)probe->stages, replica = (size_t)(rank / ranks->places);
  const void *data;
  size_t size;
  PETRA_TRY(petra_probe_link_peek(probe->link, PETRA_PROBE_FOUND, rank, true, &data, &size));
  if (size != petra_probe_found_bytes(probe))
    return petra_fail(PETRA_INTERNAL, "what rank %d found in a probe has %zu bytes; expected %zu", rank, size,
                      petra_probe_found_bytes(probe));
  const double *numbers = data, *from = numbers + petra_probe_numbers(probe);
  const int64_t *counts = (const int64_t *)(const void *)(from + errors);
  for (int32_t j = 0; j < probe->stages; j++) {
    const size_t at = replica * stages + (size_t)j, k = (size_t)probe->accumulate;
    if (ranks->rank_of[j] != rank % ranks->places)
      continue;
    if (replica == 0)
      take_stage(probe, window, numbers, j);
    memcpy(window->errors + at * k, from + (size_t)j * k, k * sizeof *from);
    window->error_count[at] = counts[j];
  }
  PETRA_TRY(petra_probe_link_done(probe->link, PETRA_PROBE_FOUND, rank));
  for (int32_t j = 0; j < probe->stages && replica == 0 && probe->options.config->probe.gradients; j++)
    if (ranks->rank_of[j] == rank)
      PETRA_TRY(take_gradients(probe, window, rank, j));
  return PETRA_OK;
}

/* *came is true if all other processes have sent their results of the oldest window. */
static petra_status gather(petra_probe *probe, bool wait, bool *came) {
  const int ranks = probe->link ? probe->options.replicas * probe->options.ranks.places : 1;
  *came = true;
  for (int rank = 1; rank < ranks && *came; rank++) {
    const void *data;
    size_t size;
    PETRA_TRY(petra_probe_link_peek(probe->link, PETRA_PROBE_FOUND, rank, wait, &data, &size));
    *came = data != NULL;
  }
  for (int rank = 1; rank < ranks && *came; rank++)
    PETRA_TRY(take_found(probe, probe->windows, rank));
  return PETRA_OK;
}

/* --- rows --- */

/* Computes the mean over all parts of the window, added in the order of their B's and of replicas; NaN if nothing is
 * reconstructed. */
static void reconstruct(const petra_probe *probe, petra_probe_window *window) {
  const int replicas = probe->options.replicas;
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
                         .stages = probe->stages,
                         .parameters = probe->parameters,
                         .stage = window->stage,
                         .concatenated = window->concatenated,
                         .reconstruction = window->reconstruction,
                         .parameter = window->parameter};
  for (int g = 0; g < PETRA_GRADIENTS; g++)
    row.gradients[g] = probe->options.config->probe.gradients ? window->sums[g] : NULL;
  reconstruct(probe, window);
  return probe->options.row ? probe->options.row(probe->options.context, &row) : PETRA_OK;
}

petra_status petra_probe_finish_due(petra_probe *probe, bool wait) {
  for (petra_probe_window *window = probe->windows; window; window = window->next)
    PETRA_TRY(compare_due(probe, window));
  while (probe->windows && all_compared(probe, probe->windows)) {
    bool came = true;
    if (probe->rank == 0)
      PETRA_TRY(gather(probe, wait, &came));
    if (!came)
      return PETRA_OK;
    PETRA_TRY(probe->rank == 0 ? hand_out(probe, probe->windows) : send_found(probe, probe->windows));
    petra_probe_close(probe, probe->windows);
  }
  return PETRA_OK;
}
