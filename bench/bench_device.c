/* SPDX-License-Identifier: Apache-2.0 */
/* bench_device [CONFIG.yaml] [--set KEY=VALUE]... [OPTION]...: one tick of a method (F, B and U of all stages in the steady
 * state, images in memory, their upload included), then each operation of the network alone, on any backend.
 *
 *   --precisions LIST, --batches LIST, --graphs LIST   each with each, as fp32,tf32,bf16 or 64,256 or on,off; else the config's
 *   --warmup N --ticks N --blocks N     microbatches before the clock starts (150), in a block (50), blocks (5)
 *   --no-ticks, --no-operations         the other alone; operations are timed with the first of --graphs alone
 *   --small                             sizes that show that it works, and measure nothing
 *
 * A line begins with what it is about: device, loader/KEY, tick/KEY, ceiling/KEY/WHAT, op/KEY/OPERATION/SHAPE, sum/KEY/WHAT,
 * failed/KEY; KEY is BACKEND/PRECISION/bBATCH/graph-CHOICE. The rest is name=value. Times are in ms: the median, with least and
 * largest. What fails is said and left out; the exit status is then 1. Defaults: petra, RevNet-18, width 64, k = 1. */
#include "bench/device.h"
#include "backend/backend.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { SETS_MAX = 64 };

typedef struct arguments {
  const char *path, *sets[SETS_MAX + 3];
  int set_count;
  char *precisions, *batches, *graphs;
  bool no_ticks, no_operations;
  bench_options options;
} arguments;

static int compare(const void *a, const void *b) {
  double x = *(const double *)a, y = *(const double *)b;
  return (x > y) - (x < y);
}

bench_spread bench_spread_of(double *values, int count) {
  qsort(values, (size_t)count, sizeof *values, compare);
  return (bench_spread){values[0], values[count / 2], values[count - 1]};
}

/* A number from 1 to `most`. */
static bool take_number(const char *text, int maximum, int *out) {
  char *end;
  long value = strtol(text, &end, 10);
  *out = (int)value;
  return *text && !*end && value >= 1 && value <= maximum;
}

static bool take(arguments *a, const char *name, char *value) {
  bench_options *o = &a->options;
  if (strcmp(name, "--set") == 0 && a->set_count < SETS_MAX)
    return a->sets[a->set_count++] = value, true;
  if (strcmp(name, "--precisions") == 0)
    return a->precisions = value, true;
  if (strcmp(name, "--batches") == 0)
    return a->batches = value, true;
  if (strcmp(name, "--graphs") == 0)
    return a->graphs = value, true;
  if (strcmp(name, "--warmup") == 0)
    return take_number(value, 1000000, &o->warmup);
  if (strcmp(name, "--ticks") == 0)
    return take_number(value, 1000000, &o->ticks);
  return strcmp(name, "--blocks") == 0 && take_number(value, BENCH_ROUNDS_MAX, &o->blocks);
}

static bool parse(arguments *a, int argc, char **argv) {
  for (int i = 1; i < argc; i++)
    if (strcmp(argv[i], "--no-ticks") == 0) {
      a->no_ticks = true;
    } else if (strcmp(argv[i], "--no-operations") == 0) {
      a->no_operations = true;
    } else if (strcmp(argv[i], "--small") == 0) {
      a->options = (bench_options){.warmup = 24,
                                   .ticks = 3,
                                   .blocks = 3,
                                   .rounds = 2,
                                   .repeats = 2,
                                   .chain = 2,
                                   .budget_s = 0.01,
                                   .cold_bytes = 1 << 14,
                                   .copy_bytes = 1 << 20,
                                   .ceiling = {2, 16, 8}};
    } else if (strncmp(argv[i], "--", 2) != 0) {
      a->path = argv[i];
    } else if (i + 1 >= argc || !take(a, argv[i], argv[i + 1])) {
      fprintf(stderr, "bench_device: %s %s: see the head of bench/bench_device.c\n", argv[i],
              i + 1 < argc ? argv[i + 1] : "");
      return false;
    } else {
      i++;
    }
  return true;
}

