/* SPDX-License-Identifier: Apache-2.0 */
/* Which weights the end-to-end references of a run's probes need, found by going through the actions of all stages in their
 * order. Every rank of a run does so and finds the same at the same place, so that the owner of a stage sends what the rank
 * with the probe waits for, without a word. For programs whose references follow from numbers (not PETRA_MOMENT_CLOCK). */
#ifndef PETRA_PROBE_PROBE_DEMAND_H
#define PETRA_PROBE_PROBE_DEMAND_H

#include "schedule/program.h"

typedef struct petra_probe_demanded { /* a window whose updates or references are not all there */
  int64_t first;
  int32_t updated; /* stages that have made its update */
} petra_probe_demanded;

typedef struct petra_probe_demand {
  const petra_program_ops *program;
  const petra_program_options *options;
  int64_t per_epoch;
  int64_t *versions; /* of every stage: updates so far */
  petra_probe_demanded *windows;
  int64_t count, capacity;
} petra_probe_demand;

/* `program` and `options` are borrowed. */
petra_status petra_probe_demand_init(petra_probe_demand *demand, const petra_program_ops *program,
                                     const petra_program_options *options, int64_t per_epoch);
void petra_probe_demand_fini(petra_probe_demand *demand);

/* Whether the update window of a microbatch is probed. */
bool petra_probe_demand_probed(const petra_probe_demand *demand, int64_t microbatch);

/* Whether the action has a forward in it. */
bool petra_probe_demand_forwards(const petra_probe_demand *demand, const petra_action *action);

/* A group of actions begins; *opened: with a probed window, so that every stage's latest weights may be needed from now on. */
petra_status petra_probe_demand_begins(petra_probe_demand *demand, const petra_action *actions, int count,
                                       bool *opened);

/* An update of the group is done. */
void petra_probe_demand_updated(petra_probe_demand *demand, const petra_action *update);

/* The group is done: windows whose updates and references are all there are forgotten. */
void petra_probe_demand_done(petra_probe_demand *demand);

/* All of this for a group that is not done here: a checkpoint has it. */
petra_status petra_probe_demand_pass(petra_probe_demand *demand, const petra_action *actions, int count);

/* Whether an end-to-end reference of a window that is open has the stage (from 1) in this version. */
bool petra_probe_demand_wants(const petra_probe_demand *demand, int32_t stage, int64_t version);

#endif
