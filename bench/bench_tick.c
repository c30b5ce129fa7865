/* SPDX-License-Identifier: Apache-2.0 */
/* bench_tick [CONFIG.yaml] [--set KEY=VALUE]... [--ticks N] [--warmup N] [--operations]: the time of one PETRA tick (F, B
 * and U of all stages, in the steady state) beside the summed times of its convolutions run alone, in one process and in alternation: after every tick
 * each convolution of the tick is run once by itself. Prints minimum, median and maximum of both and the ratio pair
 * by pair. Defaults: RevNet-18, width 64, batch 64, the generated images, fp32. On a device every tick is
 * synchronized, and each of the convolutions alone is a launch of its own: bench_device is the program for devices.
 * A network without convolutions has the tick alone.
 * --ticks (15) of them are timed, after --warmup (24) from the first loss on: as many as there are stages at least, where the pipeline
 * has to be full.
 * With --operations also where the tick's time goes, operation by operation, and beside it the convolutions alone: what those
 * of the tick take longer is filters made ready and caches that are cold. With one group alone (device.groups: 1). */
#include "backend/backend.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/mem.h"
#include "run/run.h"
#include "tick_operations.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Longer than it takes until a device's actions come again as graphs. */
enum { WARMUP_TICKS = 24, DEVICE_WARMUP_TICKS = 150, MAX_TICKS = 100, TICKS = 15, MAX_BLOCKS = 18 };

/* One convolution of the network with tensors of its own. */
typedef struct conv {
  const petra_unit *unit;
  bool data_gradient; /* not for the stem */
  petra_tensor *x, *w, *y, *dx, *dw;
} conv;

typedef struct bench {
  petra_stage_observer base;
  petra_run *run;
  const petra_plan *plan;
  petra_backend *backend;
  int conv_count;
  conv convs[MAX_BLOCKS * PETRA_BLOCK_UNITS];
  int ticks, warmup; /* done; before the first that is timed */
  int timed;         /* how many are */
  bool operations;   /* timed one by one */
  double last_s;
  double tick_s[MAX_TICKS], conv_s[MAX_TICKS];
} bench;

static petra_status make_conv(bench *b, const petra_unit *unit, bool data_gradient) {
  petra_backend *backend = b->backend;
  const petra_tensor_kind inner = petra_tensor_inner_kind(backend, PETRA_TENSOR_ACTIVATION);
  int32_t images = (int32_t)b->plan->config->data.batch;
  const int32_t in[4] = {images, unit->in, unit->height_in, unit->width_in};
  const int32_t out[4] = {images, unit->out, unit->height_out, unit->width_out};
  const int32_t filter[4] = {unit->out, unit->in, unit->kernel, unit->kernel};
  conv *c = &b->convs[b->conv_count++];
  c->unit = unit;
  c->data_gradient = data_gradient;
  PETRA_TRY(petra_tensor_create(backend, inner, in, NULL, PETRA_MEMORY_WORKSPACE, &c->x));
  PETRA_TRY(petra_tensor_create(backend, inner, in, NULL, PETRA_MEMORY_WORKSPACE, &c->dx));
  PETRA_TRY(petra_tensor_create(backend, inner, out, NULL, PETRA_MEMORY_WORKSPACE, &c->y));
  PETRA_TRY(petra_tensor_create(backend, PETRA_TENSOR_FILTER, filter, NULL, PETRA_MEMORY_WORKSPACE, &c->w));
  PETRA_TRY(petra_tensor_create(backend, PETRA_TENSOR_FILTER, filter, NULL, PETRA_MEMORY_WORKSPACE, &c->dw));
  PETRA_TRY(petra_op_fill(backend, c->x, 0.5));
  PETRA_TRY(petra_op_fill(backend, c->y, 0.5));
  return petra_op_fill(backend, c->w, 0.01);
}

static petra_status make_convs(bench *b) {
  for (int i = 0; i < b->plan->model.block_count; i++) {
    const petra_block *block = &b->plan->model.blocks[i];
    for (int u = 0; u < block->unit_count; u++)
      PETRA_TRY(make_conv(b, &block->units[u], !block->reads_data));
  }
  return PETRA_OK;
}

/* Forward in F, forward again in B (reconstruction or recomputation), both gradients in B. */
static petra_status run_convs(bench *b) {
  petra_backend *backend = b->backend;
  for (int i = 0; i < b->conv_count; i++) {
    conv *c = &b->convs[i];
    const petra_conv_geometry *geometry = &c->unit->geometry;
    PETRA_TRY(petra_op_conv_forward(backend, geometry, c->x, c->w, c->y));
    PETRA_TRY(petra_op_conv_forward(backend, geometry, c->x, c->w, c->y));
    if (c->data_gradient)
      PETRA_TRY(petra_op_conv_backward_data(backend, geometry, c->y, c->w, NULL, c->dx));
    PETRA_TRY(petra_op_conv_backward_filter(backend, geometry, c->x, c->y, c->dw));
  }
  return PETRA_OK;
}

/* Once a tick: the tick has taken the time since the last call; then the convolutions alone. */
static petra_status on_loss(petra_stage_observer *base, int64_t microbatch, const petra_loss *loss, double lr,
                            int64_t virtual_ns) {
  bench *b = (bench *)base;
  (void)microbatch, (void)loss, (void)lr, (void)virtual_ns;
  int index = b->ticks++ - b->warmup;
  if (index < -1)
    return PETRA_OK;
  PETRA_TRY(petra_backend_synchronize(b->backend));
  bench_operations_time(false);
  double tick_end = petra_clock_s();
  PETRA_TRY(run_convs(b));
  PETRA_TRY(petra_backend_synchronize(b->backend));
  double conv_end = petra_clock_s();
  if (index >= 0) {
    b->tick_s[index] = tick_end - b->last_s;
    b->conv_s[index] = conv_end - tick_end;
  }
  b->last_s = conv_end;
  if (index == b->timed - 1)
    return PETRA_COMPLETE; /* it need not come to its end */
  if (b->operations)
    bench_operations_time(true);
  return PETRA_OK;
}

