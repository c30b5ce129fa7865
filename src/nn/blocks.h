/* SPDX-License-Identifier: Apache-2.0 */
/* The kinds of blocks, one file each, and what they share: units. For src/nn alone. */
#ifndef PETRA_NN_BLOCKS_H
#define PETRA_NN_BLOCKS_H

#include "nn/block.h"

/* X(kind): petra_KIND_ops, in KIND.c. */
#define PETRA_BLOCK_LIST(X) X(stem) X(revblock) X(downsample) X(shuffle) X(resblock) X(head)

#define PETRA_BLOCK_DECLARE(kind) extern const petra_block_ops petra_##kind##_ops;
PETRA_BLOCK_LIST(PETRA_BLOCK_DECLARE)
#undef PETRA_BLOCK_DECLARE

/* Outputs are NULL before; what these functions have put there when they fail, the caller releases. */

/* Where what a unit computes goes: to a stream (also by a sum), or to the next unit alone. */
typedef enum petra_unit_output { PETRA_UNIT_STREAM, PETRA_UNIT_INNER } petra_unit_output;

/* y = join(addend, unit `index` of the block (x)) under the pass: convolution, batch norm, ReLU where the unit has one.
 * `addend` is NULL for PETRA_JOIN_NONE. Where x is a stream and the precision of what is inner differs, the convolution reads
 * (and the graph keeps) a rounded copy of x. With y NULL the graph alone is filled; join and addend are then ignored. */
petra_status petra_pass_unit(const petra_pass *pass, int index, petra_tensor *x, petra_join join,
                             const petra_tensor *addend, petra_unit_output output, petra_tensor **y);

/* The block's path F from x: all units but the last plainly, the last one with `join`; y NULL: of the last one the graph alone.
 * `first` (NULL: not wanted) gets a reference to the output of unit 0. */
petra_status petra_pass_path(const petra_pass *pass, petra_tensor *x, petra_join join, const petra_tensor *addend,
                             petra_tensor **first, petra_tensor **y);

/* Backward of unit `index` from dy, the gradient of unit(x); dx NULL: not wanted; `input`: what its x was the output of a
 * unit for (streams: a stream). `relu` false leaves the ReLU out (its backward was done by the caller). With graph->defer the filter's gradient is left, and `dconv` of the unit's graph set
 * for petra_block_weight_gradients. */
petra_status petra_unit_backward(const petra_pass *pass, int index, bool relu, const petra_tensor *dy,
                                 petra_tensor *const *gradients, petra_unit_output input, petra_tensor **dx);

/* Backward through F: dy is the gradient of F's output (behind its last ReLU unless last_relu is false); dfirst (NULL:
 * none) is added to the gradient of unit 0's output. */
petra_status petra_path_backward(const petra_pass *pass, const petra_tensor *dy, bool last_relu,
                                 const petra_tensor *dfirst, petra_tensor *const *gradients, petra_tensor **dx);

/* *out: a new activation for `images` images, in the workspace. */
petra_status petra_pass_activation(const petra_pass *pass, int32_t images, const petra_image_shape *shape,
                                   petra_tensor **out);

/* A vector of `size` entries that begin as `initial`; the rest of the spec is 0. */
void petra_vector_spec(petra_tensor_spec *out, petra_tensor_role role, const char *part, const char *name, int32_t size,
                       double initial);

/* Adds a kernel that reads and writes so many elements. */
void petra_kernels_add(petra_kernel_list *kernels, petra_kernel_part part, bool matrix, double flops, double elements);

/* An elementwise kernel, the same forward and backward. */
void petra_kernels_add_both(petra_kernel_list *kernels, double flops, double elements);

/* The units'; with the addition of F's output to one stream. */
void petra_units_kernels(const petra_block *block, petra_kernel_list *kernels);
void petra_joined_kernels(const petra_block *block, petra_kernel_list *kernels);

#endif
