/* SPDX-License-Identifier: Apache-2.0 */
/* Our own CUDA kernels, as the host calls them: for each a structure of arguments and a function that launches it.
 *
 * Layouts: activations are dense in the order (N, H, W, C), and f32 unless bf16 is stated; filters are (O, KH, KW, I),
 * matrices and sequences row-major, vectors plain. Sums over many elements are computed in double, in two levels with a
 * grid that depends on shapes alone: the same inputs give bit-identical output on every device. (An atomic counter
 * determines which block is the last. The terms that it sums, and their order, do not depend on which block is last.)
 * backend/element.h has the formulas of elements.
 *
 * A launch function takes the lane on which it runs and its arguments, copies what the kernels need, waits for
 * nothing, allocates nothing and may be captured into a CUDA graph. Failure: PETRA_BACKEND, logged with the kernel's
 * name. Pointers point into device memory unless stated otherwise; "may alias" is meant as in backend.h.
 *
 * Plain C as well as CUDA C++: tests compile the kernels for the host (cuda_device.h). */
#pragma once

#include "backend/quantise.h"
#include "base/status.h"
#include "config/config.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* A lane: one sequence of work on the device. Stages on different lanes compute concurrently. */
typedef struct CUstream_st *cuda_stream; /* cudaStream_t */

enum { CUDA_COUNTERS = 1024 };

typedef struct cuda_lane {
  cuda_stream stream;
  void *scratch; /* device memory for a launch's own use, 256-byte aligned; the next launch overwrites it */
  size_t scratch_bytes;
  unsigned *counters; /* CUDA_COUNTERS in device memory, 0 before and after every launch */
} cuda_lane;

