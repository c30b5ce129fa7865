/* SPDX-License-Identifier: Apache-2.0 */
/* The inside of worker_stage, shared by its files: an action of real stages and its three parts. */
#pragma once

#include "base/threads.h"
#include "exec/deferred_work.h"
#include "exec/feed.h"
#include "exec/worker_stage.h"

/* A loss that was not told yet; images 0: none. It is told with the next one, so that the host prepares a microbatch
 * while the device computes another. */
typedef struct petra_late_loss {
  petra_loss loss;
  int64_t microbatch, virtual_ns;
} petra_late_loss;

/* An evaluation that waits until every stage of the network has reached it. */
typedef struct petra_pending petra_pending;

/* An action that is being done. */
typedef struct petra_task {
  petra_action action;
  int64_t virtual_ns;
  petra_action_result result;
  petra_message in, out;
  petra_label_row labels; /* of an action with the loss; the feed's */
  petra_loss loss;
} petra_task;

/* An action beside others. */
typedef struct petra_group_task {
  petra_task task;
  petra_deferred_work aside;
} petra_group_task;

/* The actions of a group that are done one after the other by one thread: those of one stage. */
typedef struct petra_chain {
  int32_t stage;
  int64_t expected_ns; /* how long they took the last time */
} petra_chain;

typedef struct petra_worker_stage {
  petra_worker base;
  petra_worker_stage_options options;
  petra_feed feed;
  petra_pending *evaluations;
  petra_late_loss late, new_late; /* the last loss, where the device may still be at it; that of the present action */
  /* Side by side (worker_group.c): */
  petra_thread_pool *pool; /* NULL: one action at a time */
  petra_group_task *tasks;
  int task_count;                         /* 2 J: a stage has two actions in a group at most, one an engine */
  petra_chain *chains;                    /* J */
  int group;                              /* tasks of the present group */
  int64_t (*took_ns)[PETRA_ACTION_KINDS]; /* by stage: what an action took the last time */
} petra_worker_stage;

/* Stage `stage`, from 1; NULL: it is not here. */
static inline petra_stage *petra_worker_stage_of(const petra_worker_stage *worker, int32_t stage) {
  return petra_stages_get(&worker->options.stages, stage);
}

static inline bool petra_worker_stage_is_last(const petra_worker_stage *worker, int32_t stage) {
  return stage == worker->options.stages.count;
}

/* --- worker_action.c: the parts of an action, which come in this order --- */

/* Takes what it needs (messages, images, labels) and tells the observers what is told before. */
petra_status petra_task_prepare(petra_worker_stage *worker, petra_task *task);

/* Computes: touches nothing but its stage and, of the task, tensors and results; may be beside others of other stages. */
petra_status petra_task_compute(petra_worker_stage *worker, petra_task *task);

/* Posts what it has made and tells what it has found. */
petra_status petra_task_conclude(petra_worker_stage *worker, petra_task *task);

/* What is left after a failure. */
void petra_task_release(petra_task *task);

/* --- worker_losses.c --- */

/* Tells the observers the loss, or keeps it where the device is still at it. */
petra_status petra_losses_report(petra_worker_stage *worker, const petra_task *task);

/* Tells the loss that waits, if one does. */
petra_status petra_losses_report_late(petra_worker_stage *worker);

/* After an action, when its work is with the device: only now the loss before is waited for. */
petra_status petra_losses_put_off(petra_worker_stage *worker);

/* --- worker_evaluations.c --- */

/* E: takes the stage's snapshot, where it is here; the last of all stages to come has the evaluation computed. */
petra_status petra_evaluations_reach(petra_worker_stage *worker, int32_t stage, int64_t microbatch);

void petra_evaluations_destroy(petra_worker_stage *worker);

/* Evaluations that some stages have reached and others not, in a checkpoint; and the snapshots of a stage. */
petra_status petra_evaluations_archive(petra_worker_stage *worker, petra_archive *archive);
petra_status petra_evaluations_archive_stage(petra_worker_stage *worker, int32_t stage, petra_tensor_archive *tensors);

/* --- worker_group.c --- */

/* What doing groups side by side needs, for the lanes of the backend. */
petra_status petra_group_init(petra_worker_stage *worker);
void petra_group_fini(petra_worker_stage *worker);

/* A group, its stages beside each other. Results, what observers are told and accounts are as if its actions were done one
 * after the other; the first in their order that fails is the one that is logged. */
petra_status petra_group_perform(petra_worker_stage *worker, int64_t virtual_ns, const petra_action *actions, int count,
                                 petra_action_result *results);
