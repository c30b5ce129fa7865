/* SPDX-License-Identifier: Apache-2.0 */
/* An observer of real stages is notified of what a worker does to tensors. It may read the stages but does not affect
 * the training: results are bit-identical. The training log and the probe are such observers; schedule/observer.h
 * defines lists of observers. */
#pragma once

#include "exec/evaluation.h"
#include "schedule/executor.h"
#include "stage/stage.h"

typedef struct petra_stage_observer petra_stage_observer;

/* Each function may be NULL. Stages are counted from 1. A failure ends the run. */
typedef struct petra_stage_observer_ops {
  /* A group of actions (petra_worker_ops.perform) begins, at `virtual_ns`, which never decreases; the group is done. */
  petra_status (*begins)(petra_stage_observer *observer, int64_t virtual_ns, const petra_action *actions, int count);
  petra_status (*done)(petra_stage_observer *observer);
  /* Stage 1 has read a microbatch. */
  petra_status (*read)(petra_stage_observer *observer, int64_t microbatch, const petra_tensor *images,
                       const int32_t *labels, int32_t count);
  /* A stage above the first is about to do F of this input, also within a fused action. */
  petra_status (*input)(petra_stage_observer *observer, int32_t stage, int64_t microbatch, const petra_streams *in);
  /* The stage has done this F. */
  petra_status (*forwarded)(petra_stage_observer *observer, int32_t stage, int64_t microbatch);
  /* Its B, if it is a separate action, reconstructed these streams as the input of its F. */
  petra_status (*reconstructed)(petra_stage_observer *observer, int32_t stage, int64_t microbatch,
                                const petra_streams *found);
  /* The stage is about to update; `microbatch` is the last of the window. */
  petra_status (*updating)(petra_stage_observer *observer, int32_t stage, int64_t microbatch);
  /* The loss of a training microbatch is known. */
  petra_status (*loss)(petra_stage_observer *observer, int64_t microbatch, const petra_loss *loss, double lr,
                       int64_t virtual_ns);
  /* An evaluation begins, and all other actions here wait until it is done. Called in every process that takes part.
   * Not called in a run by arrival, because there the batches of an evaluation pass between other actions. */
  petra_status (*evaluating)(petra_stage_observer *observer);
  /* The evaluation with the weights at the end of the epoch whose last microbatch is `microbatch` is done. */
  petra_status (*evaluated)(petra_stage_observer *observer, int64_t microbatch, const petra_evaluation *evaluation);
  /* Is called just before `evaluated`, in every process, with the weights that were evaluated: one snapshot per stage,
   * NULL if the stage is elsewhere. `evaluation` is NULL if the last stage is elsewhere. */
  petra_status (*evaluated_weights)(petra_stage_observer *observer, int64_t microbatch,
                                    const petra_evaluation *evaluation, petra_snapshot *const *snapshots);
} petra_stage_observer_ops;

struct petra_stage_observer {
  const petra_stage_observer_ops *ops;
  petra_stage_observer *next; /* in the list; set by PETRA_OBSERVERS_ADD */
};

/* --- replica_losses.c ---
 * Combines the losses of replicas into the losses of one run. Each replica's last stage reports its part of a
 * microbatch. When all have reported, the observers are notified once: of the mean of the losses, summed in double in
 * the order of replicas (all replicas have the same number of images), and of the sums of the counts. Evaluations come
 * from replica 0; observers are notified of them after all losses that replica 0 reported before. */

typedef struct petra_replica_losses petra_replica_losses;

/* `observers` is a list; borrowed. */
petra_status petra_replica_losses_create(int replicas, petra_stage_observer *observers, petra_replica_losses **out);
void petra_replica_losses_destroy(petra_replica_losses *losses); /* NULL is allowed */

/* Returns the observer that replica `replica` (from 0) notifies; borrowed. */
petra_stage_observer *petra_replica_losses_of(petra_replica_losses *losses, int replica);
