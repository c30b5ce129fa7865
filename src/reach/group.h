/* SPDX-License-Identifier: Apache-2.0 */
/* Trained runs, combined into groups of those that differ only in their seed. */
#pragma once

#include "config/config.h"
#include "setup/plan.h"
#include "reach/curve.h"

#include <stdbool.h>

typedef struct petra_reach_run {
  char *log;       /* its run.h5 */
  char *optimiser; /* its name: "adamw" */
  char *row;       /* name of its combination in the sweep that it comes from; NULL: it was given alone */
  petra_run_h5_summary *summary;
  petra_config *config;
  petra_run_h5_train *rows;
  int64_t count; /* of rows */
  petra_reach_curve curve;
  int group;
} petra_reach_run;

/* A key in which groups differ, with the value of each group as YAML. For runs in PyTorch also the keys of `training` in
 * their logs, and "network" and "optimiser" with the words of their logs. */
typedef struct petra_reach_key {
  char *key;
  char **values;
} petra_reach_key;

typedef struct petra_reach_group {
  char *label;
  int first, count;     /* its runs, which are adjacent and in the order of their seeds */
  bool delayed;         /* its gradients may be those of older weights */
  bool local;           /* its stages learn from losses of their own */
  petra_plan_size size; /* of its training */
} petra_reach_group;

typedef struct petra_reach_groups {
  petra_reach_run *runs;
  int run_count;
  petra_reach_group *groups;
  int count;
  petra_reach_key *keys; /* in which they differ, other than those that change no result */
  int key_count;
} petra_reach_groups;

/* Reads the runs of `places`: folders or logs of runs, and folders of sweeps, of which all complete cells count. Call
 * petra_reach_groups_fini even on failure. PETRA_USAGE: a run does not fit (a simulation, other data than the first,
 * two runs with one seed, no loss). Other errors: those of petra_run_h5_summary_read. */
petra_status petra_reach_groups_init(petra_reach_groups *groups, char *const *places, int place_count);
void petra_reach_groups_fini(petra_reach_groups *groups);
