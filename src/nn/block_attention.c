/* SPDX-License-Identifier: Apache-2.0 */
/* Attention between the layers of F: layer 0 computes queries, keys and values side by side. */
#include "backend/ops.h"
#include "nn/blocks.h"

/* The graph's own tensors. The output of attention is kept as the input of layer 1. */
enum { QKV = 0, LOG_SUM = 1 };

static petra_status forward(const petra_pass *pass, petra_tensor *x, petra_tensor **y) {
  const petra_block *block = pass->block;
  const petra_memory_category category = pass->graph ? PETRA_MEMORY_GRAPH : PETRA_MEMORY_WORKSPACE;
  petra_tensor *log_sum = NULL;
  petra_status status;
  PETRA_TRY_GOTO(status, petra_pass_features(pass, x, block->layers[1].in, PETRA_UNIT_INNER, category, y), done);
  PETRA_TRY_GOTO(status, petra_pass_features(pass, x, block->heads, PETRA_UNIT_STREAM, category, &log_sum), done);
  const petra_attention attention = {
      .qkv = x, .heads = block->heads, .kv_heads = block->heads, .causal = block->causal, .y = *y, .log_sum = log_sum};
  PETRA_TRY_GOTO(status, petra_op_attention_forward(pass->compute->backend, &attention), done);
  if (pass->graph) {
    pass->graph->own[QKV] = petra_tensor_retain(x);
    pass->graph->own[LOG_SUM] = petra_tensor_retain(log_sum);
  }
done:
  petra_tensor_release(&log_sum);
  return status;
}

static petra_status backward(const petra_pass *pass, petra_tensor *dy, petra_tensor **dx) {
  const petra_block_graph *graph = pass->graph;
  PETRA_TRY(petra_compute_like(pass->compute, graph->own[QKV], PETRA_MEMORY_WORKSPACE, dx));
  const petra_attention_backward attention = {.qkv = graph->own[QKV],
                                              .y = graph->units[1].x,
                                              .log_sum = graph->own[LOG_SUM],
                                              .heads = pass->block->heads,
                                              .kv_heads = pass->block->heads,
                                              .causal = pass->block->causal,
                                              .dy = dy,
                                              .dqkv = *dx};
  return petra_op_attention_backward(pass->compute->backend, &attention);
}

static void add(petra_kernel_list *out, petra_kernel_part part, double products, double softmax, double elements) {
  petra_kernels_add(out, part, true, products + softmax, elements);
  out->kernel[out->count - 1].beside = softmax;
}

/* Number of products per pair of positions: scores and values forward; in the backward scores again, and one each for
 * dv, dp, dq, dk. */
static void kernels(const petra_block *block, petra_kernel_list *out) {
  const double positions = block->layers[1].rows, samples = (double)out->samples, features = block->layers[1].in;
  const double pairs = samples * (block->causal ? positions * (positions + 1) / 2 : positions * positions);
  const double y = samples * positions * features, softmax = 5 * pairs * block->heads;
  add(out, PETRA_KERNEL_FORWARD, 2 * 2 * pairs * features, softmax, 4 * y);
  add(out, PETRA_KERNEL_BACKWARD, 5 * 2 * pairs * features, softmax, 8 * y);
}

const petra_middle_ops petra_attention_middle = {
    .name = "attention", .forward = forward, .backward = backward, .kernels = kernels};
