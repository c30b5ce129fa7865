/* SPDX-License-Identifier: Apache-2.0 */
/* petra profile: a set of stages that microbatches go through, and the durations of each stage in the last tick. */
#pragma once

#include "exec/network.h"

typedef struct petra_profile_pipeline petra_profile_pipeline;

/* Seconds for the stage's last microbatch. */
typedef struct petra_profile_times {
  double forward, backward, update; /* durations of actions; of the last stage `backward` is F and B together */
} petra_profile_times;

typedef struct petra_profile_pipeline_options {
  const petra_plan *plan; /* borrowed, like the rest */
  petra_backend *backend;
  /* Stages keep their graphs; else reversible blocks are inverted, and others recomputed from their input. */
  bool graph;
  /* Every stage works on another microbatch, as in a training with delays: its inputs were computed a tick ago and
       * have left the same caches as in a run; else a microbatch goes all the way up and down in a tick. */
  bool flows;
  int accumulate;
  const double *values; /* samples for every microbatch, in logical order */
  const int32_t *labels;
} petra_profile_pipeline_options;

/* Creates the stages with initial parameters. The learning rate is 0. */
petra_status petra_profile_pipeline_create(const petra_profile_pipeline_options *options, petra_profile_pipeline **out);
void petra_profile_pipeline_destroy(petra_profile_pipeline *pipeline);

/* Returns the ticks from the first one until every stage has work. */
int petra_profile_pipeline_filling(const petra_profile_pipeline *pipeline);

/* Does one F, B and U of each stage that has work; `accumulate` F and B before each U. */
petra_status petra_profile_pipeline_tick(petra_profile_pipeline *pipeline);

/* Returns the durations by stage, from 0. */
const petra_profile_times *petra_profile_pipeline_times(const petra_profile_pipeline *pipeline);

/* Measures only the forward part of the last stage's action, which the tick does together with B: of all its blocks,
 * and of those below the head, for the tick's microbatch; 0 until the pipeline is full. Works only without graphs,
 * because a second pass finds its tensors in the cache. */
void petra_profile_pipeline_head(const petra_profile_pipeline *pipeline, double *head_s, double *body_s);
