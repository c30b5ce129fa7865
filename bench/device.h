/* SPDX-License-Identifier: Apache-2.0 */
/* What the parts of bench_device share, and tick_model with them. */
#pragma once

#include "run/run.h"

enum { BENCH_ROUNDS_MAX = 64 };

typedef struct bench_options {
  int warmup, ticks, blocks; /* microbatches before the clock starts; microbatches in a block; blocks */
  int rounds, repeats;       /* of an operation: measured rounds, most calls in one segment */
  int chain;                 /* segments in a round */
  double budget_s;           /* about what a round may take: fewer calls where one takes long */
  double cold_bytes;         /* the tensors of an operation together, at least */
  double copy_bytes;         /* of the copy that measures the memory's bandwidth */
  int32_t ceiling[3];        /* images, channels and width of the convolution that measures the arithmetic */
} bench_options;

/* "cuda/tf32/b64/graph-on": what every line of a configuration is named by. */
typedef struct bench_key {
  char text[96];
} bench_key;

bench_key bench_key_of(const petra_network *network);

/* "a,b" as {"KEY=a", "KEY=b"}, how many is returned; one empty text where there is no list, which is cut. */
enum { BENCH_LIST_MAX = 8 };
int bench_split(const char *key, char *list, char out[BENCH_LIST_MAX][64]);

/* Least, middle and largest of `count` values, which are sorted. */
typedef struct bench_spread {
  double min, median, max;
} bench_spread;
bench_spread bench_spread_of(double *values, int count);

/* Who watches a run: it is told of its actions as an observer, and before all of them by `opened`. */
typedef struct bench_run {
  petra_observer base; /* first */
  petra_status (*opened)(struct bench_run *run, const petra_network *network, const petra_dataset *set);
  petra_backend *backend; /* set before `opened` is called */
} bench_run;

/* So many microbatches over random images in memory. The config is changed to such a run. */
petra_status bench_device_run(petra_config *config, int64_t microbatches, bench_run *watch);

/* The tick: prints a line loader/KEY and a line tick/KEY. The config is changed to a run of so many ticks. */
petra_status bench_device_tick(petra_config *config, const bench_options *options, const bench_key *key);

/* The operations with the network's shapes: prints lines ceiling/KEY/..., op/KEY/... and sum/KEY/.... */
petra_status bench_device_operations(const petra_plan *plan, petra_backend *backend, const bench_options *options,
                                     const bench_key *key);