static petra_status measure(const arguments *a, petra_config *config, bool operations, bench_key *key) {
  char text[512];
  petra_status status;
  petra_plan plan;
  petra_network network = {.plan = NULL};
  memset(&plan, 0, sizeof plan);
  PETRA_TRY_GOTO(status, petra_plan_init(&plan, config), done);
  PETRA_TRY_GOTO(status, petra_network_open(&network, &plan, NULL, 0, NULL), done);
  *key = bench_key_of(&network);
  network.backend->ops->describe(network.backend, text, sizeof text);
  printf("device/%s method=%s depth=%d width=%d stages=%d accumulate=%lld: %s\n", key->text, plan.method.name,
         plan.model.depth, plan.model.width, plan.stages, (long long)config->method.accumulate, text);
  if (!a->no_operations && operations)
    PETRA_TRY_GOTO(status, bench_device_operations(&plan, network.backend, &a->options, key), done);
  petra_network_fini(&network); /* the device is the run's alone */
  if (!a->no_ticks)
    status = bench_device_tick(config, &a->options, key);
done:
  fflush(stdout);
  petra_network_fini(&network);
  petra_plan_fini(&plan);
  return status;
}

/* One configuration; `extra` are --set options for it. */
static petra_status run(const arguments *a, const char *const *extra, int extra_count, bool operations) {
  const char *sets[SETS_MAX + 3];
  int count = a->set_count;
  bench_key key = {""};
  petra_config *config;
  memcpy(sets, a->sets, (size_t)count * sizeof *sets);
  for (int i = 0; i < extra_count; i++) {
    sets[count++] = extra[i];
    snprintf(key.text + strlen(key.text), sizeof key.text - strlen(key.text), "%s%s", i ? "," : "", extra[i]);
  }
  petra_status status = petra_config_load(a->path, sets, count, &config);
  if (status == PETRA_OK) {
    status = measure(a, config, operations, &key);
    petra_config_destroy(config);
  }
  if (status != PETRA_OK)
    printf("failed/%s status=%d\n", key.text, petra_status_exit_code(status));
  return status;
}

int main(int argc, char **argv) {
  arguments a = {.sets = {"data.set=shapes", "method.name=petra"},
                 .set_count = 2,
                 .options = {.warmup = 150,
                             .ticks = 50,
                             .blocks = 5,
                             .rounds = 5,
                             .repeats = 50,
                             .chain = 4,
                             .budget_s = 0.1,
                             .cold_bytes = 256.0 * 1048576,
                             .copy_bytes = 1073741824,
                             .ceiling = {64, 512, 32}}};
  char precisions[BENCH_LIST_MAX][64], batches[BENCH_LIST_MAX][64], graphs[BENCH_LIST_MAX][64];
  if (!parse(&a, argc, argv))
    return 2;
  setvbuf(stdout, NULL, _IOLBF, BUFSIZ); /* in a file too: a time limit takes no line */
  int precision_count = bench_split("device.precision", a.precisions, precisions),
      batch_count = bench_split("data.batch", a.batches, batches);
  int graph_count = bench_split("device.graph", a.graphs, graphs);
  bool failed = false;
  for (int p = 0; p < precision_count; p++)
    for (int b = 0; b < batch_count; b++)
      for (int g = 0; g < graph_count; g++) {
        const char *extra[3];
        int count = 0;
        for (int i = 0; i < 3; i++) {
          const char *text = i == 0 ? precisions[p] : i == 1 ? batches[b] : graphs[g];
          if (*text)
            extra[count++] = text;
        }
        failed |= run(&a, extra, count, g == 0) != PETRA_OK; /* operations are graphs of their own */
      }
  return failed;
}
