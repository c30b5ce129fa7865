/* SPDX-License-Identifier: Apache-2.0 */
#include "run/replicas.h"

#include "base/mem.h"
#include "exec/replica_losses.h"
#include "exec/worker_replicas.h"

struct petra_replicas {
  int count;
  petra_pipeline **pipeline; /* of each; borrowed */
  petra_pipeline *others;    /* count - 1 of them */
  petra_replica_losses *losses;
  petra_stage_observer **observers; /* of each: what its worker tells */
  petra_worker *worker;
};

static petra_status open_other(const petra_network *first, int replica, petra_pipeline *out) {
  petra_status status = petra_network_open(&out->network, first->plan, NULL, first->backend);
  out->network.borrows_backend = true;
  out->network.replica = replica;
  return status == PETRA_OK ? petra_network_initialise(&out->network) : status;
}

petra_status petra_replicas_create(petra_pipeline **pipelines, petra_replicas **out) {
  const petra_network *first = &pipelines[0]->network;
  const int count = (int)first->plan->config->cluster.replicas;
  petra_replicas *r;
  petra_status status;
  PETRA_TRY(petra_allocate(&r, 1, sizeof *r));
  r->count = count;
  r->pipeline = pipelines;
  PETRA_TRY_GOTO(status, petra_allocate(&r->others, (size_t)count - 1, sizeof *r->others), fail);
  PETRA_TRY_GOTO(status, petra_allocate(&r->observers, (size_t)count, sizeof(petra_stage_observer *)), fail);
  for (int i = 1; i < count; i++) {
    pipelines[i] = &r->others[i - 1];
    PETRA_TRY_GOTO(status, open_other(first, i, pipelines[i]), fail);
  }
  *out = r;
  return PETRA_OK;
fail:
  petra_replicas_destroy(r);
  return status;
}

void petra_replicas_destroy(petra_replicas *r) {
  if (!r)
    return;
  petra_worker_replicas_destroy(r->worker);
  for (int i = 1; i < r->count && r->others; i++)
    petra_pipeline_fini(&r->others[i - 1]);
  petra_replica_losses_destroy(r->losses);
  petra_free(r->observers);
  petra_free(r->others);
  petra_free(r);
}

petra_status petra_replicas_observe(petra_replicas *r, petra_stage_observer *observers, petra_probe *probe,
                                    petra_stage_observer **out) {
  PETRA_TRY(petra_replica_losses_create(r->count, observers, &r->losses));
  for (int i = 0; i < r->count; i++) {
    if (probe)
      PETRA_OBSERVERS_ADD(petra_stage_observer, &r->observers[i], petra_probe_observer(probe, i));
    PETRA_OBSERVERS_ADD(petra_stage_observer, &r->observers[i], petra_replica_losses_of(r->losses, i));
  }
  *out = r->observers[0];
  return PETRA_OK;
}

static petra_status create_worker(petra_replicas *r) {
  petra_worker **workers = NULL;
  petra_stages *stages = NULL;
  petra_status status;
  PETRA_TRY_GOTO(status, petra_allocate(&workers, (size_t)r->count, sizeof(petra_worker *)), done);
  PETRA_TRY_GOTO(status, petra_allocate(&stages, (size_t)r->count, sizeof *stages), done);
  for (int i = 0; i < r->count; i++) {
    workers[i] = r->pipeline[i]->worker;
    stages[i] = petra_network_stages(&r->pipeline[i]->network);
  }
  const petra_worker_replicas_options options = {.replicas = r->count, .worker = workers, .stages = stages};
  status = petra_worker_replicas_create(&options, &r->worker);
done:
  petra_free(workers);
  petra_free(stages);
  return status;
}

petra_status petra_replicas_start(petra_replicas *r, const petra_pipeline_options *options, petra_worker **out) {
  for (int i = 1; i < r->count; i++) {
    petra_pipeline_options other = *options;
    other.evaluation = NULL;
    other.transport = NULL;
    other.observers = r->observers[i];
    PETRA_TRY(petra_pipeline_start(r->pipeline[i], &other));
  }
  PETRA_TRY(create_worker(r));
  *out = r->worker;
  return PETRA_OK;
}

void petra_replicas_stop(petra_replicas *r) {
  for (int i = 1; r && i < r->count; i++)
    petra_pipeline_stop(r->pipeline[i]);
}
