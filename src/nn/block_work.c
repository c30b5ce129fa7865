/* SPDX-License-Identifier: Apache-2.0 */
/* Counts the work of blocks for a cost model. */
#include "nn/blocks.h"
#include "nn/optim.h"

#include <assert.h>

/* FLOPs per element or parameter of the elementwise kernels. */
static const double norm_forward_flops = 7, norm_backward_flops = 11;
static const double layer_norm_forward_flops = 8, layer_norm_backward_flops = 12;
static const double rms_norm_forward_flops = 4, rms_norm_backward_flops = 8;

void petra_kernels_add(petra_kernel_list *kernels, petra_kernel_part part, bool matrix, double flops, double elements) {
  assert(kernels->count < PETRA_BLOCK_KERNELS);
  kernels->kernel[kernels->count++] = (petra_kernel){.part = part,
                                                     .rebuilt = kernels->rebuilt && part == PETRA_KERNEL_FORWARD,
                                                     .matrix = matrix,
                                                     .flops = flops,
                                                     .bytes = elements * (double)kernels->element_bytes};
}

void petra_kernels_add_both(petra_kernel_list *kernels, double flops, double elements) {
  petra_kernels_add(kernels, PETRA_KERNEL_FORWARD, false, flops, elements);
  petra_kernels_add(kernels, PETRA_KERNEL_BACKWARD, false, flops, elements);
}

static void add_unit(const petra_unit *unit, bool data_gradient, petra_kernel_list *kernels) {
  double samples = (double)kernels->samples, pixels = (double)unit->height_out * unit->width_out;
  double x = samples * unit->in * ((double)unit->height_in * unit->width_in), y = samples * unit->out * pixels;
  double w = (double)unit->in * unit->out * unit->kernel * unit->kernel, flops = 2 * w * samples * pixels;
  petra_kernels_add(kernels, PETRA_KERNEL_FORWARD, true, flops, x + w + y);
  petra_kernels_add(kernels, PETRA_KERNEL_FORWARD, false, norm_forward_flops * y, 3 * y);
  petra_kernels_add(kernels, PETRA_KERNEL_BACKWARD, false, norm_backward_flops * y, 5 * y);
  if (data_gradient)
    petra_kernels_add(kernels, PETRA_KERNEL_BACKWARD, true, flops, x + w + y);
  petra_kernels_add(kernels, PETRA_KERNEL_WEIGHT_GRADIENT, true, flops, x + w + y);
}

void petra_units_kernels(const petra_block *block, petra_kernel_list *kernels) {
  for (int u = 0; u < block->unit_count; u++)
    add_unit(&block->units[u], !block->reads_data, kernels);
}

void petra_layer_kernels(const petra_block *block, int layer, petra_kernel_list *kernels) {
  const petra_layer *l = &block->layers[layer];
  double rows = (double)kernels->samples * l->rows, x = rows * l->in, y = rows * l->out, w = (double)l->in * l->out;
  double normed = (double)kernels->samples * (double)petra_stream_elements(&block->shape_in);
  if (*l->norm) {
    const double forward = l->rms ? rms_norm_forward_flops : layer_norm_forward_flops;
    const double backward = l->rms ? rms_norm_backward_flops : layer_norm_backward_flops;
    petra_kernels_add(kernels, PETRA_KERNEL_FORWARD, false, forward * normed, 2 * normed);
    petra_kernels_add(kernels, PETRA_KERNEL_BACKWARD, false, backward * normed, 3 * normed);
  }
  petra_kernels_add(kernels, PETRA_KERNEL_FORWARD, true, 2 * w * rows, x + w + y);
  if (!block->reads_data)
    petra_kernels_add(kernels, PETRA_KERNEL_BACKWARD, true, 2 * w * rows, x + w + y);
  petra_kernels_add(kernels, PETRA_KERNEL_WEIGHT_GRADIENT, true, 2 * w * rows, x + w + y);
}

void petra_joined_kernels(const petra_block *block, petra_kernel_list *kernels) {
  double added = (double)kernels->samples * (double)petra_stream_elements(&block->shape_out);
  petra_units_kernels(block, kernels);
  for (int l = 0; l < block->layer_count; l++)
    petra_layer_kernels(block, l, kernels);
  if (block->middle)
    block->middle->kernels(block, kernels);
  petra_kernels_add_both(kernels, added, 3 * added);
}

void petra_block_kernels(const petra_model *model, const petra_block *block, const petra_optim *optim, int64_t samples,
                         int64_t element_bytes, petra_kernel_list *out) {
  *out = (petra_kernel_list){
      .samples = samples, .element_bytes = element_bytes, .rebuilt = !block->is_loss || block->auxiliary};
  block->ops->kernels(block, out);
  petra_optim_kernels(optim, model, block, out);
}

int64_t petra_block_work(const petra_block *block, int64_t *flops) {
  petra_kernel_list kernels = {.samples = 1, .element_bytes = 1};
  double work = 0, beside = 0;
  block->ops->kernels(block, &kernels);
  for (int i = 0; i < kernels.count; i++)
    if (kernels.kernel[i].matrix && kernels.kernel[i].part == PETRA_KERNEL_FORWARD) {
      work += kernels.kernel[i].flops;
      beside += kernels.kernel[i].beside;
    }
  if (flops)
    *flops = (int64_t)(work - beside);
  return (int64_t)work;
}

int64_t petra_block_flops(const petra_block *block) {
  int64_t flops;
  petra_block_work(block, &flops);
  return flops;
}
