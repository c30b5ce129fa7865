/* SPDX-License-Identifier: Apache-2.0 */
/* Losses and evaluations of a run, on their way from the process that has the last stage (of each replica) to the observers
 * of other processes: to those of rank 0 all of them and, if the best weights are kept (distributed/best_weights.h), evaluations to every rank of replica
 * 0. They are messages on ordinary channels of the progress thread. What is observed in a process itself goes to its own observers directly. */
#pragma once

#include "exec/stage_observer.h"
#include "plan/placement.h"

typedef struct petra_loss_relay petra_loss_relay;

/* At all ranks, for a network of `stages` stages. `observers`, a list, are those of this process that are notified; with replicas rank 0
 * notifies its own of the losses of all (exec/replica_losses.h). `channel` is the id of the channels, which nobody else uses. Everything is
 * borrowed. */
petra_status petra_loss_relay_create(const petra_placement *placement, int32_t stages, int channel, bool keeps_best,
                                     petra_stage_observer *observers, petra_loss_relay **out);
void petra_loss_relay_destroy(petra_loss_relay *relay); /* NULL is allowed */

/* The observer for the worker of a replica that is here. */
petra_stage_observer *petra_loss_relay_observer(petra_loss_relay *relay, int replica);

/* Notifies the observers of what has come so far. */
petra_status petra_loss_relay_poll(petra_loss_relay *relay);

/* All ranks come here at the same place of the schedule. Afterwards the observers know all that was sent before. */
petra_status petra_loss_relay_drain(petra_loss_relay *relay);
