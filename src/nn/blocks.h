/* SPDX-License-Identifier: Apache-2.0 */
/* The kinds of blocks, one file each, and their common parts: units (of images), layers and functions (of sequences).
 * For src/nn only. */
#pragma once

#include "nn/block.h"
#include "nn/model.h"

/* X(kind): petra_KIND_ops, in KIND.c. */
#define PETRA_BLOCK_LIST(X)                                                                                            \
  X(stem)                                                                                                              \
  X(revblock)                                                                                                          \
  X(downsample)                                                                                                        \
  X(variant) X(shuffle) X(resblock) X(head) X(embedding) X(token_embedding) X(patches) X(residual) X(sequence_head)

#define PETRA_BLOCK_DECLARE(kind) extern const petra_block_ops petra_##kind##_ops;
PETRA_BLOCK_LIST(PETRA_BLOCK_DECLARE)
#undef PETRA_BLOCK_DECLARE

/* Outputs are NULL before. If a function fails, the caller releases what the function has put there. */

/* The destination of a unit's or a layer's output: a stream (directly or by a sum), or only the next unit or layer. */
typedef enum petra_unit_output { PETRA_UNIT_STREAM, PETRA_UNIT_INNER } petra_unit_output;

/* Returns the kind of the tensor that the block computes for `output` if its streams are of kind `stream`. All tensors
 * of a head without units, and tensors that are neither activations nor sequences, have the kind of its streams. */
petra_tensor_kind petra_pass_kind(const petra_pass *pass, petra_tensor_kind stream, petra_unit_output output);

/* Gets x as a convolution or a linear map of the block reads it: x itself, or a rounded copy if x is a stream and inner
 * tensors are of another kind. */
petra_status petra_pass_read(const petra_pass *pass, petra_tensor *x, petra_memory_category category,
                             petra_tensor **out);

/* Computes y = join(addend, unit `index` of the block (x)) under the pass: convolution, batch norm, ReLU if the unit
 * has one. `addend` is NULL for PETRA_JOIN_NONE. If x is a stream and the precision of inner tensors differs, the
 * convolution reads (and the graph keeps) a rounded copy of x. If y is NULL, only the graph is filled; join and addend
 * are then ignored. */
petra_status petra_pass_unit(const petra_pass *pass, int index, petra_tensor *x, petra_join join,
                             const petra_tensor *addend, petra_unit_output output, petra_tensor **y);

/* Does the same without a join, if the backend divides streams: the output is the two streams of the block. */
petra_status petra_pass_unit_streams(const petra_pass *pass, int index, petra_tensor *x, petra_streams *out);

/* Computes the block's path F from x: all units without a join except the last one, which has `join`. If y is NULL,
 * only the graph of the last unit is filled. `first` (NULL: not wanted) gets a reference to the output of unit 0. For a
 * block of layers calls petra_function_forward. */
petra_status petra_pass_path(const petra_pass *pass, petra_tensor *x, petra_join join, const petra_tensor *addend,
                             petra_tensor **first, petra_tensor **y);

/* Backward of unit `index` from dy, the gradient of unit(x); if petra_pass_unit_streams made two streams, dy and
 * dsecond are their gradients, else dsecond is NULL. dx NULL: not wanted; `input`: the output for which x was computed
 * (streams: a stream); `addend` (NULL: none) is added to a stream's dx. If `relu` is false, the ReLU is left out (the
 * caller has done its backward). With graph->defer the filter's gradient is omitted, and `dconv` of the unit's graph is
 * set for petra_block_weight_gradients. */
petra_status petra_unit_backward(const petra_pass *pass, int index, bool relu, const petra_tensor *dy,
                                 const petra_tensor *dsecond, petra_tensor *const *gradients, petra_unit_output input,
                                 const petra_tensor *addend, petra_tensor **dx);

/* Backward through F: dy is the gradient of F's output (after its last ReLU unless last_relu is false). dfirst (NULL:
 * none) is added to the gradient of unit 0's output, addend (NULL: none) to dx. */
petra_status petra_path_backward(const petra_pass *pass, petra_tensor *dy, bool last_relu, const petra_tensor *dfirst,
                                 petra_tensor *const *gradients, const petra_tensor *addend, petra_tensor **dx);

/* Computes the mean softmax cross-entropy of the rows of `logits` (a matrix, or a sequence) for the pass's target, and
 * sets its loss if that is wanted. dlogits (NULL: not wanted): the member of the pass's graph that gets a new tensor,
 * the gradient of the logits. */
petra_status petra_pass_loss(const petra_pass *pass, const petra_tensor *logits, petra_tensor **dlogits);

/* Tensors of a unit: weight, scale, shift; running mean, running variance. */
enum { PETRA_UNIT_PARAMETERS = 3, PETRA_UNIT_STATISTICS = 2 };

/* The norm and the linear map of layer `layer` are separate functions, because another computation may come in between.
 * The graph of the layer is graph->units[unit_count + layer] (nn/block.h). */

