/* SPDX-License-Identifier: Apache-2.0 */
/* Sets the options of the program from a config. */
#include "base/log.h"
#include "base/mem.h"
#include "nn/optim.h"
#include "setup/virtual_cluster.h"
#include "sim/worker_cost.h"

static petra_status check_program(const petra_config *config, const petra_method *method, int32_t stages) {
  const petra_program_ops *program = method->program;
  const char *name = method->name;
  if (config->run.drain == PETRA_DRAIN_FALSE && !program->undrained)
    return petra_config_fail(config, "run.drain", "method %s always drains; expected auto or true", name);
  if (method->forward_weights == PETRA_WEIGHTS_DOUBLE_BUFFER && config->method.accumulate < stages)
    return petra_config_fail(config, "method.accumulate",
                             "%lld with method %s on %d stages; its two versions of the weights need at least one "
                             "microbatch per stage between updates: expected at least %d",
                             (long long)config->method.accumulate, name, stages, stages);
  if (config->method.credit > 0 && !program->arrival)
    return petra_config_fail(config, "method.credit",
                             "%lld with method %s, whose program is %s; expected 0, or a method by arrival",
                             (long long)config->method.credit, name, program->name);
  if (config->cluster.replicas > 1 && program->arrival)
    return petra_config_fail(config, "cluster.replicas",
                             "%lld with method %s, whose replicas would not reach an update together; expected 1, or a "
                             "method with a fixed order",
                             (long long)config->cluster.replicas, name);
  return PETRA_OK;
}

/* --- the devices of the stages --- */

static petra_status check_chunks(const petra_config *config, const petra_method *method, int32_t stages) {
  const long long chunks = method->chunks;
  const petra_layout layout = method->program->layout;
  if (chunks > 1 && layout == PETRA_LAYOUT_SINGLE)
    return petra_config_fail(
        config, "method.chunks",
        "%lld with method %s, whose program is %s; expected 1, or a method that interleaves stages", chunks,
        method->name, method->program->name);
  if (layout == PETRA_LAYOUT_V && chunks != 2)
    return petra_config_fail(config, "method.chunks", "%lld with method %s, whose stages are in a V; expected 2",
                             chunks, method->name);
  if (layout != PETRA_LAYOUT_ANY && stages % chunks != 0)
    return petra_config_fail(config, "method.chunks",
                             "%lld chunks of %d stages; expected a divisor of the number of stages", chunks, stages);
  return PETRA_OK;
}

/* Checks that a list has a device for each stage and a stage for each device; sets the number of devices. */
static petra_status check_devices(const petra_config *config, int32_t stages, int32_t *devices) {
  const petra_int_list *list = &config->stages.devices;
  PETRA_FREED bool *used = NULL;
  *devices = 0;
  if (list->count != stages)
    return petra_config_fail(config, "stages.devices", "%lld numbers for %d stages; expected one for each stage",
                             (long long)list->count, stages);
  for (int64_t i = 0; i < list->count; i++)
    *devices = list->values[i] > *devices ? (int32_t)list->values[i] : *devices;
  PETRA_TRY(petra_allocate(&used, (size_t)*devices, sizeof *used));
  for (int64_t i = 0; i < list->count; i++)
    used[list->values[i] - 1] = true;
  int32_t d = 0;
  while (d < *devices && used[d])
    d++;
  return d == *devices ? PETRA_OK
                       : petra_config_fail(config, "stages.devices",
                                           "device %d of %d has no stage; expected devices from 1 without a gap", d + 1,
                                           *devices);
}

/* Gets the device of a stage by stages.devices. */
static int32_t device_by_key(const petra_config *config, int32_t devices, int32_t stage) {
  const petra_int_list *key = &config->stages.devices;
  return key->word == 0 ? (int32_t)key->values[stage - 1]
                        : petra_layout_device(key->word == PETRA_DEVICES_V + 1 ? PETRA_LAYOUT_V : PETRA_LAYOUT_LOOP,
                                              devices, stage);
}

