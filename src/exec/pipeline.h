/* SPDX-License-Identifier: Apache-2.0 */
/* One pipeline: the stages of a network that are here, with their data, transport and worker. A process has one
 * pipeline or, in an emulated run with cluster.replicas, one per replica. */
#pragma once

#include "exec/worker_stage.h"
#include "exec/network.h"

typedef struct petra_pipeline {
  petra_network network;
  petra_loader *loader; /* of the training data; NULL if neither the first nor the last stage is here */
  petra_transport *transport;
  petra_worker *worker; /* of worker_stage */
} petra_pipeline;

/* All is borrowed, except the transport. */
typedef struct petra_pipeline_options {
  const petra_dataset *train, *evaluation; /* evaluation NULL: this pipeline does not evaluate */
  int64_t first;                           /* the first microbatch that stage 1 reads */
  const petra_lr *lr;
  petra_transport *transport; /* owned, also on failure; NULL: one within the process */
  bool waves;                 /* as in exec/worker_stage.h */
  petra_stage_observer *observers;
} petra_pipeline_options;

/* Creates loader, transport and worker of a pipeline that has its network. Call petra_pipeline_fini even on failure. */
petra_status petra_pipeline_start(petra_pipeline *pipeline, const petra_pipeline_options *options);

/* Destroys the worker and the messages that still wait. */
void petra_pipeline_stop(petra_pipeline *pipeline);
void petra_pipeline_fini(petra_pipeline *pipeline);
