#include "sim/roofline.h"

#include "base/log.h"

#include <math.h>
#include <string.h>

/* FLOP/s and B/s. Sources: the vendor's data sheets.
 * a100: NVIDIA A100 80GB SXM, data sheet of June 2021: FP32 19.5 T, TF32 156 T, BF16 312 T, 2,039 GB/s.
 * h100: NVIDIA H100 SXM, data sheet: FP32 67 T, 3.35 TB/s; TF32 989.4 T and BF16 1,978.9 T are with sparsity,
 * dense is half. h200: NVIDIA H200 SXM, data sheet: arithmetic as h100, 4.8 TB/s. cpu-core: no product but an
 * assumption: petra_core_flops of 2.5 GHz, 8 fp32 lanes (AVX2) and 2 fused multiply-add units, 80 G, and one
 * channel of DDR4-3200 (JEDEC JESD79-4: 3,200 M transfers of 8 bytes a second, 25.6 GB/s). */
static const petra_device_peaks devices[] = {
    {"a100", {19.5e12, 156e12, 312e12}, 19.5e12, 2.039e12},
    {"h100", {67e12, 494.7e12, 989.4e12}, 67e12, 3.35e12},
    {"h200", {67e12, 494.7e12, 989.4e12}, 67e12, 4.8e12},
    {"cpu-core", {80e9, 0, 0}, 80e9, 25.6e9},
};
enum { DEVICES = sizeof devices / sizeof *devices };

/* FLOPs per element or parameter of the elementwise kernels (roofline.h). */
static const double norm_forward_flops = 7, norm_backward_flops = 11, update_flops = 6;

int petra_device_peaks_count(void) {
  return DEVICES;
}

const petra_device_peaks *petra_device_peaks_get(int index) {
  return &devices[index];
}

petra_status petra_device_peaks_find(const char *name, const petra_device_peaks **out) {
  for (int i = 0; i < DEVICES; i++)
    if (strcmp(name, devices[i].name) == 0) {
      *out = &devices[i];
      return PETRA_OK;
    }
  return petra_fail(PETRA_CONFIG, "roofline: no device '%s'; expected a100, h100, h200 or cpu-core", name);
}

double petra_core_flops(double hertz, int lanes, int fma_units) {
  return hertz * lanes * fma_units * 2;
}

petra_status petra_roofline_kernel(const petra_device_peaks *device, petra_cost_arithmetic arithmetic,
                                   const petra_kernel *kernel, double *seconds) {
  double peak = kernel->matrix ? device->matrix_flops[arithmetic] : device->vector_flops;
  if (!(kernel->flops >= 0 && kernel->bytes >= 0 && isfinite(kernel->flops) && isfinite(kernel->bytes)))
    return petra_fail(PETRA_CONFIG, "roofline: a kernel of %g FLOPs and %g bytes; expected finite numbers from 0",
                      kernel->flops, kernel->bytes);
  if (kernel->flops > 0 && !(peak > 0 && isfinite(peak)))
    return petra_fail(
        PETRA_CONFIG, "roofline: device %s has no peak for %s; expected another arithmetic or device", device->name,
        kernel->matrix ? petra_config_choice_name("cluster.cost.arithmetic", (int)arithmetic) : "elementwise kernels");
  if (kernel->bytes > 0 && !(device->bandwidth_Bps > 0 && isfinite(device->bandwidth_Bps)))
    return petra_fail(PETRA_CONFIG, "roofline: device %s has a memory bandwidth of %g B/s; expected more than 0",
                      device->name, device->bandwidth_Bps);
  double compute = kernel->flops > 0 ? kernel->flops / peak : 0;
  double move = kernel->bytes > 0 ? kernel->bytes / device->bandwidth_Bps : 0;
  *seconds = fmax(compute, move);
  return PETRA_OK;
}

/* Adds a kernel of `elements` elements moved. */
static petra_status add(const petra_roofline_rule *rule, bool matrix, double flops, double elements, double *sum) {
  const petra_kernel kernel = {.matrix = matrix, .flops = flops, .bytes = elements * (double)rule->element_bytes};
  double seconds = 0;
  PETRA_TRY(petra_roofline_kernel(rule->device, rule->arithmetic, &kernel, &seconds));
  *sum += seconds;
  return PETRA_OK;
}

