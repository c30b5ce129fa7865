/* SPDX-License-Identifier: Apache-2.0 */
/* The operations contract: what a compute backend does for the network code.
 *
 * A backend is an opaque handle and a table of operations on tensors. A tensor has a public logical shape, and a
 * physical layout and element type that belong to the backend (`ref`: plain arrays of float or double; `cpu`: layouts
 * of oneDNN in float; in bf16, inner tensors in bf16). Elements that a layout adds as padding are 0 after every
 * operation.
 *
 * Rules for all operations:
 *  - Every tensor belongs to the backend that is called. Shapes are checked (PETRA_SHAPE, logged).
 *  - An output may be the same tensor as an input only if the comment says so ("may alias"); tensors never overlap in
 *    part.
 *  - Outputs are overwritten whatever they contained before, including NaN, unless the operation is stated to add to
 *    them.
 *  - The same inputs, thread count and backend give bit-identical output.
 *  - NaN and infinity propagate as IEEE 754 defines: a NaN input reaches every output that depends on it (ReLU of NaN
 *    is NaN).
 *  - Failure: PETRA_BACKEND or PETRA_NO_MEMORY, logged; outputs are then undefined.
 */
#pragma once

#include "backend/quantise.h"
#include "backend/tensor.h"
#include "base/status.h"
#include "config/config.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

/* A convolution without bias. The filter has the kernel size; output height = (H + 2 pad - KH) / stride + 1. */
typedef struct petra_conv_geometry {
  int stride, pad;
} petra_conv_geometry;

/* A max-pool with a square window; padding never wins. Output height = (H + 2 pad - window) / stride + 1. */
typedef struct petra_pool_geometry {
  int window, stride, pad;
} petra_pool_geometry;

/* Selects how a normalised value z = scale * (x - mean) / sqrt(variance + eps) + shift becomes the output y. */
typedef enum petra_join {
  PETRA_JOIN_NONE,         /* y = act(z) */
  PETRA_JOIN_ADD,          /* y = addend + act(z)  (RevNet forward: addend is the stream to which F is added) */
  PETRA_JOIN_SUBTRACT,     /* y = addend - act(z)  (RevNet inversion) */
  PETRA_JOIN_ADD_ACTIVATE, /* y = act(addend + z)  (ResNet) */
} petra_join;

#define PETRA_NORM_EPSILON 1e-5 /* added to the variance; PyTorch's default, used by the paper's authors, and GPT-2's */

/* In norm_forward y may be NULL: only mean and variance are wanted, and join and addend are ignored. */
typedef struct petra_norm_forward {
  const petra_tensor *x;             /* (N, C, H, W), inner */
  const petra_tensor *scale, *shift; /* (C) */
  bool relu;                         /* act: ReLU or identity */
  petra_join join;
  const petra_tensor *addend; /* (N, C, H, W), an activation, unless join is NONE */
  petra_tensor *y;            /* (N, C, H, W), an activation or, if join is NONE, inner; may alias addend, never x */
  petra_tensor *mean;         /* (C) out: batch mean of x over (N, H, W) */
  petra_tensor *variance;     /* (C) out: biased batch variance */
  /* Optional (NULL: none), if the backend divides streams and join is NONE. y is then an activation with the first
   * channels of the result, and `second` has the remaining ones: (N, C - channels of y, H, W). */
  petra_tensor *second;
} petra_norm_forward;

typedef struct petra_norm_backward {
  /* Inputs and outputs of norm_forward; the sign of the ReLU is recomputed from them. */
  const petra_tensor *x, *scale, *shift, *mean, *variance;
  /* If z is NaN, the ReLU passes no gradient, as in relu_backward: a NaN in x gives NaN in dx and dscale of its channel
   * and, with relu, 0 in dshift. */
  bool relu; /* as given to norm_forward; false for JOIN_ADD_ACTIVATE, whose caller applies relu_backward first */
  /* Gradient of act(z), an activation or inner; also for JOIN_SUBTRACT it is the gradient of act(z), not of y. */
  const petra_tensor *dy;
  petra_tensor *dx;              /* inner; may alias dy (not with dsecond), never x */
  petra_tensor *dscale, *dshift; /* (C), overwritten */
  /* Optional (NULL: none), if the backend divides streams. dy is then an activation with the first channels of the
   * gradient, and `dsecond` has the remaining ones. */
  const petra_tensor *dsecond;
} petra_norm_backward;

/* SGD with momentum over a set of tensors (PyTorch's form): g += decay * p; v = momentum * v + g (first step: v = g);
 * p -= lr * (nesterov ? g + momentum * v : v). All arrays have `count` entries; decay is per tensor. */
