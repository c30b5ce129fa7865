/* SPDX-License-Identifier: Apache-2.0 */
/* The worker that runs stages on real tensors: all stages of the network, or some beside workers with the others. It
 * reads the training data at stage 1 and the labels at the last stage, sends and takes messages by the transport, and
 * evaluates when every stage has reached the same E. It is given the actions of the stages that it has, and the E's of all. */
#pragma once

#include "data/loader.h"
#include "exec/stage_observer.h"
#include "exec/worker.h"
#include "nn/rate.h"
#include "schedule/method.h"

typedef struct petra_worker_stage_options {
  petra_backend *backend;
  petra_stages stages;
  petra_transport *transport;
  petra_loader *loader; /* training batches, from microbatch 0, or from where a checkpoint was written; NULL where
                                      neither the first nor the last stage is here */
  const petra_dataset
      *evaluation; /* NULL: the program has no E, or another replica does what is due at it: E only counts */
  petra_loader_options evaluation_loader;
  const petra_dataset *recalibration; /* with recalibrate > 0: the training set, and how many of its microbatches */
  int64_t recalibrate;
  const petra_lr *lr;
  const petra_program_ops *program;
  const petra_program_options *program_options;
  bool waves;   /* E takes the snapshot alone: evaluations go on by petra_worker_stage_evaluate, between actions */
  bool measure; /* results tell how long F, B, W and U took by the wall clock, at least 1 ns */
  petra_stage_observer *observers; /* NULL: none */
} petra_worker_stage_options;

/* What a method has a stage do; `inverts`: it inverts and the network has blocks for that. */
petra_stage_rule petra_method_stage_rule(const petra_method *method, bool inverts);

/* What stage `stage` of `stages` (from 1) does against its delay, after `warmup` microbatches of a synchronous warm-up; nothing where
 * the method has no mitigation. */
petra_stage_mitigation petra_method_stage_mitigation(const petra_method *method, int32_t stages, int64_t warmup,
                                                     int32_t stage);

/* Everything in `options` is borrowed and outlives the worker. */
petra_status petra_worker_stage_create(const petra_worker_stage_options *options, petra_worker **out);
void petra_worker_stage_destroy(petra_worker *worker);

/* With options.waves: whether an evaluation waits of which every stage that is here has its snapshot, and its next batch,
 * with what the last stage has to tell after the last one (*ended). Evaluations go one after the other. */
bool petra_worker_stage_evaluates(const petra_worker *worker);
petra_status petra_worker_stage_evaluate(petra_worker *worker, bool *ended);

/* In a checkpoint, what all workers know alike: evaluations that some stages have reached. Comes before the stages where it is
 * read, into a worker that is new, with its loader at microbatch `read`: as many stage 1 had read, in the whole run. */
petra_status petra_worker_stage_archive(petra_worker *worker, petra_archive *archive, int64_t read);

/* All that the worker and its transport hold of one of its stages, in the present part, under its account; at the last stage
 * the labels that wait, up to microbatch tensors->read. */
petra_status petra_worker_stage_archive_stage(petra_worker *worker, int32_t stage, petra_tensor_archive *tensors);

/* After the last stage that is read: whether its evaluations go together. */
petra_status petra_worker_stage_archived(const petra_worker *worker, const petra_archive *archive);
