/* SPDX-License-Identifier: Apache-2.0 */
/* One tick of a method in the steady state, timed over blocks of ticks with the device synchronized at both ends of
 * a block. Images are random bytes in memory, which the loader normalises as it does in training, and which are
 * uploaded. */
#include "backend/ops.h"
#include "base/clock.h"
#include "base/mem.h"
#include "bench/device.h"
#include "run/run.h"
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
  (void)base;
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

/* Looks at the clock whenever the first microbatch of a block is due. */
typedef struct clock_observer {
  petra_observer base;
  petra_backend *backend;
  const bench_options *options;
  int marks; /* so far */
  double at_s[BENCH_ROUNDS_MAX + 1];
  segments first, last;
} clock_observer;

static petra_status clock_starting(petra_observer *base, int64_t now_ns, const petra_action *actions, int count) {
  clock_observer *clock = (clock_observer *)base;
  const bench_options *options = clock->options;
  (void)now_ns;
  for (int i = 0; i < count; i++)
    if (actions[i].kind == PETRA_ACTION_FORWARD && actions[i].stage == 1 && clock->marks <= options->blocks &&
        actions[i].microbatch == options->warmup + (int64_t)clock->marks * options->ticks) {
      PETRA_TRY(petra_backend_synchronize(clock->backend));
      clock->last = segments_of(clock->backend);
      if (clock->marks == 0)
        clock->first = clock->last;
      clock->at_s[clock->marks++] = petra_clock_s();
    }
  return PETRA_OK;
}

static void print_tick(const clock_observer *clock, const bench_key *key, double batch) {
  const bench_options *options = clock->options;
  double ms[BENCH_ROUNDS_MAX];
  double all = (double)options->blocks * options->ticks;
  for (int i = 0; i < options->blocks; i++)
    ms[i] = 1e3 * (clock->at_s[i + 1] - clock->at_s[i]) / options->ticks;
  bench_spread spread = bench_spread_of(ms, options->blocks);
  printf("tick/%s ms=%.4f min=%.4f max=%.4f images_per_s=%.0f ticks=%d blocks=%d warmup=%d graphs=%lld "
         "graph_segments_per_tick=%.2f single_segments_per_tick=%.2f\n",
         key->text, spread.median, spread.min, spread.max, 1e3 * batch / spread.median, options->ticks, options->blocks,
         options->warmup, (long long)clock->last.captured, (double)(clock->last.launched - clock->first.launched) / all,
         (double)(clock->last.single - clock->first.single) / all);
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

petra_status bench_device_tick(petra_config *config, const bench_options *options, const bench_key *key) {
  static const petra_observer_ops ops = {.starting = clock_starting};
  memory_set set = {.pixels = NULL};
  petra_run *run = NULL;
  petra_status status;
  clock_observer clock = {.base.ops = &ops, .options = options};
  const petra_run_options about = {.progress = PETRA_PROGRESS_QUIET, .train = &set.base};
  config->run.epochs = 1000000;
  config->run.eval_every = 0;
  config->run.max_microbatches = options->warmup + (int64_t)options->blocks * options->ticks + 1;
  config->data.augment = PETRA_AUGMENT_CROP | PETRA_AUGMENT_FLIP;
  config->optim.lr = 1e-4;
  config->optim.lr_scaling = PETRA_LR_NONE;
  config->lr.warmup_epochs = 0;
  PETRA_TRY_GOTO(status, set_init(&set, config, 8 * config->data.batch), done);
  PETRA_TRY_GOTO(status, petra_run_open(config, &about, &run), done);
  clock.backend = petra_run_network(run)->backend;
  PETRA_TRY_GOTO(
      status,
      time_loader(&set, petra_network_loader(petra_run_network(run), 0, config->run.max_microbatches), options, key),
      done);
  petra_run_observe(run, &clock.base);
  status = petra_run_go(run);
  petra_status over = petra_backend_synchronize(clock.backend);
  status = status != PETRA_OK ? status : over;
  if (status == PETRA_OK)
    print_tick(&clock, key, (double)config->data.batch);
done:
  petra_run_destroy(run);
  petra_free(set.pixels);
  return status;
}
