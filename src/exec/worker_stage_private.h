/* SPDX-License-Identifier: Apache-2.0 */
/* The internals of worker_stage, shared by its files: an action of real stages and its three parts. */
#pragma once

#include "base/threads.h"
#include "backend/tensor.h"
#include "exec/pipeline.h"

/* A loss that was not reported yet; images 0: none. It is reported when the next loss is computed, so that the host
 * prepares a microbatch while the device computes another. */
typedef struct petra_late_loss {
  petra_loss loss;
  int64_t microbatch, virtual_ns;
} petra_late_loss;

/* An evaluation that waits until every stage of the network has reached it. */
typedef struct petra_pending petra_pending;

/* Sums over the labels of the microbatches of an epoch. */
typedef struct petra_stage_losses {
  double loss, top1, labels;
} petra_stage_losses;

/* The labels of a microbatch, for one stage. */
typedef struct petra_label_row {
  int32_t stage;
  int64_t microbatch;
  int32_t count;
  int32_t *labels;
} petra_label_row;

/* An action in progress. */
typedef struct petra_task {
  petra_action action;
  int64_t virtual_ns;
  petra_action_result result;
  petra_message in, out;
  petra_label_row labels; /* of an action that computes a loss; owned by the feed */
  petra_loss loss;
} petra_task;

/* An action of a group. */
typedef struct petra_group_task {
  petra_task task;
  petra_deferred_work deferred;
} petra_group_task;

/* The actions of a group of one stage, which one thread performs one after the other. */
typedef struct petra_chain {
  int32_t stage;
  int64_t expected_ns; /* their duration last time */
} petra_chain;

typedef struct petra_worker_stage {
  petra_worker base;
  const petra_pipeline *pipeline;
  petra_pipeline_options options;
  petra_backend *backend;
  petra_stages stages;
  const petra_plan *plan;
  int64_t read;             /* microbatches read so far by the loader, if there is one */
  petra_label_row *waiting; /* labels of microbatches that were read and have no loss of the stage yet, in no order */
  int64_t waiting_count, waiting_capacity;
  petra_pending *evaluations;
  petra_stage_losses *local; /* in a local program: of every stage, from 0, in every epoch; else NULL */
  int64_t epochs;            /* with a training loss */
  petra_late_loss late,
      new_late; /* the last loss, which the device may still compute; the loss of the present action */
  /* For groups (worker_group.c): */
  petra_thread_pool *pool; /* NULL: one action at a time */
  petra_group_task *tasks;
  int task_count;                         /* 2 J: a stage has at most two actions in a group, one per engine */
  petra_chain *chains;                    /* J */
  int group;                              /* tasks of the present group */
  int64_t (*took_ns)[PETRA_ACTION_KINDS]; /* by stage: the last duration of an action of each kind */
} petra_worker_stage;

/* --- feed.c --- */

void petra_feed_fini(petra_worker_stage *worker);

/* Reads microbatch `microbatch`, which must be the next one, and notifies the observers. Its samples become a new
 * tensor that counts as a message of stage 1. */
petra_status petra_feed_input(petra_worker_stage *worker, int64_t microbatch, petra_tensor **input);

/* Returns the labels of a microbatch for a stage with a loss, which stay until they are dropped; reads them if stage 1
 * is elsewhere. PETRA_INTERNAL, logged, if they are not there. */
petra_status petra_feed_labels(petra_worker_stage *worker, int32_t stage, int64_t microbatch,
                               const petra_label_row **out);
void petra_feed_drop_labels(petra_worker_stage *worker, int32_t stage, int64_t microbatch);

/* Reads or writes the labels that wait for a stage, in a checkpoint; does nothing for a stage without a loss.
 * tensors->read says how far stage 1 has read. */
petra_status petra_feed_archive(petra_worker_stage *worker, int32_t stage, const petra_tensor_archive *tensors);

/* --- worker_action.c: the parts of an action, in this order --- */

/* Takes the inputs (messages, images, labels) and notifies the observers before the action. */
petra_status petra_task_prepare(petra_worker_stage *worker, petra_task *task);

/* Does the computation. It touches only its stage and the tensors and results of the task, so it may run in parallel
 * with the computations of other stages. */
petra_status petra_task_compute(petra_worker_stage *worker, petra_task *task);

/* Posts the messages and reports the results. */
petra_status petra_task_conclude(petra_worker_stage *worker, petra_task *task);

/* Releases the messages that are left after a failure. */
void petra_task_release(petra_task *task);

/* --- worker_action.c: losses --- */

/* Reports the loss that waits, if there is one. */
petra_status petra_losses_report_late(petra_worker_stage *worker);

/* Call this after an action, when its work has been passed to the device. Only this function waits for the previous
 * loss. */
petra_status petra_losses_put_off(petra_worker_stage *worker);

/* --- worker_evaluations.c --- */

/* Performs E: takes the stage's snapshot, if the stage is here. The last stage to reach its E starts the evaluation. */
petra_status petra_evaluations_reach(petra_worker_stage *worker, int32_t stage, int64_t microbatch);

void petra_evaluations_destroy(petra_worker_stage *worker);

/* Reads or writes, in a checkpoint, the snapshots of a stage. */
petra_status petra_evaluations_archive_stage(petra_worker_stage *worker, int32_t stage, petra_tensor_archive *tensors);

/* --- worker_group.c --- */

/* Creates the threads and tasks that groups need to run their stages in parallel, for the lanes of the backend. */
petra_status petra_group_init(petra_worker_stage *worker);
void petra_group_fini(petra_worker_stage *worker);

/* Performs a group, its stages in parallel. Results, notifications and accounts are as if its actions were done one
 * after the other; the first action that fails in that order is logged. */
petra_status petra_group_perform(petra_worker_stage *worker, int64_t virtual_ns, const petra_action *actions, int count,
                                 petra_action_result *results);
