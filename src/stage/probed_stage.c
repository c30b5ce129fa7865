/* SPDX-License-Identifier: Apache-2.0 */
#include "stage/probed_stage.h"

#include "backend/ops.h"
#include "base/log.h"
#include "base/mem.h"
#include "stage/stage_private.h"

#include <math.h>

const petra_model *petra_stage_model(const petra_stage *stage) {
  return stage->options.model;
}

int64_t petra_stage_version_forward(const petra_stage *stage) {
  return stage->version_forward;
}

bool petra_stage_predicts(const petra_stage *stage) {
  return petra_mitigation_predicts(&stage->options.mitigation);
}

petra_status petra_stage_version_tensors(const petra_stage *stage, petra_weights_key key, int block,
                                         const petra_tensor_set **out) {
  if (petra_stage_predicts(stage) && !key.predicted) {
    if (key.version != stage->updates)
      return petra_fail(PETRA_INTERNAL, "stage %d: of the weights after %lld updates only the prediction is kept",
                        stage->options.number, (long long)key.version);
    *out = &stage->sets[block - stage->options.first].parameters;
    return PETRA_OK;
  }
  return petra_stage_weights(stage, PETRA_WEIGHTS_STASHED, key.version, block - stage->options.first, out);
}

const petra_tensor_set *petra_stage_mean_gradients(const petra_stage *stage, int block) {
  const petra_stage_sets *sets = &stage->sets[block - stage->options.first];
  return petra_stage_sums(stage) ? &sets->accumulated : &sets->gradients;
}

bool petra_rule_reconstructs(const petra_stage_rule *rule, const petra_block *first) {
  return rule->invert && rule->keep == PETRA_KEEP_NOTHING && first->reversible;
}

bool petra_stage_reconstructs(const petra_stage *stage) {
  return petra_rule_reconstructs(&stage->options.rule, petra_stage_block(stage, 0));
}

/* Adds the squares of `found - truth` and of `truth`. */
static petra_status add_squares(const petra_compute *compute, const petra_tensor *found, const petra_tensor *truth,
                                double *difference, double *whole) {
  petra_backend *backend = compute->backend;
  petra_tensor *apart;
  double square = 0, of_truth = 0;
  petra_status status;
  PETRA_TRY(petra_tensor_create(backend, truth->kind, truth->shape, compute->account, PETRA_MEMORY_WORKSPACE, &apart));
  PETRA_TRY_GOTO(status, petra_op_copy(backend, found, apart), done);
  PETRA_TRY_GOTO(status, petra_op_axpy(backend, -1, truth, apart), done);
  PETRA_TRY_GOTO(status, petra_op_dot(backend, apart, apart, &square), done);
  PETRA_TRY_GOTO(status, petra_op_dot(backend, truth, truth, &of_truth), done);
  *difference += square;
  *whole += of_truth;
done:
  petra_tensor_release(&apart);
  return status;
}

petra_status petra_probe_distance(const petra_compute *compute, const petra_streams *found, const petra_streams *truth,
                                  double *out) {
  double difference = 0, whole = 0;
  for (int i = 0; i < 2; i++)
    if (truth->tensor[i])
      PETRA_TRY(add_squares(compute, found->tensor[i], truth->tensor[i], &difference, &whole));
  *out = sqrt(difference / whole);
  return PETRA_OK;
}

static bool is_wanted(const petra_probe_pass *pass, int b) {
  for (int s = 0; s < PETRA_PROBE_SUMS; s++)
    if (pass->blocks[b].sums[s])
      return true;
  return false;
}

/* Keeps graphs from block `lowest` on. */
static petra_status forward(const petra_probe_pass *pass, int lowest, petra_block_graph *graphs) {
  petra_streams streams = {{petra_tensor_retain(pass->images), NULL}};
  petra_status status = PETRA_OK;
  petra_loss loss;
  const petra_target target = {pass->labels, &loss};
  for (int b = 0; b < pass->model->block_count && status == PETRA_OK; b++) {
    const petra_block *block = &pass->model->blocks[b];
    petra_block_graph *graph = b >= lowest ? &graphs[b] : NULL;
    petra_streams next = {{NULL, NULL}};
    status = petra_block_forward(&pass->compute, block, pass->blocks[b].parameters, &streams, &target, graph, &next);
    petra_streams_release(&streams);
    streams = next;
  }
  petra_streams_release(&streams);
  return status;
}

/* Adds the gradients of block `b` to the sums that want them. */
static petra_status add(const petra_probe_pass *pass, int b, const petra_tensor_set *gradients) {
  for (int s = 0; s < PETRA_PROBE_SUMS; s++)
    for (int i = 0; pass->blocks[b].sums[s] && i < gradients->count; i++)
      PETRA_TRY(
          petra_op_axpy(pass->compute.backend, pass->factor, gradients->tensor[i], pass->blocks[b].sums[s]->tensor[i]));
  return PETRA_OK;
}

/* Turns *gradients, of the block's outputs, into that of its inputs. The filters' gradients of a block that is only
 * passed through are not needed. */
static petra_status backward(const petra_probe_pass *pass, int b, petra_block_graph *graph, petra_streams *gradients) {
  const petra_block *block = &pass->model->blocks[b];
  petra_tensor_set own;
  petra_streams below = {{NULL, NULL}};
  graph->defer = !is_wanted(pass, b);
  PETRA_TRY(petra_tensor_set_create(&pass->compute, pass->model, block, false, PETRA_MEMORY_WORKSPACE, &own));
  petra_status status =
      petra_block_backward(&pass->compute, block, pass->blocks[b].parameters, graph, gradients, own.tensor, &below);
  petra_block_graph_release(graph);
  petra_streams_release(gradients);
  *gradients = below;
  if (status == PETRA_OK)
    status = add(pass, b, &own);
  petra_tensor_set_release(&own);
  return status;
}

petra_status petra_probe_pass_run(const petra_probe_pass *pass) {
  petra_block_graph *graphs;
  petra_streams gradients = {{NULL, NULL}};
  int lowest = 0;
  while (lowest < pass->model->block_count && !is_wanted(pass, lowest))
    lowest++;
  if (lowest == pass->model->block_count)
    return PETRA_OK;
  PETRA_TRY(petra_allocate(&graphs, (size_t)pass->model->block_count, sizeof *graphs));
  petra_status status = forward(pass, lowest, graphs);
  for (int b = pass->model->block_count - 1; b >= lowest && status == PETRA_OK; b--)
    status = backward(pass, b, &graphs[b], &gradients);
  for (int b = 0; b < pass->model->block_count; b++)
    petra_block_graph_release(&graphs[b]);
  petra_free(graphs);
  petra_streams_release(&gradients);
  return status;
}
