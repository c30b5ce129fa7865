/* SPDX-License-Identifier: Apache-2.0 */
/* What a stage shares with its replicas: those of one stage that train on different parts of every microbatch. Rules:
 * docs/semantics/replicas.md. */
#ifndef PETRA_STAGE_REPLICA_H
#define PETRA_STAGE_REPLICA_H

#include "stage/stage.h"

/* Whether all gradients of the next update are there. The stage then does nothing that changes them, or the running
 * statistics, before that update (petra_stage_update would refuse it). */
bool petra_stage_gradient_complete(const petra_stage *stage);

/* Gives, block by block, the gradients that an update at this moment takes (the mean over the k microbatches), then the running
 * statistics: what the replicas of a stage replace by its mean over the replicas before each update. Always the same tensors in
 * the same order, of the same shapes at every replica; they may be written by upload. The first failure of `visit` is returned. */
petra_status petra_stage_visit_shared(petra_stage *stage, petra_status (*visit)(void *context, petra_tensor *tensor),
                                      void *context);

#endif
