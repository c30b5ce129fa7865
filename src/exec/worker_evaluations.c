/* SPDX-License-Identifier: Apache-2.0 */
/* Evaluations of worker_stage: each E takes a snapshot, and the E of the last stage starts the evaluation. */
#include "base/mem.h"
#include "exec/worker_stage_private.h"
#include "stage/stage_archive.h"

#include <stdio.h>

struct petra_pending {
  int64_t microbatch;
  int32_t reached;
  petra_evaluator *evaluator; /* with `waves`, once the evaluation began */
  petra_pending *next;
  petra_snapshot *snapshots[]; /* per stage; NULL: elsewhere, or not there yet */
};

/* Finds the evaluation at a microbatch, or creates it. */
static petra_status find_pending(petra_worker_stage *worker, int64_t m, petra_pending ***out) {
  petra_pending **link = &worker->evaluations;
  while (*link && (*link)->microbatch != m)
    link = &(*link)->next;
  if (!*link) {
    const size_t bytes = (size_t)worker->stages.count * sizeof(petra_snapshot *);
    PETRA_TRY(petra_allocate(link, 1, sizeof **link + bytes));
    (*link)->microbatch = m;
  }
  *out = link;
  return PETRA_OK;
}

/* Removes the evaluation that `link` points to. */
static void drop_evaluation(petra_worker_stage *worker, petra_pending **link) {
  petra_pending *evaluation = *link;
  *link = evaluation->next;
  for (int32_t j = 0; j < worker->stages.count; j++)
    petra_snapshot_destroy(evaluation->snapshots[j]);
  petra_evaluator_destroy(evaluation->evaluator);
  petra_free(evaluation);
}

static petra_evaluation_options evaluation_of(const petra_worker_stage *worker) {
  return (petra_evaluation_options){.network = &worker->pipeline->network,
                                    .transport = worker->pipeline->transport,
                                    .set = worker->options.evaluation,
                                    .train = worker->options.train,
                                    .pool = worker->pool};
}

/* Ends the first evaluation. */
static petra_status end_evaluation(petra_worker_stage *worker, petra_pending **link, petra_status status,
                                   const petra_evaluation *result) {
  const petra_pipeline_options *options = &worker->options;
  const petra_evaluation *known = petra_stages_has(&worker->stages, worker->stages.count) ? result : NULL;
  const int64_t m = (*link)->microbatch;
  if (status == PETRA_OK) {
    petra_snapshot *const *snapshots = (*link)->snapshots;
    PETRA_NOTIFY(petra_stage_observer, options->observers, evaluated_weights, observer, m, known, snapshots);
  }
  drop_evaluation(worker, link);
  PETRA_TRY(status);
  if (known)
    PETRA_NOTIFY(petra_stage_observer, options->observers, evaluated, observer, m, known);
  return PETRA_OK;
}

/* The E of the last stage starts the computation in every process at once: in the order of the schedule, no process
 * then waits for a stage that has not reached its E. */
petra_status petra_evaluations_reach(petra_worker_stage *worker, int32_t stage, int64_t m) {
  const petra_pipeline_options *options = &worker->options;
  petra_pending **link;
  petra_evaluation result;
  PETRA_TRY(petra_losses_report_late(worker));
  PETRA_TRY(find_pending(worker, m, &link));
  petra_pending *evaluation = *link;
  if (petra_stages_has(&worker->stages, stage) && options->evaluation)
    PETRA_TRY(petra_stage_snapshot(petra_stages_get(&worker->stages, stage), &evaluation->snapshots[stage - 1]));
  if (++evaluation->reached < worker->stages.count || options->waves)
    return PETRA_OK;
  if (!options->evaluation) {
    drop_evaluation(worker, link);
    return PETRA_OK;
  }
  PETRA_NOTIFY(petra_stage_observer, options->observers, evaluating, observer);
  const petra_evaluation_options what = evaluation_of(worker);
  petra_status status = petra_evaluate(&what, evaluation->snapshots, &result);
  return end_evaluation(worker, link, status, &result);
}

/* Checks if the first evaluation has the snapshots of all stages that are here. */
bool petra_worker_stage_evaluates(const petra_worker *base) {
  const petra_worker_stage *worker = (const petra_worker_stage *)base;
  return worker->evaluations && worker->evaluations->reached == petra_stages_here(&worker->stages);
}

