/* SPDX-License-Identifier: Apache-2.0 */
/* Launches are told by the stand-ins while a command is launched; how many bytes they move, by the command. */
#include "bench/tick_count.h"

#include "backend/cuda/cuda.h"
#include "backend/backend.h"
#include "base/log.h"
#include "base/mem.h"
#include "cuda_host/control.h"

#include <string.h>

enum { WINDOWS = 2, COMMAND_LAUNCHES_MAX = 16 };

const char *tick_kind_name(tick_kind kind) {
  static const char *const names[] = {
#define TICK_KIND(name, text) text,
      TICK_KINDS(TICK_KIND)
#undef TICK_KIND
  };
  return names[kind];
}

/* The first whose start fits. */
static tick_kind kind_of(const char *name) {
  static const struct {
    const char *start;
    tick_kind kind;
  } starts[] = {{"convolution.forward", TICK_CONV_FORWARD},
                {"convolution.data", TICK_CONV_DATA},
                {"convolution.filter", TICK_CONV_FILTER},
                {"product", TICK_PRODUCT},
                {"copy", TICK_ELEMENTS},
                {"upload", TICK_TRANSFER},
                {"download", TICK_TRANSFER},
                {"cuda_to_bf16", TICK_CONVERSION},
                {"cuda_from_bf16", TICK_CONVERSION},
                {"cuda_statistics", TICK_NORM_STATISTICS},
                {"cuda_norm_statistics", TICK_NORM_STATISTICS},
                {"cuda_norm_apply", TICK_NORM_APPLY},
                {"cuda_norm_sums", TICK_NORM_BACKWARD},
                {"cuda_norm_backward", TICK_NORM_BACKWARD},
                {"cuda_norm_running", TICK_NORM_RUNNING},
                {"cuda_split", TICK_SPLIT},
                {"cuda_space_to_depth", TICK_SPLIT},
                {"cuda_add", TICK_ELEMENTS},
                {"cuda_relu", TICK_ELEMENTS},
                {"cuda_axpy", TICK_ELEMENTS},
                {"cuda_scale", TICK_ELEMENTS},
                {"cuda_fill", TICK_ELEMENTS},
                {"cuda_sgd", TICK_OPTIMISER},
                {"cuda_adam", TICK_OPTIMISER},
                {"cuda_max", TICK_HEAD},
                {"cuda_average", TICK_HEAD},
                {"cuda_bias", TICK_HEAD},
                {"cuda_row_loss", TICK_HEAD},
                {"cuda_batch_loss", TICK_HEAD},
                {"cuda_augment", TICK_IMAGES},
                {"cuda_permute", TICK_IMAGES}};
  for (size_t i = 0; i < sizeof starts / sizeof *starts; i++)
    if (strncmp(name, starts[i].start, strlen(starts[i].start)) == 0)
      return starts[i].kind;
  return TICK_OTHER;
}

typedef struct counter {
  bench_run run; /* first */
  tick_count window[WINDOWS];
  int64_t first; /* microbatch of the first window */
  int now;       /* the window; -1: before the first, WINDOWS: after the last */
  bool in_command;
  tick_launch command[COMMAND_LAUNCHES_MAX]; /* the launches of the command that is being launched */
  int command_count;
  petra_status status; /* of what cannot say so */
} counter;

static petra_status keep(counter *c, const tick_launch *launch) {
  if (c->now < 0 || c->now >= WINDOWS)
    return PETRA_OK;
  tick_count *window = &c->window[c->now];
  PETRA_TRY(petra_array_reserve(&window->launches, &window->capacity, window->count + 1, sizeof *launch));
  window->launches[window->count++] = *launch;
  return PETRA_OK;
}

static void report(void *context, const petra_cuda_host_told *reported) {
  counter *c = context;
  tick_launch launch = {reported->name, kind_of(reported->name), reported->flops, reported->read_bytes,
                        reported->written_bytes};
  if (strcmp(reported->name, "cuda_to_bf16_kernel") == 0) {
    launch.read_bytes = 4.0 * ((const cuda_to_bf16_args *)reported->arguments)->count;
    launch.written_bytes = launch.read_bytes / 2;
  } else if (strcmp(reported->name, "cuda_from_bf16_kernel") == 0) {
    launch.read_bytes = 2.0 * ((const cuda_from_bf16_args *)reported->arguments)->count;
    launch.written_bytes = launch.read_bytes * 2;
  }
  if (!c->in_command && c->status == PETRA_OK)
    c->status = keep(c, &launch);
  else if (c->command_count < COMMAND_LAUNCHES_MAX)
    c->command[c->command_count++] = launch;
  else
    c->status = petra_fail(PETRA_INTERNAL, "tick_model: a command of more than %d launches", COMMAND_LAUNCHES_MAX);
}

