#include "cli/cluster.h"

#include "base/mem.h"
#include "schedule/schedule.h"

static const double LEAST_MEAN_S = 1e-6;

static petra_status check_program(const petra_config *config, const petra_method *method, int32_t stages) {
  const petra_program_ops *program = method->program;
  const char *name = method->name;
  int64_t chunks = method->chunks;
  if (config->run.drain == PETRA_DRAIN_FALSE && !program->undrained)
    return petra_config_fail(config, "run.drain", "method %s always drains; expected auto or true", name);
  if (chunks > 1 && !program->chunked)
    return petra_config_fail(
        config, "method.chunks",
        "%lld with method %s, whose program is %s; expected 1, or a method that interleaves stages", (long long)chunks,
        name, program->name);
  if (stages % chunks != 0)
    return petra_config_fail(config, "method.chunks",
                             "%lld chunks of %d stages; expected a divisor of the number of stages", (long long)chunks,
                             stages);
  if (method->forward_weights == PETRA_WEIGHTS_DOUBLE_BUFFER && config->method.accumulate < stages)
    return petra_config_fail(
        config, "method.accumulate",
        "%lld with method %s on %d stages; its two versions of the weights need at least one microbatch a stage "
        "between updates: expected at least %d",
        (long long)config->method.accumulate, name, stages, stages);
  if (config->method.credit > 0 && !program->arrival)
    return petra_config_fail(config, "method.credit",
                             "%lld with method %s, whose program is %s; expected 0, or a method by arrival",
                             (long long)config->method.credit, name, program->name);
  return PETRA_OK;
}

petra_status petra_cluster_program(const petra_setup *setup, int32_t stages, int64_t microbatches, int64_t batches,
                                   petra_program_options *out) {
  const petra_config *config = setup->config;
  const petra_method *method = &setup->method;
  const petra_schedule *schedule = petra_setup_schedule(setup);
  PETRA_TRY(check_program(config, method, stages));
  *out = (petra_program_options){.stages = stages,
                                 .chunks = method->chunks,
                                 .microbatches = schedule ? schedule->microbatches : microbatches,
                                 .accumulate = config->method.accumulate,
                                 .drain = config->run.drain == PETRA_DRAIN_TRUE,
                                 .batches = batches,
                                 .eval_every = config->run.eval_every,
                                 .split_head = method->split_head,
                                 .credit = config->method.credit,
                                 .data = schedule};
  return petra_program_check(method->program, out);
}

static petra_status check_roofline(const petra_config *config) {
  if (config->cluster.stages > 0)
    return petra_config_fail(config, "cluster.cost.model",
                             "roofline with cluster.stages, which have no model to count; expected unit or constant");
  if (config->device.precision == PETRA_PRECISION_FP64)
    return petra_config_fail(config, "cluster.cost.model",
                             "roofline with device.precision: fp64, for which it knows no peak; expected "
                             "device.precision: fp32");
  return PETRA_OK;
}

/* Every pause and failure of an action is drawn: with a mean time far below that of an action a run would not end. */
static petra_status check_mean(const petra_config *config, const char *key, double seconds) {
  if (seconds > 0 && seconds < LEAST_MEAN_S)
    return petra_config_fail(config, key, "%g; expected 0 or at least %g", seconds, LEAST_MEAN_S);
  return PETRA_OK;
}

static petra_status check_cluster(const petra_config *config, const petra_method *method, int32_t stages) {
  const petra_int_list *slow = &config->cluster.stragglers.stages;
  if (config->cluster.stages == 0 &&
      (config->cluster.message.forward_bytes > 0 || config->cluster.message.backward_bytes > 0))
    return petra_config_fail(
        config, "cluster.stages",
        "0 with bytes in cluster.message, which are those of cluster.stages; expected 1 .. 100000 stages");
  if (config->cluster.cost.model == PETRA_COST_ROOFLINE)
    PETRA_TRY(check_roofline(config));
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
                             "%g of the %g s of backward_s, which it is a part of; expected no more",
                             config->cluster.cost.weight_gradient_s, config->cluster.cost.backward_s);
  return PETRA_OK;
}

