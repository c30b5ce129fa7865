/* SPDX-License-Identifier: Apache-2.0 */
#include "sim/cost.h"

#include "base/log.h"
#include "base/mem.h"

#include <math.h>

int64_t petra_nanoseconds(double seconds) {
  return llround(seconds * 1e9);
}

petra_status petra_cost_scale(petra_stage_cost *cost, double speed) {
  for (int i = 0; i < PETRA_COST_PARTS; i++) {
    double scaled_ns = (double)cost->ns[i] / speed;
    if (!(scaled_ns < 9e18))
      return petra_fail(PETRA_CONFIG,
                        "cluster.speeds: an action of %g s at speed %g takes %g s; expected less than 9e9 s",
                        1e-9 * (double)cost->ns[i], speed, 1e-9 * scaled_ns);
    cost->ns[i] = llround(scaled_ns);
  }
  return PETRA_OK;
}

void petra_cost_durations(const petra_stage_cost *cost, const petra_cost_rule *rule, bool last,
                          int64_t duration_ns[PETRA_ACTION_KINDS]) {
  int64_t weight_ns = rule->split_backward ? cost->weight_gradient_ns : 0;
  duration_ns[PETRA_ACTION_FORWARD] = cost->forward_ns;
  duration_ns[PETRA_ACTION_BACKWARD] = cost->backward_ns - weight_ns;
  if (last && rule->fused_head)
    duration_ns[PETRA_ACTION_BACKWARD] += cost->forward_ns;
  else if (rule->recomputes)
    duration_ns[PETRA_ACTION_BACKWARD] += cost->reconstruct_ns;
  duration_ns[PETRA_ACTION_WEIGHT_GRADIENT] = weight_ns;
  duration_ns[PETRA_ACTION_UPDATE] = cost->update_ns;
  duration_ns[PETRA_ACTION_EVALUATE] = 0;
}

petra_status petra_cost_all_durations(const petra_stage_cost *costs, int32_t count, const petra_cost_rule *rule,
                                      int32_t stages, int64_t (**out)[PETRA_ACTION_KINDS]) {
  PETRA_TRY(petra_allocate(out, (size_t)stages, sizeof **out));
  for (int32_t j = 0; j < stages; j++)
    petra_cost_durations(&costs[count == 1 ? 0 : j], rule, j == stages - 1, (*out)[j]);
  return PETRA_OK;
}

/* --- the roofline --- */

#define A100_80 "NVIDIA A100 80GB SXM, data sheet of June 2021"
#define SPARSE "half of the figures with sparsity"

/* Units: FLOP/s, B/s and bytes. The order is the order of the choices of cluster.cost.device. */
/* clang-format off */
static const petra_device_peaks devices[] = {
    {"a100", {19.5e12, 156e12, 312e12}, 19.5e12, 2.039e12, 80e9, A100_80},
    {"a100-40", {19.5e12, 156e12, 312e12}, 19.5e12, 1.555e12, 40e9, "NVIDIA A100 40GB SXM, data sheet of June 2021"},
    {"a100-80", {19.5e12, 156e12, 312e12}, 19.5e12, 2.039e12, 80e9, A100_80},
    {"h100", {67e12, 494.7e12, 989.4e12}, 67e12, 3.35e12, 80e9, "NVIDIA H100 SXM, data sheet; tf32 and bf16: " SPARSE},
    {"h200", {67e12, 494.7e12, 989.4e12}, 67e12, 4.8e12, 141e9, "NVIDIA H200 SXM, data sheet; tf32 and bf16: " SPARSE},
    {"b200", {80e12, 1125e12, 2250e12}, 80e12, 8e12, 180e9,
     "NVIDIA DGX B200, data sheet, an eighth of its 8 GPUs; tf32 and bf16: " SPARSE},
    {"gb200", {80e12, 1250e12, 2500e12}, 80e12, 8e12, 186e9,
     "NVIDIA GB200 NVL72, data sheet, one of the two GPUs of a GB200 superchip; tf32 and bf16: " SPARSE},
    {"v100", {15.7e12, 0, 0}, 15.7e12, 0.9e12, 16e9,
     "NVIDIA V100 SXM2, data sheet; its matrix units have only fp16; there are modules of 16 and of 32 GB"},
    {"l40s", {91.6e12, 183e12, 362.05e12}, 91.6e12, 0.864e12, 48e9,
     "NVIDIA L40S, data sheet, the figures without sparsity"},
    {"rtx-4090", {82.6e12, 82.6e12, 165.2e12}, 82.6e12, 1.008e12, 24e9,
     "NVIDIA Ada GPU Architecture, white paper (2022), GeForce RTX 4090: the figures without sparsity"},
    {"mi300x", {163.4e12, 653.7e12, 1307.4e12}, 163.4e12, 5.3e12, 192e9,
     "AMD Instinct MI300X, data sheet (2023), the figures without sparsity"},
    {"mi355x", {157.3e12, 0, 2500e12}, 157.3e12, 8e12, 288e9,
     "AMD Instinct MI355X, data sheet (2025), the figures without sparsity; it states none for tf32"},
    /* 14.3e12: half of the 28.7 TFLOP/s that the vector units reach in bf16 */
    {"gaudi3", {229e12, 459e12, 1835e12}, 14.3e12, 3.7e12, 128e9,
     "Intel Gaudi 3 AI accelerator, white paper (2024): peaks of its matrix engines"},
    {"cpu-core", {80e9, 0, 0}, 80e9, 25.6e9, 0,
     "assumption, no product: 2.5 GHz, 8 fp32 lanes (AVX2), 2 units of fused multiply-add (2 FLOPs); one channel of "
     "DDR4-3200 (JEDEC JESD79-4: 3,200 M transfers of 8 bytes a second)"},
};
/* clang-format on */

