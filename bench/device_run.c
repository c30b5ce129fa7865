/* SPDX-License-Identifier: Apache-2.0 */
/* A run over images in memory: random bytes, which the loader augments as it does in training, and which are uploaded. */
#include "base/mem.h"
#include "bench/device.h"

#include <stdio.h>
#include <string.h>

bench_key bench_key_of(const petra_network *network) {
  static const char *const precisions[] = {"fp32", "fp64", "tf32", "bf16"}, *const graphs[] = {"auto", "on", "off"};
  const petra_config *config = network->plan->config;
  bench_key key;
  snprintf(key.text, sizeof key.text, "%s/%s/b%lld/graph-%s", network->backend->ops->name,
           precisions[network->backend->precision], (long long)config->data.batch, graphs[config->device.graph]);
  return key;
}

int bench_split(const char *key, char *list, char out[BENCH_LIST_MAX][64]) {
  int count = 0;
  char *rest = list;
  out[0][0] = 0;
  for (char *word; list && count < BENCH_LIST_MAX && (word = strtok_r(rest, ",", &rest));)
    snprintf(out[count++], 64, "%s=%s", key, word);
  return count ? count : 1;
}

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

petra_status bench_device_run(petra_config *config, int64_t microbatches, bench_run *watch) {
  memory_set set = {.pixels = NULL};
  petra_run *run = NULL;
  petra_status status;
  const petra_run_options about = {.progress = PETRA_PROGRESS_QUIET, .train = &set.base};
  config->run.epochs = 1000000;
  config->run.eval_every = 0;
  config->run.max_microbatches = microbatches;
  config->data.augment = PETRA_AUGMENT_CROP | PETRA_AUGMENT_FLIP;
  config->optim.lr = 1e-4;
  config->optim.lr_scaling = PETRA_LR_NONE;
  config->lr.warmup_epochs = 0;
  PETRA_TRY_GOTO(status, set_init(&set, config, 8 * config->data.batch), done);
  PETRA_TRY_GOTO(status, petra_run_open(config, &about, &run), done);
  watch->backend = petra_run_network(run)->backend;
  PETRA_TRY_GOTO(status, watch->opened(watch, petra_run_network(run), &set.base), done);
  petra_run_observe(run, &watch->base);
  status = petra_run_go(run);
  petra_status over = petra_backend_synchronize(watch->backend);
  status = status != PETRA_OK ? status : over;
done:
  petra_run_destroy(run);
  petra_free(set.pixels);
  return status;
}