/* It sums up what launches before it left in scratch, and reads no tensor. */
static bool finishes(const tick_launch *launch) {
  return strstr(launch->name, "_finish") || strncmp(launch->name, "cuda_batch_loss", 15) == 0;
}

/* The traffic of a command's kernels, where no launch told its own: each reads what the command reads, the last writes what it
 * writes. */
static void share_out(counter *c, const cuda_command *command) {
  tick_launch *last = NULL;
  for (int i = 0; i < c->command_count; i++)
    if (c->command[i].read_bytes > 0 || c->command[i].written_bytes > 0)
      return;
  for (int i = 0; i < c->command_count; i++)
    if (!finishes(&c->command[i])) {
      last = &c->command[i];
      last->read_bytes = (double)command->read_bytes;
    }
  if (last)
    last->written_bytes = (double)command->written_bytes;
}

static petra_status launch(void *context, const cuda_lane *lane, const unsigned char *commands, size_t bytes) {
  counter *c = context;
  tick_count *window = c->now >= 0 && c->now < WINDOWS ? &c->window[c->now] : NULL;
  if (window)
    window->segments++;
  for (size_t at = 0; at < bytes;) {
    cuda_command command;
    const void *arguments;
    at = cuda_command_at(commands, at, &command, &arguments);
    c->command_count = 0;
    c->in_command = true;
    petra_status status = command.launch(lane, arguments);
    c->in_command = false;
    PETRA_TRY(status);
    share_out(c, &command);
    for (int i = 0; i < c->command_count; i++)
      PETRA_TRY(keep(c, &c->command[i]));
    if (window) {
      window->commands++;
      window->command_bytes += (double)command.read_bytes + (double)command.written_bytes;
    }
  }
  return c->status;
}

static petra_status opened(bench_run *run, const petra_network *network, const petra_dataset *set) {
  counter *c = (counter *)run;
  (void)set;
  if (strcmp(network->backend->ops->name, "cuda") != 0)
    return petra_fail(PETRA_UNSUPPORTED, "tick_model: device.backend: %s; expected cuda", network->backend->ops->name);
  for (int w = 0; w < WINDOWS; w++)
    c->window[w].key = bench_key_of(network);
  cuda_of(run->backend)->segment->launcher = (cuda_launcher){launch, c};
  return PETRA_OK;
}

static petra_status starting(petra_observer *base, int64_t now_ns, const petra_action *actions, int count) {
  counter *c = (counter *)base;
  (void)now_ns;
  for (int i = 0; i < count; i++)
    if (actions[i].kind == PETRA_ACTION_FORWARD && actions[i].stage == 1 && c->now < WINDOWS &&
        actions[i].microbatch == c->first + (int64_t)(c->now + 1) * c->window[0].ticks) {
      PETRA_TRY(petra_backend_synchronize(c->run.backend));
      c->now++;
    }
  return PETRA_OK;
}

/* Launches of stages side by side may come in another order. */
static bool equal(const tick_count *a, const tick_count *b) {
  double sums[2][4] = {{0}};
  const tick_count *both[] = {a, b};
  for (int w = 0; w < 2; w++)
    for (int64_t i = 0; i < both[w]->count; i++) {
      const tick_launch *l = &both[w]->launches[i];
      sums[w][0] += l->flops;
      sums[w][1] += l->read_bytes;
      sums[w][2] += l->written_bytes;
      sums[w][3] += l->kind;
    }
  return a->count == b->count && a->segments == b->segments && a->commands == b->commands &&
         memcmp(sums[0], sums[1], sizeof sums[0]) == 0;
}

petra_status tick_count_run(petra_config *config, int warmup, tick_count *out) {
  static const petra_observer_ops ops = {.starting = starting};
  counter c = {.run = {.base.ops = &ops, .opened = opened}, .first = warmup, .now = -1};
  for (int w = 0; w < WINDOWS; w++)
    c.window[w].ticks = (int)config->method.accumulate;
  petra_cuda_host_tell(report, &c);
  petra_status status = bench_device_run(config, warmup + WINDOWS * config->method.accumulate + 1, &c.run);
  petra_cuda_host_tell(NULL, NULL);
  if (status == PETRA_OK && c.now != WINDOWS)
    status = petra_fail(PETRA_INTERNAL, "tick_model: the run ended in window %d", c.now);
  if (status == PETRA_OK && !equal(&c.window[0], &c.window[1]))
    status =
        petra_fail(PETRA_INTERNAL, "tick_model: not steady: %lld launches, then %lld; expected the same: more --warmup",
                   (long long)c.window[0].count, (long long)c.window[1].count);
  tick_count_fini(&c.window[1]);
  if (status == PETRA_OK)
    *out = c.window[0];
  else
    tick_count_fini(&c.window[0]);
  return status;
}

void tick_count_fini(tick_count *count) {
  petra_free(count->launches);
  memset(count, 0, sizeof *count);
}
