/* SPDX-License-Identifier: Apache-2.0 */
/* The worker of a run with replicas (cluster.replicas). It stands before the workers of the replicas that are in this
 * process: all of them in an emulated run, one in an executed run. It performs a group of actions at each of these, and
 * before an update it replaces what the stage shares (stage/stage.h) by the mean over all replicas. So the replicas of
 * a stage are equal after each update, in weights, velocities and running statistics. The executor and the schedule see
 * one pipeline. docs/adr/0021.
 *
 * Between processes, what a stage shares is cut into as many pieces as there are replicas, and replica i owns piece i.
 * As soon as the gradients of an update are complete (with the last B, or W, before it) each process sends every owner
 * its piece. An owner that has a piece of all replicas sends their mean to the others. This happens between the other
 * actions of the process, and the update waits for what is missing. So a process sends 2 (r - 1) / r of what the stage
 * shares. In one process there is one piece, and nothing is sent.
 *
 * Between processes, the memory counts as messages: the copy of what a stage shares counts at that stage. The buffers
 * of the channels between replicas have the size of the largest piece of the stages that are here, and count at the
 * stage with that piece. */
#pragma once

#include "exec/pipeline.h"

/* `pipelines` are the pipelines of all replicas, which have started; NULL: the replica is in another process. They are
 * borrowed, but not the array. The results are the results of the first replica that is here. A measured duration is
 * the duration at the slowest replica that is here, without the averaging. No piece may be larger than a message can
 * be. */
petra_status petra_worker_replicas_create(petra_pipeline *const *pipelines, const petra_placement *placement,
                                          petra_worker **out);
void petra_worker_replicas_destroy(petra_worker *worker); /* before the stages; NULL is allowed */

/* Returns the maximum bytes of those buffers in a process with `stages` stages, of which the largest shares
 * `shared_bytes`. At most two messages of a replica wait to be taken for each stage: a replica sends no piece of the
 * next update before it has the mean of this process, which then has taken its piece of this update, and it sends no
 * mean before it has the piece of this process. */
int64_t petra_worker_replicas_bytes(int replicas, int stages, int64_t shared_bytes);

/* The size of what a stage shares. */
typedef struct petra_shared_size {
  int64_t elements;
  size_t element_bytes; /* 4: float; 8: double. The type is the type in exec/transport.h */
} petra_shared_size;

/* Computes out[e] = (parts[0][e] + ... + parts[replicas - 1][e]) / replicas, summed and divided in the type of the
 * elements, in the order of replicas; `out` may be one of the parts. So any process that computes a part of the mean
 * gets the same bits. All pointers are aligned to their elements. */
void petra_replica_mean(const void *const *parts, int replicas, const petra_shared_size *size, void *out);
