/* SPDX-License-Identifier: Apache-2.0 */
/* A training of a config as data, for another runtime that performs it: its actions in one order, the versions of the
 * weights that they read, and the windows of the probes. docs/plan-format.md describes the printed form. */
#pragma once

#include "schedule/executor.h"
#include "nn/optim.h"
#include "setup/virtual_cluster.h"
#include "record/action_log.h"

typedef struct petra_replay {
  const petra_config *config; /* borrowed */
  petra_plan plan;            /* with its program */
  petra_cluster cluster;
  petra_lr lr;
  petra_action_log *log;
  const petra_trace_row *rows; /* the rows that an emulated training with these costs has in /trace/actions */
  int64_t count;
  int64_t *inverse; /* per row: the version with which B reconstructs its input; -1: it reconstructs nothing */
  /* per row: the row of B (W, if it is split) that releases the tensors that this row keeps; -1: none */
  int64_t *kept_until;
  int64_t *updates; /* per stage: number of its updates */
  int64_t returned; /* number of microbatches whose B is done at stage 1 */
  int64_t *windows; /* first microbatches of the windows with a probe that is complete when the run ends */
  int64_t window_count;
  int64_t *clock; /* with PETRA_MOMENT_CLOCK: versions of the end-to-end references; else NULL */
} petra_replay;

/* Simulates the training by the costs of the config; cluster.placement does not count. The config is borrowed; call
 * petra_replay_fini even on failure. PETRA_CONFIG for a config that cannot be trained, and for costs that a training
 * measures. */
petra_status petra_replay_init(petra_replay *replay, const petra_config *config);
void petra_replay_fini(petra_replay *replay);

/* The delay of a stage; a member is -1 if the order does not determine it. */
typedef struct petra_stage_delay {
  int64_t microbatches; /* petra_method_distance; with an order from a file, the largest */
  double updates;       /* petra_method_delay */
  double descent;       /* petra_method_descent */
} petra_stage_delay;

petra_stage_delay petra_replay_delay(const petra_replay *replay, int32_t stage);

/* Returns the learning rate of an update, before mitigations. */
double petra_replay_rate(const petra_replay *replay, const petra_action *action);

/* Returns the epoch (from 0) whose mean includes the loss that the action computes, or the epoch that E evaluates; -1
 * for other actions. */
int64_t petra_replay_epoch(const petra_replay *replay, const petra_action *action);

/* Returns the version of stage `of` in the end-to-end reference, at `stage`, of microbatch `slot` of window `window`.
 * Windows and slots count from 0, stages from 1. */
int64_t petra_replay_reference(const petra_replay *replay, int64_t window, int64_t slot, int32_t stage, int32_t of);
