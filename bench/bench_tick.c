/* bench_tick [CONFIG.yaml] [--set KEY=VALUE]...: the time of one PETRA tick (F, B and U of all stages, in the steady
 * state) beside the summed times of its convolutions run alone, in one process and in alternation: after every tick
 * each convolution of the tick is run once by itself. Prints minimum, median and maximum of both and the ratio pair
 * by pair. Defaults: RevNet-18, width 64, batch 64, the generated images, fp32. On a device every tick is
 * synchronized, and each of the convolutions alone is a launch of its own: bench_device is the program for devices. */
#include "backend/ops.h"
#include "base/clock.h"
#include "base/mem.h"
#include "cli/setup.h"
#include "exec/worker_stage.h"
#include "sim/executor_virtual.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Longer than it takes until a device's actions come again as graphs. */
enum { WARMUP_TICKS = 24, DEVICE_WARMUP_TICKS = 150, TICKS = 15 };

/* One convolution of the network with tensors of its own. */
typedef struct conv {
  const petra_unit *unit;
  bool data_gradient; /* not for the stem */
  petra_tensor *x, *w, *y, *dx, *dw;
} conv;

typedef struct bench {
  petra_setup setup;
  int conv_count;
  conv convs[PETRA_MODEL_BLOCKS * PETRA_BLOCK_UNITS];
  int ticks, warmup;
  double last_s;
  double tick_s[TICKS], conv_s[TICKS];
} bench;

static petra_status make_conv(bench *b, const petra_unit *unit, bool data_gradient) {
  petra_backend *backend = b->setup.backend;
  int32_t images = (int32_t)b->setup.config->data.batch;
  const int32_t in[4] = {images, unit->in, unit->height_in, unit->width_in};
  const int32_t out[4] = {images, unit->out, unit->height_out, unit->width_out};
  const int32_t filter[4] = {unit->out, unit->in, unit->kernel, unit->kernel};
  conv *c = &b->convs[b->conv_count++];
  c->unit = unit;
  c->data_gradient = data_gradient;
  PETRA_TRY(petra_tensor_create(backend, PETRA_TENSOR_ACTIVATION, in, NULL, PETRA_MEMORY_WORKSPACE, &c->x));
  PETRA_TRY(petra_tensor_create(backend, PETRA_TENSOR_ACTIVATION, in, NULL, PETRA_MEMORY_WORKSPACE, &c->dx));
  PETRA_TRY(petra_tensor_create(backend, PETRA_TENSOR_ACTIVATION, out, NULL, PETRA_MEMORY_WORKSPACE, &c->y));
  PETRA_TRY(petra_tensor_create(backend, PETRA_TENSOR_FILTER, filter, NULL, PETRA_MEMORY_WORKSPACE, &c->w));
  PETRA_TRY(petra_tensor_create(backend, PETRA_TENSOR_FILTER, filter, NULL, PETRA_MEMORY_WORKSPACE, &c->dw));
  PETRA_TRY(petra_op_fill(backend, c->x, 0.5));
  PETRA_TRY(petra_op_fill(backend, c->y, 0.5));
  return petra_op_fill(backend, c->w, 0.01);
}

static petra_status make_convs(bench *b) {
  for (int i = 0; i < b->setup.model.block_count; i++) {
    const petra_block *block = &b->setup.model.blocks[i];
    for (int u = 0; u < block->unit_count; u++)
      PETRA_TRY(make_conv(b, &block->units[u], block->kind != PETRA_BLOCK_STEM));
  }
  return PETRA_OK;
}

/* Forward in F, forward again in B (reconstruction or recomputation), both gradients in B. */
static petra_status run_convs(bench *b) {
  petra_backend *backend = b->setup.backend;
  for (int i = 0; i < b->conv_count; i++) {
    conv *c = &b->convs[i];
    const petra_conv_geometry *geometry = &c->unit->geometry;
    PETRA_TRY(petra_op_conv_forward(backend, geometry, c->x, c->w, c->y));
    PETRA_TRY(petra_op_conv_forward(backend, geometry, c->x, c->w, c->y));
    if (c->data_gradient)
      PETRA_TRY(petra_op_conv_backward_data(backend, geometry, c->y, c->w, c->dx));
    PETRA_TRY(petra_op_conv_backward_filter(backend, geometry, c->x, c->y, c->dw));
  }
  return PETRA_OK;
}

/* Once a tick: the tick has taken the time since the last call; then the convolutions alone. */
static petra_status on_loss(void *context, int64_t microbatch, const petra_loss *loss, double lr, int64_t virtual_ns) {
  bench *b = context;
  (void)microbatch, (void)loss, (void)lr, (void)virtual_ns;
  int index = b->ticks++ - b->warmup;
  if (index < -1 || index >= TICKS)
    return PETRA_OK;
  PETRA_TRY(petra_backend_synchronize(b->setup.backend));
  double tick_end = petra_clock_s();
  PETRA_TRY(run_convs(b));
  PETRA_TRY(petra_backend_synchronize(b->setup.backend));
  double conv_end = petra_clock_s();
  if (index >= 0) {
    b->tick_s[index] = tick_end - b->last_s;
    b->conv_s[index] = conv_end - tick_end;
  }
  b->last_s = conv_end;
  return PETRA_OK;
}

static int compare(const void *a, const void *b) {
  double x = *(const double *)a, y = *(const double *)b;
  return (x > y) - (x < y);
}

