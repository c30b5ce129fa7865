/* SPDX-License-Identifier: Apache-2.0 */
/* The worker of replicas that are all in one process: each replica in turn does a group of actions, side by side where its own
 * worker does; before an update what the stage shares (stage/stage.h) is replaced by its mean over the replicas. So the replicas of
 * a stage are equal after each update, in weights, velocities and running statistics. Executor and schedule see one pipeline. */
#ifndef PETRA_EXEC_WORKER_REPLICAS_H
#define PETRA_EXEC_WORKER_REPLICAS_H

#include "exec/stages.h"
#include "exec/worker.h"

typedef struct petra_worker_replicas_options {
  int replicas;
  petra_worker *const *worker; /* of each: worker_stage's, of all its stages; borrowed, as the stages are */
  const petra_stages *stages;  /* of each */
} petra_worker_replicas_options;

/* The arrays of `options` are copied. Results are those of replica 0; a measured duration is that of the slowest replica, the
 * averaging not counted. */
petra_status petra_worker_replicas_create(const petra_worker_replicas_options *options, petra_worker **out);
void petra_worker_replicas_destroy(petra_worker *worker); /* NULL is allowed */

#endif
