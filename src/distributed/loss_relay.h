/* SPDX-License-Identifier: Apache-2.0 */
/* Sends the losses and evaluations of a run from the process with the last stage (of each replica) to the observers of
 * other processes. Rank 0 receives all of them. If the best weights are kept (distributed/best_weights.h), every rank
 * of replica 0 receives the evaluations. They are messages on ordinary channels of the progress thread. What a process
 * observes itself goes to its own observers directly. */
#pragma once

#include "exec/stage_observer.h"
#include "setup/placement.h"

typedef struct petra_loss_relay petra_loss_relay;

/* Call this on all ranks, for a network of `stages` stages. `observers`, a list, are those of this process to notify;
 * with replicas rank 0 notifies its own of the losses of all (exec/replica_losses.h). `channel` is the id of the
 * channels, which nobody else uses. All arguments are borrowed. */
petra_status petra_loss_relay_create(const petra_placement *placement, int32_t stages, int channel, bool keeps_best,
                                     petra_stage_observer *observers, petra_loss_relay **out);
void petra_loss_relay_destroy(petra_loss_relay *relay); /* NULL is allowed */

/* Returns the observer for the worker of a replica that is here. */
petra_stage_observer *petra_loss_relay_observer(petra_loss_relay *relay, int replica);

/* Notifies the observers of all messages received so far. */
petra_status petra_loss_relay_poll(petra_loss_relay *relay);

/* All ranks call this at the same place of the schedule. Afterwards the observers know all that was sent before. */
petra_status petra_loss_relay_drain(petra_loss_relay *relay);
