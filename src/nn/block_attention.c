/* SPDX-License-Identifier: Apache-2.0 */
/* Attention between the layers of F: layer 0 computes queries, keys and values side by side. Queries and keys may be
 * rotated by their positions (Su et al. 2021, arXiv:2104.09864), and several heads may share keys and values (Ainslie
 * et al. 2023, arXiv:2305.13245). */
#include "backend/backend.h"
#include "nn/blocks.h"

/* The graph's own tensors. The output of attention is kept as the input of layer 1. */
enum { QKV = 0, LOG_SUM = 1 };

/* Rotates the queries and keys of x in place, or rotates their gradients back. */
static petra_status rotate(const petra_pass *pass, petra_tensor *x, bool back) {
  const petra_block *block = pass->block;
  const petra_rotary rotary = {.x = x,
                               .heads = block->heads + block->kv_heads,
                               .width = block->layers[1].in / block->heads,
                               .base = block->rotary_base,
                               .back = back,
                               .y = x};
  return block->rotary_base > 0 ? petra_op_rotary(pass->compute->backend, &rotary) : PETRA_OK;
}

static petra_attention attention_of(const petra_block *block, const petra_tensor *qkv, petra_tensor *y,
                                    petra_tensor *log_sum) {
  return (petra_attention){.qkv = qkv,
                           .heads = block->heads,
                           .kv_heads = block->kv_heads,
                           .causal = block->causal,
                           .y = y,
                           .log_sum = log_sum};
}

/* x has just been computed, and nothing else has a reference to it. */
static petra_status forward(const petra_pass *pass, petra_tensor *x, petra_tensor **y) {
  const petra_block *block = pass->block;
  const petra_memory_category category = petra_pass_kept(pass);
  PETRA_RELEASED petra_tensor *log_sum = NULL;
  PETRA_TRY(petra_pass_features(pass, x, block->layers[1].in, PETRA_UNIT_INNER, category, y));
  PETRA_TRY(petra_pass_features(pass, x, block->heads, PETRA_UNIT_STREAM, category, &log_sum));
  PETRA_TRY(rotate(pass, x, false));
  const petra_attention attention = attention_of(block, x, *y, log_sum);
  PETRA_TRY(petra_op_attention_forward(pass->compute->backend, &attention));
  if (pass->graph) {
    pass->graph->own[QKV] = petra_tensor_retain(x);
    pass->graph->own[LOG_SUM] = petra_tensor_retain(log_sum);
  }
  return PETRA_OK;
}

static petra_status backward(const petra_pass *pass, petra_tensor *dy, petra_tensor **dx) {
  const petra_block_graph *graph = pass->graph;
  PETRA_TRY(petra_compute_like(pass->compute, graph->own[QKV], PETRA_MEMORY_WORKSPACE, dx));
  petra_attention attention = attention_of(pass->block, graph->own[QKV], graph->units[1].x, graph->own[LOG_SUM]);
  attention.dy = dy;
  attention.dqkv = *dx;
  PETRA_TRY(petra_op_attention_backward(pass->compute->backend, &attention));
  return rotate(pass, *dx, true);
}

static void add(petra_kernel_list *out, petra_kernel_part part, double products, double softmax, double elements) {
  petra_kernels_add(out, part, true, products + softmax, elements);
  out->kernel[out->count - 1].beside = softmax;
}

/* Number of products per pair of positions: forward, scores and values; backward, the scores a second time, and one
 * product each for dv, dp, dq, dk. */
static void kernels(const petra_block *block, petra_kernel_list *out) {
  const double positions = block->layers[1].rows, samples = (double)out->samples, features = block->layers[1].in;
  const double pairs = samples * (block->causal ? positions * (positions + 1) / 2 : positions * positions);
  const double y = samples * positions * features, softmax = 5 * pairs * block->heads;
  const double keys = y * block->kv_heads / block->heads;
  if (block->rotary_base > 0)
    petra_kernels_add_both(out, 3 * (y + keys), 2 * (y + keys));
  add(out, PETRA_KERNEL_FORWARD, 2 * 2 * pairs * features, softmax, 2 * (y + keys));
  add(out, PETRA_KERNEL_BACKWARD, 5 * 2 * pairs * features, softmax, 4 * (y + keys));
}

const petra_middle_ops petra_attention_middle = {
    .name = "attention", .forward = forward, .backward = backward, .kernels = kernels};
