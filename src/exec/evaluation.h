/* SPDX-License-Identifier: Apache-2.0 */
/* An evaluation: a data set passes batch by batch through the stages, each with a snapshot of its weights. With a
 * recalibration, training batches follow, from which the statistics of the snapshots are estimated again, and then the
 * data set passes a second time. */
#pragma once

#include "base/threads.h"
#include "exec/network.h"
#include "exec/transport.h"

/* Scores over a whole data set. */
typedef struct petra_scores {
  double loss;       /* mean over the images */
  double top1, top5; /* fractions */
} petra_scores;

typedef struct petra_evaluation {
  int64_t images;
  double loss, top1, top5;   /* with the running statistics */
  petra_scores recalibrated; /* with the statistics of the recalibration; NaN without one */
} petra_evaluation;

/* All is borrowed. */
typedef struct petra_evaluation_options {
  const petra_network *network;     /* with data.recalibrate of its config */
  petra_transport *transport;       /* for messages from and to stages elsewhere; NULL: all are here */
  const petra_dataset *set, *train; /* without a recalibration `train` is unused and may be NULL */
  petra_thread_pool *pool;          /* one thread per lane of the backend; NULL: none */
} petra_evaluation_options;

/* Passes every batch through the stages that are here, with `snapshots` (one per stage, NULL if the stage is
 * elsewhere). A recalibration changes the statistics of the snapshots. Messages from and to stages elsewhere use the
 * transport (kind EVALUATION). With a pool, if all stages are here, it computes as many batches of `set` at once as the
 * pool has threads; the result is the same. A partial last batch has the weight of its images. *out is set only if the
 * last stage is here. PETRA_NOT_FINITE for a loss that is not finite. */
petra_status petra_evaluate(const petra_evaluation_options *options, petra_snapshot *const *snapshots,
                            petra_evaluation *out);

/* Returns the number of images in batch `number` of an evaluation over `images` images. The messages of a batch have
 * the same number. The order is: first the batches of the data set, then the batches of the recalibration and, if there
 * are any, the data set again. */
int64_t petra_evaluation_batch(int64_t images, int64_t batch, int64_t recalibrate, int64_t number);

/* The same evaluation batch by batch, for a process that does other work in between; every process must go through all
 * batches. */
typedef struct petra_evaluator petra_evaluator;

/* Takes the arguments of petra_evaluate. `options` is copied; all else is borrowed. */
petra_status petra_evaluator_create(const petra_evaluation_options *options, petra_snapshot *const *snapshots,
                                    petra_evaluator **out);
void petra_evaluator_destroy(petra_evaluator *evaluator); /* NULL is allowed */

/* Computes the next batch or, with a pool, the next several batches. Do not call it once the evaluation has *ended. */
petra_status petra_evaluator_step(petra_evaluator *evaluator, bool *ended);

/* Returns the result as petra_evaluate does. The evaluation must have ended. */
petra_status petra_evaluator_result(const petra_evaluator *evaluator, petra_evaluation *out);

/* Computes loss and accuracy on a data set with the present weights of a network whose stages are all here; with
 * data.recalibrate, also with statistics estimated from `train`. */
petra_status petra_network_evaluate(const petra_network *network, const petra_dataset *set, const petra_dataset *train,
                                    petra_evaluation *out);
