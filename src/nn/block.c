/* SPDX-License-Identifier: Apache-2.0 */
#include "nn/block.h"

#include <assert.h>

/* Releases the results of a failed pass. */
static petra_status finish(petra_status status, petra_block_graph *graph, petra_streams *out) {
  if (status != PETRA_OK) {
    if (out)
      petra_streams_release(out);
    if (graph)
      petra_block_graph_release(graph);
  }
  return status;
}

petra_status petra_block_forward(const petra_compute *compute, const petra_block *block,
                                 petra_tensor *const *parameters, const petra_streams *in, const petra_target *target,
                                 petra_block_graph *graph, petra_streams *out) {
  const petra_pass pass = {
      .compute = compute, .block = block, .parameters = parameters, .graph = graph, .target = target};
  assert(out || graph);
  if (out)
    *out = (petra_streams){{NULL, NULL}};
  PETRA_TRY(finish(block->ops->forward(&pass, in, out), graph, out));
  if (out && block->auxiliary)
    *out = petra_streams_retain(in);
  return PETRA_OK;
}

petra_status petra_block_evaluate(const petra_compute *compute, const petra_block *block,
                                  petra_tensor *const *parameters, petra_tensor *const *statistics,
                                  const petra_streams *in, const petra_target *target, petra_streams *out) {
  const petra_pass pass = {
      .compute = compute, .block = block, .parameters = parameters, .statistics = statistics, .target = target};
  *out = (petra_streams){{NULL, NULL}};
  return finish(block->ops->forward(&pass, in, out), NULL, out);
}

petra_status petra_block_estimate(const petra_compute *compute, const petra_block *block,
                                  petra_tensor *const *parameters, double share, petra_tensor *const *statistics,
                                  const petra_streams *in, petra_streams *out) {
  assert(!block->ops->is_loss);
  const petra_pass pass = {
      .compute = compute, .block = block, .parameters = parameters, .estimates = statistics, .share = share};
  *out = (petra_streams){{NULL, NULL}};
  return finish(block->ops->forward(&pass, in, out), NULL, out);
}

petra_status petra_block_invert(const petra_compute *compute, const petra_block *block, petra_tensor *const *parameters,
                                const petra_streams *out, petra_block_graph *graph, petra_streams *in) {
  assert(block->reversible);
  const petra_pass pass = {.compute = compute, .block = block, .parameters = parameters, .graph = graph};
  *in = (petra_streams){{NULL, NULL}};
  return finish(block->ops->invert(&pass, out, in), graph, in);
}

petra_status petra_block_backward(const petra_compute *compute, const petra_block *block,
                                  petra_tensor *const *parameters, petra_block_graph *graph, const petra_streams *dout,
                                  petra_tensor *const *gradients, petra_streams *din) {
  const petra_pass pass = {.compute = compute, .block = block, .parameters = parameters, .graph = graph};
  *din = (petra_streams){{NULL, NULL}};
  return finish(block->ops->backward(&pass, dout, gradients, din), NULL, din);
}
