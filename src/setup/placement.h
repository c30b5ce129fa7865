/* SPDX-License-Identifier: Apache-2.0 */
/* The assignment of stages to the processes of a run, and the groups of threads of a process. */
#pragma once

#include "setup/plan.h"
#include "group/ranks.h"

typedef struct petra_placement {
  petra_ranks *ranks; /* borrowed. A group of one rank (PETRA_RANKS_ONE) has all stages of all replicas. */
  int replicas;       /* cluster.replicas: rank q is rank q % replica_ranks of replica q / replica_ranks */
  int replica_ranks;  /* ranks of each replica */
  int stride;         /* distance to the rank of the same stage in the next replica; 0: one process has all replicas */
  int replica;        /* the replica of this rank, from 0 */
  int32_t *rank_of;   /* the rank of each stage of the plan, in this replica */
} petra_placement;

/* Assigns neighbouring devices (for a method that is not interleaved: stages) to every rank, as cluster.placement says.
 * If cluster.placement is empty, it minimises the largest sum of times per rank (times of the profile, else FLOPs). All
 * replicas are equal. `plan` has its program. PETRA_CONFIG, with the key; call petra_placement_fini even on failure. */
petra_status petra_placement_init(petra_placement *placement, const petra_plan *plan, petra_ranks *ranks);
/* Does the same for `ranks` ranks that need not exist: rank_of receives the rank of each stage of the plan. */
petra_status petra_placement_cut(const petra_plan *plan, int ranks, int32_t *rank_of);
void petra_placement_fini(petra_placement *placement);

static inline bool petra_placement_has(const petra_placement *placement, int32_t stage) {
  return placement->rank_of[stage - 1] == placement->ranks->rank;
}

/* Returns the rank of a stage (from 1) of a replica. */
static inline int petra_placement_rank(const petra_placement *placement, int replica, int32_t stage) {
  return placement->rank_of[stage - 1] + (replica - placement->replica) * placement->stride;
}

/* Writes "stage 1", "stages 4 .. 6" or "stages 1, 3"; with replicas "replica 1, stages 4 .. 6". */
void petra_placement_describe(const petra_placement *placement, const petra_plan *plan, char *text, size_t size);

/* The compute threads, divided into groups. Each group performs one action at a time (device.groups). */
typedef struct petra_groups {
  int groups;  /* number of groups, and of actions at the same time */
  int threads; /* threads per group */
} petra_groups;

/* Divides `threads` threads as the config says, or by the rule of petra_groups_choose if device.groups is 0.
 * `executed` is true for one of several processes, each of which does one action at a time. PETRA_CONFIG: more than one
 * group if only one action is done at a time, or threads that cannot be divided by the groups. On `cuda` there is one
 * group, and a line says so if more were requested. */
petra_status petra_groups_of(const petra_plan *plan, int threads, bool executed, petra_groups *out);

/* Chooses the number of groups g, up to `threads`. For every g it goes through the plan's schedule and adds up the
 * durations of groups of actions. In a group the longest action comes first, and each action goes to the thread group
 * that is free first. An action takes its FLOPs divided by the speed of threads / g threads. *groups is the g with the
 * smallest sum, or the smallest of several such g; it is 1 for a plan without its program. The result depends only on
 * the config and `threads`. */
petra_status petra_groups_choose(const petra_plan *plan, int threads, int *groups);

/* Returns the speed-up of an operation with `threads` threads over one thread, as measured on small networks
 * (bench/NOTES.md). */
double petra_groups_speed(int threads);
