/* SPDX-License-Identifier: Apache-2.0 */
#include "sim/roofline.h"

#include "base/log.h"

#include <math.h>
#include <string.h>

#define A100_80 "NVIDIA A100 80GB SXM, data sheet of June 2021"
#define HOPPER "half of what it states with sparsity"

/* FLOP/s and B/s. */
static const petra_device_peaks devices[] = {
    {"a100", {19.5e12, 156e12, 312e12}, 19.5e12, 2.039e12, A100_80},
    {"a100-40", {19.5e12, 156e12, 312e12}, 19.5e12, 1.555e12, "NVIDIA A100 40GB SXM, data sheet of June 2021"},
    {"a100-80", {19.5e12, 156e12, 312e12}, 19.5e12, 2.039e12, A100_80},
    {"h100", {67e12, 494.7e12, 989.4e12}, 67e12, 3.35e12, "NVIDIA H100 SXM, data sheet; tf32 and bf16: " HOPPER},
    {"h200", {67e12, 494.7e12, 989.4e12}, 67e12, 4.8e12, "NVIDIA H200 SXM, data sheet; tf32 and bf16: " HOPPER},
    {"v100", {15.7e12, 0, 0}, 15.7e12, 0.9e12, "NVIDIA V100 SXM2, data sheet; its matrix units have only fp16"},
    {"cpu-core",
     {80e9, 0, 0},
     80e9,
     25.6e9,
     "assumption, no product: 2.5 GHz, 8 fp32 lanes (AVX2), 2 units of fused multiply-add (2 FLOPs); one channel of "
     "DDR4-3200 (JEDEC JESD79-4: 3,200 M transfers of 8 bytes a second)"},
};

const petra_device_peaks *petra_device_peaks_at(int index) {
  return index < (int)(sizeof devices / sizeof *devices) ? &devices[index] : NULL;
}

petra_status petra_device_peaks_find(const char *name, const petra_device_peaks **out) {
  for (size_t i = 0; i < sizeof devices / sizeof *devices; i++)
    if (strcmp(name, devices[i].name) == 0) {
      *out = &devices[i];
      return PETRA_OK;
    }
  return petra_fail(PETRA_CONFIG,
                    "roofline: unknown device '%s'; expected a100, a100-40, a100-80, h100, h200, v100 or cpu-core",
                    name);
}

petra_status petra_roofline_kernel(const petra_device_peaks *device, petra_cost_arithmetic arithmetic,
                                   const petra_kernel *kernel, double *seconds) {
  double peak = kernel->matrix ? device->matrix_flops[arithmetic] : device->vector_flops;
  if (!(kernel->flops >= 0 && kernel->bytes >= 0 && isfinite(kernel->flops) && isfinite(kernel->bytes)))
    return petra_fail(PETRA_CONFIG,
                      "roofline: a kernel of %g FLOPs and %g bytes; expected finite numbers of at least 0",
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

petra_status petra_kernel_seconds(const petra_device_peaks *device, petra_cost_arithmetic arithmetic,
                                  const petra_kernel_rates *rates, const petra_kernel *kernel, double *seconds) {
  petra_kernel slower = *kernel;
  double work_s = 0;
  slower.flops /= kernel->matrix ? rates->matrix_flops : 1;
  slower.bytes /= kernel->matrix ? rates->matrix_bytes : rates->elementwise_bytes;
  PETRA_TRY(petra_roofline_kernel(device, arithmetic, &slower, &work_s));
  *seconds = rates->launch_s + work_s;
  return PETRA_OK;
}

/* Adds one kernel of `seconds` to its part. The time of the weight gradient is not yet a part of the backward's. */
static void add_part(const petra_kernel *kernel, double seconds, petra_roofline_seconds *sum) {
  double *const parts[] = {[PETRA_KERNEL_FORWARD] = &sum->forward,
                           [PETRA_KERNEL_BACKWARD] = &sum->backward,
                           [PETRA_KERNEL_WEIGHT_GRADIENT] = &sum->weight_gradient,
                           [PETRA_KERNEL_UPDATE] = &sum->update};
  *parts[kernel->part] += seconds;
  if (kernel->again)
    sum->reconstruct += seconds;
}

static void add_all(const petra_roofline_seconds *more, petra_roofline_seconds *sum) {
  sum->forward += more->forward;
  sum->backward += more->backward + more->weight_gradient;
  sum->reconstruct += more->reconstruct;
  sum->weight_gradient += more->weight_gradient;
  sum->update += more->update;
}

petra_status petra_roofline_add(const petra_device_peaks *device, petra_cost_arithmetic arithmetic,
                                const petra_kernel_rates *rates, const petra_kernel *kernels, int count,
                                petra_roofline_seconds *sum) {
  petra_roofline_seconds more = {0};
  for (int i = 0; i < count; i++) {
    double seconds = 0;
    PETRA_TRY(petra_kernel_seconds(device, arithmetic, rates, &kernels[i], &seconds));
    add_part(&kernels[i], seconds, &more);
  }
  add_all(&more, sum);
  return PETRA_OK;
}

void petra_roofline_add_each(double seconds, const petra_kernel *kernels, int count, petra_roofline_seconds *sum) {
  petra_roofline_seconds more = {0};
  for (int i = 0; i < count; i++)
    add_part(&kernels[i], seconds, &more);
  add_all(&more, sum);
}

void petra_roofline_cost(const petra_roofline_seconds *seconds, petra_stage_cost *cost) {
  cost->forward_ns = petra_nanoseconds(seconds->forward);
  cost->backward_ns = petra_nanoseconds(seconds->backward);
  cost->reconstruct_ns = petra_nanoseconds(seconds->reconstruct);
  cost->weight_gradient_ns = petra_nanoseconds(seconds->weight_gradient);
  cost->update_ns = petra_nanoseconds(seconds->update);
}