/* *n = norm (x), an inner tensor; in a head it has the kind of x. */
petra_status petra_layer_normalise(const petra_pass *pass, int layer, petra_tensor *x, petra_tensor **n);

/* *y = join(addend, x w^T + b), a matrix or a sequence like x. join: NONE, or ADD or SUBTRACT to a stream. If x is a
 * stream and the precision of inner tensors differs, the map reads (and the graph keeps) a rounded copy of x, except in
 * a head. If y is NULL, only the graph is filled. */
petra_status petra_layer_map(const petra_pass *pass, int layer, petra_tensor *x, petra_join join,
                             const petra_tensor *addend, petra_unit_output output, petra_tensor **y);

/* From dy, the gradient of x w^T + b, which is read like x: computes the gradients of weight and bias (with
 * graph->defer they are left to petra_block_weight_gradients if the layer is deferred; dy then belongs to the graph and
 * is not a stream), and *dx (NULL: not wanted), which is a stream's if a norm comes before, else inner. */
petra_status petra_layer_map_backward(const petra_pass *pass, int layer, petra_tensor *dy,
                                      petra_tensor *const *gradients, petra_tensor **dx);

/* Turns dn, the gradient of the norm's output, into the gradient of its input, and computes the gradients of scale and
 * shift. */
petra_status petra_layer_normalise_backward(const petra_pass *pass, int layer, petra_tensor *dn,
                                            petra_tensor *const *gradients);

/* Returns the number of parameters of the layer's norm: scale and shift, scale alone (RMS norm), or none. */
int petra_layer_norm_parameters(const petra_layer *layer);

/* Returns the index of the layer's first parameter in the block: its norm's scale and shift, weight, bias, if
 * present. */
int petra_layer_first(const petra_block *block, int layer);

/* *dy: the sum of the gradients of a block's output streams, or the gradient of the only one: the tensor itself, or a
 * copy if the graph keeps it (graph->defer) and it is not a rounded copy (petra_pass_read). It is only read
 * afterwards. */
petra_status petra_stream_gradient(const petra_pass *pass, const petra_streams *dout, petra_tensor **dy);

/* Returns the category of a tensor that the graph of the pass keeps, if there is one. */
petra_memory_category petra_pass_kept(const petra_pass *pass);

/* *out: a new tensor with as many rows as `like` and `features` features: a matrix like `like`, or a sequence for
 * `output`. */
petra_status petra_pass_features(const petra_pass *pass, const petra_tensor *like, int32_t features,
                                 petra_unit_output output, petra_memory_category category, petra_tensor **out);

/* The function between the layers of F. Its output is the input of layer 1, so that the graph keeps it as
 * graph->units[1].x. The function may use `own` of the graph. */
struct petra_middle_ops {
  const char *name;
  petra_status (*forward)(const petra_pass *pass, petra_tensor *x, petra_tensor **y);
  /* dy belongs to the function, which may overwrite it and return it as *dx. */
  petra_status (*backward)(const petra_pass *pass, petra_tensor *dy, petra_tensor **dx);
  void (*kernels)(const petra_block *block, petra_kernel_list *out);
};
extern const petra_middle_ops petra_attention_middle, petra_gelu_middle, petra_swiglu_middle;

/* F of the block: layer 0, middle, layer 1. *y = join(addend, F(x)); if y is NULL, only the graph is filled. */
petra_status petra_function_forward(const petra_pass *pass, petra_tensor *x, petra_join join,
                                    const petra_tensor *addend, petra_tensor **y);

/* *dx = F'(x)^T dy: a new tensor. */
petra_status petra_function_backward(const petra_pass *pass, petra_tensor *dy, petra_tensor *const *gradients,
                                     petra_tensor **dx);

/* Weights of transformers begin as N(0, PETRA_DEVIATION^2) (GPT-2). */
#define PETRA_DEVIATION 0.02

/* *out: a new tensor of a stream of `samples` samples, in the workspace. */
petra_status petra_pass_stream(const petra_pass *pass, int32_t samples, const petra_stream_shape *shape,
                               petra_tensor **out);

/* Sets up PART/weight, a matrix with initial values N(0, deviation^2) and weight decay; the rest of the spec is 0. */
void petra_matrix_spec(petra_tensor_spec *out, petra_tensor_role role, const char *part, int32_t rows, int32_t columns,
                       double deviation);

/* Adds an elementwise kernel that is the same forward and backward. */
void petra_kernels_add_both(petra_kernel_list *kernels, double flops, double elements);

/* Add the kernels of the units; of a layer; of F, with the addition of its output to one stream. */
void petra_units_kernels(const petra_block *block, petra_kernel_list *kernels);
void petra_layer_kernels(const petra_block *block, int layer, petra_kernel_list *kernels);
void petra_joined_kernels(const petra_block *block, petra_kernel_list *kernels);