typedef struct petra_sgd_step {
  int count;
  petra_tensor *const *parameters; /* updated */
  petra_tensor *const *velocities; /* updated */
  petra_tensor *const *gradients;  /* read only */
  const double *weight_decay;      /* per tensor; 0: no decay */
  double lr, momentum;
  bool nesterov;
  bool first; /* this is the first step: velocities are not read */
} petra_sgd_step;

/* One step of AdamW, NAdamW or Lion over a set of tensors. Arrays are as in petra_sgd_step.
 * With squares, m and s being the averages of the gradient and of its square: m += (1 - beta1) (g - m);
 * s = beta2 s + (1 - beta2) g^2;
 * p = (1 - lr decay) p - (gradient_rate g + mean_rate m) / (sqrt(s / square_correction) + epsilon).
 * The two rates determine whether the step is AdamW or NAdamW (nn/optim.c).
 * Without squares the step is Lion: c = beta1 m + (1 - beta1) g; p = (1 - lr decay) p - lr sign(c);
 * m = beta2 m + (1 - beta2) g. sign(0) is 0 and sign(NaN) is NaN. Epsilon and the rates after lr are ignored. */
typedef struct petra_adam_step {
  int count;
  petra_tensor *const *parameters, *const *means, *const *squares; /* updated; squares may be NULL */
  petra_tensor *const *gradients;                                  /* read only */
  const double *weight_decay;                                      /* per tensor */
  double beta1, beta2, epsilon;
  double lr, gradient_rate, mean_rate, square_correction; /* rates of this step; square_correction above 0 */
} petra_adam_step;

/* Moves x, a matrix of O rows (a filter (O, I, KH, KW) has I KH KW columns), towards the nearest matrix whose rows (or
 * columns, if they are fewer) are orthonormal: X = x / max(|x|, 1e-7), |x| being the root of the sum of squares, then
 * five times X = 3.4445 X - 4.7750 X X^T X + 2.0315 (X X^T)^2 X; y = X (with more rows than columns, X^T X is
 * multiplied from the right, which gives the same result). This is the Newton-Schulz iteration of Jordan et al., Muon
 * (2024), which leaves singular values between about 0.7 and 1.2. */
typedef struct petra_orthogonalize {
  const petra_tensor *x; /* FILTER or MATRIX */
  petra_tensor *y;       /* like x, never x */
  petra_tensor *work[2]; /* MATRIX (O, I KH KW): scratch; undefined afterwards */
  petra_tensor *gram[2]; /* MATRIX (n, n), n the smaller of O and I KH KW: scratch */
} petra_orthogonalize;
enum { PETRA_ORTHOGONALIZE_STEPS = 5 };

/* y = join(addend, x w^T + b), row by row: one fully connected layer for all rows. x, addend and y are all matrices or
 * all sequences, with the same rows. If x is inner, y is a stream, or inner if join is NONE; the weights are then
 * rounded like x, the products are summed in float, and inner results are rounded once. */
typedef struct petra_linear_forward {
  const petra_tensor *x;      /* rows of I */
  const petra_tensor *w;      /* matrix (O, I) */
  const petra_tensor *b;      /* vector (O), or NULL: none */
  petra_join join;            /* NONE, ADD or SUBTRACT; there is no activation */
  const petra_tensor *addend; /* rows of O, unless join is NONE */
  petra_tensor *y;            /* rows of O; may alias addend, never x */
} petra_linear_forward;

/* The mean over rows, which are the images of a matrix or the tokens of a sequence. */
typedef struct petra_cross_entropy {
  const petra_tensor *logits; /* (N, classes), or a sequence (N, T, classes) */
  const int32_t *labels;      /* a class number for each row, on the host, 0 <= label < classes */
  petra_tensor *dlogits;      /* like logits: gradient of the mean loss; NULL when not wanted */
  bool later;                 /* the results may be delivered after the return: *ticket may be set instead */
  bool unwanted;              /* only dlogits is wanted: the results may be undefined */
  int64_t ticket;             /* out: 0: the results are below; otherwise collect returns them */
  double loss;                /* out: mean over the rows of -log softmax(logits)[label] */
  /* out: number of rows whose label has the highest logit, or one of the five highest (ties: lower class first; a NaN
   * is not worse than any other logit). */
  int32_t top1, top5;
} petra_cross_entropy;