/* cluster.speeds: of the device of each row. */
static petra_status scale_costs(petra_cluster *cluster, const petra_config *config,
                                const petra_program_options *program) {
  const petra_real_list *speeds = &config->cluster.speeds;
  int32_t devices = petra_program_devices(program);
  if (speeds->count == 0)
    return PETRA_OK;
  if (speeds->count != devices)
    return petra_config_fail(config, "cluster.speeds",
                             "%lld speeds for %d devices; expected one a device, or [] for speed 1 everywhere",
                             (long long)speeds->count, devices);
  for (int32_t stage = 1; stage <= program->stages; stage++)
    PETRA_TRY(petra_cost_scale(&cluster->costs[stage - 1], speeds->values[petra_program_device(program, stage) - 1]));
  return PETRA_OK;
}

/* One row for all of cluster.stages, or a row for each stage of the model or, with cluster.speeds, of any. */
static petra_status set_costs(petra_cluster *cluster, petra_setup *setup, const petra_program_options *program) {
  const petra_config *config = setup->config;
  bool model = config->cluster.stages == 0;
  int32_t rows = model || config->cluster.speeds.count > 0 ? program->stages : 1;
  if (config->cluster.cost.model == PETRA_COST_PROFILE)
    PETRA_TRY(petra_setup_load_profile(setup));
  PETRA_TRY(petra_allocate(&cluster->costs, (size_t)rows, sizeof *cluster->costs));
  for (int32_t r = 0; r < rows; r++) {
    petra_stage_cost *cost = &cluster->costs[r];
    petra_stage_summary summary;
    if (config->cluster.cost.model == PETRA_COST_ROOFLINE)
      PETRA_TRY(petra_setup_roofline(setup, r, cost));
    else if (config->cluster.cost.model == PETRA_COST_PROFILE)
      PETRA_TRY(petra_setup_profile_cost(setup, r, cost));
    else
      *cost = petra_setup_cost(config);
    cost->forward_bytes = config->cluster.message.forward_bytes;
    cost->backward_bytes = config->cluster.message.backward_bytes;
    if (model) {
      petra_setup_stage_summary(setup, r, &summary);
      cost->forward_bytes = summary.forward_bytes;
      cost->backward_bytes = summary.backward_bytes;
    }
  }
  cluster->executor.costs = cluster->costs;
  cluster->executor.cost_count = rows;
  return scale_costs(cluster, config, program);
}

static petra_status set_network(petra_cluster *cluster, const petra_config *config, int32_t devices) {
  cluster->executor.network = (petra_network_options){
      .sharing = config->cluster.link.sharing == PETRA_LINK_FAIR ? PETRA_SHARING_FAIR : PETRA_SHARING_FIFO,
      .latency_ns = petra_nanoseconds(config->cluster.link.latency_s),
      .bandwidth_Bps = config->cluster.link.bandwidth_Bps,
      .card_Bps = config->cluster.card_Bps};
  if (config->cluster.node_size == 1)
    return PETRA_OK;
  PETRA_TRY(petra_allocate(&cluster->node, (size_t)devices, sizeof *cluster->node));
  for (int32_t d = 0; d < devices; d++)
    cluster->node[d] = d / (int32_t)config->cluster.node_size;
  cluster->executor.network.node = cluster->node;
  return PETRA_OK;
}

static petra_status duration(void *context, const petra_action *action, int64_t cost_ns, int64_t *duration_ns) {
  return petra_jitter_duration(context, action->stage, (int)action->kind, action->microbatch, cost_ns, duration_ns);
}

static petra_jitter_law law_of(petra_jitter_model model) {
  switch (model) {
  case PETRA_JITTER_NORMAL:
    return PETRA_LAW_NORMAL;
  case PETRA_JITTER_LOGNORMAL:
    return PETRA_LAW_LOGNORMAL;
  case PETRA_JITTER_GAMMA:
    return PETRA_LAW_GAMMA;
  case PETRA_JITTER_EXPONENTIAL:
    return PETRA_LAW_EXPONENTIAL;
  case PETRA_JITTER_NONE:
    break;
  }
  return PETRA_LAW_NONE;
}

