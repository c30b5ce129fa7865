/* SPDX-License-Identifier: Apache-2.0 */
#include "setup/plan.h"

#include "backend/element.h"
#include "backend/registry.h"
#include "base/log.h"
#include "base/mem.h"
#include "nn/optim.h"

#include <stdio.h>

static petra_status check_classes(const petra_config *config, int32_t outputs, int32_t classes) {
  if (outputs >= classes)
    return PETRA_OK;
  return petra_config_fail(config, "model.classes",
                           "%d outputs for the %d classes of data.set: %s; expected at least %d", outputs, classes,
                           petra_config_choice_name("data.set", (int)config->data.set), classes);
}

/* Returns the shape of a sample. */
static petra_stream_shape input_of(const petra_dataset_shape *shape) {
  return shape->samples == PETRA_SAMPLE_TOKENS ? petra_token_stream(shape->context)
                                               : petra_image_stream(shape->height, shape->width);
}

petra_status petra_plan_check_split(const petra_config *config, const petra_stream_shape *input, int32_t outputs,
                                    const petra_dataset *set) {
  PETRA_TRY(check_classes(config, outputs, set->classes));
  if (set->samples == PETRA_SAMPLE_TOKENS) /* every split consists of windows of model.context tokens */
    return PETRA_OK;
  if (set->height != input->height || set->width != input->width)
    return petra_config_fail(
        config, "data.path",
        "images of %d x %d pixels for a network that was built for %d x %d; expected one size in both splits",
        set->width, set->height, input->width, input->height);
  return PETRA_OK;
}

petra_status petra_plan_check_data(const petra_plan *plan, const petra_dataset *set) {
  return petra_plan_check_split(plan->config, &plan->model.input, plan->model.classes, set);
}

petra_status petra_plan_check_batch(const petra_config *config, const petra_dataset *train) {
  const int64_t samples = petra_plan_microbatch_samples(config);
  if (train->count >= samples)
    return PETRA_OK;
  return petra_config_fail(config, "data.batch",
                           "a %s of %lld %s, but the training set has %lld; expected at most that many",
                           config->cluster.replicas > 1 ? "batch of all replicas" : "batch", (long long)samples,
                           petra_sample_words_of(train->samples)->samples, (long long)train->count);
}

void petra_plan_warn_outputs(const petra_plan *plan, const petra_dataset *train) {
  if (plan->model.classes > train->classes)
    petra_log(PETRA_LOG_WARNING, PETRA_PLAN_OUTPUTS, plan->model.classes, train->classes);
}

/* Creates the partition. It is balanced by the times of a profile if the costs come from the profile. */
static petra_status cut(petra_plan *plan) {
  const petra_config *config = plan->config;
  PETRA_FREED int64_t *times = NULL;
  if (config->stages.partition != PETRA_PARTITION_BALANCED || config->cluster.cost.model != PETRA_COST_PROFILE)
    return petra_partition_init(&plan->partition, config, &plan->model);
  PETRA_TRY(petra_plan_load_profile(plan));
  PETRA_TRY(petra_allocate(&times, (size_t)plan->model.block_count, sizeof *times));
  return petra_partition_balance(&plan->partition, config, &plan->model,
                                 petra_plan_block_times(plan, times) ? times : NULL);
}

int64_t petra_plan_element_bytes(const petra_plan *plan, petra_tensor_kind kind) {
  return petra_element_bytes(plan->config->device.backend, plan->config->device.precision, kind);
}

/* Adds the kernels that quantise or read `streams` streams of a message; a format with a scale reads the elements
 * twice. */
static void add_message_kernels(const petra_plan *plan, petra_format choice, petra_kernel_part part, bool reads,
                                const petra_stream_shape *shape, int streams, petra_kernel_list *out) {
  const petra_format format = petra_format_in(choice, plan->config->device.precision);
  const double samples = (double)plan->config->data.batch, elements = samples * (double)petra_stream_elements(shape);
  if (format == PETRA_FORMAT_NATIVE)
    return;
  const double passes = !reads && petra_element_code_bits(format) > 0 ? 2 : 1;
  const double bytes = samples * (double)petra_quantised_bytes(format, petra_stream_elements(shape));
  for (int i = 0; i < streams; i++)
    petra_kernels_add(out, part, false, 4 * elements, passes * elements + bytes / (double)out->element_bytes);
}

