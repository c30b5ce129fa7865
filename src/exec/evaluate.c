/* An evaluation: every batch of a data set through all stages with given snapshots. */
#include "base/log.h"
#include "exec/batch.h"
#include "exec/worker_stage.h"

#include <math.h>

static petra_status evaluate_batch(petra_backend *backend, petra_stage *const *stage, petra_snapshot *const *snapshots,
                                   int32_t stages, const petra_batch *batch, petra_loss *loss) {
  petra_streams streams = {{NULL, NULL}}, next = {{NULL, NULL}};
  petra_status status = PETRA_OK;
  PETRA_TRY(petra_batch_upload(backend, batch, NULL, PETRA_MEMORY_WORKSPACE, &streams.tensor[0]));
  for (int32_t j = 0; j < stages; j++) {
    next = (petra_streams){{NULL, NULL}};
    PETRA_TRY_GOTO(status, petra_stage_evaluate(stage[j], snapshots[j], &streams, batch->labels, &next, loss), done);
    petra_streams_release(&streams);
    streams = next;
  }
done:
  petra_streams_release(&streams);
  return status;
}

petra_status petra_evaluate(petra_backend *backend, petra_stage *const *stage, petra_snapshot *const *snapshots,
                            int32_t stages, const petra_dataset *set, const petra_loader_options *options,
                            petra_evaluation *out) {
  petra_loader_options once = *options;
  petra_loader *loader;
  petra_status status = PETRA_OK;
  double loss = 0;
  int64_t images = 0, top1 = 0, top5 = 0;
  once.shuffle = once.drop_last = false;
  once.augment = 0;
  once.bytes = petra_backend_takes_images(backend);
  once.first = 0;
  once.end = (set->count + once.batch - 1) / once.batch;
  PETRA_TRY(petra_loader_create(set, &once, &loader));
  for (int64_t i = 0; i < once.end; i++) {
    petra_batch *batch;
    petra_loss one;
    PETRA_TRY_GOTO(status, petra_loader_next(loader, &batch), done);
    status = evaluate_batch(backend, stage, snapshots, stages, batch, &one);
    petra_loader_give_back(loader, batch);
    if (status != PETRA_OK)
      goto done;
    loss += one.loss * one.images;
    images += one.images;
    top1 += one.top1;
    top5 += one.top5;
  }
  if (!isfinite(loss)) {
    status = petra_fail(
        PETRA_NOT_FINITE,
        "evaluation: the loss is %s; the weights or the running statistics have diverged: expected a finite loss",
        isnan(loss) ? "not a number" : "infinite");
    goto done;
  }
  *out =
      (petra_evaluation){images, loss / (double)images, (double)top1 / (double)images, (double)top5 / (double)images};
done:
  petra_loader_destroy(loader);
  return status;
}
