/* SPDX-License-Identifier: Apache-2.0 */
/* One pipeline: the stages of a network that are here, with their data, transport and worker. A process has one
 * pipeline or, in an emulated run with cluster.replicas, one per replica. */
#pragma once

#include "exec/stage_observer.h"
#include "nn/optim.h"

typedef struct petra_pipeline {
  petra_network network;
  petra_loader *loader; /* of the training data; NULL if neither the first nor the last stage is here */
  petra_transport *transport;
  petra_worker *worker; /* of worker_stage */
} petra_pipeline;

/* All is borrowed, except the transport. */
typedef struct petra_pipeline_options {
  const petra_dataset *train;
  const petra_dataset *evaluation; /* NULL: the program has no E, or another replica evaluates and E only counts */
  int64_t first;                   /* the first microbatch that stage 1 reads */
  const petra_lr *lr;
  petra_transport *transport; /* owned, also on failure; NULL: a transport within the process */
  bool waves; /* E only takes the snapshot: petra_worker_stage_evaluate continues evaluations between actions */
  petra_stage_observer *observers; /* NULL: none */
} petra_pipeline_options;

/* Creates loader, transport and worker of a pipeline that has its network. Call petra_pipeline_fini even on failure. */
petra_status petra_pipeline_start(petra_pipeline *pipeline, const petra_pipeline_options *options);

/* For a program by arrival between processes: the microbatches after which the pipeline is drained for a checkpoint.
 * All zeros: none. */
typedef struct petra_pipeline_cuts {
  int64_t begin; /* microbatches done in the checkpoint, and the executor's clock then; 0: from the beginning */
  int64_t begin_ns;
  int64_t every; /* microbatches between two cuts; 0: there are none */
  /* Is called on each rank when all its stages have done the first `microbatches` and nothing else. `agreed`: the ranks
   * have agreed on this cut (group/progress_thread.h), and `then` is what they do after it. */
  petra_status (*write)(void *context, int64_t microbatches, int64_t now_ns, bool agreed, petra_agreed then);
  void *context;
} petra_pipeline_cuts;

/* Destroys the worker and the messages that still wait. */
void petra_pipeline_stop(petra_pipeline *pipeline);
void petra_pipeline_fini(petra_pipeline *pipeline);

/* --- worker_stage.c ---
 * The worker that runs stages on real tensors: all stages of the network, or some of them while other workers run the
 * others. It reads the training data at stage 1 and the labels at the stages with a loss, sends and takes messages by
 * the transport, and evaluates when every stage has reached the same E. It performs the actions of its own stages, and
 * receives the E's of all stages. */

/* Creates the worker of a pipeline that has its network, loader and transport. Everything is borrowed and must outlive
 * the worker. */
petra_status petra_worker_stage_create(const petra_pipeline *pipeline, const petra_pipeline_options *options,
                                       petra_worker **out);
void petra_worker_stage_destroy(petra_worker *worker);

/* With `waves`: the first function returns true if an evaluation waits and every stage here has its snapshot for it.
 * The second computes the next batch of that evaluation; after the last batch (*ended) the last stage reports the
 * result. Evaluations run one after the other. */
bool petra_worker_stage_evaluates(const petra_worker *worker);
petra_status petra_worker_stage_evaluate(petra_worker *worker, bool *ended);

/* In a local program, returns the sums of the training losses of `stage`, which must be here: *epochs times the three
 * sums loss, top-1 hits and labels. The worker owns them. In other programs, returns NULL and sets *epochs to 0. */
const double *petra_worker_stage_losses(const petra_worker *worker, int32_t stage, int64_t *epochs);

/* Reads or writes, in a checkpoint, what all workers have in common: the evaluations that some stages have reached.
 * When reading, call it before the stages are read, for a new worker whose loader is at microbatch `read`: the number
 * of microbatches that stage 1 had read in the whole run. */
petra_status petra_worker_stage_archive(petra_worker *worker, petra_archive *archive, int64_t read);

/* Reads or writes everything that the worker and its transport store for one of its stages, in the present part, under
 * the account of the stage. For a stage with a loss, this includes the labels that wait, up to microbatch
 * tensors->read, and, in a local program, the sums of its losses. */
petra_status petra_worker_stage_archive_stage(petra_worker *worker, int32_t stage, petra_tensor_archive *tensors);

/* Checks, after the last stage was read, that its evaluations are consistent. */
petra_status petra_worker_stage_archived(const petra_worker *worker, const petra_archive *archive);
