/* SPDX-License-Identifier: Apache-2.0 */
/* Seconds to a loss: when trained runs reach a target, in updates, samples, seconds and bytes, on any cluster
 * (docs/reach.md).
 *
 * The losses are those of the logs. The seconds of a run on its own cluster are those of its log. On another cluster,
 * or for another model with the same number of stages, its schedule is replayed. */
#pragma once

#include "reach/group.h"
#include "reach/interval.h"
#include "reach/price.h"

#include "setup/plan.h"

typedef struct petra_reach_options {
  char *const *places; /* runs and sweeps */
  int place_count;
  petra_reach_target target;
  const char *const *on; /* files with clusters; none: the runs' own */
  int on_count;
  const char *as;      /* a file with another model; NULL: the runs' own */
  const char *over;    /* "KEY" or "KEY=FROM:TO"; NULL: no key is varied */
  bool compare_unlike; /* form ratios also of groups that are not alike */
} petra_reach_options;

/* When one run reaches the target, or the end of its log if it does not. */
typedef struct petra_reach_end {
  bool reached;
  int64_t row;        /* of /train */
  int64_t microbatch; /* of this row, from 0 */
  int64_t updates;    /* complete updates before this microbatch */
  double samples;     /* of all microbatches up to this one */
  double seconds;     /* when the last stage begins the action that computes the loss of this microbatch */
  double bytes;       /* sent between devices by then, with those between replicas; NaN: not known */
  double lowest;      /* the lowest loss of the curve, or the highest accuracy */
  int64_t lowest_updates;
  double lowest_seconds;
} petra_reach_end;

/* The smoothed losses of a group: means over its runs, with half of the 95 % interval of the mean; NaN for one run. */
typedef struct petra_reach_band {
  int count;
  int64_t *microbatch, *updates;
  double *seconds, *mean, *half;
} petra_reach_band;

/* A group on a cluster. */
typedef struct petra_reach_row {
  petra_config *config;  /* of its first run there */
  petra_plan_size size;  /* of this config */
  petra_reach_end *ends; /* of its runs */
  petra_reach_estimate updates, samples, seconds, bytes;
  petra_reach_ratio to_best; /* its seconds over those of the best group, if the two are alike */
  petra_reach_band band;
  /* Costs and gains of delay, against the best group without delay that is alike, of the same optimiser if there is
   * one. */
  int reference; /* this group; -1: this group has no delay, or there is nothing to compare it with */
  petra_reach_ratio more_updates, more_seconds;
} petra_reach_row;

typedef struct petra_reach_cluster {
  petra_reach_place place;
  petra_reach_row *rows; /* of each group */
  int best;              /* the group with the fewest seconds among those whose runs all reach the target; -1: none */
  const char *differs;   /* the first key of the cluster in which the groups differ; NULL: none */
} petra_reach_cluster;

/* The seconds of each group over the values of a key. */
typedef enum petra_reach_change_kind { PETRA_REACH_BEST_CHANGES, PETRA_REACH_PAIR_CHANGES } petra_reach_change_kind;

/* At this value another group becomes the best, or a group and its reference change places. */
typedef struct petra_reach_change {
  petra_reach_change_kind kind;
  double value;
  int before, after; /* the faster group below and above this value */
} petra_reach_change;

typedef struct petra_reach_over {
  char *key;
  int count;       /* of values */
  double *values;  /* rising */
  double *seconds; /* (groups, count): geometric means over the runs; NaN unless all of them reach the target */
  petra_reach_change *changes;
  int change_count;
  int64_t capacity;
} petra_reach_over;

enum { PETRA_REACH_POINTS = 500 }; /* maximum number of points of a band */

typedef struct petra_reach {
  petra_reach_options options; /* borrowed */
  petra_reach_groups groups;
  petra_sample_kind samples;
  petra_reach_cluster *clusters;
  int cluster_count;
  petra_reach_over *over; /* of each cluster; NULL: no key is varied */
} petra_reach;

/* Reads the runs and computes everything. Call petra_reach_destroy. Errors: PETRA_USAGE or PETRA_CONFIG if options,
 * runs and clusters do not fit together; those of petra_reach_groups_init. */
petra_status petra_reach_create(const petra_reach_options *options, petra_reach **out);
void petra_reach_destroy(petra_reach *reach);

/* --- cluster.c --- */

/* Fills the rows of a cluster, whose place is set. */
petra_status petra_reach_fill(const petra_reach *reach, petra_reach_cluster *cluster);
void petra_reach_cluster_fini(const petra_reach *reach, petra_reach_cluster *cluster);

/* Calls `report` with each key of the cluster in which the rows of `count` groups differ. */
petra_status petra_reach_cluster_differences(const petra_reach_cluster *cluster, const int *groups, int count,
                                             petra_config_reporter report, void *context);

/* Estimates the seconds of a group at a place, by simulation; `set` as in petra_reach_config. */
petra_status petra_reach_seconds(const petra_reach *reach, const petra_reach_place *place, const char *set, int group,
                                 petra_reach_estimate *out);

/* --- over.c --- */

/* Varies the key of the options on a cluster whose rows are filled. */
petra_status petra_reach_vary(const petra_reach *reach, const petra_reach_cluster *cluster, petra_reach_over *out);
void petra_reach_over_fini(petra_reach_over *over);
