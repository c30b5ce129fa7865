/* SPDX-License-Identifier: Apache-2.0 */
/* A wave: one exact backpropagation through the whole network, of which each process computes its own stages. It uses
 * batch statistics, as in training, and changes no running statistics. Its forward pass runs immediately, at the
 * position where the order begins the wave. Its backward pass runs when the gradients have arrived from above, so the
 * process may perform other actions in between. The waves of a process go back in the order in which they were begun,
 * so the sums have a fixed order. */
#include "probe/probe_private.h"

#include "backend/backend.h"
#include "base/mem.h"

#include <string.h>

/* --- forward --- */

/* Computes the forward of one stage: *streams is its input and becomes its output. Keeps the graphs of the blocks
 * through which the wave goes back. */
static petra_status forward_stage(petra_probe *probe, petra_probe_wave *wave, int32_t j, const int32_t *labels,
                                  petra_streams *streams) {
  petra_loss loss;
  const petra_target target = {labels, &loss};
  for (int b = petra_probe_first(probe, j); b < petra_probe_end(probe, j); b++) {
    petra_block_graph *graph = j >= wave->lowest ? &wave->graphs[b] : NULL;
    petra_streams next = {{NULL, NULL}};
    const petra_tensor_set *parameters;
    PETRA_TRY(petra_probe_parameters(probe, j, petra_probe_wave_key(probe, wave, j), b, &parameters));
    petra_status status = petra_block_forward(&probe->compute, &probe->model->blocks[b], parameters->tensor, streams,
                                              &target, graph, &next);
    petra_streams_move(&next, streams);
    PETRA_TRY(status);
  }
  return PETRA_OK;
}

/* Returns the input of a stage, unless the stage below has just computed it. */
static petra_status take_input(petra_probe *probe, int32_t j, const petra_probe_part *part, petra_streams *streams,
                               int32_t **labels, int32_t *count) {
  bool arrived;
  if (j > 0 && petra_probe_has(probe, j - 1))
    return PETRA_OK;
  if (j > 0) {
    petra_free(*labels);
    *labels = NULL;
    return petra_probe_take_streams(probe, PETRA_PROBE_UP, j, true, &arrived, streams, labels, count);
  }
  streams->tensor[0] = petra_tensor_retain(part->images);
  *count = part->label_count;
  return PETRA_OK;
}

static petra_status forward(petra_probe *probe, petra_probe_wave *wave, const petra_probe_part *part) {
  PETRA_FINISHED(petra_streams_release) petra_streams streams = {{NULL, NULL}};
  PETRA_FREED int32_t *came = NULL;
  int32_t count = 0;
  for (int32_t j = 0; j < probe->stages; j++) {
    if (!petra_probe_has(probe, j))
      continue;
    PETRA_TRY(take_input(probe, j, part, &streams, &came, &count));
    const int32_t *labels = came ? came : part->labels;
    PETRA_TRY(forward_stage(probe, wave, j, labels, &streams));
    if (j == probe->stages - 1 || petra_probe_has(probe, j + 1))
      continue;
    PETRA_TRY(petra_probe_send_streams(probe, PETRA_PROBE_UP, j + 1, &streams, labels, count));
    petra_streams_release(&streams);
  }
  return PETRA_OK;
}

/* --- back --- */

petra_status petra_probe_wave_add(const petra_probe *probe, const petra_probe_wave *wave, int32_t j, int b, int i,
                                  const petra_tensor *gradient) {
  const double factor = 1.0 / (double)(probe->accumulate * probe->replicas);
  const petra_gradient kinds[] = {PETRA_GRADIENT_DELAYED, PETRA_GRADIENT_END_TO_END};
  const bool wanted[] = {wave->delayed, wave->wanted[j]};
  for (int k = 0; k < 2; k++)
    if (wanted[k])
      PETRA_TRY(petra_op_axpy(probe->compute.backend, factor, gradient, wave->window->sums[kinds[k]][b].tensor[i]));
  return PETRA_OK;
}

/* Adds the gradients, or sends them to the process with the same stages of replica 0, which adds the gradients of all
 * replicas. */
static petra_status give(petra_probe *probe, const petra_probe_wave *wave, int32_t j, int b,
                         const petra_tensor_set *gradients) {
  for (int i = 0; i < gradients->count && petra_probe_wave_wants(wave, j); i++)
    PETRA_TRY(petra_probe_compares(probe) ? petra_probe_wave_add(probe, wave, j, b, i, gradients->tensor[i])
                                          : petra_probe_send_to_replica_0(probe, gradients->tensor[i]));
  return PETRA_OK;
}

/* Computes the backward of one block: wave->gradients are the gradients of its outputs and become the gradients of its
 * inputs. If the wave only passes through the block, the gradients of filters are not computed. */
static petra_status back_block(petra_probe *probe, petra_probe_wave *wave, int32_t j, int b) {
  const petra_block *block = &probe->model->blocks[b];
  petra_block_graph *graph = &wave->graphs[b];
  petra_streams below = {{NULL, NULL}};
  PETRA_FINISHED(petra_tensor_set_release) petra_tensor_set own = {0};
  const petra_tensor_set *parameters;
  graph->defer = !petra_probe_wave_wants(wave, j);
  PETRA_TRY(petra_probe_parameters(probe, j, petra_probe_wave_key(probe, wave, j), b, &parameters));
  PETRA_TRY(petra_tensor_set_create(&probe->compute, probe->model, block, false, PETRA_MEMORY_WORKSPACE, &own));
  petra_status status =
      petra_block_backward(&probe->compute, block, parameters->tensor, graph, &wave->gradients, own.tensor, &below);
  petra_block_graph_release(graph);
  petra_streams_move(&below, &wave->gradients);
  return status == PETRA_OK ? give(probe, wave, j, b, &own) : status;
}

