/* SPDX-License-Identifier: Apache-2.0 */
/* The eyes of a probe at the stages of one process: for microbatches of probed windows it sends what the probe, which may be
 * in another process, needs of them (probe/probe_parcel.h) at the moment when it happens, and of the weights each version that
 * a reference needs, once. Between windows nothing is sent. The probe's end: probe/probe_replay.h. */
#ifndef PETRA_PROBE_PROBE_TAP_H
#define PETRA_PROBE_PROBE_TAP_H

#include "probe/probe_parcel.h"
#include "exec/stage_observer.h"
#include "exec/stages.h"
#include "nn/partition.h"
#include "schedule/program.h"

/* Everything is borrowed. */
typedef struct petra_probe_tap_options {
  petra_stages stages; /* those that are here are looked at */
  int replica;         /* that these are of, from 0: of others than 0 neither weights nor gradients are sent */
  petra_backend *backend;
  const petra_partition *partition;
  const petra_program_ops *program; /* not one with PETRA_MOMENT_CLOCK */
  const petra_program_options *program_options;
  int64_t per_epoch;
  petra_parcel_outlet outlet;
} petra_probe_tap_options;

typedef struct petra_probe_tap petra_probe_tap;

petra_status petra_probe_tap_create(const petra_probe_tap_options *options, petra_probe_tap **out);
void petra_probe_tap_destroy(petra_probe_tap *tap); /* NULL is allowed */

/* To be told by the worker of the stages that are here. */
petra_stage_observer *petra_probe_tap_observer(petra_probe_tap *tap);

/* In a run that goes on from a checkpoint, of every group of actions that it has done, before any other: only counted. */
petra_status petra_probe_tap_pass(petra_probe_tap *tap, const petra_action *actions, int count);

/* To be told (begins, done) of the groups of actions of all stages, around what the other is told of them. */
petra_stage_observer *petra_probe_tap_groups(petra_probe_tap *tap);

#endif
