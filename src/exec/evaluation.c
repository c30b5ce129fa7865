/* SPDX-License-Identifier: Apache-2.0 */
#include "exec/evaluation.h"

#include "base/log.h"
#include "base/mem.h"
#include "backend/tensor.h"

#include <math.h>

/* First the batches of the data set, then the batches of the recalibration, then the data set again. */
typedef enum evaluation_pass { PASS_PLAIN, PASS_ESTIMATE, PASS_RECALIBRATED, PASS_ENDED } evaluation_pass;

/* One of several batches that are computed at the same time. */
typedef struct one_of_many {
  petra_deferred_work deferred;
  petra_batch *batch;
  petra_loss loss;
} one_of_many;

/* Sums over the batches so far. */
typedef struct score_sums {
  double loss;
  int64_t images, top1, top5;
} score_sums;

struct petra_evaluator {
  petra_evaluation_options options;
  petra_backend *backend;
  petra_stages stages;
  int64_t recalibrate; /* microbatches 0 ... recalibrate - 1 of training serve to estimate the statistics; 0: none */
  petra_snapshot *const *snapshots;
  petra_loader_options loading; /* of the data set */
  one_of_many *many;            /* one per batch that is computed at once */
  int at_once;                  /* 0: one batch after the other */
  evaluation_pass pass;
  petra_loader *loader;         /* of the present pass; NULL if neither images nor labels are needed */
  int64_t batches, next, first; /* of the present pass; `first`: the number of its batch 0 in the evaluation */
  score_sums sums[PASS_ENDED];
};

/* Returns the input of stage `j`, if the stage below it is elsewhere; for stage 1 the batch. */
static petra_status input(const petra_evaluator *e, const petra_batch *batch, int32_t j, int64_t number,
                          petra_streams *out) {
  const petra_address here = {j, PETRA_MESSAGE_EVALUATION, number};
  petra_message message = {0};
  if (j == 1)
    return petra_batch_upload(e->backend, batch, NULL, PETRA_MEMORY_WORKSPACE, &out->tensor[0]);
  const petra_status status = e->options.transport->ops->take(e->options.transport, &here, &message);
  *out = message.streams;
  return status;
}

/* Sends the streams. The message takes over their tensors. */
static petra_status send(const petra_evaluator *e, int32_t to, int64_t number, petra_streams *streams) {
  const petra_address next = {to, PETRA_MESSAGE_EVALUATION, number};
  petra_message message = {0};
  petra_streams_move(streams, &message.streams);
  return e->options.transport->ops->post(e->options.transport, &next, &message);
}

/* Computes batch `number` of the evaluation at stage `j`. */
static petra_status compute(const petra_evaluator *e, int32_t j, const petra_batch *batch, int64_t number,
                            const petra_streams *in, petra_streams *out, petra_loss *loss) {
  petra_stage *stage = petra_stages_get(&e->stages, j);
  return e->pass == PASS_ESTIMATE
             ? petra_stage_estimate(stage, e->snapshots[j - 1], number - e->first, in, out)
             : petra_stage_evaluate(stage, e->snapshots[j - 1], in, batch ? batch->labels : NULL, out, loss);
}

static petra_status evaluate_batch(const petra_evaluator *e, const petra_batch *batch, int64_t number,
                                   petra_loss *loss) {
  const petra_stages *stages = &e->stages;
  PETRA_FINISHED(petra_streams_release) petra_streams streams = {{NULL, NULL}};
  for (int32_t j = 1; j <= stages->count; j++) {
    petra_streams next = {{NULL, NULL}};
    if (!petra_stages_has(stages, j))
      continue;
    if (j == 1 || !petra_stages_has(stages, j - 1))
      PETRA_TRY(input(e, batch, j, number, &streams));
    PETRA_TRY(compute(e, j, batch, number, &streams, &next, loss));
    petra_streams_move(&next, &streams);
    if (j < stages->count && !petra_stages_has(stages, j + 1))
      PETRA_TRY(send(e, j + 1, number, &streams));
  }
  return PETRA_OK;
}

/* --- the passes --- */

int64_t petra_evaluation_batch(int64_t images, int64_t batch, int64_t recalibrate, int64_t number) {
  const int64_t batches = (images + batch - 1) / batch;
  if (number >= batches + recalibrate)
    number -= batches + recalibrate;
  const int64_t left = images - number * batch;
  return left < batch && number < batches ? left : batch;
}

