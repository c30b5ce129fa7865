#define _GNU_SOURCE /* sched_getaffinity */
#include "cli/setup.h"

#include "base/log.h"
#include "base/mem.h"
#include "exec/worker_stage.h"

#include <errno.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

static petra_status check_classes(const petra_config *config, int32_t classes) {
  if (config->model.classes >= classes)
    return PETRA_OK;
  return petra_config_fail(
      config, "model.classes", "%lld outputs for the %d classes of data.set: %s; expected at least %d",
      (long long)config->model.classes, classes, petra_config_choice_name("data.set", (int)config->data.set), classes);
}

petra_status petra_setup_check_data(const petra_setup *setup, const petra_dataset *set) {
  PETRA_TRY(check_classes(setup->config, set->classes));
  if (set->height != setup->model.image_height || set->width != setup->model.image_width)
    return petra_config_fail(
        setup->config, "data.path",
        "images of %d x %d pixels for a network that was built for %d x %d; expected one size in both splits",
        set->width, set->height, setup->model.image_width, setup->model.image_height);
  return PETRA_OK;
}

/* The partition; balanced by the times of a profile where the costs are its. */
static petra_status cut(petra_setup *setup) {
  const petra_config *config = setup->config;
  int64_t *times;
  if (config->stages.partition != PETRA_PARTITION_BALANCED || config->cluster.cost.model != PETRA_COST_PROFILE)
    return petra_partition_init(&setup->partition, config, &setup->model);
  PETRA_TRY(petra_setup_load_profile(setup));
  PETRA_TRY(petra_allocate(&times, (size_t)setup->model.block_count, sizeof *times));
  petra_status status = petra_partition_balance(&setup->partition, config, &setup->model,
                                                petra_setup_block_times(setup, times) ? times : NULL);
  petra_free(times);
  return status;
}

/* What each backend can compute in. */
static petra_status check_precision(const petra_config *config) {
  const petra_backend_kind backend = config->device.backend;
  const petra_precision precision = config->device.precision;
  const char *name = petra_config_choice_name("device.precision", (int)precision);
  if (precision == PETRA_PRECISION_FP64 && backend == PETRA_BACKEND_CPU)
    return petra_config_fail(
        config, "device.precision",
        "fp64 with device.backend: cpu, which computes in fp32 only; expected device.backend: ref");
  if (precision == PETRA_PRECISION_FP64 && backend == PETRA_BACKEND_CUDA)
    return petra_config_fail(
        config, "device.precision",
        "fp64 with device.backend: cuda, which computes in fp32, tf32 and bf16; expected device.backend: ref");
  if ((precision == PETRA_PRECISION_TF32 || precision == PETRA_PRECISION_BF16) &&
      (backend == PETRA_BACKEND_CPU || backend == PETRA_BACKEND_REF))
    return petra_config_fail(config, "device.precision", "%s with device.backend: %s; expected device.backend: cuda",
                             name, petra_config_choice_name("device.backend", (int)backend));
  if (config->device.graph == PETRA_GRAPH_ON && (backend == PETRA_BACKEND_CPU || backend == PETRA_BACKEND_REF))
    return petra_config_fail(config, "device.graph",
                             "on with device.backend: %s, which has no graphs; expected auto or off",
                             petra_config_choice_name("device.backend", (int)backend));
  return PETRA_OK;
}

petra_status petra_setup_plan(petra_setup *setup, const petra_config *config) {
  *setup = (petra_setup){.config = config};
  petra_dataset_shape shape;
  PETRA_TRY(petra_dataset_shape_of(config, &shape));
  PETRA_TRY(petra_model_init(&setup->model, config, shape.height, shape.width));
  PETRA_TRY(petra_method_from_config(config, &setup->method));
  PETRA_TRY(cut(setup));
  petra_method_fit(&setup->method, setup->partition.stages);
  PETRA_TRY(check_classes(config, shape.classes));
  PETRA_TRY(check_precision(config));
  setup->inverts = setup->method.inverts && config->model.family == PETRA_FAMILY_REVNET;
  if (setup->method.inverts && !setup->inverts)
    petra_log(PETRA_LOG_WARNING,
              "method %s on a ResNet, which has no reversible blocks: every block keeps its input and computes its "
              "graph again",
              setup->method.name);
  return PETRA_OK;
}

petra_backend_options petra_setup_backend(const petra_config *config) {
  return (petra_backend_options){.kind = config->device.backend,
                                 .precision = config->device.precision,
                                 .threads = petra_setup_threads(config),
                                 .deterministic = config->device.deterministic,
                                 .graph = config->device.graph};
}

