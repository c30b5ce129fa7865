/* SPDX-License-Identifier: Apache-2.0 */
/* petra profile: a set of stages that microbatches go through, and what each of them took in the last tick. */
#pragma once

#include "plan/network.h"

typedef struct petra_profile_pipeline petra_profile_pipeline;

/* Seconds, of the last microbatch that the stage had. */
typedef struct petra_profile_times {
  double forward, backward, update; /* actions; of the last stage `backward` is F and B together */
} petra_profile_times;

typedef struct petra_profile_pipeline_options {
  const petra_plan *plan; /* borrowed, as the rest */
  petra_backend *backend;
  bool
      graph; /* stages keep their graphs; else reversible blocks are inverted and others are computed again from their input */
  bool
      flows; /* every stage works on another microbatch, as in a training of a method with delays: what it is given was computed a tick ago,
                 and by then has left the caches that things leave in a run; else a microbatch goes all the way up and down in a tick */
  int accumulate;
  const double *values; /* of the samples, which are the same for every microbatch: logical order */
  const int32_t *labels;
} petra_profile_pipeline_options;

/* With initial parameters. The learning rate is 0. */
petra_status petra_profile_pipeline_create(const petra_profile_pipeline_options *options, petra_profile_pipeline **out);
void petra_profile_pipeline_destroy(petra_profile_pipeline *pipeline);

/* Ticks from the first one until every stage has work. */
int petra_profile_pipeline_filling(const petra_profile_pipeline *pipeline);

/* One F, B and U of each stage that has work; `accumulate` F and B before each U. */
petra_status petra_profile_pipeline_tick(petra_profile_pipeline *pipeline);

/* By stage, from 0. */
const petra_profile_times *petra_profile_pipeline_times(const petra_profile_pipeline *pipeline);

/* The forward part of the last stage's action by itself, which the tick does together with B: of all its blocks, and of those below the
 * head. Of the tick's microbatch; 0 until the pipeline is full. Only measured without graphs: what comes second finds its
 * tensors in the cache. */
void petra_profile_pipeline_head(const petra_profile_pipeline *pipeline, double *head_s, double *body_s);
