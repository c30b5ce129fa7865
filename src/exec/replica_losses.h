/* SPDX-License-Identifier: Apache-2.0 */
/* The losses of replicas as those of one run: each replica's last stage tells of its part of a microbatch, and when all have told,
 * the observers behind are told once: the mean of the losses, summed in double in the order of replicas (all have as many images),
 * and the sums of what was counted. Evaluations are replica 0's, and told after all losses that it told before them. */
#pragma once

#include "exec/stage_observer.h"

typedef struct petra_replica_losses petra_replica_losses;

/* `observers` is a list; borrowed. */
petra_status petra_replica_losses_create(int replicas, petra_stage_observer *observers, petra_replica_losses **out);
void petra_replica_losses_destroy(petra_replica_losses *losses); /* NULL is allowed */

/* The observer that replica `replica`, from 0, tells; borrowed. */
petra_stage_observer *petra_replica_losses_of(petra_replica_losses *losses, int replica);