/* Sets the devices of the stages: the devices of a file, of the program, or of stages.devices. These must agree. */
static petra_status place_stages(petra_plan *plan, const petra_schedule *file) {
  const petra_config *config = plan->config;
  const petra_layout layout = plan->method.program->layout;
  const bool preset = config->stages.devices.word == PETRA_DEVICES_PRESET + 1;
  int32_t devices = file ? file->devices : plan->stages / plan->method.chunks;
  if (config->stages.devices.word == 0)
    PETRA_TRY(check_devices(config, plan->stages, &devices));
  if (!file && layout == PETRA_LAYOUT_LOOP && config->method.chunks == 0 && plan->stages % devices == 0)
    plan->method.chunks = plan->stages / devices;
  if (!file && devices * plan->method.chunks != plan->stages)
    return petra_config_fail(config, "stages.devices",
                             "%d device%s for %d stages, but %s needs %d on each; expected preset", devices,
                             devices == 1 ? "" : "s", plan->stages, plan->method.name, plan->method.chunks);
  if (layout == PETRA_LAYOUT_SINGLE && config->stages.devices.word == PETRA_DEVICES_V + 1 && devices > 1)
    return petra_config_fail(config, "stages.devices", "v, but %s has one stage on each device; expected preset",
                             plan->method.name);
  petra_free(plan->device_of);
  PETRA_TRY(petra_allocate(&plan->device_of, (size_t)plan->stages, sizeof *plan->device_of));
  for (int32_t stage = 1; stage <= plan->stages; stage++) {
    const int32_t required = file ? file->device_of[stage - 1] : petra_layout_device(layout, devices, stage);
    const int32_t found = preset ? required : device_by_key(config, devices, stage);
    if (found != required)
      return petra_config_fail(config, "stages.devices",
                               file ? "stage %d is on device %d, but %s has it on device %d; expected preset"
                                    : "this puts stage %d on device %d, but %s needs it on device %d; expected preset",
                               stage, found, file ? config->method.schedule : plan->method.name, required);
    plan->device_of[stage - 1] = found;
  }
  plan->program.device_of = devices < plan->stages || layout == PETRA_LAYOUT_ANY ? plan->device_of : NULL;
  plan->program.devices = devices;
  return PETRA_OK;
}

/* --- an order that is written by the costs of the stages --- */

/* Returns the longest time of a message between two devices, up or down, if no other message is under way. */
static int64_t message_ns(const petra_plan *plan, const petra_cluster *cluster) {
  const petra_fabric_options *fabric = &cluster->executor.fabric;
  int64_t longest = 0;
  for (int32_t stage = 1; stage < plan->stages; stage++) {
    const int64_t up = petra_executor_virtual_cost(&cluster->executor, stage)->forward_bytes;
    const int64_t down = petra_executor_virtual_cost(&cluster->executor, stage + 1)->backward_bytes;
    const int32_t from = petra_program_device(&plan->program, stage) - 1,
                  to = petra_program_device(&plan->program, stage + 1) - 1;
    const int64_t ns =
        petra_fabric_latency_ns(fabric, from, to) + petra_fabric_alone_ns(fabric, from, to, up > down ? up : down);
    longest = from != to && ns > longest ? ns : longest;
  }
  return longest;
}

typedef struct simulated_order {
  const petra_plan *plan;
  const petra_cluster *cluster;
} simulated_order;

static petra_status simulate_order(const void *context, const petra_schedule *flush, int64_t flushes, int64_t *out) {
  const simulated_order *r = context;
  petra_program_options program = r->plan->program;
  program.data = flush;
  program.microbatches = flushes * program.accumulate;
  program.eval_every = 0;
  return petra_worker_cost_run(&r->cluster->executor, &r->plan->method, &program, NULL, out);
}

