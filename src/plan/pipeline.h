/* SPDX-License-Identifier: Apache-2.0 */
/* One pipeline: the stages of a network that are here with what feeds them, carries their messages and does their actions. A
 * process has one, or in an emulated run with cluster.replicas as many as there are replicas. */
#pragma once

#include "exec/worker_stage.h"
#include "plan/network.h"

typedef struct petra_pipeline {
  petra_network network;
  petra_loader *loader; /* of the training data; NULL where neither the first nor the last stage is here */
  petra_transport *transport;
  petra_worker *worker; /* worker_stage's */
} petra_pipeline;

/* Borrowed, but for the transport. */
typedef struct petra_pipeline_options {
  const petra_dataset *train, *evaluation; /* evaluation NULL: this pipeline evaluates nothing */
  int64_t first;                           /* the first microbatch that stage 1 reads */
  const petra_lr *lr;
  petra_transport *transport; /* taken over, also on failure; NULL: one within the process */
  bool waves;                 /* as in exec/worker_stage.h */
  petra_stage_observer *observers;
} petra_pipeline_options;

/* Loader, transport and worker of a pipeline that has its network. petra_pipeline_fini is due whatever comes back. */
petra_status petra_pipeline_start(petra_pipeline *pipeline, const petra_pipeline_options *options);

/* Lets go of the worker and of the messages that still wait. */
void petra_pipeline_stop(petra_pipeline *pipeline);
void petra_pipeline_fini(petra_pipeline *pipeline);
