/* SPDX-License-Identifier: Apache-2.0 */
#include "exec/pipeline.h"

#include "base/mem.h"

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