static void print_row(const char *name, const double *values, double scale) {
  double sorted[TICKS];
  memcpy(sorted, values, sizeof sorted);
  qsort(sorted, TICKS, sizeof *sorted, compare);
  printf("%-34s %9.3f %9.3f %9.3f\n", name, scale * sorted[0], scale * sorted[TICKS / 2], scale * sorted[TICKS - 1]);
}

static void print_result(const bench *b) {
  char text[256];
  double ratio[TICKS];
  const petra_config *config = b->setup.config;
  b->setup.backend->ops->describe(b->setup.backend, text, sizeof text);
  for (int i = 0; i < TICKS; i++)
    ratio[i] = b->tick_s[i] / b->conv_s[i];
  printf("one tick of %s on %s-%d, width %d, batch %lld, %d stages; %s\n", b->setup.method.name,
         config->model.family == PETRA_FAMILY_REVNET ? "RevNet" : "ResNet", b->setup.model.depth, b->setup.model.width,
         (long long)config->data.batch, b->setup.partition.stages, text);
  printf("%-34s %9s %9s %9s   (of %d, in alternation)\n", "", "min", "median", "max", TICKS);
  print_row("tick, ms", b->tick_s, 1e3);
  print_row("its convolutions alone, ms", b->conv_s, 1e3);
  print_row("tick / convolutions", ratio, 1);
}

static petra_status run_ticks(bench *b) {
  const petra_config *config = b->setup.config;
  petra_dataset *set = NULL;
  petra_loader *loader = NULL;
  petra_worker *worker = NULL;
  petra_executor *executor = NULL;
  petra_status status;
  int32_t stages = b->setup.partition.stages;
  const petra_program_ops *program = b->setup.method.program;
  const petra_program_options options = {.stages = stages,
                                         .microbatches = stages + b->warmup + TICKS + 1,
                                         .accumulate = config->method.accumulate,
                                         .batches = INT32_MAX};
  const petra_lr lr = {.base = 1e-4, .batches = INT32_MAX, .factor = 1};
  const petra_loader_options loading = {.batch = (int32_t)config->data.batch,
                                        .shuffle = true,
                                        .augment = config->data.augment,
                                        .drop_last = true,
                                        .threads = 1,
                                        .seed = 1,
                                        .end = options.microbatches};
  const petra_stage_cost cost = petra_setup_cost(config);
  const petra_executor_virtual_options clock = {
      .engines = 1, .rule = {.recomputes = true, .fused_head = true}, .costs = &cost, .cost_count = 1};
  PETRA_TRY_GOTO(status, petra_dataset_open(config, PETRA_SPLIT_TRAIN, &set), done);
  PETRA_TRY_GOTO(status, petra_loader_create(set, &loading, &loader), done);
  const petra_worker_stage_options work = {.backend = b->setup.backend,
                                           .stages = stages,
                                           .stage = b->setup.stage,
                                           .loader = loader,
                                           .image_height = set->height,
                                           .image_width = set->width,
                                           .lr = &lr,
                                           .program = program,
                                           .program_options = &options,
                                           .events = {.context = b, .loss = on_loss}};
  PETRA_TRY_GOTO(status, petra_worker_stage_create(&work, &worker), done);
  PETRA_TRY_GOTO(status, petra_executor_virtual_create(&clock, &executor), done);
  status = executor->ops->run(executor, program, &options, worker, NULL, NULL);
done:
  if (executor)
    executor->ops->destroy(executor);
  petra_worker_stage_destroy(worker);
  petra_loader_destroy(loader);
  petra_dataset_destroy(set);
  return status;
}

static void clean_up(bench *b) {
  for (int i = 0; i < b->conv_count; i++) {
    conv *c = &b->convs[i];
    petra_tensor **const tensors[] = {&c->x, &c->w, &c->y, &c->dx, &c->dw};
    for (int t = 0; t < 5; t++)
      petra_tensor_release(tensors[t]);
  }
  petra_setup_fini(&b->setup);
}

int main(int argc, char **argv) {
  const char *sets[64] = {"data.set=shapes"};
  const char *path = NULL;
  int set_count = 1;
  for (int i = 1; i < argc && set_count < 64; i++)
    if (strcmp(argv[i], "--set") == 0 && i + 1 < argc)
      sets[set_count++] = argv[++i];
    else
      path = argv[i];
  petra_config *config;
  petra_status status = petra_config_load(path, sets, set_count, &config);
  if (status != PETRA_OK)
    return petra_status_exit_code(status);
  bench *b;
  PETRA_TRY_GOTO(status, petra_allocate(&b, 1, sizeof *b), done);
  PETRA_TRY_GOTO(status, petra_setup_plan(&b->setup, config), free_bench);
  PETRA_TRY_GOTO(status, petra_setup_stages(&b->setup), free_bench);
  b->warmup = strcmp(b->setup.backend->ops->name, "cuda") == 0 ? DEVICE_WARMUP_TICKS : WARMUP_TICKS;
  PETRA_TRY_GOTO(status, make_convs(b), free_bench);
  PETRA_TRY_GOTO(status, run_ticks(b), free_bench);
  print_result(b);
free_bench:
  clean_up(b);
  petra_free(b);
done:
  petra_config_destroy(config);
  return petra_status_exit_code(status);
}
