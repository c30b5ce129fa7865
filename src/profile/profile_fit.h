/* SPDX-License-Identifier: Apache-2.0 */
/* The cost model `kernels` fitted to a profile. */
#pragma once

#include "plan/plan.h"
#include "sim/roofline.h"

/* A peak is assumed for one core of a processor, of which a device may have hundreds. */
#define PETRA_FIT_MAX_SHARE 1e4

enum { PETRA_FIT_LAUNCH, PETRA_FIT_MATRIX_FLOPS, PETRA_FIT_MATRIX_BYTES, PETRA_FIT_ELEMENTWISE_BYTES, PETRA_FIT_RATES };

typedef struct petra_kernel_fit {
  const char *device;              /* whose peaks the efficiencies are shares of; NULL: nothing was fitted */
  petra_kernel_rates rates;        /* shares: at most PETRA_FIT_MOST_SHARE and at least its inverse */
  bool unlimited[PETRA_FIT_RATES]; /* shares: twice as much fits as well */
  int times;                       /* stages times parts that take time in both */
  /* Of ln(model / measured): the root of its mean square, weighted by what was measured; the largest, without its sign. */
  double rms, worst;
} petra_kernel_fit;

/* The last part of the key of a rate (PETRA_FIT_LAUNCH ...). */
const char *petra_fit_rate_name(int rate);

/* The rates with the least mean square of ln(model / measured), weighted by what was measured, over the means of the profile, which is one of the plan's
 * stages, with the peaks of cluster.cost.device on a GPU, else of cpu-core. Nothing is fitted (device NULL) in a precision
 * that the device has no peak for. */
petra_status petra_profile_fit(const petra_plan *plan, const petra_profile *profile, petra_kernel_fit *out);