const petra_device_peaks *petra_device_peaks_at(int index) {
  return index < (int)(sizeof devices / sizeof *devices) ? &devices[index] : NULL;
}

/* Computes max(FLOPs / peak, bytes / bandwidth). Elementwise kernels ignore the arithmetic. */
static petra_status work_seconds(const petra_device_peaks *device, petra_cost_arithmetic arithmetic,
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

static petra_status kernel_seconds(const petra_device_peaks *device, petra_cost_arithmetic arithmetic,
                                   const petra_kernel_rates *rates, const petra_kernel *kernel, double *seconds) {
  petra_kernel slower = *kernel;
  double work_s = 0;
  slower.flops /= kernel->matrix ? rates->matrix_flops : 1;
  slower.bytes /= kernel->matrix ? rates->matrix_bytes : rates->elementwise_bytes;
  PETRA_TRY(work_seconds(device, arithmetic, &slower, &work_s));
  *seconds = rates->launch_s + work_s;
  return PETRA_OK;
}

/* Adds one kernel of `seconds` to its part. The backward does not yet include the time of the weight gradient. */
static void add_part(const petra_kernel *kernel, double seconds, petra_roofline_seconds *sum) {
  double *const parts[] = {[PETRA_KERNEL_FORWARD] = &sum->forward,
                           [PETRA_KERNEL_BACKWARD] = &sum->backward,
                           [PETRA_KERNEL_WEIGHT_GRADIENT] = &sum->weight_gradient,
                           [PETRA_KERNEL_UPDATE] = &sum->update};
  *parts[kernel->part] += seconds;
  if (kernel->rebuilt)
    sum->reconstruct += seconds;
}

petra_status petra_roofline_add(const petra_device_peaks *device, petra_cost_arithmetic arithmetic,
                                const petra_kernel_rates *rates, const petra_kernel *kernels, int count,
                                petra_roofline_seconds *sum) {
  petra_roofline_seconds more = {0};
  for (int i = 0; i < count; i++) {
    double seconds = rates->launch_s;
    if (device)
      PETRA_TRY(kernel_seconds(device, arithmetic, rates, &kernels[i], &seconds));
    add_part(&kernels[i], seconds, &more);
  }
  sum->forward += more.forward;
  sum->backward += more.backward + more.weight_gradient;
  sum->reconstruct += more.reconstruct;
  sum->weight_gradient += more.weight_gradient;
  sum->update += more.update;
  return PETRA_OK;
}

void petra_roofline_cost(const petra_roofline_seconds *seconds, petra_stage_cost *cost) {
  cost->forward_ns = petra_nanoseconds(seconds->forward);
  cost->backward_ns = petra_nanoseconds(seconds->backward);
  cost->reconstruct_ns = petra_nanoseconds(seconds->reconstruct);
  cost->weight_gradient_ns = petra_nanoseconds(seconds->weight_gradient);
  cost->update_ns = petra_nanoseconds(seconds->update);
}
