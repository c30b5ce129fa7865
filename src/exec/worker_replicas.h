/* SPDX-License-Identifier: Apache-2.0 */
/* The worker of a run with replicas (cluster.replicas). It passes actions on to the workers of the replicas that are in
 * this process: all replicas in an emulated run, one replica in an executed run. Each of these workers performs each
 * group of actions. Before an update, the tensors that the stage shares (stage/stage.h) are replaced by their mean over
 * all replicas. So the replicas of a stage are equal after each update, in weights, velocities and running statistics.
 * The executor and the schedule see one pipeline. docs/adr/0021.
 *
 * Between processes, the shared values of a stage are cut into as many pieces as there are replicas, and replica i owns
 * piece i. As soon as the gradients of an update are complete (with the last B, or W, before it) each process sends
 * every owner its piece. An owner that has its piece from all replicas sends the mean to the others. This happens
 * between the other actions of the process, and the update waits for missing pieces. So with r replicas a process sends
 * 2 (r - 1) / r times the size of the shared values. In one process there is one piece, and nothing is sent.
 *
 * Between processes, the memory counts as messages: the copy of the shared values of a stage counts at that stage. The
 * buffers of the channels between replicas have the size of the largest piece of the stages that are here, and count at
 * the stage with that piece. */
#pragma once

#include "exec/pipeline.h"

/* `pipelines` has the pipeline of each replica, which has started; NULL: the replica is in another process. The
 * pipelines are borrowed, but the array is not. The results are the results of the first replica that is here. A
 * measured duration is the duration at the slowest replica that is here, without the averaging. No piece may be larger
 * than a message can be. */
petra_status petra_worker_replicas_create(petra_pipeline *const *pipelines, const petra_placement *placement,
                                          petra_worker **out);
void petra_worker_replicas_destroy(petra_worker *worker); /* before the stages; NULL is allowed */

/* Returns the maximum size, in bytes, of the channel buffers in a process with `stages` stages, of which the largest
 * shares `shared_bytes`. At most two messages of a replica wait to be taken for each stage: a replica sends no piece of
 * the next update before it has the mean of this process, which then has taken its piece of this update, and it sends
 * no mean before it has the piece of this process. */
int64_t petra_worker_replicas_bytes(int replicas, int stages, int64_t shared_bytes);

/* The size of the values that a stage shares. */
typedef struct petra_shared_size {
  int64_t elements;
  size_t element_bytes; /* 4: float; 8: double. The type is the type in exec/transport.h */
} petra_shared_size;

/* Computes out[e] = (parts[0][e] + ... + parts[replicas - 1][e]) / replicas, summed and divided in the type of the
 * elements, in the order of replicas; `out` may be one of the parts. So any process that computes a part of the mean
 * gets the same bits. All pointers are aligned to their elements. */
void petra_replica_mean(const void *const *parts, int replicas, const petra_shared_size *size, void *out);