static petra_status write_order(petra_plan *plan) {
  const petra_program_ops *program = plan->method.program;
  PETRA_FREED int64_t(*duration)[PETRA_ACTION_KINDS] = NULL;
  PETRA_FINISHED(petra_cluster_fini) petra_cluster cluster = {0};
  if (!program->write)
    return PETRA_OK;
  petra_schedule_destroy(plan->flush);
  plan->program.data = plan->flush = NULL;
  PETRA_TRY(petra_plan_load_profile(plan));
  PETRA_TRY(petra_cluster_init(&cluster, plan));
  PETRA_TRY(petra_cost_all_durations(cluster.costs, cluster.executor.cost_count, &cluster.executor.rule, plan->stages,
                                     &duration));
  if (!plan->program.split_head)
    duration[plan->stages - 1][PETRA_ACTION_FORWARD] = 0; /* F is part of B */
  cluster.executor.jitter = NULL;                         /* an order cannot depend on random durations */
  const simulated_order context = {plan, &cluster};
  const petra_order_costs costs = {.duration = (const int64_t(*)[PETRA_ACTION_KINDS])duration,
                                   .message = message_ns(plan, &cluster),
                                   .simulate = simulate_order,
                                   .context = &context};
  PETRA_TRY(program->write(&plan->program, &costs, &plan->flush));
  plan->program.data = plan->flush;
  return PETRA_OK;
}

/* --- the options of the program --- */

int64_t petra_plan_microbatches(const petra_config *config, int64_t batches) {
  const int64_t all = config->run.epochs * batches, maximum = config->run.max_microbatches;
  return maximum > 0 && maximum < all ? maximum : all;
}

petra_status petra_plan_program(petra_plan *plan, int64_t microbatches, int64_t batches) {
  const petra_config *config = plan->config;
  const petra_method *method = &plan->method;
  const petra_schedule *schedule = plan->schedule;
  PETRA_TRY(check_chunks(config, method, plan->stages));
  PETRA_TRY(check_program(config, method, plan->stages));
  plan->program = (petra_program_options){.stages = plan->stages,
                                          .chunks = method->chunks,
                                          .microbatches = schedule ? schedule->microbatches : microbatches,
                                          .accumulate = config->method.accumulate,
                                          .drain = config->run.drain == PETRA_DRAIN_TRUE,
                                          .batches = batches,
                                          .eval_every = config->run.eval_every,
                                          .split_head = method->split_head,
                                          .local = method->program->local,
                                          .credit = config->method.credit,
                                          .warmup = config->method.mitigation.sync_warmup_epochs * batches,
                                          .extra_delay = method->extra_delay.values,
                                          .extra_delays = (int32_t)method->extra_delay.count,
                                          .data = schedule ? schedule : plan->flush};
  PETRA_TRY(place_stages(plan, *config->method.schedule ? plan->program.data : NULL));
  PETRA_TRY(petra_program_check(method->program, &plan->program));
  return write_order(plan);
}

/* Returns true if a device does an update, by searching its actions up to the first update. */
static bool device_updates(const petra_plan *plan, int32_t device) {
  petra_cursor cursor = {0};
  petra_action action;
  int64_t round;
  while (petra_program_next(plan->method.program, &plan->program, device, &cursor, &action, &round))
    if (action.kind == PETRA_ACTION_UPDATE)
      return true;
  return false;
}

/* Returns true if any stage does an update. The last stage goes backward first, so no device does an update before the
 * last stage's device. In an order from a file, any device may be first. */
static bool updates(const petra_plan *plan) {
  const int32_t devices = petra_program_devices(&plan->program);
  bool found = plan->method.program->arrival && plan->program.microbatches >= plan->program.accumulate;
  for (int32_t d = devices; !plan->method.program->arrival && !found && d >= (plan->schedule ? 1 : devices); d--)
    found = device_updates(plan, d);
  return found;
}

