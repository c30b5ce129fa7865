/* SPDX-License-Identifier: Apache-2.0 */
#include "exec/worker_stage_private.h"

#include "base/clock.h"
#include "base/mem.h"
#include "stage/stage_archive.h"

static petra_status perform_parts(petra_worker_stage *worker, petra_task *task) {
  PETRA_TRY(petra_task_prepare(worker, task));
  PETRA_TRY(petra_task_compute(worker, task));
  return petra_task_conclude(worker, task);
}

static petra_status perform_one(petra_worker_stage *worker, int64_t virtual_ns, const petra_action *action,
                                petra_action_result *result) {
  petra_backend *backend = worker->backend;
  const bool measures = worker->plan->config->cluster.cost.model == PETRA_COST_MEASURED;
  petra_task task = {.action = *action, .virtual_ns = virtual_ns, .result = *result};
  int64_t begin_ns = petra_clock_ns();
  PETRA_TRY(petra_backend_begin(backend, action->stage, (int32_t)action->kind));
  petra_status status = perform_parts(worker, &task);
  petra_task_release(&task);
  petra_status end = petra_backend_end(backend);
  PETRA_TRY(status != PETRA_OK ? status : end);
  PETRA_TRY(petra_losses_put_off(worker));
  *result = task.result;
  if (measures)
    PETRA_TRY(petra_backend_synchronize(backend));
  int64_t took_ns = petra_clock_ns() - begin_ns;
  if (measures && action->kind != PETRA_ACTION_EVALUATE)
    result->measured_ns = took_ns > 0 ? took_ns : 1;
  return PETRA_OK;
}

static petra_status perform(petra_worker *base, int64_t virtual_ns, const petra_action *actions, int count,
                            petra_action_result *results) {
  petra_worker_stage *worker = (petra_worker_stage *)base;
  PETRA_NOTIFY(petra_stage_observer, worker->options.observers, begins, observer, virtual_ns, actions, count);
  if (worker->pool && count > 1)
    PETRA_TRY(petra_group_perform(worker, virtual_ns, actions, count, results));
  else
    for (int i = 0; i < count; i++)
      PETRA_TRY(perform_one(worker, virtual_ns, &actions[i], &results[i]));
  PETRA_NOTIFY(petra_stage_observer, worker->options.observers, done, observer);
  return PETRA_OK;
}

static petra_status finish(petra_worker *base) {
  return petra_losses_report_late((petra_worker_stage *)base);
}

petra_status petra_worker_stage_create(const petra_pipeline *pipeline, const petra_pipeline_options *options,
                                       petra_worker **out) {
  static const petra_worker_ops ops = {.perform = perform, .finish = finish};
  const petra_network *network = &pipeline->network;
  const petra_program_options *program = &network->plan->program;
  const petra_stages stages = petra_network_stages(network);
  petra_worker_stage *worker;
  PETRA_TRY(petra_allocate(&worker, 1, sizeof *worker));
  worker->base.ops = &ops;
  worker->pipeline = pipeline;
  worker->options = *options;
  worker->backend = network->backend;
  worker->stages = stages;
  worker->plan = network->plan;
  petra_status status = petra_group_init(worker);
  worker->epochs = (program->microbatches - 1) / program->batches + 1;
  if (status == PETRA_OK && program->local)
    status = petra_allocate(&worker->local, (size_t)(stages.count * worker->epochs), sizeof *worker->local);
  if (status != PETRA_OK)
    petra_worker_stage_destroy(&worker->base);
  else
    *out = &worker->base;
  return status;
}

void petra_worker_stage_destroy(petra_worker *base) {
  petra_worker_stage *worker = (petra_worker_stage *)base;
  if (!worker)
    return;
  petra_feed_fini(worker);
  petra_evaluations_destroy(worker);
  petra_group_fini(worker);
  PETRA_FREE_ALL(worker->local, worker);
}

const double *petra_worker_stage_losses(const petra_worker *base, int32_t stage, int64_t *epochs) {
  const petra_worker_stage *worker = (const petra_worker_stage *)base;
  *epochs = worker->local ? worker->epochs : 0;
  return worker->local ? &worker->local[(stage - 1) * worker->epochs].loss : NULL;
}

/* --- checkpoints --- */

/* Reads or writes the losses of a stage in a local program, of the epochs that have begun; a resumed run may have more
 * epochs, or fewer. */
static petra_status archive_losses(petra_worker_stage *worker, int32_t stage, petra_archive *archive) {
  enum { VALUES = sizeof(petra_stage_losses) / sizeof(double) };
  int64_t epochs = worker->epochs;
  if (!worker->local)
    return PETRA_OK;
  while (!archive->reading && epochs > 1 && worker->local[(stage - 1) * worker->epochs + epochs - 1].labels == 0)
    epochs--;
  PETRA_TRY(petra_archive_integer(archive, "losses/epochs", "epochs", &epochs, 1, worker->epochs));
  return petra_archive_reals(archive, "losses/sums", &worker->local[(stage - 1) * worker->epochs].loss,
                             VALUES * epochs);
}

petra_status petra_worker_stage_archive_stage(petra_worker *base, int32_t stage, petra_tensor_archive *tensors) {
  petra_worker_stage *worker = (petra_worker_stage *)base;
  petra_transport *transport = worker->pipeline->transport;
  PETRA_TRY(petra_stage_archive(petra_stages_get(&worker->stages, stage), tensors));
  PETRA_TRY(transport->ops->archive(transport, stage, tensors));
  PETRA_TRY(petra_evaluations_archive_stage(worker, stage, tensors));
  PETRA_TRY(petra_feed_archive(worker, stage, tensors));
  return archive_losses(worker, stage, tensors->archive);
}

/* --- the pipeline --- */

petra_status petra_pipeline_start(petra_pipeline *p, const petra_pipeline_options *options) {
  const petra_plan *plan = p->network.plan;
  const petra_stages stages = petra_network_stages(&p->network);
  petra_loader_options loader = petra_network_loader(&p->network, options->first, plan->program.microbatches);
  p->transport = options->transport;
  loader.labels = !petra_stages_has(&stages, 1);
  if (plan->program.local || petra_stages_read_data(&stages))
    PETRA_TRY(petra_loader_create(options->train, &loader, &p->loader));
  if (!p->transport)
    PETRA_TRY(petra_transport_local_create(&stages, &p->transport));
  return petra_worker_stage_create(p, options, &p->worker);
}

void petra_pipeline_stop(petra_pipeline *p) {
  petra_worker_stage_destroy(p->worker);
  petra_transport_destroy(p->transport);
  p->worker = NULL;
  p->transport = NULL;
}

void petra_pipeline_fini(petra_pipeline *p) {
  petra_pipeline_stop(p);
  petra_loader_destroy(p->loader);
  petra_network_fini(&p->network);
  *p = (petra_pipeline){0};
}
