/* SPDX-License-Identifier: Apache-2.0 */
/* Which process of a run has which stages. */
#pragma once

#include "plan/plan.h"
#include "group/ranks.h"

typedef struct petra_placement {
  petra_ranks *ranks; /* borrowed. A group of one (PETRA_RANKS_ONE) has all stages of all replicas */
  int replicas;       /* cluster.replicas: rank q is at place q % places of replica q / places */
  int places;         /* ranks of each replica */
  int stride;         /* from a rank to that of the same stage in the next replica; 0: one process has all replicas */
  int replica;        /* of this rank, from 0 */
  int32_t *rank_of;   /* of each stage of the plan, in this replica */
} petra_placement;

/* Neighbouring devices (of a method that is not interleaved: stages) for every rank, as cluster.placement says or, where it
 * is empty, so that the largest sum of times (of the profile, else FLOPs) is the least; all replicas alike. `plan` has its program.
 * PETRA_CONFIG, with the key; petra_placement_fini is due whatever comes back. */
petra_status petra_placement_init(petra_placement *placement, const petra_plan *plan, petra_ranks *ranks);
/* The same for so many ranks that need not be there: rank_of[j] of each stage of the plan. */
petra_status petra_placement_cut(const petra_plan *plan, int ranks, int32_t *rank_of);
void petra_placement_fini(petra_placement *placement);

static inline bool petra_placement_has(const petra_placement *placement, int32_t stage) {
  return placement->rank_of[stage - 1] == placement->ranks->rank;
}

/* The rank of a stage (from 1) of a replica. */
static inline int petra_placement_rank(const petra_placement *placement, int replica, int32_t stage) {
  return placement->rank_of[stage - 1] + (replica - placement->replica) * placement->stride;
}

/* "stage 1", "stages 4 .. 6", "stages 1, 3"; of replicas "replica 1, stages 4 .. 6" */
void petra_placement_describe(const petra_placement *placement, const petra_plan *plan, char *text, size_t size);
