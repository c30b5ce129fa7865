/* SPDX-License-Identifier: Apache-2.0 */
/* Combines the losses of replicas into those of one run. Each replica's last stage reports its part of a microbatch.
 * When all have reported, the observers are notified once: of the mean of the losses, summed in double in the order of
 * replicas (all have as many images), and of the sums of the counts. Evaluations come from replica 0; observers are
 * notified of them after all losses that replica 0 reported before. */
#pragma once

#include "exec/stage_observer.h"

typedef struct petra_replica_losses petra_replica_losses;

/* `observers` is a list; borrowed. */
petra_status petra_replica_losses_create(int replicas, petra_stage_observer *observers, petra_replica_losses **out);
void petra_replica_losses_destroy(petra_replica_losses *losses); /* NULL is allowed */

/* Returns the observer that replica `replica` (from 0) notifies; borrowed. */
petra_stage_observer *petra_replica_losses_of(petra_replica_losses *losses, int replica);
