/* SPDX-License-Identifier: Apache-2.0 */
/* Divides the compute threads into device.groups groups, each of which performs one action at a time. */
#pragma once

#include "setup/plan.h"

typedef struct petra_groups {
  int groups;  /* number of actions at once */
  int threads; /* threads per group */
} petra_groups;

/* Divides `threads` threads as the config says, or by the rule of petra_groups_choose if device.groups is 0.
 * `executed`: a process of several, which does one action at a time. PETRA_CONFIG: more than one group if only one
 * action is done at a time, or threads that cannot be divided by the groups. On `cuda` there is one group, and a line
 * says so if more were requested. */
petra_status petra_groups_of(const petra_plan *plan, int threads, bool executed, petra_groups *out);

/* Chooses the number of groups g, up to `threads`. For every g it goes through the plan's schedule and adds up the
 * durations of groups of actions, if each action goes to the thread group that is free first, the longest action first:
 * an action takes its FLOPs divided by the speed of threads / g threads. It returns the g with the smallest sum, the
 * smallest of equals; 1 for a plan without its program. The result depends only on the config and `threads`. */
petra_status petra_groups_choose(const petra_plan *plan, int threads, int *groups);

/* Returns the speed-up of an operation with `threads` threads over one, as measured on small networks
 * (bench/NOTES.md). */
double petra_groups_speed(int threads);
