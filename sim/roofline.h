/* SPDX-License-Identifier: Apache-2.0 */
/* The roofline: the cost of work on a named device, from the FLOPs and the bytes of its kernels and the device's peaks.
 * A kernel takes max(FLOPs / peak, bytes / bandwidth); kernels follow one another, so that a stage's time is the sum.
 * This is a lower bound: no launch overhead, no cache, perfect overlap of memory and arithmetic. With
 * petra_kernel_rates it is a model that can be calibrated. Its inputs are plain numbers: petra_block_kernels (src/nn)
 * counts the kernels of a block. Elementwise kernels run on the vector units; their few FLOPs never decide on the
 * devices here. */
#pragma once

#include "config/config.h"
#include "base/kernel.h"
#include "base/status.h"
#include "sim/cost.h"

/* Peaks as data sheets state them, dense (without structured sparsity). */
typedef struct petra_device_peaks {
  const char *name;
  /* FLOP/s of convolutions and products; 0: the device has no such units. */
  double matrix_flops[PETRA_COST_ARITHMETICS];
  double vector_flops;  /* FLOP/s of elementwise kernels, fp32 */
  double bandwidth_Bps; /* of the device's memory */
  double memory_bytes;  /* size of that memory; a GB of a data sheet is 1e9 bytes; 0: not known */
  const char *source;
} petra_device_peaks;

/* Returns a device of cluster.cost.device, from 0; NULL if there is none with that number. */
const petra_device_peaks *petra_device_peaks_at(int index);

/* Finds the device with this name. Errors: PETRA_CONFIG with the list of names. */
petra_status petra_device_peaks_find(const char *name, const petra_device_peaks **out);

/* Computes max(FLOPs / peak, bytes / bandwidth) in seconds. Elementwise kernels ignore the arithmetic. Errors:
 * PETRA_CONFIG if the device has no units for the arithmetic, a count is negative or not finite, or bytes flow over no
 * bandwidth. */
petra_status petra_roofline_kernel(const petra_device_peaks *device, petra_cost_arithmetic arithmetic,
                                   const petra_kernel *kernel, double *seconds);

/* The shares of a device's peaks that kernels reach, and their launch time. */
typedef struct petra_kernel_rates {
  double launch_s;          /* time of every kernel before it does anything */
  double matrix_flops;      /* share of the FLOP peak that convolutions and products reach; > 0 */
  double matrix_bytes;      /* share of the memory bandwidth that they reach; > 0 */
  double elementwise_bytes; /* share of the memory bandwidth that all others reach; > 0 */
} petra_kernel_rates;

/* The rates of the lower bound: no launch time, the peaks themselves. */
#define PETRA_KERNEL_RATES_BOUND ((petra_kernel_rates){0, 1, 1, 1})

/* Computes launch + max(FLOPs / (share * peak), bytes / (share * bandwidth)), otherwise like petra_roofline_kernel, to
 * which it is equal to the bit for PETRA_KERNEL_RATES_BOUND. */
petra_status petra_kernel_seconds(const petra_device_peaks *device, petra_cost_arithmetic arithmetic,
                                  const petra_kernel_rates *rates, const petra_kernel *kernel, double *seconds);

typedef struct petra_roofline_seconds {
  double forward;         /* F */
  double backward;        /* B without reconstruction */
  double reconstruct;     /* reconstruction or recomputation; 0 for the head */
  double weight_gradient; /* the part of backward that W does if the program splits it off */
  double update;          /* U */
} petra_roofline_seconds;

/* Adds the times of `count` kernels to *sum, which stays unchanged after a failure (as above). */
petra_status petra_roofline_add(const petra_device_peaks *device, petra_cost_arithmetic arithmetic,
                                const petra_kernel_rates *rates, const petra_kernel *kernels, int count,
                                petra_roofline_seconds *sum);

/* Adds `seconds` for each of the kernels. */
void petra_roofline_add_each(double seconds, const petra_kernel *kernels, int count, petra_roofline_seconds *sum);

/* Sets the durations of `cost` from the seconds; its message sizes stay. */
void petra_roofline_cost(const petra_roofline_seconds *seconds, petra_stage_cost *cost);
