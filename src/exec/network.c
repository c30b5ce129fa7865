/* SPDX-License-Identifier: Apache-2.0 */
#include "exec/network.h"

#include "base/mem.h"
#include "base/threads.h"
#include "setup/placement.h"

#include <string.h>

/* Returns the total number of threads of all groups. */
static int threads_of(const petra_config *config) {
  return config->device.threads > 0 ? (int)config->device.threads : petra_threads_cores();
}

petra_status petra_network_backend(const petra_plan *plan, const petra_ranks *ranks, petra_backend **out) {
  const petra_config *config = plan->config;
  const bool executes = ranks && ranks->progress;
  petra_groups groups;
  PETRA_TRY(petra_groups_of(plan, threads_of(config), executes, &groups));
  petra_backend_options options = {.kind = config->device.backend,
                                   .precision = config->device.precision,
                                   .threads = config->device.threads > 0 ? groups.threads
                                                                         : petra_threads_allowed(groups.threads),
                                   .lanes = groups.groups,
                                   .deterministic = config->device.deterministic,
                                   .graph = config->device.graph,
                                   .streams = (int)config->device.streams,
                                   .wide_gradients = config->device.wide_gradients,
                                   .plans = config->device.plans};
  if (executes) { /* cluster.gpus chooses the device; if it is empty, the number of this rank on its host does */
    options.device_wraps = config->cluster.gpus.count == 0;
    options.device = options.device_wraps ? ranks->wire->local : (int)config->cluster.gpus.values[ranks->rank];
  }
  return petra_backend_create_with(&options, out);
}

petra_stage_formats petra_network_formats(const petra_config *config, int replica) {
  const petra_precision precision = config->device.precision;
  return (petra_stage_formats){.up = petra_format_in(config->cluster.message.up, precision),
                               .down = petra_format_in(config->cluster.message.down, precision),
                               .keep = petra_format_in(config->method.keep_precision, precision),
                               .seed = (uint64_t)config->run.seed,
                               .first_sample = replica * config->data.batch};
}

/* Returns the rule of a method for a stage. `inverts`: the method inverts, and the network has reversible blocks. */
static petra_stage_rule rule_of(const petra_method *method, bool inverts) {
  return (petra_stage_rule){.forward_weights = method->forward_weights,
                            .backward_weights = method->backward_weights,
                            .invert_weights = method->invert_weights,
                            .keep = method->keep,
                            .invert = inverts,
                            .split_backward = method->program->split_backward,
                            .accumulate = (int)method->accumulate,
                            .sync_period = method->sync_period};
}

petra_stage_mitigation petra_method_stage_mitigation(const petra_method *method, int32_t stages, int64_t warmup,
                                                     int32_t stage) {
  petra_stage_mitigation mitigation = {
      .choice = method->mitigation, .distance = stages - stage, .stages = stages, .start = warmup / method->accumulate};
  if (petra_mitigation_key(&method->mitigation))
    mitigation.delay = petra_method_delay(method, stages, stage);
  if (method->mitigation.weight_prediction == PETRA_PREDICTION_SPECTRAIN)
    mitigation.descent = petra_method_descent(method, stages, stage);
  return mitigation;
}

petra_status petra_network_open(petra_network *network, const petra_plan *plan, const petra_placement *placement,
                                int replica, petra_backend *backend) {
  *network = (petra_network){.plan = plan, .placement = placement, .backend = backend, .replica = replica};
  if (!backend)
    PETRA_TRY(petra_network_backend(plan, placement ? placement->ranks : NULL, &network->backend));
  PETRA_TRY(petra_allocate(&network->stage, (size_t)plan->stages, sizeof *network->stage));
  for (int j = 0; j < plan->stages; j++) {
    if (placement && !petra_placement_has(placement, j + 1))
      continue;
    const petra_stage_options stage = {
        .model = &plan->model,
        .number = j + 1,
        .first = plan->partition.first[j],
        .end = plan->partition.first[j + 1],
        .auxiliary = petra_plan_auxiliary(plan, j),
        .backend = network->backend,
        .rule = rule_of(&plan->method, plan->inverts),
        .formats = petra_network_formats(plan->config, network->replica),
        .optim = petra_optim_from_config(plan->config),
        .mitigation = petra_method_stage_mitigation(&plan->method, plan->stages, plan->program.warmup, j + 1)};
    PETRA_TRY(petra_stage_create(&stage, &network->stage[j]));
  }
  return PETRA_OK;
}

petra_status petra_network_initialise(petra_network *network) {
  const petra_config *config = network->plan->config;
  for (int j = 0; j < network->plan->stages; j++)
    if (network->stage[j])
      PETRA_TRY(petra_stage_initialise(network->stage[j], (uint64_t)config->run.seed));
  return *config->model.weights ? petra_network_read_weights(network, config->model.weights) : PETRA_OK;
}

void petra_network_fini(petra_network *network) {
  for (int j = 0; network->stage && j < network->plan->stages; j++)
    petra_stage_empty(network->stage[j]);
  for (int j = 0; network->stage && j < network->plan->stages; j++)
    petra_stage_destroy(network->stage[j]);
  petra_free(network->stage);
  if (!network->borrows_backend)
    petra_backend_destroy(network->backend);
  *network = (petra_network){0};
}

petra_stages petra_network_stages(const petra_network *network) {
  return (petra_stages){.count = network->plan->stages, .stage = network->stage};
}

/* --- gathering on rank 0 --- */

/* An element of `size` bytes for each stage of each replica, in their order. */
typedef struct of_stages {
  const petra_network *network;
  void *elements;
  size_t size;
} of_stages;

/* Copies the elements of the stages that the rank has. */
static petra_status take_elements(void *context, int rank, const void *data, size_t size) {
  const of_stages *of = context;
  const int32_t stages = of->network->plan->stages, count = (int32_t)(size / of->size);
  for (int32_t i = 0; i < count; i++)
    if (petra_placement_rank(of->network->placement, i / stages, i % stages + 1) == rank)
      memmove((char *)of->elements + (size_t)i * of->size, (const char *)data + (size_t)i * of->size, of->size);
  return PETRA_OK;
}

petra_status petra_network_gather(const petra_network *network, int replicas, void *elements, size_t size) {
  of_stages all = {network, elements, size};
  return petra_ranks_gather(network->placement->ranks, elements,
                            (size_t)replicas * (size_t)network->plan->stages * size, take_elements, &all);
}