int32_t petra_probe_wave_next(const petra_probe *probe, const petra_probe_wave *wave, int32_t above) {
  int32_t j = above - 1;
  while (j >= wave->lowest && !petra_probe_has(probe, j))
    j--;
  return j >= wave->lowest ? j : -1;
}

/* Sets *came to true if the gradients of the outputs of stage j are available. */
static petra_status take_gradients(petra_probe *probe, petra_probe_wave *wave, int32_t j, bool wait, bool *came) {
  *came = true;
  if (j == probe->stages - 1 || petra_probe_has(probe, j + 1))
    return PETRA_OK;
  return petra_probe_take_streams(probe, PETRA_PROBE_DOWN, j, wait, came, &wave->gradients, NULL, NULL);
}

static petra_status back(petra_probe *probe, petra_probe_wave *wave, bool wait) {
  for (int32_t j = petra_probe_wave_next(probe, wave, wave->back); j >= 0; j = petra_probe_wave_next(probe, wave, j)) {
    bool came;
    PETRA_TRY(take_gradients(probe, wave, j, wait, &came));
    if (!came)
      return PETRA_OK;
    for (int b = petra_probe_end(probe, j) - 1; b >= petra_probe_first(probe, j); b--)
      PETRA_TRY(back_block(probe, wave, j, b));
    wave->back = j;
    if (j == wave->lowest || !petra_probe_has(probe, j - 1)) {
      if (j > wave->lowest)
        PETRA_TRY(petra_probe_send_streams(probe, PETRA_PROBE_DOWN, j - 1, &wave->gradients, NULL, 0));
      petra_streams_release(&wave->gradients);
    }
  }
  wave->back = 0;
  return PETRA_OK;
}

/* --- all waves --- */

static void destroy(const petra_probe *probe, petra_probe_wave *wave) {
  for (int b = 0; wave->graphs && b < probe->model->block_count; b++)
    petra_block_graph_release(&wave->graphs[b]);
  petra_streams_release(&wave->gradients);
  PETRA_FREE_ALL(wave->graphs, wave->versions, wave->wanted, wave);
}

static petra_status create(const petra_probe *probe, const petra_probe_wave *like, petra_probe_wave **out) {
  const size_t stages = (size_t)probe->stages;
  petra_probe_wave *wave;
  petra_status status;
  PETRA_TRY(petra_allocate(&wave, 1, sizeof *wave));
  *wave = (petra_probe_wave){.window = like->window, .forwarded = like->forwarded, .delayed = like->delayed};
  PETRA_TRY_GOTO(status, petra_allocate(&wave->graphs, (size_t)probe->model->block_count, sizeof *wave->graphs), fail);
  PETRA_TRY_GOTO(status, petra_allocate(&wave->versions, stages, sizeof *wave->versions), fail);
  PETRA_TRY_GOTO(status, petra_allocate(&wave->wanted, stages, sizeof *wave->wanted), fail);
  memcpy(wave->versions, like->versions, stages * sizeof *wave->versions);
  memcpy(wave->wanted, like->wanted, stages * sizeof *wave->wanted);
  while (!petra_probe_wave_wants(wave, wave->lowest))
    wave->lowest++;
  wave->back = wave->added = probe->stages;
  /* This process begins a wave for each of its own replicas, so only the gradients of the others are added. */
  wave->replica = petra_probe_compares(probe) ? probe->first + probe->here : probe->replicas;
  *out = wave;
  return PETRA_OK;
fail:
  destroy(probe, wave);
  return status;
}

petra_status petra_probe_wave_begin(petra_probe *probe, const petra_probe_wave *like, petra_probe_part *part) {
  petra_probe_wave *wave, **link = &probe->waves;
  PETRA_TRY(create(probe, like, &wave));
  while (*link)
    link = &(*link)->next;
  *link = wave;
  probe->wave_count++;
  return forward(probe, wave, part);
}

petra_status petra_probe_waves_advance(petra_probe *probe, bool wait, int left) {
  while (probe->waves) {
    petra_probe_wave *wave = probe->waves;
    const bool waits = wait && probe->wave_count > left;
    PETRA_TRY(back(probe, wave, waits));
    if (wave->back > 0)
      return PETRA_OK;
    PETRA_TRY(petra_probe_add_replicas(probe, wave, waits));
    if (wave->replica < probe->replicas)
      return PETRA_OK;
    probe->waves = wave->next;
    probe->wave_count--;
    destroy(probe, wave);
  }
  return PETRA_OK;
}

bool petra_probe_waves_have(const petra_probe *probe, const petra_probe_window *window) {
  const petra_probe_wave *wave = probe->waves;
  while (wave && wave->window != window)
    wave = wave->next;
  return wave != NULL;
}

void petra_probe_waves_destroy(petra_probe *probe) {
  while (probe->waves) {
    petra_probe_wave *wave = probe->waves;
    probe->waves = wave->next;
    destroy(probe, wave);
  }
  probe->wave_count = 0;
}