static petra_status begin_pass(petra_evaluator *evaluator, evaluation_pass pass) {
  const petra_evaluation_options *options = &evaluator->options;
  const bool estimates = pass == PASS_ESTIMATE;
  petra_loader_options loading =
      estimates ? petra_network_loader(options->network, 0, evaluator->recalibrate) : evaluator->loading;
  petra_loader_destroy(evaluator->loader);
  evaluator->loader = NULL;
  evaluator->pass = pass;
  evaluator->first += evaluator->batches;
  evaluator->next = evaluator->batches = 0;
  if (pass == PASS_ENDED)
    return PETRA_OK;
  evaluator->batches = loading.end;
  const bool reads = estimates ? petra_stages_has(&evaluator->stages, 1) : petra_stages_read_data(&evaluator->stages);
  return reads ? petra_loader_create(estimates ? options->train : options->set, &loading, &evaluator->loader)
               : PETRA_OK;
}

/* The loader lends as many batches at a time as it has threads, and two more. */
static petra_status use_pool(petra_evaluator *evaluator) {
  const int threads = petra_thread_pool_threads(evaluator->options.pool);
  if (evaluator->loading.threads < threads)
    evaluator->loading.threads = threads;
  PETRA_TRY(petra_allocate(&evaluator->many, (size_t)threads, sizeof *evaluator->many));
  for (; evaluator->at_once < threads; evaluator->at_once++)
    PETRA_TRY(petra_deferred_work_init(&evaluator->many[evaluator->at_once].deferred));
  return PETRA_OK;
}

petra_status petra_evaluator_create(const petra_evaluation_options *options, petra_snapshot *const *snapshots,
                                    petra_evaluator **out) {
  petra_evaluator *evaluator;
  petra_status status;
  PETRA_TRY(petra_allocate(&evaluator, 1, sizeof *evaluator));
  evaluator->options = *options;
  evaluator->backend = options->network->backend;
  evaluator->stages = petra_network_stages(options->network);
  evaluator->recalibrate = options->network->plan->config->data.recalibrate;
  evaluator->snapshots = snapshots;
  petra_loader_options *once = &evaluator->loading;
  *once = petra_network_loader(options->network, 0, 0);
  once->labels = !petra_stages_has(&evaluator->stages, 1);
  once->shuffle = once->drop_last = false;
  once->augment = 0;
  once->parts = once->part = 0;
  once->end = (options->set->count + once->batch - 1) / once->batch;
  if (options->pool && petra_stages_all(&evaluator->stages))
    PETRA_TRY_GOTO(status, use_pool(evaluator), fail);
  PETRA_TRY_GOTO(status, begin_pass(evaluator, PASS_PLAIN), fail);
  *out = evaluator;
  return PETRA_OK;
fail:
  petra_evaluator_destroy(evaluator);
  return status;
}

void petra_evaluator_destroy(petra_evaluator *evaluator) {
  if (!evaluator)
    return;
  petra_loader_destroy(evaluator->loader);
  for (int i = 0; i < evaluator->at_once; i++)
    petra_deferred_work_fini(&evaluator->many[i].deferred);
  PETRA_FREE_ALL(evaluator->many, evaluator);
}

/* --- batches --- */

/* Counts the next batch. */
static void count(petra_evaluator *evaluator, const petra_loss *one) {
  score_sums *sums = &evaluator->sums[evaluator->pass];
  sums->loss += one->loss * one->images;
  sums->images += one->images;
  sums->top1 += one->top1;
  sums->top5 += one->top5;
  evaluator->next++;
}

/* Runs in the thread pool. */
static void compute_one(void *context, int job) {
  petra_evaluator *evaluator = context;
  one_of_many *one = &evaluator->many[job];
  petra_deferred_work_enter(&one->deferred, true);
  one->deferred.status = evaluate_batch(evaluator, one->batch, evaluator->first + evaluator->next + job, &one->loss);
  petra_deferred_work_leave(&one->deferred);
}

/* Computes as many batches at once as there are threads; sums them in their order. */
static petra_status step_beside(petra_evaluator *evaluator) {
  const int64_t left = evaluator->batches - evaluator->next;
  const int maximum = left < evaluator->at_once ? (int)left : evaluator->at_once;
  petra_status status = PETRA_OK;
  int loaded = 0;
  for (; loaded < maximum && status == PETRA_OK; loaded += status == PETRA_OK) {
    one_of_many *one = &evaluator->many[loaded];
    one->loss = (petra_loss){0};
    petra_deferred_work_begin(&one->deferred, evaluator->backend);
    status = petra_loader_next(evaluator->loader, &one->batch);
  }
  if (status == PETRA_OK)
    petra_thread_pool_run(evaluator->options.pool, loaded, compute_one, evaluator);
  for (int i = 0; i < loaded; i++) {
    one_of_many *one = &evaluator->many[i];
    petra_loader_give_back(evaluator->loader, one->batch);
    status = petra_deferred_work_end(&one->deferred, status);
    if (status == PETRA_OK)
      count(evaluator, &one->loss);
  }
  return status;
}