static int compare(const void *a, const void *b) {
  double x = *(const double *)a, y = *(const double *)b;
  return (x > y) - (x < y);
}

static void print_row(const char *name, const double *values, int count, double scale) {
  double sorted[MAX_TICKS];
  memcpy(sorted, values, (size_t)count * sizeof *sorted);
  qsort(sorted, (size_t)count, sizeof *sorted, compare);
  printf("%-34s %9.3f %9.3f %9.3f\n", name, scale * sorted[0], scale * sorted[count / 2], scale * sorted[count - 1]);
}

static void print_result(const bench *b) {
  char text[256];
  double ratio[MAX_TICKS];
  const petra_config *config = b->plan->config;
  b->backend->ops->describe(b->backend, text, sizeof text);
  for (int i = 0; i < b->timed; i++)
    ratio[i] = b->tick_s[i] / b->conv_s[i];
  printf("one tick of %s on %s-%d, width %d, batch %lld, %d stages; %s\n", b->plan->method.name,
         petra_family_title(config->model.family), b->plan->model.depth, b->plan->model.width,
         (long long)config->data.batch, b->plan->partition.stages, text);
  printf("%-34s %9s %9s %9s   (of %d, in alternation)\n", "", "min", "median", "max", b->timed);
  print_row("tick, ms", b->tick_s, b->timed, 1e3);
  if (b->conv_count > 0) {
    print_row("its convolutions alone, ms", b->conv_s, b->timed, 1e3);
    print_row("tick / convolutions", ratio, b->timed, 1);
  }
  if (b->operations)
    bench_operations_print(b->timed);
}

/* A run of as many ticks as are timed, at a rate that harms nothing. */
static petra_status open_run(bench *b, petra_config *config) {
  static const petra_stage_observer_ops ops = {.loss = on_loss};
  const petra_run_options options = {.progress = PETRA_PROGRESS_QUIET};
  const bool cuda = config->device.backend == PETRA_BACKEND_CUDA;
  if (b->warmup == 0)
    b->warmup = cuda ? DEVICE_WARMUP_TICKS : WARMUP_TICKS;
  config->run.eval_every = 0;
  config->run.max_microbatches = MAX_BLOCKS + b->warmup + b->timed + 1;
  config->optim.lr = 1e-4;
  config->optim.lr_scaling = PETRA_LR_NONE;
  config->lr.warmup_epochs = 0;
  PETRA_TRY(petra_run_open(config, &options, &b->run));
  b->base.ops = &ops;
  b->plan = petra_run_plan(b->run);
  b->backend = petra_run_network(b->run)->backend;
  petra_run_observe_stages(b->run, &b->base);
  if (b->operations)
    bench_operations_watch(b->backend);
  return PETRA_OK;
}

static void clean_up(bench *b) {
  for (int i = 0; i < b->conv_count; i++) {
    conv *c = &b->convs[i];
    petra_tensor **const tensors[] = {&c->x, &c->w, &c->y, &c->dx, &c->dw};
    for (int t = 0; t < 5; t++)
      petra_tensor_release(tensors[t]);
  }
  petra_run_destroy(b->run);
}

/* A number from 1 to `most`; else one that is refused. */
static int count_of(const char *text, int maximum) {
  char *end;
  const long value = strtol(text, &end, 10);
  return *end == 0 && value >= 1 && value <= maximum ? (int)value : -1;
}

int main(int argc, char **argv) {
  const char *sets[64] = {"data.set=shapes"};
  const char *path = NULL;
  int set_count = 1;
  int ticks = TICKS, warmup = 0;
  bool operations = false;
  for (int i = 1; i < argc && set_count < 64; i++)
    if (strcmp(argv[i], "--set") == 0 && i + 1 < argc)
      sets[set_count++] = argv[++i];
    else if (strcmp(argv[i], "--ticks") == 0 && i + 1 < argc)
      ticks = count_of(argv[++i], MAX_TICKS);
    else if (strcmp(argv[i], "--warmup") == 0 && i + 1 < argc)
      warmup = count_of(argv[++i], 1000);
    else if (strcmp(argv[i], "--operations") == 0)
      operations = true;
    else
      path = argv[i];
  if (ticks < 0 || warmup < 0) {
    fprintf(stderr, "bench_tick: --ticks 1 .. %d, --warmup 1 .. 1000\n", MAX_TICKS);
    return 2;
  }
  petra_config *config;
  petra_status status = petra_config_load(path, sets, set_count, &config);
  if (status != PETRA_OK)
    return petra_status_exit_code(status);
  bench *b;
  PETRA_TRY_GOTO(status, petra_allocate(&b, 1, sizeof *b), done);
  b->operations = operations;
  b->timed = ticks;
  b->warmup = warmup;
  PETRA_TRY_GOTO(status, open_run(b, config), free_bench);
  PETRA_TRY_GOTO(status, make_convs(b), free_bench);
  status = petra_run_go(b->run);
  if (status == PETRA_COMPLETE) {
    print_result(b);
    status = PETRA_OK;
  } else if (status == PETRA_OK) {
    status = petra_fail(PETRA_INTERNAL, "bench_tick: the run ended before all ticks were timed");
  }
free_bench:
  clean_up(b);
  petra_free(b);
done:
  petra_config_destroy(config);
  return petra_status_exit_code(status);
}
