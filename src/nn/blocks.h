/* The kinds of blocks, one file each, and what they share: units. For src/nn alone. */
#ifndef PETRA_NN_BLOCKS_H
#define PETRA_NN_BLOCKS_H

#include "nn/block.h"
#include "nn/convbn.h"

/* X(kind): petra_KIND_ops, in KIND.c. */
#define PETRA_BLOCK_LIST(X) X(stem) X(revblock) X(downsample) X(shuffle) X(resblock) X(head)

#define PETRA_BLOCK_DECLARE(kind) extern const petra_block_ops petra_##kind##_ops;
PETRA_BLOCK_LIST(PETRA_BLOCK_DECLARE)
#undef PETRA_BLOCK_DECLARE

/* y = join(addend, unit `index` of the block (x)) under the pass. */
petra_status petra_pass_unit(const petra_pass *pass, int index, petra_tensor *x, petra_join join,
                             const petra_tensor *addend, petra_tensor **y);

/* The block's path F from x: all units but the last plainly, the last one with `join`. `first` (NULL: not wanted)
 * gets a reference to the output of unit 0. */
petra_status petra_pass_path(const petra_pass *pass, petra_tensor *x, petra_join join, const petra_tensor *addend,
                             petra_tensor **first, petra_tensor **y);

/* Backward of unit `index`; dx NULL: not wanted. */
petra_status petra_unit_backward(const petra_pass *pass, int index, bool relu, const petra_tensor *dy,
                                 petra_tensor *const *gradients, petra_tensor **dx);

/* Backward through F: dy is the gradient of F's output (behind its last ReLU unless last_relu is false); dfirst (NULL:
 * none) is added to the gradient of unit 0's output. */
petra_status petra_path_backward(const petra_pass *pass, const petra_tensor *dy, bool last_relu,
                                 const petra_tensor *dfirst, petra_tensor *const *gradients, petra_tensor **dx);

/* The entries of a kind whose parameters and statistics are those of its units: weight, scale, shift of each; running
 * mean, running variance of each. */
#define PETRA_OPS_OF_UNITS                                                                                             \
  .weight_gradients = petra_units_weight_gradients, .update_statistics = petra_units_update_statistics,                \
  .parameter_count = petra_units_parameter_count, .parameter = petra_units_parameter,                                  \
  .statistic_count = petra_units_statistic_count, .statistic = petra_units_statistic

petra_status petra_units_weight_gradients(const petra_pass *pass, petra_tensor *const *gradients);
petra_status petra_units_update_statistics(const petra_pass *pass, petra_tensor *const *statistics);
int petra_units_parameter_count(const petra_block *block);
void petra_units_parameter(const petra_model *model, const petra_block *block, int index, petra_tensor_spec *out);
int petra_units_statistic_count(const petra_block *block);
void petra_units_statistic(const petra_block *block, int index, petra_tensor_spec *out);

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