/* Images of a data set as they were read, and the parameters by which they become activations. */
typedef struct petra_images {
  const uint8_t *pixels;               /* (N, 3, H, W) on the host */
  const petra_augment_choice *choices; /* N */
  const double *mean, *deviation;      /* by channel */
} petra_images;

/* The only list of operations. The backends' tables, the functions that call them (ops.c), the `dry` backend and the
 * names in the tests' table of cases are generated from it. An entry is
 *   X(prefix, name, (parameters without the backend), (the same as arguments), checks that ops.c makes first)
 * with these checks, in their order:
 *   NUMBERS(t)                      t is not NULL, belongs to this backend, and is neither a mask nor quantised
 *   SUMMED(t)                       the same, and not inner
 *   ACTIVATION(t), MASK(t), VECTOR(t, n), MATRIX(t, rows, columns)   t has this kind and size (PETRA_ANY: any size)
 *   SEQUENCE(t, samples, positions, features)   the same
 *   ROWS(t)                         t is a matrix or a sequence, inner or not
 *   ROWS_AS(t, u, columns)          t has the kind and the rows of u, which ROWS has checked, and this many columns
 *   ROWS_FROM(t, u, columns)        the same, except that t may be a stream if u is inner
 *   LIKE(t, u)                      t has the kind and the shape of u
 *   SHAPED(t, u)                    the same, except that one may be a stream (an activation, a sequence) and the
 *                                   other inner
 *   APART(t, u, ...)                the output t is not one of the tensors u; tensors that no APART separates may be
 *                                   the same
 *   CONVOLUTION(geometry, x, its kind, w, y), MAX_POOL(geometry, x, y, mask), COLUMNS(x, y, column),
 *   SEQUENCE_COLUMNS(x, y, column)   the shapes that the comment of the operation gives
 *   CHECK(what, ...)                a check of this operation alone: check_<what> of ops.c
 * To add an operation, add an entry here, a function to each backend, and cases to tests/cases_*.c. */
