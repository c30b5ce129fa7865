/* One tick of a method in the steady state, timed over blocks of ticks with the device synchronized at both ends of
 * a block. Images are random bytes in memory, which the loader normalises as it does in training, and which are
 * uploaded. */
#include "backend/ops.h"
#include "base/clock.h"
#include "base/mem.h"
#include "bench/device.h"
#include "exec/worker_stage.h"
#include "sim/executor_virtual.h"
#ifdef PETRA_HAVE_CUDA
#include "backend/cuda/graph.h"
#endif

#include <stdio.h>
#include <string.h>

/* A data set in memory. */
typedef struct memory_set {
  petra_dataset base;
  uint8_t *pixels;
} memory_set;

static void set_destroy(petra_dataset *base) {
  (void)base; /* set_fini */
}

static petra_status set_read(const petra_dataset *base, int64_t index, uint8_t *pixels, int32_t *label) {
  const memory_set *set = (const memory_set *)base;
  size_t bytes = (size_t)3 * (size_t)base->height * (size_t)base->width;
  memcpy(pixels, set->pixels + (size_t)index * bytes, bytes);
  *label = (int32_t)(index % base->classes);
  return PETRA_OK;
}

static petra_status set_init(memory_set *set, const petra_config *config, int64_t count) {
  static const petra_dataset_ops ops = {.destroy = set_destroy, .read = set_read};
  petra_dataset_shape shape;
  PETRA_TRY(petra_dataset_shape_of(config, &shape));
  set->base = (petra_dataset){.ops = &ops,
                              .count = count,
                              .height = shape.height,
                              .width = shape.width,
                              .classes = shape.classes,
                              .mean = {0.5, 0.5, 0.5},
                              .deviation = {0.25, 0.25, 0.25}};
  size_t bytes = (size_t)count * 3 * (size_t)shape.height * (size_t)shape.width;
  PETRA_TRY(petra_allocate(&set->pixels, bytes, 1));
  uint32_t state = 1;
  for (size_t i = 0; i < bytes; i++) {
    state = state * 1664525u + 1013904223u;
    set->pixels[i] = (uint8_t)(state >> 24);
  }
  return PETRA_OK;
}

/* How many segments of work went to the device, as graphs and one by one. */
typedef struct segments {
  int64_t captured, launched, single;
} segments;

static segments segments_of(petra_backend *backend) {
  segments found = {0, 0, 0};
#ifdef PETRA_HAVE_CUDA
  if (strcmp(backend->ops->name, "cuda") == 0 && cuda_of(backend)->graphs)
    cuda_graphs_count(cuda_of(backend)->graphs, &found.captured, &found.launched, &found.single);
#else
  (void)backend;
#endif
  return found;
}

/* The worker that trains, behind one that looks at the clock whenever the first microbatch of a block is due. */
typedef struct clock_worker {
  petra_worker base;
  petra_worker *inner;
  petra_backend *backend;
  const bench_options *options;
  int marks; /* so far */
  double at_s[BENCH_ROUNDS_MAX + 1];
  segments first, last;
} clock_worker;

static petra_status clock_perform(petra_worker *base, int64_t virtual_ns, const petra_action *actions, int count,
                                  petra_action_result *results) {
  clock_worker *worker = (clock_worker *)base;
  const bench_options *options = worker->options;
  for (int i = 0; i < count; i++)
    if (actions[i].kind == PETRA_ACTION_FORWARD && actions[i].stage == 1 && worker->marks <= options->blocks &&
        actions[i].microbatch == options->warmup + (int64_t)worker->marks * options->ticks) {
      PETRA_TRY(petra_backend_synchronize(worker->backend));
      worker->last = segments_of(worker->backend);
      if (worker->marks == 0)
        worker->first = worker->last;
      worker->at_s[worker->marks++] = petra_clock_s();
    }
  return worker->inner->ops->perform(worker->inner, virtual_ns, actions, count, results);
}

