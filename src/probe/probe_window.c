/* SPDX-License-Identifier: Apache-2.0 */
/* The windows of a probe: update windows whose gradients are being collected. */
#include "probe/probe_private.h"

#include "base/mem.h"

petra_probe_window *petra_probe_find(const petra_probe *probe, int64_t microbatch) {
  petra_probe_window *window = probe->windows;
  while (window && (microbatch < window->first || microbatch >= window->first + probe->accumulate))
    window = window->next;
  return window;
}

bool petra_probe_slot_is_complete(const petra_probe *probe, const petra_probe_slot *slot) {
  bool complete = slot->delayed;
  for (int32_t j = 0; j < probe->stages; j++)
    complete = complete && slot->end_to_end[j];
  return complete;
}

bool petra_probe_is_complete(const petra_probe *probe, const petra_probe_window *window, int32_t stage) {
  bool complete = window->updated[stage];
  for (int64_t s = 0; s < probe->accumulate; s++)
    complete = complete && window->slots[s].delayed && window->slots[s].end_to_end[stage];
  return complete;
}

void petra_probe_slot_release(const petra_probe *probe, petra_probe_slot *slot) {
  for (int i = 0; i < probe->here; i++) {
    petra_tensor_release(&slot->parts[i].images);
    petra_free(slot->parts[i].labels);
    slot->parts[i].labels = NULL;
  }
}

static void free_slot(const petra_probe *probe, petra_probe_slot *slot) {
  if (slot->parts)
    petra_probe_slot_release(probe, slot);
  for (int i = 0; slot->parts && i < probe->here; i++) {
    for (int32_t j = 0; slot->parts[i].inputs && j < probe->stages; j++)
      petra_streams_release(&slot->parts[i].inputs[j]);
    petra_free(slot->parts[i].inputs);
  }
  PETRA_FREE_ALL(slot->parts, slot->forward, slot->end_to_end);
}

void petra_probe_release_sums(petra_probe_window *window, int first, int end) {
  for (int g = 0; g < PETRA_GRADIENTS; g++)
    for (int b = first; window->sums[g] && b < end; b++)
      petra_tensor_set_release(&window->sums[g][b]);
}

static void free_window(petra_probe *probe, petra_probe_window *window) {
  for (int64_t s = 0; window->slots && s < probe->accumulate; s++)
    free_slot(probe, &window->slots[s]);
  petra_probe_release_sums(window, 0, probe->model->block_count);
  for (int g = 0; g < PETRA_GRADIENTS; g++)
    petra_free(window->sums[g]);
  petra_free(window->errors);
  PETRA_FREE_ALL(window->error_count, window->slots, window->updated, window->stage, window);
}

static petra_status allocate_slot(const petra_probe *probe, petra_probe_slot *slot) {
  const size_t stages = (size_t)probe->stages;
  PETRA_TRY(petra_allocate(&slot->forward, 2 * stages, sizeof *slot->forward));
  PETRA_TRY(petra_allocate(&slot->parts, (size_t)probe->here, sizeof *slot->parts));
  for (int i = 0; i < probe->here; i++)
    PETRA_TRY(petra_allocate(&slot->parts[i].inputs, stages, sizeof *slot->parts[i].inputs));
  PETRA_TRY(petra_allocate(&slot->end_to_end, stages, sizeof *slot->end_to_end));
  slot->begun = slot->forward + stages;
  for (size_t j = 0; j < stages; j++)
    slot->forward[j] = slot->begun[j] = -1;
  return PETRA_OK;
}

/* Allocates the sums of the stages that this process compares. */
static petra_status allocate_sums(petra_probe *probe, petra_probe_window *window) {
  const petra_model *model = probe->model;
  for (int g = 0; g < PETRA_GRADIENTS; g++) {
    PETRA_TRY(petra_allocate(&window->sums[g], (size_t)model->block_count, sizeof *window->sums[g]));
    for (int32_t j = 0; j < probe->stages; j++)
      for (int b = petra_probe_first(probe, j); b < petra_probe_end(probe, j); b++)
        if (petra_probe_has(probe, j) && petra_probe_compares(probe))
          PETRA_TRY(petra_tensor_set_create(&probe->compute, model, &model->blocks[b], false, PETRA_MEMORY_GRADIENTS,
                                            &window->sums[g][b]));
  }
  return PETRA_OK;
}

static petra_status allocate(petra_probe *probe, petra_probe_window *window) {
  size_t stages = (size_t)probe->stages, k = (size_t)probe->accumulate;
  const size_t measures = PETRA_MEASURES * PETRA_PAIRS;
  PETRA_TRY(petra_allocate(&window->slots, k, sizeof *window->slots));
  for (size_t s = 0; s < k; s++)
    PETRA_TRY(allocate_slot(probe, &window->slots[s]));
  PETRA_TRY(petra_allocate(&window->updated, 2 * stages, sizeof *window->updated));
  window->compared = window->updated + stages;
  PETRA_TRY(petra_allocate(&window->stage, petra_probe_numbers(probe), sizeof *window->stage));
  window->concatenated = window->stage + measures * stages;
  window->reconstruction = window->concatenated + PETRA_PAIRS * stages;
  window->parameter = window->reconstruction + stages;
  const size_t parts = (size_t)probe->replicas * stages;
  PETRA_TRY(petra_allocate(&window->errors, parts * k, sizeof *window->errors));
  PETRA_TRY(petra_allocate(&window->error_count, parts, sizeof *window->error_count));
  return allocate_sums(probe, window);
}

petra_status petra_probe_open(petra_probe *probe, int64_t first, petra_probe_window **out) {
  petra_probe_window *window, **link = &probe->windows;
  PETRA_TRY(petra_allocate(&window, 1, sizeof *window));
  petra_status status = allocate(probe, window);
  if (status != PETRA_OK) {
    free_window(probe, window);
    return status;
  }
  window->first = first;
  while (*link)
    link = &(*link)->next;
  *link = window;
  *out = window;
  return PETRA_OK;
}

void petra_probe_close(petra_probe *probe, petra_probe_window *window) {
  petra_probe_window **link = &probe->windows;
  while (*link != window)
    link = &(*link)->next;
  *link = window->next;
  free_window(probe, window);
}