#define PETRA_OPERATIONS(X, prefix)                                                                                    \
  /* Host arrays are dense in the logical order (row-major over shape[0..3]), `elements` long. */                      \
  X(prefix, upload, (petra_tensor * tensor, const void *host, petra_host_type type), (tensor, host, type),             \
    CHECK(host, tensor, type))                                                                                         \
  X(prefix, download, (const petra_tensor *tensor, void *host, petra_host_type type), (tensor, host, type),            \
    CHECK(host, tensor, type))                                                                                         \
                                                                                                                       \
  /* y = the bytes of the samples of x in a format (quantise.h), and back; `draws` may be NULL if the format is not */ \
  /* random. x, or y of dequantise, is an activation or a sequence, inner or not. */                                   \
  X(prefix, quantise, (const petra_tensor *x, petra_format format, const petra_draws *draws, petra_tensor *y),         \
    (x, format, draws, y), CHECK(quantised, x, format, y))                                                             \
  X(prefix, dequantise, (const petra_tensor *x, petra_format format, petra_tensor *y), (x, format, y),                 \
    CHECK(quantised, y, format, x))                                                                                    \
                                                                                                                       \
  /* y = x, rounded to nearest even if the elements of y are smaller */                                                \
  X(prefix, copy, (const petra_tensor *x, petra_tensor *y), (x, y), NUMBERS(x) SHAPED(y, x) APART(y, x))               \
  /* y = value (padding stays 0) */                                                                                    \
  X(prefix, fill, (petra_tensor * y, double value), (y, value), NUMBERS(y))                                            \
  /* y += alpha x */                                                                                                   \
  X(prefix, axpy, (double alpha, const petra_tensor *x, petra_tensor *y), (alpha, x, y),                               \
    SUMMED(x) LIKE(y, x) APART(y, x))                                                                                  \
  /* y = alpha y. alpha = 0 is not special: 0 times NaN or infinity is NaN, as in IEEE 754. */                         \
  X(prefix, scale, (double alpha, petra_tensor *y), (alpha, y), SUMMED(y))                                             \
  /* y = a + b; y may alias a or b. */                                                                                 \
  X(prefix, add, (const petra_tensor *a, const petra_tensor *b, petra_tensor *y), (a, b, y),                           \
    SUMMED(a) LIKE(b, a) LIKE(y, a))                                                                                   \
  /* Sum of a[i] b[i], accumulated in double. */                                                                       \
  X(prefix, dot, (const petra_tensor *a, const petra_tensor *b, double *out), (a, b, out), NUMBERS(a) LIKE(b, a))      \
                                                                                                                       \
  /* x (N, C, H, W) -> x1 = channels [0, C1), x2 = channels [C1, C1 + C2), C1 + C2 = C; concat is the reverse. */      \
  X(prefix, split, (const petra_tensor *x, petra_tensor *x1, petra_tensor *x2), (x, x1, x2),                           \
    CHECK(parts, x, x1, x2) APART(x1, x2))                                                                             \
  X(prefix, concat, (const petra_tensor *x1, const petra_tensor *x2, petra_tensor *x), (x1, x2, x),                    \
    CHECK(parts, x, x1, x2))                                                                                           \
                                                                                                                       \
  /* S: x (N, C, H, W) -> y (N, 4C, H/2, W/2), H and W even: y[n, 4c + 2i + j, h, w] = x[n, c, 2h + i, 2w + j],  */    \
  /* i and j 0 or 1 (PyTorch's pixel_unshuffle). A permutation: depth_to_space is its inverse, and each is the   */    \
  /* other's backward.                                                                                           */    \
  X(prefix, space_to_depth, (const petra_tensor *x, petra_tensor *y), (x, y), CHECK(depth, x, y))                      \
  X(prefix, depth_to_space, (const petra_tensor *y, petra_tensor *x), (y, x), CHECK(depth, x, y))                      \
                                                                                                                       \
  /* x (N, I, H, W), w (O, I, KH, KW), y (N, O, OH, OW), and their gradients. x and y are inner, except that dx */     \
  /* may be an activation, and so may x if the backend rounds streams. dx = addend + the gradient, where addend */     \
  /* is NULL or, if dx is an activation, an activation too. */                                                         \
  X(prefix, conv_forward,                                                                                              \
    (const petra_conv_geometry *geometry, const petra_tensor *x, const petra_tensor *w, petra_tensor *y),              \
    (geometry, x, w, y), CONVOLUTION(geometry, x, read_kind(check, x), w, y) APART(y, x))                              \
  X(prefix, conv_backward_data,                                                                                        \
    (const petra_conv_geometry *geometry, const petra_tensor *dy, const petra_tensor *w, const petra_tensor *addend,   \
     petra_tensor *dx),                                                                                                \
    (geometry, dy, w, addend, dx),                                                                                     \
    CONVOLUTION(geometry, dx, image_kind(dx), w, dy) CHECK(addend, addend, dx) APART(dx, dy, addend))                  \
  X(prefix, conv_backward_filter,                                                                                      \
    (const petra_conv_geometry *geometry, const petra_tensor *x, const petra_tensor *dy, petra_tensor *dw),            \
    (geometry, x, dy, dw), CONVOLUTION(geometry, x, read_kind(check, x), dw, dy))                                      \
                                                                                                                       \
  /* Batch norm with the statistics of the batch; norm_evaluate is the same forward with given mean and variance */    \
  /* (running statistics): they are inputs there.                                                                */    \
  X(prefix, norm_forward, (const petra_norm_forward *arguments), (arguments), CHECK(norm_forward, arguments))          \
  X(prefix, norm_backward, (const petra_norm_backward *arguments), (arguments), CHECK(norm_backward, arguments))       \
  X(prefix, norm_evaluate, (const petra_norm_forward *arguments), (arguments), CHECK(norm, arguments))                 \
  /* running = (1 - momentum) running + momentum * batch; the variance is made unbiased with n / (n - 1), where  */    \
  /* n = N * H * W is `samples`, 2 at least.                                                                     */    \
  X(prefix, norm_update_running,                                                                                       \
    (const petra_tensor *mean, const petra_tensor *variance, int64_t samples, double momentum,                         \
     petra_tensor *running_mean, petra_tensor *running_variance),                                                      \
    (mean, variance, samples, momentum, running_mean, running_variance),                                               \
    VECTOR(mean, PETRA_ANY) LIKE(variance, mean) LIKE(running_mean, mean) LIKE(running_variance, mean)                 \
        APART(running_mean, mean, variance) APART(running_variance, mean, variance, running_mean)                      \
            CHECK(samples, samples))                                                                                   \
                                                                                                                       \
  /* dx = y > 0 ? dy : 0; dx may alias dy */                                                                           \
  X(prefix, relu_backward, (const petra_tensor *y, const petra_tensor *dy, petra_tensor *dx), (y, dy, dx),             \
    ACTIVATION(y) LIKE(dy, y) LIKE(dx, y) APART(dx, y))                                                                \
                                                                                                                       \
  /* `mask` has the shape of y; NULL: no backward follows. */                                                          \
  X(prefix, max_pool_forward,                                                                                          \
    (const petra_pool_geometry *geometry, const petra_tensor *x, petra_tensor *y, petra_tensor *mask),                 \
    (geometry, x, y, mask), MAX_POOL(geometry, x, y, mask) APART(y, x))                                                \
  X(prefix, max_pool_backward,                                                                                         \
    (const petra_pool_geometry *geometry, const petra_tensor *dy, const petra_tensor *mask, petra_tensor *dx),         \
    (geometry, dy, mask, dx), MAX_POOL(geometry, dx, dy, mask) MASK(mask) APART(dx, dy))                               \
                                                                                                                       \
  /* Global average pool of x (N, C, H, W) into columns [column, column + C) of the matrix y (N, columns); the   */    \
  /* other columns are left alone. Backward: dx = those columns of dy, spread over H x W and divided by H * W.   */    \
  X(prefix, average_pool_forward, (const petra_tensor *x, petra_tensor *y, int column), (x, y, column),                \
    COLUMNS(x, y, column))                                                                                             \
  X(prefix, average_pool_backward, (const petra_tensor *dy, int column, petra_tensor *dx), (dy, column, dx),           \
    COLUMNS(dx, dy, column))                                                                                           \
                                                                                                                       \
  X(prefix, linear_forward, (const petra_linear_forward *arguments), (arguments), CHECK(linear_forward, arguments))    \
  /* dx = dy w */                                                                                                      \
  X(prefix, linear_backward_data, (const petra_tensor *dy, const petra_tensor *w, petra_tensor *dx), (dy, w, dx),      \
    ROWS(dy) MATRIX(w, petra_tensor_columns(dy), PETRA_ANY) ROWS_FROM(dx, dy, w->shape[1]) APART(dx, dy, w))           \
  /* dw = dy^T x; db: the sum of the rows of dy, or NULL */                                                            \
  X(prefix, linear_backward_weights,                                                                                   \
    (const petra_tensor *x, const petra_tensor *dy, petra_tensor *dw, petra_tensor *db), (x, dy, dw, db),              \
    ROWS(x) ROWS_AS(dy, x, PETRA_ANY) MATRIX(dw, petra_tensor_columns(dy), petra_tensor_columns(x)) APART(dw, x, dy)   \
        CHECK(bias, dy, db))                                                                                           \
                                                                                                                       \
  /* Transformers. */                                                                                                  \
  X(prefix, layer_norm_forward, (const petra_layer_norm_forward *arguments), (arguments),                              \
    CHECK(layer_norm_forward, arguments))                                                                              \
  X(prefix, layer_norm_backward, (const petra_layer_norm_backward *arguments), (arguments),                            \
    CHECK(layer_norm_backward, arguments))                                                                             \
  X(prefix, gelu_forward, (petra_gelu form, const petra_tensor *x, petra_tensor *y), (form, x, y),                     \
    ROWS(x) LIKE(y, x) APART(y, x))                                                                                    \
  /* dx = dy times the derivative at x; dx may alias dy */                                                             \
  X(prefix, gelu_backward, (petra_gelu form, const petra_tensor *x, const petra_tensor *dy, petra_tensor *dx),         \
    (form, x, dy, dx), ROWS(x) LIKE(dy, x) LIKE(dx, x) APART(dx, x))                                                   \
  X(prefix, attention_forward, (const petra_attention *arguments), (arguments), CHECK(attention_forward, arguments))   \
  X(prefix, attention_backward, (const petra_attention *arguments), (arguments), CHECK(attention_backward, arguments)) \
  X(prefix, rotary, (const petra_rotary *arguments), (arguments), CHECK(rotary, arguments))                            \
  /* y = g / (1 + exp(-g)) u (Shazeer, arXiv:2002.05202): a row of x holds g and u side by side, each with as many */  \
  /* features as a row of y. Backward: dx = the gradients of g and u. */                                               \
  X(prefix, swiglu_forward, (const petra_tensor *x, petra_tensor *y), (x, y), CHECK(gated, x, "y", y))                 \
  X(prefix, swiglu_backward, (const petra_tensor *x, const petra_tensor *dy, petra_tensor *dx), (x, dy, dx),           \
    CHECK(gated, x, "dy", dy) LIKE(dx, x) APART(dx, x))                                                                \
                                                                                                                       \
  /* y[n, t] = table[tokens[n, t]] + positions[t]: tokens (N, T, 1), table (V, C), positions (at least T, C) or */     \
  /* NULL (none), y (N, T, C). A token that is not an integer from 0 to V - 1 is rejected (PETRA_BACKEND); a */        \
  /* device then reads nothing outside the table, and the row is undefined. Backward: dtable and, unless it is */      \
  /* NULL, dpositions get the sums of the rows of dy for each token and each position, added in the order of the */    \
  /* rows; 0 for tokens and positions that do not occur. */                                                            \
  X(prefix, embed_forward,                                                                                             \
    (const petra_tensor *tokens, const petra_tensor *table, const petra_tensor *positions, petra_tensor *y),           \
    (tokens, table, positions, y),                                                                                     \
    CHECK(embedding, tokens, "y", y, "table", table, "positions", positions) APART(y, tokens))                         \
  X(prefix, embed_backward,                                                                                            \
    (const petra_tensor *tokens, const petra_tensor *dy, petra_tensor *dtable, petra_tensor *dpositions),              \
    (tokens, dy, dtable, dpositions),                                                                                  \
    CHECK(embedding, tokens, "dy", dy, "dtable", dtable, "dpositions", dpositions) APART(dtable, dpositions))          \
                                                                                                                       \
  /* Cuts images (N, 3, H, W) into squares: y (N, (H / size) (W / size), 3 size size) has a position for each */       \
  /* square, row by row, whose features are the square's pixels in the order (channel, row, column). */                \
  X(prefix, patches, (const petra_tensor *images, int size, petra_tensor *y), (images, size, y),                       \
    CHECK(patches, images, size, y))                                                                                   \
  /* The mean over positions of x (N, T, C) into columns [column, column + C) of the matrix y (N, columns); the */     \
  /* other columns are left alone. Backward: dx = those columns of dy, divided by T, at every position. */             \
  X(prefix, mean_positions_forward, (const petra_tensor *x, petra_tensor *y, int column), (x, y, column),              \
    SEQUENCE_COLUMNS(x, y, column))                                                                                    \
  X(prefix, mean_positions_backward, (const petra_tensor *dy, int column, petra_tensor *dx), (dy, column, dx),         \
    SEQUENCE_COLUMNS(dx, dy, column))                                                                                  \
                                                                                                                       \
  X(prefix, cross_entropy, (petra_cross_entropy * arguments), (arguments), CHECK(cross_entropy, arguments))            \
                                                                                                                       \
  X(prefix, sgd_step, (const petra_sgd_step *arguments), (arguments), CHECK(sgd_step, arguments))                      \
  X(prefix, adam_step, (const petra_adam_step *arguments), (arguments), CHECK(adam_step, arguments))                   \
  X(prefix, orthogonalize, (const petra_orthogonalize *arguments), (arguments), CHECK(orthogonalize, arguments))

