/* The worker that runs stages on real tensors: all stages of the network, or some beside workers with the others. It
 * reads the training data at stage 1 and the labels at the last stage, sends and takes messages by the transport, and
 * evaluates when every stage has reached the same E. It is given the actions of the stages that it has, and the E's of all. */
#ifndef PETRA_EXEC_WORKER_STAGE_H
#define PETRA_EXEC_WORKER_STAGE_H

#include "data/loader.h"
#include "exec/stage_observer.h"
#include "exec/worker.h"
#include "nn/optim.h"
#include "schedule/method.h"

typedef struct petra_worker_stage_options {
  petra_backend *backend;
  petra_stages stages;
  petra_transport *transport;
  petra_loader *loader; /* training batches, from microbatch 0, or from where a checkpoint was written; NULL where
                                      neither the first nor the last stage is here */
  const petra_dataset *evaluation; /* NULL: the program has no E */
  petra_loader_options evaluation_loader;
  const petra_lr *lr;
  const petra_program_ops *program;
  const petra_program_options *program_options;
  bool waves;   /* E takes the snapshot alone: evaluations go on by petra_worker_stage_evaluate, between actions */
  bool measure; /* results tell how long F, B, W and U took by the wall clock, at least 1 ns */
  petra_stage_observer *observers; /* NULL: none */
} petra_worker_stage_options;

/* What a method has a stage do; `inverts`: it inverts and the network has blocks for that. */
petra_stage_rule petra_method_stage_rule(const petra_method *method, bool inverts);

/* What stage `stage` (from 1) of `stages` does against its delay; nothing where the method has no mitigation. */
petra_stage_mitigation petra_method_stage_mitigation(const petra_method *method, int32_t stages, int32_t stage);

/* Everything in `options` is borrowed and outlives the worker. */
petra_status petra_worker_stage_create(const petra_worker_stage_options *options, petra_worker **out);
void petra_worker_stage_destroy(petra_worker *worker);

/* With options.waves: whether an evaluation waits of which every stage that is here has its snapshot, and its next batch,
 * with what the last stage has to tell after the last one (*ended). Evaluations go one after the other. */
bool petra_worker_stage_evaluates(const petra_worker *worker);
petra_status petra_worker_stage_evaluate(petra_worker *worker, bool *ended);

/* All that the worker, its stages and its transport hold, in a checkpoint, under the accounts of its stages. One that is
 * read into must be new, its loader at microbatch petra_worker_stage_read of the one that was written. */
petra_status petra_worker_stage_archive(petra_worker *worker, petra_tensor_archive *tensors);

/* Microbatches of the training data that were read. */
int64_t petra_worker_stage_read(const petra_worker *worker);

#endif
