/* SPDX-License-Identifier: Apache-2.0 */
#include "setup/virtual_cluster.h"

#include "base/mem.h"

static const double LEAST_MEAN_S = 1e-6;

/* Sets the costs of one stage by cluster.cost: unit or constant. */
static petra_stage_cost stage_cost(const petra_config *config) {
  static const petra_roofline_seconds unit = {1, 2, 1, 1, 0};
  const petra_roofline_seconds constant = {config->cluster.cost.forward_s, config->cluster.cost.backward_s,
                                           config->cluster.cost.reconstruct_s, config->cluster.cost.weight_gradient_s,
                                           config->cluster.cost.update_s};
  petra_stage_cost cost = {0};
  if (config->cluster.cost.model != PETRA_COST_MEASURED) /* measured costs come from the worker */
    petra_roofline_cost(config->cluster.cost.model == PETRA_COST_UNIT ? &unit : &constant, &cost);
  return cost;
}

/* Returns true if costs are counted from the kernels of the model's blocks. */
static bool counts_kernels(const petra_config *config) {
  return config->cluster.cost.model == PETRA_COST_ROOFLINE || config->cluster.cost.model == PETRA_COST_KERNELS;
}

static petra_status check_kernels(const petra_config *config) {
  const char *model = petra_config_choice_name("cluster.cost.model", (int)config->cluster.cost.model);
  if (config->cluster.stages > 0)
    return petra_config_fail(config, "cluster.cost.model",
                             "%s with cluster.stages, which have no model to count; expected unit or constant", model);
  if (config->device.precision == PETRA_PRECISION_FP64)
    return petra_config_fail(
        config, "cluster.cost.model",
        "%s with device.precision: fp64, for which it knows no peak; expected device.precision: fp32", model);
  return PETRA_OK;
}

static bool has_host(const petra_config *config) {
  return config->cluster.host.action_s > 0 || config->cluster.host.kernel_s > 0;
}

static petra_status check_host(const petra_config *config, const petra_method *method) {
  const char *key = config->cluster.host.action_s > 0 ? "cluster.host.action_s" : "cluster.host.kernel_s";
  const double seconds =
      config->cluster.host.action_s > 0 ? config->cluster.host.action_s : config->cluster.host.kernel_s;
  if (method->program->arrival)
    return petra_config_fail(config, key,
                             "%g with method %s, which has no fixed order; expected 0, or a method with a fixed order",
                             seconds, method->name);
  if (config->cluster.placement.count > 0 || config->run.mode == PETRA_MODE_EXECUTE)
    return petra_config_fail(config, key, "%g with %s, whose processes issue their own actions; expected 0", seconds,
                             config->cluster.placement.count > 0 ? "cluster.placement" : "run.mode: execute");
  if (config->cluster.host.kernel_s > 0 && config->cluster.stages > 0)
    return petra_config_fail(config, "cluster.host.kernel_s",
                             "%g with cluster.stages, which have no kernels to count; expected 0",
                             config->cluster.host.kernel_s);
  return PETRA_OK;
}

/* Checks the mean time between pauses or failures. Each of them is drawn separately, so a run would not end if this
 * time were far below the duration of an action. */
static petra_status check_mean(const petra_config *config, const char *key, double seconds) {
  if (seconds > 0 && seconds < LEAST_MEAN_S)
    return petra_config_fail(config, key, "%g; expected 0 or at least %g", seconds, LEAST_MEAN_S);
  return PETRA_OK;
}

static petra_status check_node_link(const petra_config *config) {
  const bool latency = config->cluster.node_link.latency_s > 0;
  if (config->cluster.node_link.preset != PETRA_NODE_LINK_SAME ||
      (!latency && config->cluster.node_link.bandwidth_Bps == 0))
    return PETRA_OK;
  return petra_config_fail(config, latency ? "cluster.node_link.latency_s" : "cluster.node_link.bandwidth_Bps",
                           "%g with cluster.node_link.preset: same, which takes it from cluster.link; expected another "
                           "preset, or 0",
                           latency ? config->cluster.node_link.latency_s : config->cluster.node_link.bandwidth_Bps);
}