/* For X: the prototype of prefix##name, and its entry in a table of operations. A table made with the second macro
 * cannot lack an operation, because a missing function does not compile. */
#define PETRA_OPERATION_DECLARE(prefix, name, parameters, ...)                                                         \
  petra_status prefix##name(petra_backend *backend, PETRA_UNPACK parameters);
#define PETRA_OPERATION_ENTRY(prefix, name, ...) .name = prefix##name,
#define PETRA_UNPACK(...) __VA_ARGS__

/* Memory of a backend, in bytes. Memory is released only with the backend, so that the current memory is also the
 * maximum. Accounts count only tensors in use. */
typedef struct petra_backend_memory {
  int64_t tensors; /* storage of tensors, in use or not */
  int64_t
      /* Copies in the layout and type that convolutions and linear maps require: copies of weights and, on `cuda` in
       * bf16, also of streams and images; -1: unknown. */
      filters;
  int64_t scratch; /* scratch memory of operations; -1: unknown */
} petra_backend_memory;

enum { PETRA_BACKEND_ACTIONS = 8 }; /* kinds of action that `begin` distinguishes */

/* --- peers: transfers tensors between the devices of processes directly, without the hosts: an optional part of a
 * backend (cuda has it if it was built with NCCL). All processes need the same backend, since the elements of a tensor
 * are sent in their layout on the device.
 *
 * A lane is one direction between this process and another one. Tensors are received in the order in which they are
 * sent. A send takes place when the other process has posted its receive; all later operations on the lane wait. The
 * device waits for this, and no function does except `close`. Both processes must therefore post the operations of
 * their lanes in orders that agree: docs/adr/0018. Failures: PETRA_BACKEND, logged. --- */