static void set_jitter(petra_cluster *cluster, const petra_config *config) {
  cluster->jitter = (petra_jitter_options){.seed = (uint64_t)config->run.seed,
                                           .law = law_of(config->cluster.jitter.model),
                                           .scale = config->cluster.jitter.scale,
                                           .slow = config->cluster.stragglers.stages.values,
                                           .slow_count = config->cluster.stragglers.stages.count,
                                           .factor = config->cluster.stragglers.factor,
                                           .pause_mean_s = config->cluster.pauses.mean_between_s,
                                           .pause_s = config->cluster.pauses.duration_s,
                                           .failure_mean_s = config->cluster.failures.mean_between_s,
                                           .restart_s = config->cluster.failures.restart_s};
  if (petra_jitter_is_none(&cluster->jitter))
    return;
  cluster->executor.duration = duration;
  cluster->executor.duration_context = &cluster->jitter;
}

static petra_status message(void *context, bool sent, int32_t from, const petra_packet *packet, int64_t now_ns) {
  (void)from;
  return petra_trace_add_message(context, sent, packet->stage, packet->backward, packet->microbatch, now_ns);
}

petra_status petra_cluster_init(petra_cluster *cluster, petra_setup *setup, const petra_program_options *program,
                                const char *trace_path) {
  const petra_config *config = setup->config;
  const petra_method *method = &setup->method;
  *cluster = (petra_cluster){0};
  PETRA_TRY(check_cluster(config, method, program->stages));
  cluster->executor.engines = (int)config->cluster.engines;
  cluster->executor.rule = (petra_cost_rule){.recomputes = method->recomputes,
                                             .early = method->early_recompute,
                                             .split_backward = method->program->split_backward,
                                             .fused_head = !program->split_head};
  PETRA_TRY(set_costs(cluster, setup, program));
  PETRA_TRY(set_network(cluster, config, petra_program_devices(program)));
  set_jitter(cluster, config);
  if (!trace_path)
    return PETRA_OK;
  const petra_trace_options trace = {
      .stages = program->stages, .fused_head = !program->split_head, .split_backward = method->program->split_backward};
  PETRA_TRY(petra_trace_create(trace_path, &trace, &cluster->trace));
  cluster->executor.message = message;
  cluster->executor.message_context = cluster->trace;
  return PETRA_OK;
}

petra_status petra_cluster_record(petra_cluster *cluster, const petra_recorder_options *options, petra_worker **out) {
  petra_recorder_options all = *options;
  all.trace = cluster->trace;
  *out = options->worker;
  if (!all.runlog && !(all.trace && all.account))
    return PETRA_OK;
  PETRA_TRY(petra_recorder_create(&all, &cluster->recorder));
  *out = petra_recorder_worker(cluster->recorder);
  return PETRA_OK;
}

petra_status petra_cluster_sink(void *context, const petra_trace_row *row) {
  petra_cluster *cluster = context;
  if (cluster->recorder)
    PETRA_TRY(petra_recorder_ended(cluster->recorder, row));
  if (!cluster->trace || row->action.kind == PETRA_ACTION_EVALUATE) /* E takes no time and is no part of the schedule */
    return PETRA_OK;
  const petra_trace_action action = {.stage = row->action.stage,
                                     .kind = petra_action_letter(row->action.kind),
                                     .microbatch = row->action.microbatch,
                                     .start_ns = row->start_ns,
                                     .end_ns = row->end_ns,
                                     .version_read = row->result.version_read,
                                     .version_written = row->result.version_written};
  return petra_trace_add_action(cluster->trace, &action);
}

petra_status petra_cluster_finish(petra_cluster *cluster) {
  petra_trace *trace = cluster->trace;
  cluster->trace = NULL;
  return petra_trace_close(trace);
}

void petra_cluster_fini(petra_cluster *cluster) {
  petra_recorder_destroy(cluster->recorder);
  petra_trace_destroy(cluster->trace);
  petra_free(cluster->node);
  petra_free(cluster->costs);
  *cluster = (petra_cluster){0};
}
