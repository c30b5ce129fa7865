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
  petra_transport *transport; /* owned, also on failure; NULL: one within the process */
  bool waves; /* E only takes the snapshot: petra_worker_stage_evaluate continues evaluations between actions */
  petra_stage_observer *observers; /* NULL: none */
} petra_pipeline_options;

/* Creates loader, transport and worker of a pipeline that has its network. Call petra_pipeline_fini even on failure. */
petra_status petra_pipeline_start(petra_pipeline *pipeline, const petra_pipeline_options *options);

/* For a program by arrival between processes: the microbatches after which the pipeline is drained for a checkpoint.
 * All zeros: none. */
typedef struct petra_pipeline_cuts {
  int64_t begin; /* microbatches that a checkpoint has done, and the executor's clock then; 0: from the beginning */
  int64_t begin_ns;
  int64_t every; /* microbatches between two cuts; 0: there are none */
  /* Is called on each rank when all its stages have done the first `microbatches` and nothing else. `agreed`: the ranks
   * have agreed on this cut (group/progress_thread.h), and on what they do then. */
  petra_status (*write)(void *context, int64_t microbatches, int64_t now_ns, bool agreed, petra_agreed then);
  void *context;
} petra_pipeline_cuts;

/* Destroys the worker and the messages that still wait. */
void petra_pipeline_stop(petra_pipeline *pipeline);
void petra_pipeline_fini(petra_pipeline *pipeline);
