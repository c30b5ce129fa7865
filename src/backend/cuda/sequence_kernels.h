/* SPDX-License-Identifier: Apache-2.0 */
/* Our own kernels for sequences (n, t, c): n samples of t positions of c features, dense in that order. A part of kernels.h,
 * whose rules hold here. */
#ifndef PETRA_BACKEND_CUDA_SEQUENCE_KERNELS_H
#define PETRA_BACKEND_CUDA_SEQUENCE_KERNELS_H

#include "backend/cuda/lane.h"
#include "base/status.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* --- layer_norm.cu --- */

/* petra_op_layer_norm_forward; y NULL: mean and deviation alone. */
typedef struct cuda_layer_norm_args {
  const float *x, *scale, *shift;
  float *y, *mean, *deviation;
  int64_t rows;
  int32_t c;
} cuda_layer_norm_args;
petra_status cuda_layer_norm_launch(const cuda_lane *lane, const void *arguments);

/* petra_op_layer_norm_backward; dx may alias dy. Scratch: cuda_layer_norm_scratch bytes. */
typedef struct cuda_layer_norm_backward_args {
  const float *x, *scale, *mean, *deviation, *dy;
  float *dx, *dscale, *dshift;
  int64_t rows;
  int32_t c;
} cuda_layer_norm_backward_args;
size_t cuda_layer_norm_scratch(int64_t rows, int32_t c);
petra_status cuda_layer_norm_backward_launch(const cuda_lane *lane, const void *arguments);

/* --- gelu.cu --- */

/* out = gelu(x); with dy: out = dy gelu'(x), may alias dy. */
typedef struct cuda_gelu_args {
  const float *x, *dy; /* dy: NULL forward */
  float *out;
  int64_t count;
  int32_t form; /* petra_gelu */
} cuda_gelu_args;
petra_status cuda_gelu_launch(const cuda_lane *lane, const void *arguments);

/* --- attention.cu, attention_backward.cu --- */

/* petra_op_attention_forward and _backward: qkv and dqkv (n, t, 3 heads d), y and dy (n, t, heads d), log_sum (n, t, heads). All sums
 * in f32. Scratch of the backward: cuda_attention_backward_scratch bytes. */
typedef struct cuda_attention_args {
  const float *qkv, *dy; /* dy: backward */
  float *y, *log_sum;    /* forward: out; backward: in */
  float *dqkv;           /* backward: out */
  int32_t n, t, heads, d;
  bool causal;
} cuda_attention_args;
petra_status cuda_attention_forward_launch(const cuda_lane *lane, const void *arguments);
size_t cuda_attention_backward_scratch(int32_t n, int32_t t, int32_t heads);
petra_status cuda_attention_backward_launch(const cuda_lane *lane, const void *arguments);

/* --- embedding.cu --- */

/* petra_op_embed_forward: tokens (n, t), table (rows, c), positions (at least t, c), y (n, t, c). Where a token is not one of the
 * table's rows y is NaN. */
typedef struct cuda_embed_args {
  const float *tokens, *table, *positions;
  float *y;
  int32_t n, t, c, rows;
} cuda_embed_args;
petra_status cuda_embed_launch(const cuda_lane *lane, const void *arguments);

/* petra_op_embed_backward: dtable (rows, c), dpositions (positions, c). What is not a row of the table counts for positions
 * alone. Scratch: cuda_embed_scratch bytes. */
typedef struct cuda_embed_backward_args {
  const float *tokens, *dy;
  float *dtable, *dpositions;
  int32_t n, t, c, rows, positions;
} cuda_embed_backward_args;
size_t cuda_embed_scratch(int32_t n, int32_t t);
petra_status cuda_embed_backward_launch(const cuda_lane *lane, const void *arguments);

/* --- patches.cu --- */

/* petra_op_patches: x (n, h, w, 3) -> y (n, h/size * w/size, 3 size size). */
typedef struct cuda_patches_args {
  const float *x;
  float *y;
  int32_t n, h, w, size;
} cuda_patches_args;
petra_status cuda_patches_launch(const cuda_lane *lane, const void *arguments);

#ifdef __cplusplus
}
#endif

#endif
