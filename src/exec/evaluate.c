#include "exec/evaluate.h"

#include "base/log.h"
#include "base/mem.h"
#include "exec/aside.h"
#include "exec/feed.h"

#include <math.h>

typedef struct evaluating {
  petra_backend *backend;
  const petra_stages *stages;
  petra_snapshot *const *snapshots;
  petra_transport *transport;
} evaluating;

/* What stage `j` takes in where the stage below it is elsewhere; for stage 1 the batch. */
static petra_status input(const evaluating *e, const petra_batch *batch, int32_t j, int64_t number,
                          petra_streams *out) {
  const petra_address here = {j, PETRA_CHANNEL_EVALUATION, number};
  petra_message message;
  if (j == 1)
    return petra_batch_upload(e->backend, batch, NULL, PETRA_MEMORY_WORKSPACE, &out->tensor[0]);
  PETRA_TRY(e->transport->ops->take(e->transport, &here, &message));
  *out = message.streams;
  return PETRA_OK;
}

/* Takes the streams over. */
static petra_status send(const evaluating *e, int32_t to, int64_t number, petra_streams *streams) {
  const petra_address next = {to, PETRA_CHANNEL_EVALUATION, number};
  petra_message message = {.streams = *streams};
  *streams = (petra_streams){{NULL, NULL}};
  return e->transport->ops->post(e->transport, &next, &message);
}

static petra_status evaluate_batch(const evaluating *e, const petra_batch *batch, int64_t number, petra_loss *loss) {
  const petra_stages *stages = e->stages;
  petra_streams streams = {{NULL, NULL}};
  petra_status status = PETRA_OK;
  for (int32_t j = 1; j <= stages->count; j++) {
    petra_streams next = {{NULL, NULL}};
    if (!petra_stages_has(stages, j))
      continue;
    if (j == 1 || !petra_stages_has(stages, j - 1))
      PETRA_TRY_GOTO(status, input(e, batch, j, number, &streams), done);
    PETRA_TRY_GOTO(status,
                   petra_stage_evaluate(petra_stages_get(stages, j), e->snapshots[j - 1], &streams,
                                        batch ? batch->labels : NULL, &next, loss),
                   done);
    petra_streams_release(&streams);
    streams = next;
    if (j < stages->count && !petra_stages_has(stages, j + 1))
      PETRA_TRY_GOTO(status, send(e, j + 1, number, &streams), done);
  }
done:
  petra_streams_release(&streams);
  return status;
}

/* A batch that is computed beside others. */
typedef struct one_of_many {
  petra_aside aside;
  petra_batch *batch;
  petra_loss loss;
} one_of_many;

struct petra_evaluator {
  evaluating e;
  petra_crew *crew;  /* NULL: one batch after the other */
  one_of_many *many; /* room for as many as are computed at once */
  int at_once;
  petra_loader *loader; /* NULL where neither images nor labels are wanted */
  int64_t batches, next;
  double loss; /* sums over the batches so far */
  int64_t images, top1, top5;
};

/* The loader lets as many batches be held as it has threads, and two. */
static petra_status use_crew(petra_evaluator *evaluator, petra_crew *crew, petra_loader_options *loader) {
  const int threads = petra_crew_threads(crew);
  evaluator->crew = crew;
  if (loader->threads < threads)
    loader->threads = threads;
  PETRA_TRY(petra_allocate(&evaluator->many, (size_t)threads, sizeof *evaluator->many));
  for (; evaluator->at_once < threads; evaluator->at_once++)
    PETRA_TRY(petra_aside_init(&evaluator->many[evaluator->at_once].aside));
  return PETRA_OK;
}

petra_status petra_evaluator_create(petra_backend *backend, const petra_stages *stages,
                                    petra_snapshot *const *snapshots, petra_transport *transport,
                                    const petra_dataset *set, const petra_loader_options *options, petra_crew *crew,
                                    petra_evaluator **out) {
  petra_evaluator *evaluator;
  petra_loader_options once = *options;
  petra_status status;
  once.shuffle = once.drop_last = false;
  once.augment = 0;
  once.parts = once.part = 0;
  once.bytes = petra_backend_takes_images(backend);
  once.first = 0;
  once.end = (set->count + once.batch - 1) / once.batch;
  PETRA_TRY(petra_allocate(&evaluator, 1, sizeof *evaluator));
  evaluator->e = (evaluating){backend, stages, snapshots, transport};
  evaluator->batches = once.end;
  if (crew && petra_stages_all(stages))
    PETRA_TRY_GOTO(status, use_crew(evaluator, crew, &once), fail);
  if (petra_stages_read(stages))
    PETRA_TRY_GOTO(status, petra_loader_create(set, &once, &evaluator->loader), fail);
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
    petra_aside_fini(&evaluator->many[i].aside);
  petra_free(evaluator->many);
  petra_free(evaluator);
}