static petra_status check_cluster(const petra_config *config, const petra_method *method, int32_t stages) {
  const petra_int_list *slow = &config->cluster.stragglers.stages;
  if (method->program->local && config->cluster.cost.model == PETRA_COST_PROFILE)
    return petra_config_fail(config, "cluster.cost.model",
                             "profile with method %s, of whose auxiliary heads no profile has the times; expected "
                             "roofline, kernels or constant",
                             method->name);
  if (counts_kernels(config))
    PETRA_TRY(check_kernels(config));
  if (has_host(config))
    PETRA_TRY(check_host(config, method));
  PETRA_TRY(check_node_link(config));
  if (config->cluster.jitter.model == PETRA_JITTER_EXPONENTIAL && config->cluster.jitter.scale > 1)
    return petra_config_fail(config, "cluster.jitter.scale", "%g with the exponential model; expected 0 .. 1",
                             config->cluster.jitter.scale);
  PETRA_TRY(check_mean(config, "cluster.pauses.mean_between_s", config->cluster.pauses.mean_between_s));
  PETRA_TRY(check_mean(config, "cluster.failures.mean_between_s", config->cluster.failures.mean_between_s));
  if (slow->count > 0 && slow->values[slow->count - 1] > stages)
    return petra_config_fail(config, "cluster.stragglers.stages", "stage %lld of %d; expected 1 .. %d",
                             (long long)slow->values[slow->count - 1], stages, stages);
  if (config->cluster.cost.model == PETRA_COST_CONSTANT && method->program->split_backward &&
      config->cluster.cost.weight_gradient_s > config->cluster.cost.backward_s)
    return petra_config_fail(config, "cluster.cost.weight_gradient_s",
                             "%g s, but it is a part of backward_s, which is %g s; expected no more than that",
                             config->cluster.cost.weight_gradient_s, config->cluster.cost.backward_s);
  return PETRA_OK;
}

static petra_kernel_rates rates_of(const petra_config *config) {
  return (petra_kernel_rates){.launch_s = config->cluster.cost.launch_s,
                              .matrix_flops = config->cluster.cost.efficiency.matrix_flops,
                              .matrix_bytes = config->cluster.cost.efficiency.matrix_bytes,
                              .elementwise_bytes = config->cluster.cost.efficiency.elementwise_bytes};
}

/* Sets the durations of stage `stage` (from 0) from the kernels of its blocks, by petra_roofline_add. */
static petra_status kernel_cost(const petra_plan *plan, int stage, const petra_device_peaks *peaks,
                                const petra_kernel_rates *rates, petra_stage_cost *out) {
  const petra_cost_arithmetic arithmetic = plan->config->cluster.cost.arithmetic;
  petra_roofline_seconds sum = {0};
  for (int i = 0; i < petra_plan_stage_blocks(plan, stage); i++) {
    petra_kernel_list list;
    petra_plan_kernels(plan, petra_plan_stage_block(plan, stage, i), &list);
    PETRA_TRY(petra_roofline_add(peaks, arithmetic, rates, list.kernel, list.count, &sum));
  }
  petra_roofline_cost(&sum, out);
  return PETRA_OK;
}

/* Reads cluster.host. */
static petra_status set_host(petra_cluster *cluster, const petra_plan *plan) {
  const petra_config *config = plan->config;
  petra_host_options *host = &cluster->executor.host;
  if (!has_host(config))
    return PETRA_OK;
  host->devices = config->cluster.host.share == PETRA_HOST_DEVICE ? 1
                  : config->cluster.host.share == PETRA_HOST_NODE ? (int32_t)config->cluster.node_size
                                                                  : INT32_MAX;
  host->action_ns = petra_nanoseconds(config->cluster.host.action_s);
  host->ahead = config->cluster.host.ahead;
  if (config->cluster.host.kernel_s == 0)
    return PETRA_OK;
  PETRA_TRY(petra_allocate(&cluster->host_costs, (size_t)plan->stages, sizeof *cluster->host_costs));
  for (int j = 0; j < plan->stages; j++)
    PETRA_TRY(kernel_cost(plan, j, NULL, &(petra_kernel_rates){.launch_s = config->cluster.host.kernel_s},
                          &cluster->host_costs[j]));
  host->costs = cluster->host_costs;
  return PETRA_OK;
}

/* Applies cluster.speeds: scales each row by the speed of its device. */
static petra_status scale_costs(petra_cluster *cluster, const petra_config *config,
                                const petra_program_options *program) {
  const petra_real_list *speeds = &config->cluster.speeds;
  int32_t devices = petra_program_devices(program);
  if (speeds->count == 0)
    return PETRA_OK;
  if (speeds->count != devices)
    return petra_config_fail(config, "cluster.speeds",
                             "%lld speeds for %d devices; expected one per device, or [] for speed 1 everywhere",
                             (long long)speeds->count, devices);
  for (int32_t stage = 1; stage <= program->stages; stage++)
    PETRA_TRY(petra_cost_scale(&cluster->costs[stage - 1], speeds->values[petra_program_device(program, stage) - 1]));
  return PETRA_OK;
}