static void print_tick(const clock_worker *worker, const bench_key *key, double batch) {
  const bench_options *options = worker->options;
  double ms[BENCH_ROUNDS_MAX];
  double all = (double)options->blocks * options->ticks;
  for (int i = 0; i < options->blocks; i++)
    ms[i] = 1e3 * (worker->at_s[i + 1] - worker->at_s[i]) / options->ticks;
  bench_spread spread = bench_spread_of(ms, options->blocks);
  printf("tick/%s ms=%.4f min=%.4f max=%.4f images_per_s=%.0f ticks=%d blocks=%d warmup=%d graphs=%lld "
         "graph_segments_per_tick=%.2f single_segments_per_tick=%.2f\n",
         key->text, spread.median, spread.min, spread.max, 1e3 * batch / spread.median, options->ticks, options->blocks,
         options->warmup, (long long)worker->last.captured,
         (double)(worker->last.launched - worker->first.launched) / all,
         (double)(worker->last.single - worker->first.single) / all);
}

/* The loader alone: where it takes longer than the tick, the tick waits for it. */
static petra_status time_loader(const memory_set *set, petra_loader_options loading, const bench_options *options,
                                const bench_key *key) {
  petra_loader *loader;
  petra_batch *batch;
  double start = 0;
  int skipped = loading.threads + 2;
  loading.end = skipped + options->ticks;
  PETRA_TRY(petra_loader_create(&set->base, &loading, &loader));
  petra_status status = PETRA_OK;
  for (int64_t m = 0; m < loading.end && status == PETRA_OK; m++) {
    if (m == skipped)
      start = petra_clock_s();
    status = petra_loader_next(loader, &batch);
    if (status == PETRA_OK)
      petra_loader_give_back(loader, batch);
  }
  double ms = 1e3 * (petra_clock_s() - start) / options->ticks;
  petra_loader_destroy(loader);
  if (status == PETRA_OK)
    printf("loader/%s ms=%.4f threads=%d batches=%d\n", key->text, ms, loading.threads, options->ticks);
  return status;
}

petra_status bench_device_tick(petra_setup *setup, const bench_options *options, const bench_key *key) {
  const petra_config *config = setup->config;
  memory_set set = {.pixels = NULL};
  petra_loader *loader = NULL;
  petra_executor *executor = NULL;
  petra_status status;
  int32_t stages = setup->partition.stages;
  clock_worker worker = {
      .base.ops = &(const petra_worker_ops){.perform = clock_perform}, .backend = setup->backend, .options = options};
  const petra_program_options program = {.stages = stages,
                                         .microbatches =
                                             options->warmup + (int64_t)options->blocks * options->ticks + 1,
                                         .accumulate = config->method.accumulate,
                                         .batches = INT32_MAX};
  const petra_lr lr = {.base = 1e-4, .batches = INT32_MAX, .factor = 1};
  petra_loader_options loading = {.batch = (int32_t)config->data.batch,
                                  .shuffle = true,
                                  .augment = PETRA_AUGMENT_CROP | PETRA_AUGMENT_FLIP,
                                  .bytes = petra_backend_takes_images(setup->backend),
                                  .drop_last = true,
                                  .threads = (int)config->data.workers,
                                  .seed = 1,
                                  .end = program.microbatches};
  const petra_stage_cost cost = petra_setup_cost(config);
  const petra_executor_virtual_options clock = {
      .engines = 1, .rule = {.recomputes = true, .fused_head = true}, .costs = &cost, .cost_count = 1};
  PETRA_TRY_GOTO(status, set_init(&set, config, 8 * config->data.batch), done);
  PETRA_TRY_GOTO(status, time_loader(&set, loading, options, key), done);
  PETRA_TRY_GOTO(status, petra_loader_create(&set.base, &loading, &loader), done);
  const petra_worker_stage_options work = {.backend = setup->backend,
                                           .stages = stages,
                                           .stage = setup->stage,
                                           .loader = loader,
                                           .image_height = set.base.height,
                                           .image_width = set.base.width,
                                           .lr = &lr,
                                           .program = setup->method.program,
                                           .program_options = &program};
  PETRA_TRY_GOTO(status, petra_worker_stage_create(&work, &worker.inner), done);
  PETRA_TRY_GOTO(status, petra_executor_virtual_create(&clock, &executor), done);
  status = executor->ops->run(executor, setup->method.program, &program, &worker.base, NULL, NULL);
  petra_status over = petra_backend_synchronize(setup->backend);
  status = status != PETRA_OK ? status : over;
  if (status == PETRA_OK)
    print_tick(&worker, key, (double)config->data.batch);
done:
  if (executor)
    executor->ops->destroy(executor);
  petra_worker_stage_destroy(worker.inner);
  petra_loader_destroy(loader);
  petra_free(set.pixels);
  return status;
}