bool petra_evaluator_ended(const petra_evaluator *evaluator) {
  return evaluator->next == evaluator->batches;
}

/* Counts the next batch. */
static void count(petra_evaluator *evaluator, const petra_loss *one) {
  evaluator->loss += one->loss * one->images;
  evaluator->images += one->images;
  evaluator->top1 += one->top1;
  evaluator->top5 += one->top5;
  evaluator->next++;
}

/* In the crew. */
static void compute_one(void *context, int job) {
  petra_evaluator *evaluator = context;
  one_of_many *one = &evaluator->many[job];
  petra_aside_enter(&one->aside, true);
  one->aside.status = evaluate_batch(&evaluator->e, one->batch, evaluator->next + job, &one->loss);
  petra_aside_leave(&one->aside);
}

/* As many batches as are computed at once; their sums are in their order. */
static petra_status step_beside(petra_evaluator *evaluator) {
  const int64_t left = evaluator->batches - evaluator->next;
  const int most = left < evaluator->at_once ? (int)left : evaluator->at_once;
  petra_status status = PETRA_OK;
  int held = 0;
  for (; held < most && status == PETRA_OK; held += status == PETRA_OK) {
    one_of_many *one = &evaluator->many[held];
    one->loss = (petra_loss){0};
    petra_aside_begin(&one->aside, evaluator->e.backend);
    status = petra_loader_next(evaluator->loader, &one->batch);
  }
  if (status == PETRA_OK)
    petra_crew_run(evaluator->crew, held, compute_one, evaluator);
  for (int i = 0; i < held; i++) {
    one_of_many *one = &evaluator->many[i];
    petra_loader_give_back(evaluator->loader, one->batch);
    status = petra_aside_end(&one->aside, status);
    if (status == PETRA_OK)
      count(evaluator, &one->loss);
  }
  return status;
}

petra_status petra_evaluator_step(petra_evaluator *evaluator) {
  petra_batch *batch = NULL;
  petra_loss one = {0};
  if (evaluator->crew)
    return step_beside(evaluator);
  if (evaluator->loader)
    PETRA_TRY(petra_loader_next(evaluator->loader, &batch));
  petra_status status = evaluate_batch(&evaluator->e, batch, evaluator->next, &one);
  if (evaluator->loader)
    petra_loader_give_back(evaluator->loader, batch);
  PETRA_TRY(status);
  count(evaluator, &one);
  return PETRA_OK;
}

petra_status petra_evaluator_result(const petra_evaluator *evaluator, petra_evaluation *out) {
  const double loss = evaluator->loss, images = (double)evaluator->images;
  if (!petra_stages_has(evaluator->e.stages, evaluator->e.stages->count))
    return PETRA_OK;
  if (!isfinite(loss))
    return petra_fail(
        PETRA_NOT_FINITE,
        "evaluation: the loss is %s; the weights or the running statistics have diverged: expected a finite loss",
        isnan(loss) ? "not a number" : "infinite");
  *out = (petra_evaluation){evaluator->images, loss / images, (double)evaluator->top1 / images,
                            (double)evaluator->top5 / images};
  return PETRA_OK;
}

petra_status petra_evaluate(petra_backend *backend, const petra_stages *stages, petra_snapshot *const *snapshots,
                            petra_transport *transport, const petra_dataset *set, const petra_loader_options *options,
                            petra_crew *crew, petra_evaluation *out) {
  petra_evaluator *evaluator;
  petra_status status = PETRA_OK;
  PETRA_TRY(petra_evaluator_create(backend, stages, snapshots, transport, set, options, crew, &evaluator));
  while (status == PETRA_OK && !petra_evaluator_ended(evaluator))
    status = petra_evaluator_step(evaluator);
  if (status == PETRA_OK)
    status = petra_evaluator_result(evaluator, out);
  petra_evaluator_destroy(evaluator);
  return status;
}
