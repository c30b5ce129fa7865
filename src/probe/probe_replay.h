/* SPDX-License-Identifier: Apache-2.0 */
/* The stages of all processes, as the probe of one of them sees them. The rank with the probe goes through the actions of
 * all stages, as every rank does; here they wait until the parcels of the taps (probe/probe_tap.h) that belong to them have
 * come, and are told to the probe in the order of the schedule, which is that of an emulated run: so the probe finds the
 * same, to the bit, whatever came first. What parcels bring is counted in the probe's account. */
#ifndef PETRA_PROBE_PROBE_REPLAY_H
#define PETRA_PROBE_PROBE_REPLAY_H

#include "probe/probe.h"
#include "probe/probe_parcel.h"
#include "schedule/method.h"

/* Everything is borrowed. */
typedef struct petra_probe_replay_options {
  petra_backend *backend;
  const petra_model *model;
  const petra_partition *partition;
  petra_stage_rule rule;      /* of all stages */
  const petra_method *method; /* whose mitigation says which stages predict */
  const petra_program_ops *program;
  const petra_program_options *program_options;
  int64_t per_epoch;
  int replicas;           /* of every stage, 1 or more */
  const int32_t *rank_of; /* [replica][stage] */
  petra_parcel_inlet inlet;
} petra_probe_replay_options;

typedef struct petra_probe_replay petra_probe_replay;

petra_status petra_probe_replay_create(const petra_probe_replay_options *options, petra_probe_replay **out);
/* Before the probe. NULL is allowed. */
void petra_probe_replay_destroy(petra_probe_replay *replay);

/* What the probe is made with; and the probe, which is due before the first action. */
petra_probe_source *petra_probe_replay_source(petra_probe_replay *replay);
void petra_probe_replay_set_probe(petra_probe_replay *replay, petra_probe *probe);

/* To be told (begins, done) of the groups of actions of all stages, after the tap of this rank. */
petra_stage_observer *petra_probe_replay_groups(petra_probe_replay *replay);

/* In a run that goes on from a checkpoint, of every group of actions that it has done, before any other, and when the probe
 * was read from it: only counted. The first group then fails (PETRA_DATA) where the probe has other numbers of updates. */
petra_status petra_probe_replay_pass(petra_probe_replay *replay, const petra_action *actions, int count);

/* Whether actions wait. */
bool petra_probe_replay_waits(const petra_probe_replay *replay);

/* Tells the probe what can be told; with `wait` everything so far, waiting for the parcels: afterwards all that the taps
 * have sent is the probe's. */
petra_status petra_probe_replay_advance(petra_probe_replay *replay, bool wait);

#endif