#ifdef __cplusplus
extern "C" {
#endif

/* Launches the kernel NAME with arguments of type cuda_NAME_args (below). */
typedef petra_status cuda_launch_function(const cuda_lane *lane, const void *arguments);
typedef cuda_launch_function *cuda_launch;
cuda_launch_function cuda_fill_launch, cuda_axpy_launch, cuda_scale_launch, cuda_add_launch, cuda_relu_backward_launch,
    cuda_dot_launch, cuda_to_bf16_launch, cuda_from_bf16_launch, cuda_quantise_launch, cuda_dequantise_launch,
    cuda_permute_launch, cuda_split_launch, cuda_space_to_depth_launch, cuda_norm_statistics_launch,
    cuda_norm_apply_launch, cuda_norm_backward_launch, cuda_norm_running_launch, cuda_max_pool_forward_launch,
    cuda_max_pool_backward_launch, cuda_average_pool_forward_launch, cuda_average_pool_backward_launch,
    cuda_bias_launch, cuda_bias_backward_launch, cuda_cross_entropy_launch, cuda_sgd_launch, cuda_adam_launch,
    cuda_norm_1_launch, cuda_newton_schulz_launch, cuda_augment_launch, cuda_layer_norm_launch,
    cuda_layer_norm_backward_launch, cuda_gelu_launch, cuda_swiglu_launch, cuda_rotary_launch,
    cuda_attention_forward_launch, cuda_attention_backward_launch, cuda_embed_launch, cuda_embed_backward_launch,
    cuda_patches_launch;

/* Returns the status of the last launch; a failure is logged as "cuda: NAME: ...". cuda_segment.c */
petra_status cuda_launched(const char *name);

/* --- cuda_elementwise.cu --- */

typedef struct cuda_fill_args {
  void *y;
  int64_t count;
  float value;
  bool narrow; /* y is bf16 */
} cuda_fill_args;

/* Computes y += alpha x for up to CUDA_AXPY_TENSORS pairs; no tensor occurs in two pairs. */
enum { CUDA_AXPY_TENSORS = 16 };
typedef struct cuda_axpy_tensor {
  const void *x;
  float *y;
  int64_t count;
  bool narrow; /* x is of bf16 */
} cuda_axpy_tensor;
typedef struct cuda_axpy_args {
  cuda_axpy_tensor tensor[CUDA_AXPY_TENSORS];
  double alpha;
  int32_t tensors;
} cuda_axpy_args;

typedef struct cuda_scale_args { /* y *= *alpha */
  float *y;
  int64_t count;
  const double *alpha; /* on the device: it changes from step to step while the launch stays the same */
} cuda_scale_args;

typedef struct cuda_add_args { /* y = a + b; y may alias a or b */
  const void *a, *b;
  float *y;
  int64_t count;
  bool narrow_a, narrow_b; /* of bf16 */
} cuda_add_args;

typedef struct cuda_relu_backward_args { /* dx = y > 0 ? dy : 0; dx may alias dy */
  const float *y, *dy;
  float *dx;
  int64_t count;
} cuda_relu_backward_args;

/* *out = sum of a[i] b[i] in double. Scratch: cuda_dot_scratch bytes. */
typedef struct cuda_dot_args {
  const void *a, *b;
  double *out;
  int64_t count;
  bool narrow; /* a and b are of bf16 */
} cuda_dot_args;
size_t cuda_dot_scratch(int64_t count);

/* y = x rounded to nearest even, NaN kept a NaN. y holds bf16 as its 16 bits. */
typedef struct cuda_to_bf16_args {
  const float *x;
  uint16_t *y;
  int64_t count;
} cuda_to_bf16_args;

/* y = x, exactly. */
typedef struct cuda_from_bf16_args {
  const uint16_t *x;
  float *y;
  int64_t count;
} cuda_from_bf16_args;

/* --- cuda_quantise.cu --- */

/* quantise of backend.h: bytes[n] = the sample n of x in the format. x is (n, plane, c), and element c * plane + p of
 * the logical order is at p * c_count + c; a sequence has c = 1. */
typedef struct cuda_quantise_args {
  const void *x;
  const petra_draws *draws; /* on the device */
  uint8_t *bytes;
  int32_t n, c;
  int64_t plane, row; /* row: bytes of a sample */
  petra_format format;
  bool narrow; /* x is bf16 */
} cuda_quantise_args;

/* dequantise: the reverse. */
typedef struct cuda_dequantise_args {
  const uint8_t *bytes;
  void *y;
  int32_t n, c;
  int64_t plane, row;
  petra_format format;
  bool narrow; /* y is bf16 */
} cuda_dequantise_args;

/* --- cuda_shuffle.cu --- */

/* y[n][p][c] = x[n][c][p] for `to_channels_last`, y[n][c][p] = x[n][p][c] otherwise; p < plane. Never in place. If
 * `narrow`, the array whose channels are last is bf16: its values are rounded when it is written, widened when it is
 * read. */
typedef struct cuda_permute_args {
  const void *x;
  void *y;
  int64_t n, c, plane;
  bool to_channels_last, narrow;
} cuda_permute_args;

/* x (pixels, c1 + c2) <-> x1 (pixels, c1), x2 (pixels, c2); `join` true: x is the output. */
typedef struct cuda_split_args {
  float *x, *x1, *x2;
  int64_t pixels;
  int32_t c1, c2;
  bool join;
} cuda_split_args;

/* space_to_depth of backend.h between x (n, h, w, c) and y (n, h/2, w/2, 4c); `inverse` true: x is the output. */
typedef struct cuda_space_to_depth_args {
  float *x, *y;
  int32_t n, h, w, c;
  bool inverse;
} cuda_space_to_depth_args;

/* --- cuda_norm.cu --- */

/* mean and biased variance of each channel over `pixels`. Scratch: cuda_norm_scratch bytes. x is bf16 if it is
 * `narrow`, else of f32. */
typedef struct cuda_norm_statistics_args {
  const void *x;
  float *mean, *variance;
  int64_t pixels;
  int32_t c;
  bool narrow;
} cuda_norm_statistics_args;
enum { CUDA_NORM_CHANNELS = 32 * CUDA_COUNTERS }; /* maximum number of channels, if there are sums */
size_t cuda_norm_scratch(int64_t pixels, int32_t c);

/* y of petra_norm_forward from x and given mean and variance; y may alias addend. x is bf16 if `narrow`; y is bf16 if
 * `narrow_y`, which requires `narrow` and PETRA_JOIN_NONE. */
typedef struct cuda_norm_apply_args {
  const void *x;
  const float *scale, *shift, *mean, *variance, *addend; /* addend: NULL for PETRA_JOIN_NONE */
  void *y;
  uint16_t *rounded; /* out: an additional copy of y in bf16; NULL: not wanted, or y itself is bf16 */
  /* if not NULL, y has only the first channels and `second` the others; requires PETRA_JOIN_NONE, without narrow_y */
  void *second;
  uint16_t *rounded_second; /* as rounded */
  int64_t pixels;
  int32_t c, c_first; /* c_first: channels of y */
  int32_t join;       /* petra_join */
  bool relu, narrow, narrow_y;
} cuda_norm_apply_args;

/* petra_norm_backward: dscale, dshift and dx; dx may alias dy. x and dx are bf16 if `narrow`; dy is bf16 if
 * `narrow_dy`, which requires `narrow`. Scratch: cuda_norm_scratch bytes. */
typedef struct cuda_norm_backward_args {
  const void *x;
  const float *scale, *shift, *mean, *variance;
  const void *dy,
      *dsecond; /* if not NULL, dy has only the first channels and dsecond the others; requires narrow_dy false */
  void *dx;
  float *dscale, *dshift;
  int64_t pixels;
  int32_t c, c_first; /* c_first: channels of dy */
  bool relu, narrow, narrow_dy;
} cuda_norm_backward_args;

/* petra_op_norm_update_running of up to CUDA_NORM_RUNNING norms in one launch. */
enum { CUDA_NORM_RUNNING = 16 };
typedef struct cuda_norm_running {
  const float *mean, *variance;
  float *running_mean, *running_variance;
  int64_t samples;
  int32_t c;
} cuda_norm_running;
typedef struct cuda_norm_running_args {
  cuda_norm_running norm[CUDA_NORM_RUNNING];
  double momentum;
  int32_t norms;
} cuda_norm_running_args;

/* --- cuda_pool.cu --- */

/* x (n, h, w, c), y and mask (n, oh, ow, c). The mask contains the winner's position in the window, row by row: the
 * first maximum; the first NaN wins over everything. */
typedef struct cuda_max_pool_args {
  const float *x;  /* forward */
  float *y;        /* forward */
  uint8_t *mask;   /* forward: out or NULL; backward: in */
  const float *dy; /* backward */
  float *dx;       /* backward: sums over the outputs that an element won, in their order, in double */
  int32_t n, h, w, c, oh, ow, window, stride, pad;
} cuda_max_pool_args;

/* x (n, plane, c) <-> columns [column, column + c) of y (n, columns). */
typedef struct cuda_average_pool_args {
  float *x, *y; /* forward: x is read, y written; backward: y is read, x written */
  int32_t n, plane, c, columns, column;
} cuda_average_pool_args;

/* --- cuda_layer_norm.cu --- */

/* The addend of a matrix product: y[n][o] = b[o], or addend[n][o] plus or minus b[o]. y may alias addend. */
typedef struct cuda_bias_args {
  const float *b;      /* NULL: none; then there is an addend */
  const float *addend; /* NULL: none */
  float *y;
  int64_t n;
  int32_t o;
  bool subtract; /* b from the addend */
} cuda_bias_args;

/* db[o] = sum over n of dy[n][o], in double. Each block sums a few columns; if there are many rows, the sum has two
 * levels and needs cuda_bias_scratch bytes of scratch. */
typedef struct cuda_bias_backward_args {
  const float *dy;
  float *db;
  int64_t n;
  int32_t o;
  bool levels; /* two */
} cuda_bias_backward_args;
size_t cuda_bias_scratch(int64_t n, int32_t o);

/* --- cuda_loss.cu --- */

/* petra_cross_entropy; n rows. One block sums over the rows, in an order that depends on n alone. Scratch:
 * cuda_cross_entropy_scratch bytes. */
typedef struct cuda_loss_result {
  double loss;
  int32_t top1, top5;
} cuda_loss_result;
typedef struct cuda_cross_entropy_args {
  const float *logits;
  const int32_t *labels;    /* on the device */
  float *dlogits;           /* NULL when not wanted */
  cuda_loss_result *result; /* on the device */
  int32_t n, classes;
} cuda_cross_entropy_args;
size_t cuda_cross_entropy_scratch(int32_t n);

/* --- cuda_optim.cu --- */

/* petra_sgd_step over up to CUDA_SGD_TENSORS tensors in one launch. */
enum { CUDA_SGD_TENSORS = 64 };
typedef struct cuda_sgd_tensor {
  float *parameter, *velocity;
  uint16_t *rounded; /* out: an additional copy of the parameter in bf16; NULL: not wanted */
  const void *gradient;
  int64_t count;
  double decay;
  bool narrow; /* the gradient is of bf16 */
} cuda_sgd_tensor;
typedef struct cuda_sgd_args {
  cuda_sgd_tensor tensor[CUDA_SGD_TENSORS];
  int32_t tensors;
  bool nesterov, first;
  double momentum;
  const double *lr; /* on the device: it changes from step to step while the launch stays the same */
} cuda_sgd_args;

/* petra_adam_step (`lion`: without squares) over up to CUDA_ADAM_TENSORS tensors in one launch. */
enum { CUDA_ADAM_TENSORS = 56 };
typedef struct cuda_adam_tensor {
  float *parameter, *mean, *square;
  uint16_t *rounded; /* as in cuda_sgd_tensor */
  const void *gradient;
  int64_t count;
  double decay;
  bool narrow; /* as in cuda_sgd_tensor */
} cuda_adam_tensor;
typedef struct cuda_adam_rates { /* values that change from step to step */
  double lr, gradient_rate, mean_rate, square_correction;
} cuda_adam_rates;
typedef struct cuda_adam_args {
  cuda_adam_tensor tensor[CUDA_ADAM_TENSORS];
  int32_t tensors;
  bool lion;
  double beta1, beta2, epsilon;
  const cuda_adam_rates *rates; /* on the device */
} cuda_adam_args;

/* y = x / max(|x|, 1e-7). Scratch: cuda_norm_1_scratch bytes. */
typedef struct cuda_norm_1_args {
  const float *x;
  float *y;
  int64_t count;
} cuda_norm_1_args;
size_t cuda_norm_1_scratch(int64_t count);

/* `polynomial` (n, n) holds the product gram gram on entry, and the polynomial of petra_orthogonalize on return. */
typedef struct cuda_newton_schulz_args {
  const float *gram;
  float *polynomial;
  int32_t n;
} cuda_newton_schulz_args;

/* --- cuda_elementwise.cu --- */

/* petra_op_upload_images. Images of the data set as bytes (n, 3, h, w) -> y (n, h, w, 3): shifted, with zeros (before
 * normalisation) for pixels outside the image, mirrored, then (value / 255 - mean) / deviation in double, rounded
 * once. */
typedef struct cuda_augment_args {
  const uint8_t *pixels;
  const petra_augment_choice *choices;
  float *y;
  uint16_t *rounded; /* out: y in bf16 besides; NULL: not wanted */
  int32_t n, h, w;
  double mean[3], deviation[3];
} cuda_augment_args;

/* --- kernels for sequences (n, t, c): n samples of t positions of c features, dense in that order --- */

/* --- cuda_layer_norm.cu --- */

/* petra_op_layer_norm_forward; y NULL: mean and deviation alone; mean and shift NULL: RMS norm. */
typedef struct cuda_layer_norm_args {
  const float *x, *scale, *shift;
  float *y, *mean, *deviation;
  int64_t rows;
  int32_t c;
} cuda_layer_norm_args;

/* petra_op_layer_norm_backward; dx may alias dy; mean and dshift NULL: RMS norm. Scratch: cuda_layer_norm_scratch
 * bytes. */
typedef struct cuda_layer_norm_backward_args {
  const float *x, *scale, *mean, *deviation, *dy;
  float *dx, *dscale, *dshift;
  int64_t rows;
  int32_t c;
} cuda_layer_norm_backward_args;
size_t cuda_layer_norm_scratch(int64_t rows, int32_t c);

/* --- cuda_elementwise.cu --- */

/* out = gelu(x); with dy: out = dy gelu'(x), may alias dy. */
typedef struct cuda_gelu_args {
  const float *x, *dy; /* dy: NULL forward */
  float *out;
  int64_t count;
  int32_t form; /* petra_gelu */
} cuda_gelu_args;

/* petra_op_swiglu_forward: x (rows, 2 features), out (rows, features); with dy (rows, features)
 * petra_op_swiglu_backward: out (rows, 2 features). */
typedef struct cuda_swiglu_args {
  const float *x, *dy; /* dy: NULL forward */
  float *out;
  int64_t rows;
  int32_t features;
} cuda_swiglu_args;

/* petra_op_rotary of `rows` rows, t of a sample; y may alias x. */
typedef struct cuda_rotary_args {
  const float *x;
  float *y;
  int64_t rows;
  int32_t t, columns, heads, width;
  double base;
  bool back;
} cuda_rotary_args;

/* --- cuda_attention.cu --- */

/* petra_op_attention_forward and _backward: qkv and dqkv (n, t, (heads + 2 kv_heads) d), y and dy (n, t, heads d),
 * log_sum (n, t, heads). All sums are in f32. Scratch of the backward: cuda_attention_backward_scratch bytes. */
typedef struct cuda_attention_args {
  const float *qkv, *dy; /* dy: backward */
  float *y, *log_sum;    /* forward: out; backward: in */
  float *dqkv;           /* backward: out */
  int32_t n, t, heads, kv_heads, d;
  bool causal;
} cuda_attention_args;
size_t cuda_attention_backward_scratch(int32_t n, int32_t t, int32_t heads);

/* --- cuda_embedding.cu --- */

/* petra_op_embed_forward: tokens (n, t), table (rows, c), positions (at least t, c; NULL: none), y (n, t, c). If a
 * token is not a row number of the table, its row of y is NaN. */
typedef struct cuda_embed_args {
  const float *tokens, *table, *positions;
  float *y;
  int32_t n, t, c, rows;
} cuda_embed_args;

/* petra_op_embed_backward: dtable (rows, c), dpositions (positions, c; NULL: not wanted). A token that is not a row
 * number of the table contributes only to dpositions. Scratch: cuda_embed_scratch bytes. */
typedef struct cuda_embed_backward_args {
  const float *tokens, *dy;
  float *dtable, *dpositions;
  int32_t n, t, c, rows, positions;
} cuda_embed_backward_args;
size_t cuda_embed_scratch(int32_t n, int32_t t);

/* --- cuda_shuffle.cu --- */

/* petra_op_patches: x (n, h, w, 3) -> y (n, h/size * w/size, 3 size size). */
typedef struct cuda_patches_args {
  const float *x;
  float *y;
  int32_t n, h, w, size;
} cuda_patches_args;

#ifdef __cplusplus
}
#endif