enum { PETRA_PEER_LANES = 4, PETRA_PEER_ID_BYTES = 128 };

typedef struct petra_peer_operation {
  int lane; /* a connected lane; its direction determines whether this is a send or a receive */
  petra_tensor *tensor;
} petra_peer_operation;

typedef struct petra_peer_ops {
  /* Describes the library: "NCCL 2.28.9". */
  void (*describe)(const petra_backend *backend, char *text, size_t size);
  /* Gets the address of the device on the bus, which differs between different devices of a host. */
  petra_status (*device)(const petra_backend *backend, char *text, size_t size);
  /* Makes a new id for a lane, which both of its ends need. */
  petra_status (*make_id)(unsigned char id[PETRA_PEER_ID_BYTES]);
  /* connect begins to connect a lane (from 0) of which this process is one end; connected gets whether the connection
   * is complete. It completes after the other end has begun as well. */
  petra_status (*connect)(petra_backend *backend, int lane, const unsigned char id[PETRA_PEER_ID_BYTES], bool sends);
  petra_status (*connected)(petra_backend *backend, int lane, bool *is);
  /* Sends and receives all tensors together, after all operations on them before this call and before all operations
   * after it. The caller may release the tensors when the function returns. */
  petra_status (*exchange)(petra_backend *backend, const petra_peer_operation *operations, int count);
  /* May be called from any thread: checks whether all lanes work, as far as the library knows. */
  petra_status (*check)(petra_backend *backend);
  /* May be called from any thread: cancels the transfers of all lanes, whose tensors are then undefined. Afterwards
   * every function that returns a result of the device to the host, and `exchange`, fails with PETRA_CHILD and logs
   * nothing, since the caller of give_up has logged the reason. */
  void (*give_up)(petra_backend *backend);
  /* Waits for the current transfers and closes the lanes; the other end has to call it too. */
  petra_status (*close)(petra_backend *backend);
} petra_peer_ops;