void petra_plan_warn_idle(const petra_plan *plan) {
  const petra_program_options *program = &plan->program;
  if (plan->config->cluster.stages == 0 && petra_program_losses(plan->method.program, program) > 0 && !updates(plan))
    petra_log(
        PETRA_LOG_WARNING,
        "no stage makes an update in this run: an update takes %lld microbatches (method.accumulate), the run has "
        "%lld (run.epochs, run.max_microbatches)%s; the weights stay as they are",
        (long long)program->accumulate, (long long)program->microbatches,
        program->microbatches < program->accumulate ? "" : ", and ends while they are in flight (run.drain)");
}

/* More actions than this take hours, so the config must state their number explicitly. */
static const int64_t many_actions = INT64_C(10000000000);

/* Returns the microbatches of an epoch; 0 if they are not known without the data and the run does not depend on
 * them. */
static petra_status nominal_batches(const petra_config *config, int64_t *out) {
  int64_t samples;
  PETRA_TRY(petra_dataset_nominal_count(config, &samples));
  if (samples == 0 && config->method.mitigation.sync_warmup_epochs > 0)
    samples = config->data.limit;
  *out = samples / petra_plan_microbatch_samples(config);
  if (samples > 0 && *out == 0)
    *out = 1;
  if (samples == 0 && config->method.mitigation.sync_warmup_epochs > 0)
    return petra_config_fail(config, "method.mitigation.sync_warmup_epochs",
                             "%lld epochs of data.path: %s, which does not exist, so the length of an epoch is "
                             "unknown; expected the file, data.limit for the number of windows of an epoch, or 0",
                             (long long)config->method.mitigation.sync_warmup_epochs, config->data.path);
  return PETRA_OK;
}

petra_status petra_plan_init_any(petra_plan *plan, const petra_config *config) {
  if (config->cluster.stages == 0)
    return petra_plan_init(plan, config);
  *plan = (petra_plan){.config = config, .stages = (int32_t)config->cluster.stages};
  PETRA_TRY(petra_plan_check_messages(config));
  PETRA_TRY(petra_method_from_config(config, &plan->method));
  PETRA_TRY(petra_method_check_stages(config, plan->stages));
  PETRA_TRY(petra_mitigation_check_delays(config, &plan->method, plan->stages));
  petra_method_fit(&plan->method, plan->stages);
  return PETRA_OK;
}

static petra_status place(petra_plan *plan, const petra_config *config) {
  PETRA_TRY(petra_plan_init_any(plan, config));
  PETRA_TRY(petra_plan_read_order(plan));
  PETRA_TRY(check_chunks(config, &plan->method, plan->stages));
  return place_stages(plan, !*config->method.schedule ? NULL : plan->schedule ? plan->schedule : plan->flush);
}

petra_plan_size petra_plan_size_of(const petra_config *config) {
  const int64_t samples = config->method.accumulate * petra_plan_microbatch_samples(config);
  petra_plan_size size = {0};
  petra_plan plan = {0};
  petra_log_kept kept = {.line = ""};
  petra_log_keep(&kept);
  if (place(&plan, config) == PETRA_OK) {
    size = (petra_plan_size){.devices = config->cluster.replicas * plan.program.devices,
                             .update_samples = samples,
                             .update_labels = samples * petra_sample_labels(config)};
    for (int b = 0; b < plan.model.block_count; b++)
      size.parameters += petra_block_parameters(&plan.model, &plan.model.blocks[b]);
    if (plan.model.block_count > 0 && petra_sample_kind_of(config) == PETRA_SAMPLE_TOKENS)
      size.vocabulary = plan.model.classes;
  }
  petra_log_keep_end(&kept);
  petra_plan_fini(&plan);
  return size;
}

/* Rounds up to whole updates, at least two of them. */
static int64_t whole_updates(const petra_plan *plan, int64_t microbatches) {
  const int64_t k = plan->config->method.accumulate;
  return microbatches > 2 * k ? (microbatches + k - 1) / k * k : 2 * k;
}

/* Returns slightly more than the number of microbatches that fill the pipeline `fillings` times, at least two
 * updates. */
