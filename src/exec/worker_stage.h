/* SPDX-License-Identifier: Apache-2.0 */
/* The worker that runs stages on real tensors: all stages of the network, or some beside workers with the others. It
 * reads the training data at stage 1 and the labels at the stages with a loss, sends and takes messages by the
 * transport, and evaluates when every stage has reached the same E. It performs the actions of the stages that it has,
 * and receives the E's of all. */
#pragma once

#include "exec/pipeline.h"
#include "schedule/method.h"

/* Returns what a method requires of a stage; `inverts`: the method inverts, and the network has reversible blocks. */
petra_stage_rule petra_method_stage_rule(const petra_method *method, bool inverts);

/* Returns the mitigation of delay at stage `stage` of `stages` (from 1), after `warmup` microbatches of a synchronous
 * warm-up; empty if the method has none. */
petra_stage_mitigation petra_method_stage_mitigation(const petra_method *method, int32_t stages, int64_t warmup,
                                                     int32_t stage);

/* Creates the worker of a pipeline that has its network, loader and transport. Everything is borrowed and must outlive
 * the worker. */
petra_status petra_worker_stage_create(const petra_pipeline *pipeline, const petra_pipeline_options *options,
                                       petra_worker **out);
void petra_worker_stage_destroy(petra_worker *worker);

/* With `waves`: the first returns true if an evaluation waits for which every stage here has its snapshot. The
 * second computes its next batch; after the last one (*ended) the last stage reports the result. Evaluations run one
 * after the other. */
bool petra_worker_stage_evaluates(const petra_worker *worker);
petra_status petra_worker_stage_evaluate(petra_worker *worker, bool *ended);

/* In a local program, gets the sums of the training losses of `stage`, which is here: *epochs times loss, top-1 hits
 * and labels, which the worker owns. NULL, and 0 epochs, in other programs. */
const double *petra_worker_stage_losses(const petra_worker *worker, int32_t stage, int64_t *epochs);

/* Reads or writes, in a checkpoint, what all workers have in common: the evaluations that some stages have reached.
 * When reading, call it before the stages, for a new worker with its loader at microbatch `read`: the number that stage
 * 1 had read in the whole run. */
petra_status petra_worker_stage_archive(petra_worker *worker, petra_archive *archive, int64_t read);

/* Reads or writes all that the worker and its transport store for one of its stages, in the present part, under its
 * account; for a stage with a loss also the labels that wait, up to microbatch tensors->read, and in a local program
 * the sums of its losses. */
petra_status petra_worker_stage_archive_stage(petra_worker *worker, int32_t stage, petra_tensor_archive *tensors);

/* Checks, after the last stage was read, that its evaluations are consistent. */
petra_status petra_worker_stage_archived(const petra_worker *worker, const petra_archive *archive);