static void add_messages(const petra_plan *plan, int block, petra_kernel_list *out) {
  const petra_block *b = &plan->model.blocks[block];
  const petra_format up = plan->config->cluster.message.up, down = plan->config->cluster.message.down;
  const int of_down = plan->method.program->local ? 0 : plan->inverts ? 2 : 1; /* gradients, and perhaps streams */
  int stage = 0;
  if (b->auxiliary)
    return;
  while (plan->partition.first[stage + 1] <= block)
    stage++;
  out->rebuilt = false;
  if (stage > 0 && plan->partition.first[stage] == block) {
    add_message_kernels(plan, up, PETRA_KERNEL_FORWARD, true, &b->shape_in, b->streams_in, out);
    add_message_kernels(plan, down, PETRA_KERNEL_BACKWARD, false, &b->shape_in, of_down * b->streams_in, out);
  }
  if (stage + 1 < plan->partition.stages && plan->partition.first[stage + 1] == block + 1) {
    add_message_kernels(plan, up, PETRA_KERNEL_FORWARD, false, &b->shape_out, b->streams_out, out);
    add_message_kernels(plan, down, PETRA_KERNEL_BACKWARD, true, &b->shape_out, of_down * b->streams_out, out);
  }
}

void petra_plan_kernels(const petra_plan *plan, int block, petra_kernel_list *out) {
  const petra_optim optim = petra_optim_from_config(plan->config);
  petra_block_kernels(&plan->model, &plan->model.blocks[block], &optim, plan->config->data.batch,
                      petra_plan_element_bytes(plan, PETRA_TENSOR_ACTIVATION), out);
  add_messages(plan, block, out);
}

/* Checks the precision, which not every backend supports. */
static petra_status check_precision(const petra_config *config) {
  const petra_backend_kind backend = config->device.backend;
  const bool host = backend == PETRA_BACKEND_CPU || backend == PETRA_BACKEND_REF;
  char text[256];
  if (!petra_precision_check(backend, config->device.precision, text, sizeof text))
    return petra_config_fail(config, "device.precision", "%s", text);
  if (config->device.graph == PETRA_GRAPH_ON && host)
    return petra_config_fail(config, "device.graph",
                             "on with device.backend: %s, which has no graphs; expected auto or off",
                             petra_config_choice_name("device.backend", (int)backend));
  if (*config->device.plans && host)
    return petra_config_fail(config, "device.plans",
                             "%s with device.backend: %s, which has no plans; expected \"\", or cuda",
                             config->device.plans, petra_config_choice_name("device.backend", (int)backend));
  if (config->device.wide_gradients && (config->device.precision != PETRA_PRECISION_BF16 || host))
    return petra_config_fail(config, "device.wide_gradients",
                             "true with device.backend: %s, device.precision: %s; expected false, or cuda and bf16",
                             petra_config_choice_name("device.backend", (int)backend),
                             petra_config_choice_name("device.precision", (int)config->device.precision));
  return PETRA_OK;
}

/* Checks data.recalibrate: statistics cannot be estimated anew if the network has none. */
static petra_status check_recalibration(const petra_plan *plan) {
  for (int b = 0; b < plan->model.block_count; b++)
    if (petra_block_statistic_count(&plan->model.blocks[b]) > 0)
      return PETRA_OK;
  if (plan->config->data.recalibrate == 0)
    return PETRA_OK;
  return petra_config_fail(plan->config, "data.recalibrate", "%lld, but a %s has no batch norms; expected 0",
                           (long long)plan->config->data.recalibrate, petra_family_title(plan->model.family));
}

/* Checks the batch norms of a block. `stage` counts from 1; 0: unknown. */
static petra_status check_norms(const petra_config *config, const petra_model *model, int block, int stage) {
  const petra_block *b = &model->blocks[block];
  char where[32] = "";
  if (stage > 0)
    snprintf(where, sizeof where, " (stage %d)", stage);
  for (int u = 0; u < b->unit_count; u++) {
    const petra_unit *unit = &b->units[u];
    if (config->data.batch * unit->height_out * unit->width_out > 1)
      continue;
    return petra_config_fail(config, "data.batch",
                             "%lld image of %d x %d pixels per microbatch%s: the batch norm %s/%s%s has (1, %d, 1, 1), "
                             "one value per channel, which is its own mean, so nothing before it can learn; expected a "
                             "batch of at least 2, or larger images",
                             (long long)config->data.batch, model->input.width, model->input.height,
                             config->cluster.replicas > 1 ? " and replica" : "", b->name, unit->norm, where, unit->out);
  }
  return PETRA_OK;
}