petra_status petra_worker_stage_evaluate(petra_worker *base, bool *ended) {
  petra_worker_stage *worker = (petra_worker_stage *)base;
  petra_pending *evaluation = worker->evaluations;
  petra_evaluation result;
  const petra_evaluation_options what = evaluation_of(worker);
  if (!evaluation->evaluator)
    PETRA_TRY(petra_evaluator_create(&what, evaluation->snapshots, &evaluation->evaluator));
  PETRA_TRY(petra_backend_begin(worker->backend, petra_stages_first(&worker->stages), PETRA_ACTION_EVALUATE));
  petra_status status = petra_evaluator_step(evaluation->evaluator, ended), end = petra_backend_end(worker->backend);
  PETRA_TRY(status != PETRA_OK ? status : end);
  if (!*ended)
    return PETRA_OK;
  status = petra_evaluator_result(evaluation->evaluator, &result);
  return end_evaluation(worker, &worker->evaluations, status, &result);
}

void petra_evaluations_destroy(petra_worker_stage *worker) {
  while (worker->evaluations)
    drop_evaluation(worker, &worker->evaluations);
}

/* --- checkpoints --- */

petra_status petra_worker_stage_archive(petra_worker *base, petra_archive *archive, int64_t read) {
  petra_worker_stage *worker = (petra_worker_stage *)base;
  petra_pending *evaluation = worker->evaluations;
  const int64_t microbatches = worker->plan->program.microbatches;
  int64_t count = 0;
  if (archive->reading)
    worker->read = read;
  for (petra_pending *e = evaluation; e; e = e->next)
    count++;
  PETRA_TRY(petra_archive_integer(archive, "evaluations/count", "evaluations", &count, 0, microbatches));
  for (int64_t i = 0; i < count; i++) {
    int64_t about[2] = {archive->reading ? 0 : evaluation->microbatch, archive->reading ? 0 : evaluation->reached};
    char name[64];
    snprintf(name, sizeof name, "evaluations/%lld", (long long)i);
    PETRA_TRY(petra_archive_integers(archive, name, about, 2));
    PETRA_TRY(petra_archive_within(archive, name, "microbatch", about[0], 0, microbatches - 1));
    PETRA_TRY(petra_archive_within(archive, name, "stages that reached it", about[1], 1, worker->stages.count - 1));
    if (archive->reading) {
      petra_pending **link;
      PETRA_TRY(find_pending(worker, about[0], &link));
      evaluation = *link;
      if (evaluation->reached > 0)
        return petra_archive_refuse(archive, name, "microbatch %lld is there twice", (long long)about[0]);
      evaluation->reached = (int32_t)about[1];
    }
    evaluation = evaluation->next;
  }
  return PETRA_OK;
}

petra_status petra_evaluations_archive_stage(petra_worker_stage *worker, int32_t stage, petra_tensor_archive *tensors) {
  char name[64];
  for (petra_pending *e = worker->evaluations; e && worker->options.evaluation; e = e->next) {
    snprintf(name, sizeof name, "evaluation-%lld", (long long)e->microbatch);
    PETRA_TRY(
        petra_snapshot_archive(petra_stages_get(&worker->stages, stage), tensors, name, &e->snapshots[stage - 1]));
  }
  return PETRA_OK;
}

petra_status petra_worker_stage_archived(const petra_worker *base, const petra_archive *archive) {
  const petra_worker_stage *worker = (const petra_worker_stage *)base;
  const petra_stages *stages = &worker->stages;
  for (const petra_pending *e = worker->evaluations; e && worker->options.evaluation; e = e->next) {
    int32_t taken = 0;
    for (int32_t j = 0; j < stages->count; j++)
      taken += e->snapshots[j] != NULL;
    if (petra_stages_all(stages) ? e->reached != taken : e->reached < taken)
      return petra_archive_refuse(archive, "evaluations",
                                  "%d stages have reached the evaluation of microbatch %lld, %d of %d have a snapshot",
                                  e->reached, (long long)e->microbatch, taken, stages->count);
  }
  return PETRA_OK;
}
