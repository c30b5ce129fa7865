/* SPDX-License-Identifier: Apache-2.0 */
/* How the compute threads are divided: device.groups groups of them, each of which does an action of its own. */
#pragma once

#include "plan/plan.h"

typedef struct petra_groups {
  int groups;  /* actions at once */
  int threads; /* of each */
} petra_groups;

/* `threads` in all, as the config says, or by the rule of petra_groups_choose where device.groups is 0. `executed`: a process of several,
 * which does one action at a time. PETRA_CONFIG: more than one group where only one action is done at a time, or threads
 * that cannot be divided by groups. On `cuda` it is one group, and a line says so where more were asked for. */
petra_status petra_groups_of(const petra_plan *plan, int threads, bool executed, petra_groups *out);

/* Goes through the plan's schedule and adds up, for every number of groups g up to `threads`, how long groups of actions
 * take when each goes to the group that is free first, the longest first: an action takes its FLOPs over the speed of the
 * group's threads / g threads. The g with the smallest sum, the smallest of equals. It depends on the config and `threads`
 * alone. A plan without its program: 1. */
petra_status petra_groups_choose(const petra_plan *plan, int threads, int *groups);

/* How much faster an operation is with so many threads than with one, as measured on small networks (bench/NOTES.md). */
double petra_groups_speed(int threads);
