/* SPDX-License-Identifier: Apache-2.0 */
/* The inside of a probe's replay, shared by probe_replay.c (the order of the steps) and probe_replay_take.c (what comes for them). */
#ifndef PETRA_PROBE_PROBE_REPLAY_PRIVATE_H
#define PETRA_PROBE_PROBE_REPLAY_PRIVATE_H

#include "probe/probe_demand.h"
#include "probe/probe_replay.h"
#include "probe/probe_store.h"

/* What the probe is told, or what has to be there first. */
typedef enum petra_replay_step_kind {
  PETRA_STEP_WEIGHTS, /* version `number` of the stage */
  PETRA_STEP_READ,    /* microbatch `number` */
  PETRA_STEP_FORWARD,
  PETRA_STEP_INPUT, /* of the F at another replica than 0 */
  PETRA_STEP_FOUND,
  PETRA_STEP_UPDATE,
  PETRA_STEP_DONE /* a group is done */
} petra_replay_step_kind;

typedef struct petra_replay_step {
  int32_t kind, replica, stage;
  int64_t number;
  bool predicted; /* of weights */
} petra_replay_step;

struct petra_probe_replay {
  petra_stage_observer base; /* of groups */
  petra_probe_source source;
  petra_probe_replay_options options;
  petra_probe *probe;
  petra_compute compute;
  petra_probe_demand demand; /* where the schedule is; the probe is behind it by the steps */
  const petra_action *actions;
  int count;
  petra_replay_step *steps; /* first .. end - 1 wait */
  int64_t first, end, capacity;
  /* As the probe sees it. */
  int64_t *versions, *forwards; /* per stage: updates, and the version that its last probed F read */
  petra_probe_store *stores;    /* per stage */
  petra_tensor_set *gradients;  /* per block, of the update that is being told */
  int gradients_in;             /* blocks of it that have come */
  bool closed;                  /* the parcel that ends the first step has come */
  bool passed;                  /* what was done before is in a checkpoint */
  bool input_in;                /* the input of the F that is being told has come */
};

/* Whether the input of the stage's F is compared with what its B, as an action of its own, reconstructs. */
bool petra_probe_replay_takes_input(const petra_probe_replay *replay, int32_t stage);

/* A parcel that has come for the first step; it may be one of several. PETRA_INTERNAL, logged, for one that does not belong there. */
petra_status petra_probe_replay_take(petra_probe_replay *replay, const petra_replay_step *at,
                                     const petra_parcel *parcel, const void *data);

#endif
