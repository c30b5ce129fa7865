/* The worker in a checkpoint: its stages, messages that wait, labels, evaluations that wait for a stage. */
#include "base/log.h"
#include "exec/worker_stage_private.h"
#include "stage/archive.h"

#include <stdio.h>

/* Evaluations that some stages have reached and others not. */
static petra_status archive_evaluations(petra_worker_stage *worker, petra_tensor_archive *tensors) {
  const petra_stages *stages = &worker->options.stages;
  petra_archive *archive = tensors->archive;
  int64_t count = 0;
  petra_pending *evaluation = worker->evaluations;
  for (petra_pending *e = evaluation; e; e = e->next)
    count++;
  PETRA_TRY(petra_archive_integers(archive, "evaluations/count", &count, 1));
  PETRA_TRY(petra_archive_within(archive, "evaluations/count", "evaluations", count, 0,
                                 worker->options.program_options->microbatches));
  for (int64_t i = 0; i < count; i++) {
    int64_t about[2] = {0, 0};
    char name[64];
    if (!archive->reading) {
      about[0] = evaluation->microbatch;
      about[1] = evaluation->reached;
    }
    snprintf(name, sizeof name, "evaluations/%lld", (long long)i);
    PETRA_TRY(petra_archive_integers(archive, name, about, 2));
    PETRA_TRY(petra_archive_within(archive, name, "microbatch", about[0], 0,
                                   worker->options.program_options->microbatches - 1));
    if (archive->reading) {
      petra_pending **link;
      for (petra_pending *e = worker->evaluations; e; e = e->next)
        if (e->microbatch == about[0])
          return petra_archive_refuse(archive, name, "microbatch %lld is there twice", (long long)about[0]);
      PETRA_TRY(petra_worker_find_pending(worker, about[0], &link));
      evaluation = *link;
      evaluation->reached = (int32_t)about[1];
    }
    int32_t taken = 0;
    for (int32_t j = 1; j <= stages->count; j++) {
      petra_snapshot **snapshot = &evaluation->snapshots[j - 1];
      if (!petra_stages_has(stages, j))
        continue;
      snprintf(name, sizeof name, "evaluations/%lld-stage-%02d", (long long)i, j);
      PETRA_TRY(petra_snapshot_archive(petra_stages_get(stages, j), tensors, name, snapshot));
      taken += *snapshot != NULL;
    }
    if (archive->reading && (about[1] < 1 || about[1] >= stages->count || about[1] < taken ||
                             (petra_stages_all(stages) && about[1] != taken)))
      return petra_archive_refuse(archive, name,
                                  "%lld stages have reached the evaluation of microbatch %lld, %d of %d "
                                  "have a snapshot",
                                  (long long)about[1], (long long)about[0], taken, stages->count);
    evaluation = evaluation->next;
  }
  return PETRA_OK;
}

petra_status petra_worker_stage_archive(petra_worker *base, petra_tensor_archive *tensors) {
  petra_worker_stage *worker = (petra_worker_stage *)base;
  const petra_worker_stage_options *options = &worker->options;
  int64_t *read = &worker->feed.read;
  PETRA_TRY(petra_archive_integers(tensors->archive, "read", read, 1));
  PETRA_TRY(
      petra_archive_within(tensors->archive, "read", "microbatches", *read, 0, options->program_options->microbatches));
  /* Where stage 1 is elsewhere, how far it has read is not known here. */
  tensors->read = petra_stages_has(&options->stages, 1) ? *read : options->program_options->microbatches;
  tensors->fused = !options->program_options->split_head;
  for (int32_t j = 1; j <= options->stages.count; j++)
    if (petra_stages_has(&options->stages, j))
      PETRA_TRY(petra_stage_archive(petra_stages_get(&options->stages, j), tensors));
  PETRA_TRY(options->transport->ops->archive(options->transport, tensors));
  PETRA_TRY(petra_feed_archive(&worker->feed, tensors));
  return archive_evaluations(worker, tensors);
}

int64_t petra_worker_stage_read(const petra_worker *worker) {
  return ((const petra_worker_stage *)worker)->feed.read;
}
