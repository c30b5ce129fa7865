/* SPDX-License-Identifier: Apache-2.0 */
/* The worker of a rank that has replicas in other ranks (cluster.replicas): it stands before that of the stages, and sees to it
 * that an update takes the mean over the replicas, with the bits of exec/worker_replicas.h.
 *
 * What a stage shares is cut into as many pieces as there are replicas, and replica i owns piece i. As soon as the gradients of an
 * update are complete (with the last B, or W, before it) each rank sends every owner its piece; an owner that has a piece of all
 * sums them in the order of replicas and sends the mean to the others. This goes on between the rank's other actions; the
 * update waits for what is missing then. So a rank sends 2 (r - 1) / r of what the stage shares: docs/adr/0021.
 *
 * Memory counts as messages: the copy of what a stage shares at that stage, the buffers of the ways between replicas, which have the
 * size of the largest piece of the rank's stages, at the stage with that piece. */
#ifndef PETRA_EXECUTE_REPLICA_EXCHANGE_H
#define PETRA_EXECUTE_REPLICA_EXCHANGE_H

#include "exec/worker.h"
#include "exec/stages.h"
#include "plan/placement.h"

/* Borrowed, all of it. */
typedef struct petra_replica_exchange_options {
  petra_stages stages;
  petra_worker *worker; /* does the actions */
  const petra_placement *placement;
  int way; /* the id of ways between the replicas of a place that nobody else uses */
} petra_replica_exchange_options;

/* No piece is larger than a message can be. */
petra_status petra_replica_exchange_create(const petra_replica_exchange_options *options, petra_worker **out);
void petra_replica_exchange_destroy(petra_worker *worker); /* before the stages; NULL is allowed */

/* Bytes of those buffers at most, at a rank with so many stages, of which the largest shares `shared_bytes`. Of a stage at most two
 * messages of a replica wait to be taken: it sends no piece of the next update before it has the mean of this rank, which then has
 * taken its piece of this one, and no mean before it has the piece of this rank. */
int64_t petra_replica_exchange_bytes(int replicas, int stages, int64_t shared_bytes);

#endif
