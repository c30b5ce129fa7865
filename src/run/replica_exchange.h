/* SPDX-License-Identifier: Apache-2.0 */
/* The worker of a rank that has replicas in other ranks (cluster.replicas): it stands before that of the stages, and sees to it
 * that an update takes the mean over the replicas, with the bits of exec/worker_replicas.h.
 *
 * What a stage shares is cut into as many pieces as there are replicas, and replica i owns piece i. As soon as the gradients of an
 * update are complete (with the last B, or W, before it) each rank sends every owner its piece; an owner that has a piece of all
 * sums them in the order of replicas and sends the mean to the others. This goes on between the rank's other actions; the
 * update waits for what is missing then. So a rank sends 2 (r - 1) / r of what the stage shares: docs/adr/0021. */
#ifndef PETRA_RUN_REPLICA_EXCHANGE_H
#define PETRA_RUN_REPLICA_EXCHANGE_H

#include "exec/worker.h"
#include "exec/stages.h"
#include "run/placement.h"

/* Borrowed, all of it. */
typedef struct petra_replica_exchange_options {
  petra_stages stages;
  petra_worker *worker; /* does the actions */
  const petra_placement *placement;
  int way; /* the id of ways between the replicas of a place that nobody else uses */
} petra_replica_exchange_options;

/* No piece is larger than a message can be. */
petra_status petra_replica_exchange_create(const petra_replica_exchange_options *options, petra_worker **out);
void petra_replica_exchange_destroy(petra_worker *worker); /* NULL is allowed */

#endif