typedef struct petra_backend_ops {
  const char *name; /* "ref", "cpu", "cuda", "dry" */

  void (*destroy)(petra_backend *backend);
  /* Describes the backend in one line for `petra info`: libraries and versions, instruction set, threads. */
  void (*describe)(const petra_backend *backend, char *text, size_t size);

  /* Sets data and layout of a tensor whose backend, kind, shape, elements and bytes are set. The content is 0. */
  petra_status (*storage_create)(petra_backend *backend, petra_tensor *tensor);
  void (*storage_destroy)(petra_backend *backend, petra_tensor *tensor);
  /* Returns the bytes of a tensor without allocating anything. NULL: elements are stored without padding. */
  size_t (*storage_bytes)(petra_backend *backend, const petra_tensor *tensor);

  /* Optional (NULL: operations are complete when they return). Operations between begin and end belong to one action of
   * a stage (from 1; `kind` is the kind of the action, below PETRA_BACKEND_ACTIONS). They may run later, in their
   * order, concurrently with the operations of other stages; if the same sequence occurs again, it may be replayed as a
   * whole. synchronize returns when all are done. The results that an operation returns to the host (download, dot,
   * cross_entropy that is not `later`) are available when the operation returns. */
  petra_status (*begin)(petra_backend *backend, int32_t stage, int32_t kind);
  petra_status (*end)(petra_backend *backend);
  petra_status (*synchronize)(petra_backend *backend);
  /* Waits for the results of the cross_entropy that returned this ticket, one of the last three; sets loss, top1,
   * top5. */
  petra_status (*collect)(petra_backend *backend, int64_t ticket, petra_cross_entropy *out);
  /* Optional (NULL: `data` is not memory of a CUDA device). Waits until a library may read, or write, the elements at
   * tensor->data. Their layout is the same in all backends with this name. */
  petra_status (*settle)(petra_backend *backend, petra_tensor *tensor, bool writes);
  /* Optional (NULL: any thread may use the memory of tensors): makes the backend's device the device of the calling
   * thread. Threads other than the one that created the backend call this before they, or a library in them, use
   * tensor->data. */
  petra_status (*bind)(petra_backend *backend);
  /* Optional. Computes x (N, 3, H, W) = (pixel / 255 - mean) / deviation of the augmented images, computed in double
   * and rounded once. The result is the same as an upload of the result of petra_augment_apply. */
  petra_status (*upload_images)(petra_backend *backend, const petra_images *images, petra_tensor *x);

  /* Optional (NULL: unknown): gets the backend's memory other than its tensors. */
  void (*held)(petra_backend *backend, petra_backend_memory *out);
  /* Optional (NULL: there are none): writes the choices used so far in the format of the file that options.plans names;
   * writes nothing if options.plans is not set. */
  void (*print_engines)(const petra_backend *backend, FILE *out);

  /* The operations. */
#define PETRA_OPERATION_FIELD(prefix, name, parameters, ...)                                                           \
  petra_status (*name)(petra_backend * backend, PETRA_UNPACK parameters);
  PETRA_OPERATIONS(PETRA_OPERATION_FIELD, )
#undef PETRA_OPERATION_FIELD
} petra_backend_ops;