/* Creates one row for all stages of cluster.stages, or one row per stage with a model or with cluster.speeds. */
static petra_status set_costs(petra_cluster *cluster, const petra_plan *plan) {
  const petra_config *config = plan->config;
  const petra_program_options *program = &plan->program;
  const petra_device_peaks *peaks = petra_device_peaks_at((int)config->cluster.cost.device);
  const petra_kernel_rates rates =
      config->cluster.cost.model == PETRA_COST_KERNELS ? rates_of(config) : PETRA_KERNEL_RATES_BOUND;
  bool model = config->cluster.stages == 0;
  int32_t rows = model || config->cluster.speeds.count > 0 ? program->stages : 1;
  PETRA_TRY(petra_allocate(&cluster->costs, (size_t)rows, sizeof *cluster->costs));
  for (int32_t r = 0; r < rows; r++) {
    petra_stage_cost *cost = &cluster->costs[r];
    petra_stage_summary summary;
    if (counts_kernels(config))
      PETRA_TRY(kernel_cost(plan, r, peaks, &rates, cost));
    else if (config->cluster.cost.model == PETRA_COST_PROFILE)
      PETRA_TRY(petra_plan_profile_cost(plan, r, PETRA_PROFILE_MEAN, cost));
    else
      *cost = stage_cost(config);
    cost->forward_bytes = config->cluster.message.forward_bytes;
    cost->backward_bytes = program->local ? 0 : config->cluster.message.backward_bytes;
    cost->gradient_bytes = config->cluster.message.gradient_bytes;
    if (model) {
      petra_plan_stage_summary(plan, r, &summary);
      cost->forward_bytes = summary.forward_bytes;
      cost->backward_bytes = summary.backward_bytes;
      cost->gradient_bytes = summary.gradient_bytes;
    }
  }
  cluster->executor.costs = cluster->costs;
  cluster->executor.cost_count = rows;
  return scale_costs(cluster, config, program);
}

static petra_status set_fabric(petra_cluster *cluster, const petra_config *config, int32_t devices) {
  cluster->executor.fabric =
      (petra_fabric_options){.sharing = config->cluster.link.sharing,
                             .latency_ns = petra_nanoseconds(config->cluster.link.latency_s),
                             .bandwidth_Bps = config->cluster.link.bandwidth_Bps,
                             .card_Bps = config->cluster.card_Bps,
                             .has_node_link = config->cluster.node_link.preset != PETRA_NODE_LINK_SAME,
                             .node_latency_ns = petra_nanoseconds(config->cluster.node_link.latency_s),
                             .node_bandwidth_Bps = config->cluster.node_link.bandwidth_Bps};
  if (config->cluster.node_size == 1)
    return PETRA_OK;
  PETRA_TRY(petra_allocate(&cluster->node, (size_t)devices, sizeof *cluster->node));
  for (int32_t d = 0; d < devices; d++)
    cluster->node[d] = d / (int32_t)config->cluster.node_size;
  cluster->executor.fabric.node = cluster->node;
  return PETRA_OK;
}

petra_status petra_cluster_init(petra_cluster *cluster, const petra_plan *plan) {
  const petra_config *config = plan->config;
  const petra_method *method = &plan->method;
  const petra_program_options *program = &plan->program;
  *cluster = (petra_cluster){0};
  PETRA_TRY(check_cluster(config, method, program->stages));
  cluster->executor.engines = (int)config->cluster.engines;
  cluster->executor.overlap = config->cluster.overlap;
  cluster->executor.replicas = (int32_t)config->cluster.replicas;
  cluster->executor.rule = (petra_cost_rule){.recomputes = method->recomputes,
                                             .early = method->early_recompute,
                                             .split_backward = method->program->split_backward,
                                             .fused_head = !program->split_head};
  PETRA_TRY(set_costs(cluster, plan));
  PETRA_TRY(set_host(cluster, plan));
  PETRA_TRY(set_fabric(cluster, config, petra_program_devices(program)));
  if (!petra_jitter_is_none(config))
    cluster->executor.jitter = config;
  return PETRA_OK;
}

void petra_cluster_fini(petra_cluster *cluster) {
  PETRA_FREE_ALL(cluster->node, cluster->host_costs, cluster->costs);
  *cluster = (petra_cluster){0};
}
