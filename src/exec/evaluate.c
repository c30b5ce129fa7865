#include "exec/evaluate.h"

#include "base/log.h"
#include "base/mem.h"
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

struct petra_evaluator {
  evaluating e;
  petra_loader *loader; /* NULL where neither images nor labels are wanted */
  int64_t batches, next;
  double loss; /* sums over the batches so far */
  int64_t images, top1, top5;
};

petra_status petra_evaluator_create(petra_backend *backend, const petra_stages *stages,
                                    petra_snapshot *const *snapshots, petra_transport *transport,
                                    const petra_dataset *set, const petra_loader_options *options,
                                    petra_evaluator **out) {
  petra_evaluator *evaluator;
  petra_loader_options once = *options;
  once.shuffle = once.drop_last = false;
  once.augment = 0;
  once.parts = once.part = 0;
  once.bytes = petra_backend_takes_images(backend);
  once.first = 0;
  once.end = (set->count + once.batch - 1) / once.batch;
  PETRA_TRY(petra_allocate(&evaluator, 1, sizeof *evaluator));
  evaluator->e = (evaluating){backend, stages, snapshots, transport};
  evaluator->batches = once.end;
  petra_status status = petra_stages_read(stages) ? petra_loader_create(set, &once, &evaluator->loader) : PETRA_OK;
  if (status != PETRA_OK)
    petra_free(evaluator);
  else
    *out = evaluator;
  return status;
}

void petra_evaluator_destroy(petra_evaluator *evaluator) {
  if (!evaluator)
    return;
  petra_loader_destroy(evaluator->loader);
  petra_free(evaluator);
}

bool petra_evaluator_ended(const petra_evaluator *evaluator) {
  return evaluator->next == evaluator->batches;
}

petra_status petra_evaluator_step(petra_evaluator *evaluator) {
  petra_batch *batch = NULL;
  petra_loss one = {0};
  if (evaluator->loader)
    PETRA_TRY(petra_loader_next(evaluator->loader, &batch));
  petra_status status = evaluate_batch(&evaluator->e, batch, evaluator->next, &one);
  if (evaluator->loader)
    petra_loader_give_back(evaluator->loader, batch);
  PETRA_TRY(status);
  evaluator->loss += one.loss * one.images;
  evaluator->images += one.images;
  evaluator->top1 += one.top1;
  evaluator->top5 += one.top5;
  evaluator->next++;
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
                            petra_evaluation *out) {
  petra_evaluator *evaluator;
  petra_status status = PETRA_OK;
  PETRA_TRY(petra_evaluator_create(backend, stages, snapshots, transport, set, options, &evaluator));
  while (status == PETRA_OK && !petra_evaluator_ended(evaluator))
    status = petra_evaluator_step(evaluator);
  if (status == PETRA_OK)
    status = petra_evaluator_result(evaluator, out);
  petra_evaluator_destroy(evaluator);
  return status;
}