/* The first member of every backend's own structure. */
struct petra_backend {
  const petra_backend_ops *ops;
  const petra_peer_ops *peers; /* tensors between the devices of processes; NULL: only through the hosts */
  /* Set by registry.c: */
  petra_precision precision;
  int threads; /* threads of one operation */
  /* Number of threads that may call operations concurrently, each with a lane (base/log.h); 1: one. */
  int lanes;
  bool dry;             /* tensors have no content (dry.c) */
  bool divides_streams; /* norms write two streams at once, and read the gradients of two (`second`, `dsecond`) */
  bool rounds_streams;  /* convolutions round a stream when they read it: it need not become inner (precision.c) */
  const size_t *element_bytes;    /* of each kind of tensor (precision.c) */
  struct petra_tensor_pool *pool; /* kept by tensor_pool.c */
};

/* --- registry.c --- */

typedef struct petra_backend_options {
  petra_backend_kind kind;
  petra_precision precision;
  int threads; /* threads of one operation, >= 1 */
  /* Number of threads that call operations concurrently; 0: 1; more: only on `cpu` and `ref`, others have 1. */
  int lanes;
  bool deterministic;
  petra_graph_choice graph;
  int streams;         /* cuda: streams that stages compute on; 0: as many as possible */
  bool wide_gradients; /* cuda in bf16: convolutions return gradients of streams and of filters unrounded */
  const char *plans;   /* cuda: file of the measured choices (cuda/cudnn_private.h); NULL, "": nothing is measured */
  int device;          /* cuda: number of the device, from 0 */
  bool device_wraps;   /* `device` is taken modulo the number of devices that exist */
  bool sizes_only;     /* only the sizes of its tensors are used: the processor need not support the precision */
} petra_backend_options;

/* Creates a backend. AUTO chooses `cuda` if it has the precision, was built and there is a device, else `cpu`, else
 * `ref`. Errors: PETRA_UNSUPPORTED (logged, names what would work) if the backend does not have the precision, was not
 * built or has no device. */
petra_status petra_backend_create_with(const petra_backend_options *options, petra_backend **out);

/* Creates a backend with device.graph: auto. */
petra_status petra_backend_create(petra_backend_kind kind, petra_precision precision, int threads, bool deterministic,
                                  petra_backend **out);

/* Creates a backend whose tensors have the sizes of the tensors of `kind` and no content, and whose operations compute
 * nothing: it counts the memory of a run. Results (losses, downloads) are 0. */
petra_status petra_backend_create_dry(petra_backend_kind kind, petra_precision precision, petra_backend **out);

/* Call begin, end, synchronize and collect of the table, if the backend has them. Tensors that are created
 * between begin and end take storage that this stage has released before, so that an action gets the same storage every
 * time. */
petra_status petra_backend_begin(petra_backend *backend, int32_t stage, int32_t kind);
petra_status petra_backend_end(petra_backend *backend);
petra_status petra_backend_synchronize(petra_backend *backend);
petra_status petra_backend_collect(petra_backend *backend, int64_t ticket, petra_cross_entropy *out);

/* Returns true if the backend has upload_images. */
bool petra_backend_takes_images(const petra_backend *backend);

/* Gets the current memory of the backend; no operation may run meanwhile. */
petra_backend_memory petra_backend_memory_in_use(petra_backend *backend);

/* Destroys the backend, whose tensors must all have been released. NULL is allowed. */
void petra_backend_destroy(petra_backend *backend);

/* --- ops.c: the operations that the network code calls. petra_op_<name> of every operation of the list checks that
 * its tensors exist, belong to the backend, have the kinds and shapes in the list and alias only as allowed, and then
 * calls the backend. The list has their parameters and meaning.
 *
 * Failures found here, each one line that starts with the operation's name: PETRA_SHAPE (kind, shape or geometry),
 * PETRA_DATA (a label out of range), PETRA_INTERNAL (a tensor that is missing, of another backend, or that aliases an
 * output). Outputs are then untouched. --- */

PETRA_OPERATIONS(PETRA_OPERATION_DECLARE, petra_op_)

/* Uploads images. Errors: PETRA_INTERNAL if the backend does not support it (petra_backend_takes_images). */
petra_status petra_op_upload_images(petra_backend *backend, const petra_images *images, petra_tensor *x);
