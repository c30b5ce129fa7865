/* SPDX-License-Identifier: Apache-2.0 */
/* Measures the costs of a plan's stages on its backend, and fits the cost model `kernels` to them. */
#pragma once

#include "exec/network.h"
#include "sim/cost.h"

/* --- the measurement --- */

/* Measures the parts of every stage of the plan on `backend`, as config->profile says, with random images. Microbatches
 * go through two sets of stages in turn. In one set stages keep their graphs. In the other set they keep none, so that
 * reversible blocks are inverted on the way back and other blocks are recomputed from their input. The difference
 * between the times of B in the two sets is reconstruction. The set that works like the method has as many microbatches
 * under way as a method with delays, so that each stage finds its tensors in the same caches as in a training. Nothing
 * is trained: the learning rate is 0. Fills the `part`s of `out`, one per stage. All `ranks` (NULL: none) call this at
 * the same time and share the machine as in a run. Rank 0 receives the samples of all ranks. */
petra_status petra_profile_measure(const petra_plan *plan, petra_backend *backend, petra_ranks *ranks, bool quiet,
                                   petra_profile_stage *out);

/* For at least two ranks, which all call this: each measures the stages while the others wait. On rank 0 it fills
 * `alone_s` of the stages of `out` with the means over all ranks. */
petra_status petra_profile_measure_alone(const petra_plan *plan, petra_backend *backend, petra_ranks *ranks,
                                         petra_profile *out);

/* For at least two ranks, which all call this: measures messages between neighbours by the progress thread, one pair
 * after the other, from 64 bytes to the largest message of the plan (at least 1 MiB), both with and without a message
 * of the same size in the other direction. Also measures how long a rank takes to pack and unpack such a message. On
 * rank 0 it fills `messages` and `message` of `out` from the samples of all ranks. */
petra_status petra_profile_measure_link(const petra_plan *plan, petra_backend *backend, petra_ranks *ranks,
                                        petra_profile *out);

/* The parts of stages with uncertain costs: their quartiles are more than half the median apart, and more than a
 * twentieth of the stage's time for a microbatch (F and B with reconstruction, medians). Another measurement would
 * yield other costs. */
typedef struct petra_profile_unsure {
  int count; /* number of such parts; if it is 0, the members below are not set */
  int stage; /* from 0; `stage` and `part` have the largest distance of quartiles relative to the time of the stage */
  petra_profile_part part;
} petra_profile_unsure;
petra_profile_unsure petra_profile_find_unsure(const petra_profile *profile);

/* Computes the spread of `count` >= 1 samples, and sorts them. */
petra_spread petra_profile_spread(double *samples, size_t count);

/* Call this on all ranks, each with `rows` rows of `row` samples. On rank 0, each row of `pooled` gets that row's
 * samples from all ranks, one rank after the other. */
petra_status petra_profile_pool(petra_ranks *ranks, const double *samples, size_t rows, size_t row, double *pooled);

/* --- the fit (profile_fit.c) --- */

/* The maximum efficiency. The peak is the peak of one core of a processor, and a device may have hundreds of cores. */
#define PETRA_FIT_MAX_SHARE 1e4

enum { PETRA_FIT_LAUNCH, PETRA_FIT_MATRIX_FLOPS, PETRA_FIT_MATRIX_BYTES, PETRA_FIT_ELEMENTWISE_BYTES, PETRA_FIT_RATES };

typedef struct petra_kernel_fit {
  const char *device;              /* device of the peaks, which the efficiencies refer to; NULL: nothing was fitted */
  petra_kernel_rates rates;        /* shares of the peaks; at most PETRA_FIT_MAX_SHARE, at least its inverse */
  bool unlimited[PETRA_FIT_RATES]; /* twice the efficiency fits as well */
  int times;                       /* number of parts of stages that take time in both the model and the measurement */
  /* The error ln(model / measured): root mean square, weighted by the measured time; largest magnitude. */
  double rms, worst;
} petra_kernel_fit;

/* Returns the last part of the key of a rate (PETRA_FIT_LAUNCH ...). */
const char *petra_fit_rate_name(int rate);

/* Finds the rates with the smallest mean square of ln(model / measured), weighted by the measured time, over the means
 * of the profile, which must match the plan's stages. The peaks are the peaks of cluster.cost.device on a GPU,
 * otherwise the peaks of cpu-core. Nothing is fitted (device NULL) if the device has no peak for the precision. */
petra_status petra_profile_fit(const petra_plan *plan, const petra_profile *profile, petra_kernel_fit *out);
