/* The worker that runs stages on real tensors, all of them in this process. It reads the training data at stage 1,
 * keeps messages between stages, and evaluates when every stage has reached the same E. */
#ifndef PETRA_EXEC_WORKER_STAGE_H
#define PETRA_EXEC_WORKER_STAGE_H

#include "data/loader.h"
#include "base/archive.h"
#include "exec/probe.h"
#include "exec/worker.h"
#include "nn/lr.h"
#include "schedule/method.h"
#include "stage/stage.h"

/* An evaluation over a whole data set. */
typedef struct petra_evaluation {
  int64_t images;
  double loss;       /* mean over the images */
  double top1, top5; /* fractions */
} petra_evaluation;

/* What happened, told as it happens. A failure returned ends the run. */
typedef struct petra_worker_events {
  void *context;
  /* The loss of a training microbatch is known. */
  petra_status (*loss)(void *context, int64_t microbatch, const petra_loss *loss, double lr, int64_t virtual_ns);
  /* The evaluation with the weights at the end of the epoch whose last microbatch is `microbatch` is done. */
  petra_status (*evaluation)(void *context, int64_t microbatch, const petra_evaluation *evaluation);
} petra_worker_events;

typedef struct petra_worker_stage_options {
  petra_backend *backend;
  int32_t stages;
  petra_stage *const *stage;       /* stage[0] is stage 1 */
  petra_loader *loader;            /* training batches, from microbatch 0 */
  const petra_dataset *evaluation; /* NULL: the program has no E */
  petra_loader_options evaluation_loader;
  const petra_lr *lr;
  const petra_program_ops *program;
  const petra_program_options *program_options;
  bool measure; /* results tell how long F, B, W and U took by the wall clock, at least 1 ns */
  petra_worker_events events;
  petra_probe *probe; /* NULL: none */
} petra_worker_stage_options;

/* What a method has a stage do; `inverts`: it inverts and the network has blocks for that. */
petra_stage_rule petra_method_stage_rule(const petra_method *method, bool inverts);

/* What stage `stage` (from 1) of `stages` does against its delay; nothing where the method has no mitigation. */
petra_stage_mitigation petra_method_stage_mitigation(const petra_method *method, int32_t stages, int32_t stage);

/* Everything in `options` is borrowed and outlives the worker. */
petra_status petra_worker_stage_create(const petra_worker_stage_options *options, petra_worker **out);
void petra_worker_stage_destroy(petra_worker *worker);

/* All that the worker and its stages hold, in a checkpoint. One that is read into must be new, its loader at microbatch
 * petra_worker_stage_read of the one that was written. */
petra_status petra_worker_stage_archive(petra_worker *worker, petra_archive *archive);

/* Microbatches that stage 1 has read. */
int64_t petra_worker_stage_read(const petra_worker *worker);

/* Evaluates the stages with the given snapshots (one a stage) on a data set; the partial last batch counts by its
 * images. */
petra_status petra_evaluate(petra_backend *backend, petra_stage *const *stage, petra_snapshot *const *snapshots,
                            int32_t stages, const petra_dataset *set, const petra_loader_options *options,
                            petra_evaluation *out);

#endif
