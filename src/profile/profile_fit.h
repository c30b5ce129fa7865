/* SPDX-License-Identifier: Apache-2.0 */
/* Fits the cost model `kernels` to a profile. */
#pragma once

#include "setup/plan.h"
#include "sim/roofline.h"

/* The peak is that of one core of a processor; a device may have hundreds. */
#define PETRA_FIT_MAX_SHARE 1e4

enum { PETRA_FIT_LAUNCH, PETRA_FIT_MATRIX_FLOPS, PETRA_FIT_MATRIX_BYTES, PETRA_FIT_ELEMENTWISE_BYTES, PETRA_FIT_RATES };

typedef struct petra_kernel_fit {
  const char *device;              /* device of the peaks, which the efficiencies refer to; NULL: nothing was fitted */
  petra_kernel_rates rates;        /* of peaks; at most PETRA_FIT_MAX_SHARE, at least its inverse */
  bool unlimited[PETRA_FIT_RATES]; /* twice the efficiency fits as well */
  int times;                       /* number of parts of stages that take time in both */
  /* The error ln(model / measured): root mean square, weighted by the measured time; largest magnitude. */
  double rms, worst;
} petra_kernel_fit;

/* Returns the last part of the key of a rate (PETRA_FIT_LAUNCH ...). */
const char *petra_fit_rate_name(int rate);

/* Finds the rates with the least mean square of ln(model / measured), weighted by the measured time, over the means of
 * the profile, which must match the plan's stages. The peaks are those of cluster.cost.device on a GPU, else of
 * cpu-core. Nothing is fitted (device NULL) if the device has no peak for the precision. */
petra_status petra_profile_fit(const petra_plan *plan, const petra_profile *profile, petra_kernel_fit *out);
