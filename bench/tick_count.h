/* SPDX-License-Identifier: Apache-2.0 */
/* What a tick asks of a device, counted as the `cuda` backend launches it over the stand-ins of tests/cuda_host, which tell
 * work instead of doing it. */
#pragma once

#include "bench/device.h"

/* Kinds of launches: what a table has a row for. All but convolutions, products and transfers is elementwise traffic. */
#define TICK_KINDS(X)                                                                                                  \
  X(CONV_FORWARD, "conv.forward")                                                                                      \
  X(CONV_DATA, "conv.data")                                                                                            \
  X(CONV_FILTER, "conv.filter")                                                                                        \
  X(PRODUCT, "product")                                                                                                \
  X(CONVERSION, "conversion") /* from and to bf16, alone */                                                            \
  X(NORM_STATISTICS, "norm.statistics")                                                                                \
  X(NORM_APPLY, "norm.apply")                                                                                          \
  X(NORM_BACKWARD, "norm.backward")                                                                                    \
  X(NORM_RUNNING, "norm.running")                                                                                      \
  X(SPLIT, "split")       /* and concatenation, shuffles */                                                            \
  X(ELEMENTS, "elements") /* add, ReLU, axpy, fill, copies on the device */                                            \
  X(OPTIMISER, "optimiser")                                                                                            \
  X(HEAD, "head")     /* pools, bias, loss */                                                                          \
  X(IMAGES, "images") /* augmentation and reordering of what came up */                                                \
  X(OTHER, "other")                                                                                                    \
  X(TRANSFER, "transfer") /* copies between host and device: no launches, and priced apart */
typedef enum tick_kind {
#define TICK_KIND(name, text) TICK_##name,
  TICK_KINDS(TICK_KIND)
#undef TICK_KIND
      TICK_KIND_COUNT
} tick_kind;
const char *tick_kind_name(tick_kind kind);

/* One launch. A convolution is one, whatever its library launches for it. */
typedef struct tick_launch {
  const char *name; /* a kernel's, or what petra_cuda_host_told says */
  tick_kind kind;
  double flops, read_bytes, written_bytes;
} tick_launch;

/* Those of the window: the last `accumulate` microbatches of the run. */
typedef struct tick_count {
  tick_launch *launches;
  int64_t count, capacity;
  int64_t segments, commands;
  double command_bytes; /* that the commands say they read and write */
  int ticks;            /* in the window */
  bench_key key;
} tick_count;

/* Runs `warmup` microbatches of the config, which has device.backend cuda, and counts the launches of the next: of as many as an
 * update takes. The same number after them is counted too and has to be equal: PETRA_INTERNAL where the run is not steady. */
petra_status tick_count_run(petra_config *config, int warmup, tick_count *out);
void tick_count_fini(tick_count *count);
