/* SPDX-License-Identifier: Apache-2.0 */
/* An evaluation: a data set goes batch by batch through the stages, each with a snapshot of its weights. With a recalibration
 * training batches follow, from which the snapshots' statistics are estimated anew, and then the data set once more. */
#pragma once

#include "base/threads.h"
#include "data/loader.h"
#include "exec/stages.h"
#include "exec/transport.h"

/* Over a whole data set. */
typedef struct petra_scores {
  double loss;       /* mean over the images */
  double top1, top5; /* fractions */
} petra_scores;

typedef struct petra_evaluation {
  int64_t images;
  double loss, top1, top5;   /* as petra_scores: with the running statistics */
  petra_scores recalibrated; /* with statistics estimated anew; NaN where there was no recalibration */
} petra_evaluation;

/* Borrowed. */
typedef struct petra_evaluation_options {
  petra_backend *backend;
  petra_stages stages;
  petra_transport *transport; /* for what comes from stages elsewhere or goes there; NULL: all are here */
  const petra_dataset *set;
  petra_loader_options loader; /* of training: what differs for `set` is changed here */
  const petra_dataset
      *train; /* whose microbatches 0 ... recalibrate - 1 the statistics are estimated from, as training reads them */
  int64_t recalibrate;     /* 0: none */
  petra_thread_pool *pool; /* of as many threads as the backend has lanes; NULL: none */
} petra_evaluation_options;

/* Passes every batch through the stages that are here, with `snapshots` (one a stage, NULL where it is elsewhere), whose statistics a
 * recalibration changes. What comes from a stage that is elsewhere, or goes to one, goes by the transport (channel EVALUATION). With a
 * crew as many batches of `set` are computed at once where all stages are here; the result is the same. The partial last batch
 * counts by its images. *out is set where the last stage is here, else left alone. PETRA_NOT_FINITE for a loss that is not finite. */
petra_status petra_evaluate(const petra_evaluation_options *options, petra_snapshot *const *snapshots,
                            petra_evaluation *out);

/* Images of batch `number` (also that of its messages) of an evaluation over `images` images: the batches of the data set, those of the
 * recalibration, and where there are these those of the data set again. */
int64_t petra_evaluation_batch(int64_t images, int64_t batch, int64_t recalibrate, int64_t number);

/* The same batch by batch, for a process that does other things in between; every process has to go through all batches. */
typedef struct petra_evaluator petra_evaluator;

/* As petra_evaluate; what it is given is borrowed, but for the options themselves. */
petra_status petra_evaluator_create(const petra_evaluation_options *options, petra_snapshot *const *snapshots,
                                    petra_evaluator **out);
void petra_evaluator_destroy(petra_evaluator *evaluator); /* NULL is allowed */

/* The next batch, of which there is one unless it ended; with a crew the next ones. */
petra_status petra_evaluator_step(petra_evaluator *evaluator);
bool petra_evaluator_ended(const petra_evaluator *evaluator);

/* Once it ended: as petra_evaluate. */
petra_status petra_evaluator_result(const petra_evaluator *evaluator, petra_evaluation *out);
