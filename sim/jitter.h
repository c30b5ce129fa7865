/* SPDX-License-Identifier: Apache-2.0 */
/* Variations of the durations of actions: random durations, slow stages, pauses, failures. Every draw comes from a
 * counter-based stream named by (seed, stage, kind, microbatch), so that it does not depend on the order of events: two
 * methods, or two numbers of engines, see the same random draws. */
#pragma once

#include "config/config.h"
#include "base/status.h"

#include <stdbool.h>
#include <stdint.h>

typedef struct petra_jitter_options {
  uint64_t seed;
  /* All laws have mean 1. normal is cut off at 0 and scaled so that the mean stays 1; exponential is 1 - scale + scale
   * * Exp(1). */
  petra_jitter_model law;
  double scale; /* standard deviation over mean, >= 0; exponential: <= 1 */
  /* Stages (from 1, rising) whose actions take `factor` times as long. */
  const int64_t *slow;
  int64_t slow_count;
  double factor;
  /* Pauses and failures come after exponentially distributed times of work; a mean of 0: never. A failure repeats the
   * action from its beginning after `restart_s`. */
  double pause_mean_s, pause_s;
  double failure_mean_s, restart_s;
} petra_jitter_options;

/* Returns true if the options change no duration. */
bool petra_jitter_is_none(const petra_jitter_options *options);

/* A cache of quantiles of the gamma law, so that not every draw needs a search; NULL for the other laws. It belongs to
 * one executor. Durations are the same with and without it. */
typedef struct petra_jitter_quantiles petra_jitter_quantiles;

petra_status petra_jitter_quantiles_create(const petra_jitter_options *options, petra_jitter_quantiles **out);
void petra_jitter_quantiles_destroy(petra_jitter_quantiles *quantiles);

/* Computes the duration of an action that costs `cost_ns` (0 stays 0). `kind` < 16, stage < 2^17, microbatch < 2^39.
 * `quantiles`: NULL or those of the options. Errors: PETRA_CONFIG, logged, if failures are so frequent that the action
 * hardly ever ends. */
petra_status petra_jitter_duration(const petra_jitter_options *options, petra_jitter_quantiles *quantiles,
                                   int32_t stage, int kind, int64_t microbatch, int64_t cost_ns, int64_t *out);
