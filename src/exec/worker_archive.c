/* The worker in a checkpoint: its stages, messages that wait, labels, evaluations that wait for a stage. */
#include "exec/worker_stage_private.h"
#include "stage/archive.h"

#include <stdio.h>

/* Evaluations that some stages have reached and others not. */
static petra_status archive_evaluations(petra_worker_stage *worker, petra_tensor_archive *tensors) {
  petra_archive *archive = tensors->archive;
  int64_t count = 0;
  petra_pending *evaluation = worker->evaluations;
  for (petra_pending *e = evaluation; e; e = e->next)
    count++;
  PETRA_TRY(petra_archive_integers(archive, "evaluations/count", &count, 1));
  for (int64_t i = 0; i < count; i++) {
    int64_t about[2] = {0, 0};
    char name[64];
    if (!archive->reading) {
      about[0] = evaluation->microbatch;
      about[1] = evaluation->reached;
    }
    snprintf(name, sizeof name, "evaluations/%lld", (long long)i);
    PETRA_TRY(petra_archive_integers(archive, name, about, 2));
    if (archive->reading) {
      petra_pending **link;
      PETRA_TRY(petra_worker_find_pending(worker, about[0], &link));
      evaluation = *link;
      evaluation->reached = (int32_t)about[1];
    }
    const petra_stages *stages = &worker->options.stages;
    for (int32_t j = stages->first; j <= stages->last; j++) {
      snprintf(name, sizeof name, "evaluations/%lld-stage-%02d", (long long)i, j);
      PETRA_TRY(petra_snapshot_archive(petra_stages_get(stages, j), tensors, name,
                                       &evaluation->snapshots[j - stages->first]));
    }
    evaluation = evaluation->next;
  }
  return PETRA_OK;
}

petra_status petra_worker_stage_archive(petra_worker *base, petra_tensor_archive *tensors) {
  petra_worker_stage *worker = (petra_worker_stage *)base;
  const petra_worker_stage_options *options = &worker->options;
  PETRA_TRY(petra_archive_integers(tensors->archive, "read", &worker->feed.read, 1));
  for (int32_t j = options->stages.first; j <= options->stages.last; j++)
    PETRA_TRY(petra_stage_archive(petra_stages_get(&options->stages, j), tensors));
  PETRA_TRY(options->transport->ops->archive(options->transport, tensors));
  PETRA_TRY(petra_feed_archive(&worker->feed, tensors->archive));
  return archive_evaluations(worker, tensors);
}

int64_t petra_worker_stage_read(const petra_worker *worker) {
  return ((const petra_worker_stage *)worker)->feed.read;
}