petra_status petra_plan_check_norms(const petra_plan *plan) {
  for (int j = 0; plan->model.block_count > 0 && j < plan->stages; j++)
    for (int i = 0; i < petra_plan_stage_blocks(plan, j); i++)
      PETRA_TRY(check_norms(plan->config, &plan->model, petra_plan_stage_block(plan, j, i), j + 1));
  return PETRA_OK;
}

petra_status petra_plan_check_network(const petra_config *config, const petra_stream_shape *input, int32_t classes) {
  petra_model model;
  petra_status status = petra_model_init(&model, config, input, classes);
  for (int b = 0; status == PETRA_OK && b < model.block_count; b++)
    status = check_norms(config, &model, b, 0);
  petra_model_fini(&model);
  return status;
}

/* Checks that each sample of a microbatch has its own random draws. */
static petra_status check_draws(const petra_config *config) {
  const petra_format formats[] = {config->cluster.message.up, config->cluster.message.down,
                                  config->method.keep_precision};
  const int64_t samples = petra_plan_microbatch_samples(config);
  for (int i = 0; i < 3; i++)
    if (petra_format_is_random(formats[i]) && samples > PETRA_DRAWS_SAMPLES)
      return petra_config_fail(config, "data.batch",
                               "%lld samples in a microbatch of all replicas; expected at most %d with "
                               "stochastic rounding (qsgd)",
                               (long long)samples, PETRA_DRAWS_SAMPLES);
  return PETRA_OK;
}

/* Checks the size of a batch: the numbers of samples and labels of a model's microbatch have 32 bits. (Networks in
 * PyTorch have cluster.stages.) */
static petra_status check_batch(const petra_config *config) {
  enum { MAXIMUM = 65536 };
  if (config->data.batch > MAXIMUM)
    return petra_config_fail(config, "data.batch", "%lld samples; expected at most %d with a model",
                             (long long)config->data.batch, MAXIMUM);
  return PETRA_OK;
}

/* Stages without a model have no elements; cluster.message gives the bytes of their messages. */
petra_status petra_plan_check_messages(const petra_config *config) {
  const struct {
    const char *key;
    petra_format format;
  } formats[] = {{"cluster.message.up", config->cluster.message.up},
                 {"cluster.message.down", config->cluster.message.down},
                 {"method.keep_precision", config->method.keep_precision}};
  if (config->cluster.stages == 0 &&
      (config->cluster.message.forward_bytes > 0 || config->cluster.message.backward_bytes > 0 ||
       config->cluster.message.gradient_bytes > 0))
    return petra_config_fail(
        config, "cluster.stages",
        "0, but cluster.message sets bytes, which belong to cluster.stages; expected 1 .. 100000 stages");
  for (size_t i = 0; config->cluster.stages > 0 && i < sizeof formats / sizeof *formats; i++)
    if (formats[i].format != PETRA_FORMAT_NATIVE)
      return petra_config_fail(config, formats[i].key,
                               "%s with cluster.stages: %lld, which have no tensors (cluster.message has the bytes of "
                               "their messages); expected native",
                               petra_config_choice_name(formats[i].key, (int)formats[i].format),
                               (long long)config->cluster.stages);
  return PETRA_OK;
}

petra_status petra_plan_init(petra_plan *plan, const petra_config *config) {
  *plan = (petra_plan){.config = config};
  PETRA_TRY(check_batch(config));
  PETRA_TRY(petra_plan_check_messages(config));
  PETRA_TRY(petra_optim_check(config));
  PETRA_TRY(petra_lr_check(config));
  PETRA_TRY(petra_dataset_shape_of(config, &plan->data));
  const petra_stream_shape input = input_of(&plan->data);
  PETRA_TRY(petra_model_init(&plan->model, config, &input, plan->data.classes));
  PETRA_TRY(petra_method_from_config(config, &plan->method));
  PETRA_TRY(cut(plan));
  plan->stages = plan->partition.stages;
  if (plan->method.program->local)
    PETRA_TRY(petra_model_add_auxiliary(&plan->model, plan->stages, plan->partition.first));
  PETRA_TRY(petra_method_check_stages(config, plan->stages));
  PETRA_TRY(petra_mitigation_check_delays(config, &plan->method, plan->stages));
  petra_method_fit(&plan->method, plan->stages);
  PETRA_TRY(check_classes(config, plan->model.classes, plan->data.classes));
  PETRA_TRY(check_precision(config));
  PETRA_TRY(check_recalibration(plan));
  PETRA_TRY(check_draws(config));
  if (config->model.new_head && !*config->model.weights)
    return petra_config_fail(
        config, "model.new_head",
        "true, but there is no model.weights whose head it could replace; expected model.weights, or false");
  plan->inverts = plan->method.inverts && plan->model.reversible;
  if (plan->method.inverts && !plan->inverts)
    petra_log(
        PETRA_LOG_WARNING,
        "method %s on a %s, which has no reversible blocks: every block stores its input and computes its graph again",
        plan->method.name, petra_family_title(config->model.family));
  return PETRA_OK;
}

