/* SPDX-License-Identifier: Apache-2.0 */
/* One tick of a method in the steady state, timed over blocks of ticks with the device synchronized at both ends of
 * a block. */
#include "backend/backend.h"
#include "base/clock.h"
#include "bench/device.h"
#ifdef PETRA_HAVE_CUDA
#include "backend/cuda/cuda.h"
#endif

#include <stdio.h>
#include <string.h>

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
  bench_run run; /* first */
  const bench_options *options;
  const bench_key *key;
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
      PETRA_TRY(petra_backend_synchronize(clock->run.backend));
      clock->last = segments_of(clock->run.backend);
      if (clock->marks == 0)
        clock->first = clock->last;
      clock->at_s[clock->marks++] = petra_clock_s();
    }
  return PETRA_OK;
}

static void print_tick(const clock_observer *clock, double batch) {
  const bench_options *options = clock->options;
  double ms[BENCH_ROUNDS_MAX];
  double all = (double)options->blocks * options->ticks;
  for (int i = 0; i < options->blocks; i++)
    ms[i] = 1e3 * (clock->at_s[i + 1] - clock->at_s[i]) / options->ticks;
  bench_spread spread = bench_spread_of(ms, options->blocks);
  printf("tick/%s ms=%.4f min=%.4f max=%.4f images_per_s=%.0f ticks=%d blocks=%d warmup=%d graphs=%lld "
         "graph_segments_per_tick=%.2f single_segments_per_tick=%.2f\n",
         clock->key->text, spread.median, spread.min, spread.max, 1e3 * batch / spread.median, options->ticks,
         options->blocks, options->warmup, (long long)clock->last.captured,
         (double)(clock->last.launched - clock->first.launched) / all,
         (double)(clock->last.single - clock->first.single) / all);
}

/* The loader alone: where it takes longer than the tick, the tick waits for it. */
static petra_status time_loader(bench_run *run, const petra_network *network, const petra_dataset *set) {
  const clock_observer *clock = (const clock_observer *)run;
  petra_loader_options loading = petra_network_loader(network, 0, network->plan->config->run.max_microbatches);
  petra_loader *loader;
  petra_batch *batch;
  double start = 0;
  int skipped = loading.threads + 2;
  loading.end = skipped + clock->options->ticks;
  PETRA_TRY(petra_loader_create(set, &loading, &loader));
  petra_status status = PETRA_OK;
  for (int64_t m = 0; m < loading.end && status == PETRA_OK; m++) {
    if (m == skipped)
      start = petra_clock_s();
    status = petra_loader_next(loader, &batch);
    if (status == PETRA_OK)
      petra_loader_give_back(loader, batch);
  }
  double ms = 1e3 * (petra_clock_s() - start) / clock->options->ticks;
  petra_loader_destroy(loader);
  if (status == PETRA_OK)
    printf("loader/%s ms=%.4f threads=%d batches=%d\n", clock->key->text, ms, loading.threads, clock->options->ticks);
  return status;
}

petra_status bench_device_tick(petra_config *config, const bench_options *options, const bench_key *key) {
  static const petra_observer_ops ops = {.starting = clock_starting};
  clock_observer clock = {.run = {.base.ops = &ops, .opened = time_loader}, .options = options, .key = key};
  PETRA_TRY(bench_device_run(config, options->warmup + (int64_t)options->blocks * options->ticks + 1, &clock.run));
  print_tick(&clock, (double)config->data.batch);
  return PETRA_OK;
}
