/* SPDX-License-Identifier: Apache-2.0 */
/* Replays the schedule of a run: on its own cluster or another, for its own model or another with the same number
 * of stages. No data are read: the log knows how many microbatches an epoch has. */
#pragma once

#include "reach/group.h"

/* The files of --on and --as; NULL: the run's own. */
typedef struct petra_reach_place {
  const char *on, *as;
  const char *as_set; /* a setting that follows from `as`; NULL: none */
} petra_reach_place;

/* Loads the config of a run at a place. Of `on` it takes the keys of the section `cluster`, except cluster.replicas,
 * which belongs to the training, cluster.stages, and those of processes (placement, gpus, transport, timeout_s). Of `as`
 * it takes model (except weights and new_head), data.set, path, batch, vocabulary and image_size, and stages.partition,
 * count and blocks. data.vocabulary without data.set is that of data.set: tokens.
 * `set`, "KEY=VALUE" from --over, comes last; NULL: none. */
petra_status petra_reach_config(const petra_reach_run *run, const petra_reach_place *place, const char *set,
                                petra_config **out);

/* Checks that the file of --on describes a cluster for these runs: no cluster.stages, and no other number of
 * replicas. */
petra_status petra_reach_check_cluster(const char *path, const petra_reach_groups *groups);

/* Sets place->as_set. */
petra_status petra_reach_check_model(petra_reach_place *place);

/* Warns of the keys that are not read in the file of --on and, if `of_model`, in that of --as. */
petra_status petra_reach_warn_ignored(const petra_reach_place *place, bool of_model);

/* The records of a simulation for each microbatch, from 0, when its last stage begins the action that computes the loss; -1:
 * it has none. */
typedef struct petra_reach_clock {
  int64_t count;
  int64_t *start_ns; /* virtual time */
  int64_t *bytes;    /* sent between devices by then, and between replicas: by actions that have ended */
} petra_reach_clock;

/* Simulates the run with this config up to its microbatch number `last`. *clock is released with
 * petra_reach_clock_fini, also after a failure. PETRA_CONFIG: the cluster contradicts the run, its costs are measured,
 * or the number of stages is not that of the run. */
petra_status petra_reach_price(const petra_reach_run *run, const petra_config *config, const petra_reach_place *place,
                               int64_t last, petra_reach_clock *clock);
void petra_reach_clock_fini(petra_reach_clock *clock);

/* Returns true if two seeds of one group may have different times on the cluster of this config. */
bool petra_reach_is_random(const petra_config *config);
