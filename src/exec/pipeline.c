/* SPDX-License-Identifier: Apache-2.0 */
#include "exec/pipeline.h"

#include "base/mem.h"
#include "exec/worker_replicas.h"

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
  const petra_worker_stage_options worker = {.backend = p->network.backend,
                                             .stages = stages,
                                             .transport = p->transport,
                                             .loader = p->loader,
                                             .evaluation = options->evaluation,
                                             .evaluation_loader = loader,
                                             .recalibration = options->train,
                                             .recalibrate = plan->config->data.recalibrate,
                                             .lr = options->lr,
                                             .program = plan->method.program,
                                             .program_options = &plan->program,
                                             .waves = options->waves,
                                             .measure = plan->config->cluster.cost.model == PETRA_COST_MEASURED,
                                             .observers = options->observers};
  return petra_worker_stage_create(&worker, &p->worker);
}

petra_status petra_pipelines_worker(petra_pipeline *const *pipelines, const petra_placement *placement,
                                    petra_worker **out) {
  const petra_ranks *ranks = placement->ranks;
  petra_worker **workers = NULL;
  petra_stages *stages = NULL;
  petra_status status;
  int here = 0;
  PETRA_TRY_GOTO(status, petra_allocate(&workers, (size_t)placement->replicas, sizeof(petra_worker *)), done);
  PETRA_TRY_GOTO(status, petra_allocate(&stages, (size_t)placement->replicas, sizeof *stages), done);
  for (int i = 0; i < placement->replicas; i++)
    if (pipelines[i]) {
      workers[here] = pipelines[i]->worker;
      stages[here++] = petra_network_stages(&pipelines[i]->network);
    }
  const petra_worker_replicas_options options = {.replicas = placement->replicas,
                                                 .worker = workers,
                                                 .stages = stages,
                                                 .progress = ranks->progress,
                                                 .replica = placement->replica,
                                                 .first_rank = ranks->rank - placement->replica * placement->stride,
                                                 .places = placement->places,
                                                 .channel = petra_channel_id(stages->count, PETRA_CHANNEL_REPLICAS)};
  status = petra_worker_replicas_create(&options, out);
done:
  petra_free(workers);
  petra_free(stages);
  return status;
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