static petra_status step_one(petra_evaluator *evaluator) {
  petra_batch *batch = NULL;
  petra_loss one = {0};
  if (evaluator->loader)
    PETRA_TRY(petra_loader_next(evaluator->loader, &batch));
  petra_status status = evaluate_batch(evaluator, batch, evaluator->first + evaluator->next, &one);
  if (evaluator->loader)
    petra_loader_give_back(evaluator->loader, batch);
  PETRA_TRY(status);
  count(evaluator, &one);
  return PETRA_OK;
}

/* An estimate changes the same statistics with every batch, so its batches run one after the other. */
petra_status petra_evaluator_step(petra_evaluator *evaluator, bool *ended) {
  const bool beside = evaluator->at_once > 0 && evaluator->pass != PASS_ESTIMATE;
  PETRA_TRY(beside ? step_beside(evaluator) : step_one(evaluator));
  if (evaluator->next == evaluator->batches)
    PETRA_TRY(begin_pass(evaluator, evaluator->recalibrate > 0 ? evaluator->pass + 1 : PASS_ENDED));
  *ended = evaluator->pass == PASS_ENDED;
  return PETRA_OK;
}

/* --- the result --- */

static petra_status check_finite(const char *what, const score_sums *sums) {
  if (isfinite(sums->loss))
    return PETRA_OK;
  return petra_fail(PETRA_NOT_FINITE, "evaluation: the loss is %s; %s: expected a finite loss",
                    isnan(sums->loss) ? "not a number" : "infinite", what);
}

static petra_scores scores_of(const score_sums *sums) {
  const double images = (double)sums->images;
  return (petra_scores){sums->loss / images, (double)sums->top1 / images, (double)sums->top5 / images};
}

petra_status petra_evaluator_result(const petra_evaluator *evaluator, petra_evaluation *out) {
  const petra_stages *stages = &evaluator->stages;
  const score_sums *plain = &evaluator->sums[PASS_PLAIN], *recalibrated = &evaluator->sums[PASS_RECALIBRATED];
  if (!petra_stages_has(stages, stages->count))
    return PETRA_OK;
  PETRA_TRY(check_finite("the weights or the running statistics have diverged", plain));
  PETRA_TRY(
      check_finite("the weights have diverged (with newly estimated statistics, data.recalibrate)", recalibrated));
  const petra_scores scores = scores_of(plain);
  *out = (petra_evaluation){plain->images, scores.loss, scores.top1, scores.top5, {NAN, NAN, NAN}};
  if (evaluator->recalibrate > 0)
    out->recalibrated = scores_of(recalibrated);
  return PETRA_OK;
}

petra_status petra_evaluate(const petra_evaluation_options *options, petra_snapshot *const *snapshots,
                            petra_evaluation *out) {
  petra_evaluator *evaluator;
  petra_status status = PETRA_OK;
  PETRA_TRY(petra_evaluator_create(options, snapshots, &evaluator));
  for (bool ended = false; status == PETRA_OK && !ended;)
    status = petra_evaluator_step(evaluator, &ended);
  if (status == PETRA_OK)
    status = petra_evaluator_result(evaluator, out);
  petra_evaluator_destroy(evaluator);
  return status;
}

petra_status petra_network_evaluate(const petra_network *network, const petra_dataset *set, const petra_dataset *train,
                                    petra_evaluation *out) {
  petra_evaluation_options options = {.network = network, .set = set, .train = train};
  const int32_t stages = network->plan->stages;
  petra_snapshot **snapshots;
  petra_status status = PETRA_OK;
  PETRA_TRY(petra_allocate(&snapshots, (size_t)stages, sizeof *snapshots));
  if (network->backend->lanes > 1)
    status = petra_thread_pool_create(network->backend->lanes, &options.pool);
  for (int32_t j = 0; j < stages && status == PETRA_OK; j++)
    status = petra_stage_snapshot(network->stage[j], &snapshots[j]);
  if (status == PETRA_OK)
    status = petra_evaluate(&options, snapshots, out);
  for (int32_t j = 0; j < stages; j++)
    petra_snapshot_destroy(snapshots[j]);
  petra_thread_pool_destroy(options.pool);
  petra_free(snapshots);
  return status;
}