static int64_t steady_microbatches(const petra_plan *plan, int fillings) {
  enum { MORE = 8 };
  const int64_t distance = plan->method.program->arrival ? 2 * ((int64_t)plan->stages - 1)
                                                         : petra_method_distance(&plan->method, plan->stages, 1);
  return whole_updates(plan, fillings * distance + MORE);
}

/* Returns 16 microbatches per stage and 8 for each tick of extra delay: half of them come back while the pipeline is
 * full. The number is rounded up to whole updates, at least two, because the time per microbatch and the memory are
 * only right for whole flushes. */
static int64_t nominal_microbatches(const petra_plan *plan) {
  const petra_int_list *extra = &plan->method.extra_delay;
  return whole_updates(plan, 16 * (int64_t)plan->stages + (extra->count > 0 ? 8 * extra->values[0] : 0));
}

/* Gets the samples of an epoch of a training. Without a model data.limit is their number, whatever data.set is. */
static petra_status training_samples(const petra_config *config, int64_t *out) {
  const petra_data_set set = config->data.set;
  petra_dataset *opened;
  if (config->cluster.stages > 0 && config->data.limit > 0) {
    *out = config->data.limit;
    return PETRA_OK;
  }
  if (config->cluster.stages == 0 && (set == PETRA_SET_IMAGEFOLDER || set == PETRA_SET_HDF5)) {
    PETRA_TRY(petra_dataset_open(config, PETRA_SPLIT_TRAIN, &opened));
    *out = opened->count;
    petra_dataset_destroy(opened);
    return PETRA_OK;
  }
  PETRA_TRY(petra_dataset_nominal_count(config, out));
  return *out > 0 ? PETRA_OK
                  : petra_config_fail(config, "data.path",
                                      "%s does not exist, so the length of an epoch is unknown; expected the file",
                                      config->data.path);
}

petra_status petra_plan_trained(petra_plan *plan, const petra_config *config) {
  int64_t samples;
  PETRA_TRY(petra_plan_init_any(plan, config));
  PETRA_TRY(petra_optim_check(config));
  PETRA_TRY(petra_lr_check(config));
  PETRA_TRY(petra_plan_read_order(plan));
  PETRA_TRY(training_samples(config, &samples));
  const int64_t batches = samples / petra_plan_microbatch_samples(config);
  if (batches == 0)
    return petra_config_fail(config, "data.batch",
                             "%lld samples per microbatch, but an epoch has %lld; expected at most that many",
                             (long long)petra_plan_microbatch_samples(config), (long long)samples);
  const int64_t microbatches = petra_plan_microbatches(config, batches);
  PETRA_TRY(petra_plan_program(plan, microbatches, batches));
  return petra_plan_check_training(plan, microbatches);
}

petra_status petra_plan_simulated(petra_plan *plan, const petra_config *config, int fillings) {
  PETRA_TRY(petra_plan_init_any(plan, config));
  PETRA_TRY(petra_plan_read_order(plan));
  int64_t batches = 0;
  PETRA_TRY(nominal_batches(config, &batches));
  int64_t microbatches = config->run.max_microbatches;
  if (microbatches == 0)
    microbatches = config->method.mitigation.sync_warmup_epochs * batches +
                   (fillings > 0 && !plan->schedule ? steady_microbatches(plan, fillings) : nominal_microbatches(plan));
  if (microbatches > many_actions / (2 * plan->stages))
    return petra_config_fail(config, "run.max_microbatches",
                             "%lld microbatches on %d stages are more than %lld actions; expected fewer microbatches",
                             (long long)microbatches, plan->stages, (long long)many_actions);
  PETRA_TRY(petra_plan_program(plan, microbatches, batches > 0 ? batches : microbatches));
  if (config->cluster.stages > 0 || batches == 0)
    plan->program.eval_every = 0; /* there is no evaluation without a model, or if the end of an epoch is not known */
  return PETRA_OK;
}