void petra_plan_fini(petra_plan *plan) {
  petra_partition_fini(&plan->partition);
  petra_model_fini(&plan->model);
  petra_schedule_destroy(plan->schedule);
  petra_schedule_destroy(plan->flush);
  PETRA_FREE_ALL(plan->device_of, plan->distance);
  petra_profile_destroy(plan->profile);
  *plan = (petra_plan){0};
}

static int64_t statistics_of(const petra_block *block) {
  int64_t sum = 0;
  for (int i = 0; i < petra_block_statistic_count(block); i++) {
    petra_tensor_spec spec;
    petra_block_statistic(block, i, &spec);
    sum += spec.shape[0];
  }
  return sum;
}

/* Returns the size of a message of `streams` streams of this shape. */
static int64_t message_bytes(const petra_plan *plan, petra_format choice, const petra_stream_shape *shape,
                             int streams) {
  const petra_format format = petra_format_in(choice, plan->config->device.precision);
  const int64_t elements = petra_stream_elements(shape);
  const int64_t bytes = format == PETRA_FORMAT_NATIVE
                            ? elements * petra_plan_element_bytes(plan, PETRA_TENSOR_ACTIVATION)
                            : petra_quantised_bytes(format, elements);
  return plan->config->data.batch * streams * bytes;
}

void petra_plan_stage_summary(const petra_plan *plan, int stage, petra_stage_summary *out) {
  const petra_config *config = plan->config;
  const petra_block *first = &plan->model.blocks[plan->partition.first[stage]];
  const petra_block *last = &plan->model.blocks[plan->partition.first[stage + 1] - 1];
  const int64_t exact = message_bytes(plan, PETRA_FORMAT_NATIVE, &last->shape_out, last->streams_out);
  int64_t shared = 0;
  *out = (petra_stage_summary){
      .stage = stage + 1,
      .reversible = 1,
      .in = first->shape_in,
      .out = last->shape_out,
      .streams_in = first->streams_in,
      .streams_out = last->is_loss ? 1 : last->streams_out,
      .forward_bytes = message_bytes(plan, config->cluster.message.up, &last->shape_out, last->streams_out)};
  out->forward_capacity = out->forward_bytes > exact ? out->forward_bytes : exact;
  if (first == last)
    snprintf(out->name, sizeof out->name, "%s", first->name);
  else
    snprintf(out->name, sizeof out->name, "%s .. %s", first->name, last->name);
  for (const petra_block *block = first; block <= last; block++)
    out->reversible = out->reversible && block->reversible;
  for (int i = 0; i < petra_plan_stage_blocks(plan, stage); i++) {
    const petra_block *block = &plan->model.blocks[petra_plan_stage_block(plan, stage, i)];
    out->parameters += petra_block_parameters(&plan->model, block);
    shared += petra_block_parameters(&plan->model, block) + statistics_of(block);
    out->forward_flops += petra_block_flops(block);
  }
  /* The size in a message (exec/transport.h). */
  const bool wide = petra_plan_element_bytes(plan, PETRA_TENSOR_VECTOR) > (int64_t)sizeof(float);
  out->gradient_bytes = shared * (int64_t)(wide ? sizeof(double) : sizeof(float));
  if (stage > 0 && !plan->method.program->local)
    out->backward_bytes = message_bytes(plan, config->cluster.message.down, &first->shape_in,
                                        first->streams_in * (plan->inverts ? 2 : 1));
  int32_t stages = plan->stages;
  out->delay = (int32_t)petra_method_distance(&plan->method, stages, stage + 1);
  out->lag = petra_method_lag(&plan->method, stages, stage + 1);
  if (plan->distance) {
    out->delay = (int32_t)plan->distance[stage].delay;
    out->lag = plan->distance[stage].lag;
  }
  if (plan->method.program->moment == PETRA_MOMENT_WINDOW)
    out->delay = 0; /* this also holds with an order from a file, because no update comes in between */
}