int petra_setup_threads(const petra_config *config) {
  cpu_set_t cores;
  if (config->device.threads > 0)
    return (int)config->device.threads;
  if (sched_getaffinity(0, sizeof cores, &cores) != 0)
    return 1;
  int count = CPU_COUNT(&cores);
  return count > 0 ? count : 1;
}

petra_stage_cost petra_setup_cost(const petra_config *config) {
  if (config->cluster.cost.model == PETRA_COST_UNIT)
    return (petra_stage_cost){.forward_ns = petra_nanoseconds(1),
                              .backward_ns = petra_nanoseconds(2),
                              .reconstruct_ns = petra_nanoseconds(1),
                              .weight_gradient_ns = petra_nanoseconds(1)};
  if (config->cluster.cost.model == PETRA_COST_MEASURED)
    return (petra_stage_cost){0}; /* the worker tells */
  return (petra_stage_cost){.forward_ns = petra_nanoseconds(config->cluster.cost.forward_s),
                            .backward_ns = petra_nanoseconds(config->cluster.cost.backward_s),
                            .reconstruct_ns = petra_nanoseconds(config->cluster.cost.reconstruct_s),
                            .weight_gradient_ns = petra_nanoseconds(config->cluster.cost.weight_gradient_s),
                            .update_ns = petra_nanoseconds(config->cluster.cost.update_s)};
}

petra_status petra_setup_create_stages(petra_setup *setup) {
  const petra_config *config = setup->config;
  PETRA_TRY(petra_allocate(&setup->stage, (size_t)setup->partition.stages, sizeof(petra_stage *)));
  for (int j = 0; j < setup->partition.stages; j++) {
    const petra_stage_options options = {
        .model = &setup->model,
        .number = j + 1,
        .first = setup->partition.first[j],
        .end = setup->partition.first[j + 1],
        .backend = setup->backend,
        .rule = petra_method_stage_rule(&setup->method, setup->inverts),
        .optim = petra_optim_from_config(config),
        .mitigation = petra_method_stage_mitigation(&setup->method, setup->partition.stages, j + 1)};
    PETRA_TRY(petra_stage_create(&options, &setup->stage[j]));
  }
  return PETRA_OK;
}

petra_status petra_setup_stages(petra_setup *setup) {
  const petra_config *config = setup->config;
  const petra_backend_options backend = petra_setup_backend(config);
  PETRA_TRY(petra_backend_create_with(&backend, &setup->backend));
  PETRA_TRY(petra_setup_create_stages(setup));
  for (int j = 0; j < setup->partition.stages; j++)
    PETRA_TRY(petra_stage_initialise(setup->stage[j], (uint64_t)config->run.seed));
  return *config->model.weights ? petra_setup_read_weights(setup, config->model.weights) : PETRA_OK;
}

void petra_setup_fini(petra_setup *setup) {
  for (int j = 0; setup->stage && j < setup->partition.stages; j++)
    petra_stage_destroy(setup->stage[j]);
  petra_free(setup->stage);
  petra_backend_destroy(setup->backend);
  petra_partition_fini(&setup->partition);
  petra_model_fini(&setup->model);
  petra_setup_order_destroy(setup->order);
  petra_profile_destroy(setup->profile);
  *setup = (petra_setup){0};
}

petra_status petra_join_path(const char *directory, const char *name, char **out) {
  size_t size = strlen(directory) + strlen(name) + 2;
  PETRA_TRY(petra_allocate(out, size, 1));
  size_t length = strlen(directory);
  snprintf(*out, size, "%s%s%s", directory, length && directory[length - 1] == '/' ? "" : "/", name);
  return PETRA_OK;
}

/* mkdir -p */
static petra_status make_folders(char *path) {
  for (char *slash = path + 1;; slash++) {
    if (*slash != '/' && *slash != 0)
      continue;
    char kept = *slash;
    *slash = 0;
    struct stat info;
    int made = mkdir(path, 0777);
    bool folder = made == 0 || (errno == EEXIST && stat(path, &info) == 0 && S_ISDIR(info.st_mode));
    if (!folder)
      return petra_fail(PETRA_IO, "%s: cannot make this folder: %s", path,
                        errno == EEXIST ? "a file of that name is in the way" : strerror(errno));
    *slash = kept;
    if (!kept)
      return PETRA_OK;
  }
}

petra_status petra_setup_output(const petra_config *config, const char *output, char **out) {
  char *path;
  if (output)
    PETRA_TRY(petra_duplicate_string(&path, output));
  else
    PETRA_TRY(petra_join_path(config->run.output, config->run.name, &path));
  petra_status status = make_folders(path);
  if (status != PETRA_OK) {
    petra_free(path);
    return status;
  }
  *out = path;
  return PETRA_OK;
}