/* Convolution, batch norm and ReLU; reconstruction and recomputation do the same as F. */
static petra_status add_unit(const petra_roofline_rule *rule, const petra_roofline_unit *unit, bool data_gradient,
                             petra_roofline_seconds *sum) {
  double images = (double)rule->images;
  double x = images * (double)unit->in * (double)unit->pixels_in,
         y = images * (double)unit->out * (double)unit->pixels_out;
  double w = (double)unit->in * (double)unit->out * (double)unit->kernel * (double)unit->kernel;
  double flops = 2 * w * images * (double)unit->pixels_out, forward = 0;
  PETRA_TRY(add(rule, true, flops, x + w + y, &forward));
  PETRA_TRY(add(rule, false, norm_forward_flops * y, 3 * y, &forward));
  sum->forward += forward;
  sum->reconstruct += forward;
  PETRA_TRY(add(rule, false, norm_backward_flops * y, 5 * y, &sum->backward));
  if (data_gradient)
    PETRA_TRY(add(rule, true, flops, x + w + y, &sum->backward));
  return add(rule, true, flops, x + w + y, &sum->weight_gradient);
}

static petra_status add_pool_and_streams(const petra_roofline_rule *rule, const petra_roofline_block *block,
                                         petra_roofline_seconds *sum) {
  double images = (double)rule->images, added = images * (double)block->added_elements, forward = 0;
  double pool_flops = images * (double)block->pool_out * (double)block->pool_window * (double)block->pool_window;
  double pool_elements = images * ((double)block->pool_in + (double)block->pool_out);
  PETRA_TRY(add(rule, false, added, 3 * added, &forward));
  PETRA_TRY(add(rule, false, added, 3 * added, &sum->backward));
  PETRA_TRY(add(rule, false, pool_flops, pool_elements, &forward));
  PETRA_TRY(add(rule, false, pool_flops, pool_elements, &sum->backward));
  sum->forward += forward;
  sum->reconstruct += forward;
  return PETRA_OK;
}

/* Average pool, matrix product; nothing is computed again. */
static petra_status add_head(const petra_roofline_rule *rule, const petra_roofline_block *block,
                             petra_roofline_seconds *sum) {
  double images = (double)rule->images, features = images * (double)block->features,
         logits = images * (double)block->classes;
  double x = features * (double)block->feature_pixels, w = (double)block->features * (double)block->classes;
  double flops = 2 * images * w;
  PETRA_TRY(add(rule, false, x, x + features, &sum->forward));
  PETRA_TRY(add(rule, true, flops, features + w + logits, &sum->forward));
  PETRA_TRY(add(rule, true, flops, features + w + logits, &sum->backward));
  PETRA_TRY(add(rule, true, flops, features + w + logits, &sum->weight_gradient));
  return add(rule, false, x, x + features, &sum->backward);
}

static bool counts_fit(const petra_roofline_rule *rule, const petra_roofline_block *block) {
  bool fit = rule->images >= 1 && rule->element_bytes >= 1 && block->unit_count >= 0 && block->added_elements >= 0 &&
             block->pool_in >= 0 && block->pool_out >= 0 && block->pool_window >= 0 && block->features >= 0 &&
             block->feature_pixels >= 0 && block->classes >= 0 && block->parameters >= 0;
  for (int u = 0; fit && u < block->unit_count; u++) {
    const petra_roofline_unit *unit = &block->units[u];
    fit = unit->in >= 1 && unit->out >= 1 && unit->kernel >= 1 && unit->pixels_in >= 1 && unit->pixels_out >= 1;
  }
  return fit;
}

petra_status petra_roofline_block_seconds(const petra_roofline_rule *rule, const petra_roofline_block *block,
                                          petra_roofline_seconds *out) {
  petra_roofline_seconds sum = {0};
  if (!counts_fit(rule, block))
    return petra_fail(PETRA_CONFIG, "roofline: a block's shape has a negative count, or a unit or microbatch "
                                    "nothing; expected counts from 0, from 1");
  for (int u = 0; u < block->unit_count; u++)
    PETRA_TRY(add_unit(rule, &block->units[u], block->data_gradient, &sum));
  PETRA_TRY(add_pool_and_streams(rule, block, &sum));
  if (block->classes > 0)
    PETRA_TRY(add_head(rule, block, &sum));
  sum.backward += sum.weight_gradient;
  PETRA_TRY(add(rule, false, update_flops * (double)block->parameters, 5 * (double)block->parameters, &sum.update));
  *out = sum;
  return PETRA_OK;
}

void petra_roofline_cost(const petra_roofline_seconds *seconds, petra_stage_cost *cost) {
  cost->forward_ns = petra_nanoseconds(seconds->forward);
  cost->backward_ns = petra_nanoseconds(seconds->backward);
  cost->reconstruct_ns = petra_nanoseconds(seconds->reconstruct);
  cost->weight_gradient_ns = petra_nanoseconds(seconds->weight_gradient);
  cost->update_ns = petra_nanoseconds(seconds->update);
}
