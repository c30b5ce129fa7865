/* SPDX-License-Identifier: Apache-2.0 */
/* The learning rate. */
#pragma once

#include "config/config.h"
#include "base/status.h"

/* The learning rate as a function of an index: the global tick in lockstep programs, the microbatch in others. */
typedef struct petra_lr {
  double base;     /* after scaling */
  int64_t batches; /* microbatches per epoch */
  int64_t warmup;  /* indices of the linear warm-up: warmup_epochs * batches */
  petra_lr_schedule schedule;
  petra_int_list milestones; /* step: epochs; borrowed from the config */
  double factor;             /* step */
  /* Cosine, wsd: indices of the whole schedule, and the last of these, in which the rate falls. */
  int64_t end, decay;
  double final; /* cosine, wsd: share of the rate at the end */
} petra_lr;

/* Returns PETRA_CONFIG, logged, if keys of `lr` contradict each other or do not belong to its schedule. */
petra_status petra_lr_check(const petra_config *config);

/* Gets the rate from the config. The base rate is lr, times r * batch * k / 256 (r replicas) with lr_scaling: goyal
 * (Goyal et al. 2017). */
petra_lr petra_lr_from_config(const petra_config *config, int64_t batches_per_epoch);

/* Returns base * (index + 1) / warmup while index < warmup, else base, multiplied according to the schedule:
 *  step    times factor for every milestone that the epoch floor(index / batches) has reached;
 *  cosine, wsd  times final + (1 - final) f(x), where x = (index - (end - decay)) / decay, limited to 0 .. 1:
 *          cosine f = (1 + cos(pi x)) / 2, decay being all that follows the warm-up (Loshchilov and Hutter, SGDR, arXiv
 *          1608.03983, without restarts); wsd f = 1 - sqrt(x) (Haegele et al., Scaling Laws and Compute-Optimal
 *          Training Beyond Fixed Training Durations, arXiv 2405.18392, whose text was not at hand). */
double petra_lr_at(const petra_lr *lr, int64_t index);
