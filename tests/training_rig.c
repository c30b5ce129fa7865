#include "training_rig.h"

#include "sim/executor_virtual.h"

#include <string.h>

/* Pixels from a multiplicative hash of record and place; they tell records apart, which is all that is asked
 * of them. */
static petra_status read_record(const petra_dataset *set, int64_t index, uint8_t *pixels, int32_t *label) {
  for (int i = 0; i < 3 * set->height * set->width; i++) {
    uint32_t hash = ((uint32_t)index * 2654435761u + (uint32_t)i) * 2246822519u;
    pixels[i] = (uint8_t)((hash ^ hash >> 15) * 3266489917u >> 24);
  }
  *label = (int32_t)(index % set->classes);
  return PETRA_OK;
}

static petra_dataset make_set(int64_t count, int32_t image) {
  static const petra_dataset_ops ops = {.read = read_record};
  return (petra_dataset){.ops = &ops,
                         .count = count,
                         .height = image,
                         .width = image,
                         .classes = 10,
                         .mean = {0.5f, 0.5f, 0.5f},
                         .deviation = {0.25f, 0.25f, 0.25f}};
}

petra_status rig_executor(rig_cost cost, const petra_cost_rule *rule, int engines, petra_executor **out) {
  const petra_stage_cost all = {.forward_ns = cost.forward_ns,
                                .backward_ns = cost.backward_ns,
                                .reconstruct_ns = cost.reconstruct_ns,
                                .update_ns = cost.update_ns};
  const petra_executor_virtual_options options = {.engines = engines, .rule = *rule, .costs = &all, .cost_count = 1};
  return petra_executor_virtual_create(&options, out);
}

static petra_loader_options loader_options(const rig *r, int64_t end) {
  return (petra_loader_options){
      .batch = (int32_t)r->config->data.batch, .drop_last = true, .threads = 1, .seed = 1, .end = end};
}

static petra_status open_stages(rig *r) {
  for (int j = 0; j < r->partition.stages; j++) {
    const petra_stage_options options = {.model = &r->model,
                                         .number = j + 1,
                                         .first = r->partition.first[j],
                                         .end = r->partition.first[j + 1],
                                         .backend = r->backend,
                                         .rule = petra_method_stage_rule(&r->method, r->method.inverts),
                                         .optim = petra_optim_from_config(r->config),
                                         .mitigation =
                                             petra_method_stage_mitigation(&r->method, r->partition.stages, j + 1)};
    PETRA_TRY(petra_stage_create(&options, &r->stage[j]));
    PETRA_TRY(petra_stage_initialise(r->stage[j], 1));
  }
  return PETRA_OK;
}

petra_status rig_open(rig *r, const rig_options *options) {
  memset(r, 0, sizeof *r);
  PETRA_TRY(petra_config_load(NULL, options->sets, options->set_count, &r->config));
  int32_t image = r->config->model.stem == PETRA_STEM_IMAGENET ? RIG_IMAGE_LARGE_STEM : RIG_IMAGE;
  PETRA_TRY(petra_model_init(&r->model, r->config, image, image));
  PETRA_TRY(petra_partition_init(&r->partition, r->config, &r->model));
  PETRA_TRY(petra_method_from_config(r->config, &r->method));
  const petra_backend_options backend = {.kind = r->config->device.backend,
                                         .precision = r->config->device.precision,
                                         .threads = (int)r->config->device.threads,
                                         .deterministic = true,
                                         .graph = r->config->device.graph};
  PETRA_TRY(petra_backend_create_with(&backend, &r->backend));
  r->train = make_set(options->batches * r->config->data.batch, image);
  r->evaluation = make_set(options->eval_images, image);
  r->program = (petra_program_options){.stages = r->partition.stages,
                                       .microbatches = options->microbatches,
                                       .accumulate = r->config->method.accumulate,
                                       .drain = options->drain,
                                       .batches = options->batches,
                                       .eval_every = options->eval_every,
                                       .split_head = r->method.split_head};
  r->lr = petra_lr_from_config(r->config, options->batches);
  const petra_loader_options loader = loader_options(r, options->microbatches);
  PETRA_TRY(petra_loader_create(&r->train, &loader, &r->loader));
  PETRA_TRY(open_stages(r));
  const petra_probe_options probe = {.backend = r->backend,
                                     .stages = r->partition.stages,
                                     .stage = r->stage,
                                     .program = r->method.program,
                                     .program_options = &r->program,
                                     .per_epoch = r->config->probe.per_epoch};
  if (probe.per_epoch > 0)
    PETRA_TRY(petra_probe_create(&probe, &r->probe));
  const petra_worker_stage_options worker = {.backend = r->backend,
                                             .stages = r->partition.stages,
                                             .stage = r->stage,
                                             .loader = r->loader,
                                             .evaluation = &r->evaluation,
                                             .evaluation_loader = loader,
                                             .lr = &r->lr,
                                             .program = r->method.program,
                                             .program_options = &r->program,
                                             .events = options->events,
                                             .probe = r->probe};
  PETRA_TRY(petra_worker_stage_create(&worker, &r->worker));
  const rig_cost cost = {3, 7, 5, 2}; /* coprime */
  const petra_cost_rule rule = {.recomputes = r->method.recomputes,
                                .split_backward = r->method.program->split_backward,
                                .fused_head = !r->method.split_head};
  return rig_executor(cost, &rule, options->engines ? options->engines : 1, &r->executor);
}

petra_status rig_run(rig *r, petra_trace_sink sink, void *context) {
  return r->executor->ops->run(r->executor, r->method.program, &r->program, r->worker, sink, context);
}

void rig_drop_worker(rig *r) {
  petra_worker_stage_destroy(r->worker);
  r->worker = NULL;
}

void rig_close(rig *r) {
  if (r->executor)
    r->executor->ops->destroy(r->executor);
  rig_drop_worker(r);
  petra_probe_destroy(r->probe);
  for (int j = 0; j < RIG_STAGES; j++)
    petra_stage_destroy(r->stage[j]);
  petra_loader_destroy(r->loader);
  petra_backend_destroy(r->backend);
  petra_partition_fini(&r->partition);
  petra_model_fini(&r->model);
  petra_config_destroy(r->config);
  memset(r, 0, sizeof *r);
}

petra_status rig_evaluate(rig *r, petra_evaluation *out) {
  petra_snapshot *snapshots[RIG_STAGES] = {NULL};
  const petra_loader_options loader = loader_options(r, 0);
  petra_status status = PETRA_OK;
  for (int j = 0; j < r->partition.stages; j++)
    PETRA_TRY_GOTO(status, petra_stage_snapshot(r->stage[j], &snapshots[j]), done);
  status = petra_evaluate(r->backend, r->stage, snapshots, r->partition.stages, &r->evaluation, &loader, out);
done:
  for (int j = 0; j < r->partition.stages; j++)
    petra_snapshot_destroy(snapshots[j]);
  return status;
}
