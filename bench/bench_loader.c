/* SPDX-License-Identifier: Apache-2.0 */
/* bench_loader [CONFIG.yaml] [--set KEY=VALUE]...: samples (images, windows of tokens) per second that the loader gives, for the training
 * split and the augmentation of the config, with data.workers threads, when nothing else is done with them.
 * One round warms up (the files are then in the page cache); of the others minimum, median and maximum are
 * printed, and the same of the core time a sample took, which other programs on the cores do not change much.
 * Defaults: the generated images. */
#include "data/jpeg.h"
#include "data/loader.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { ROUNDS = 7, SAMPLES = 1500 };

static double now_s(clockid_t clock) {
  struct timespec time;
  clock_gettime(clock, &time);
  return (double)time.tv_sec + 1e-9 * (double)time.tv_nsec;
}

static int compare(const void *a, const void *b) {
  double x = *(const double *)a, y = *(const double *)b;
  return (x > y) - (x < y);
}

/* Takes `batches` batches and drops them: samples per second, and seconds of all cores together per sample. */
static petra_status run_round(petra_loader *loader, int64_t batches, double *rate, double *core_s) {
  int64_t samples = 0;
  double start = now_s(CLOCK_MONOTONIC), core_start = now_s(CLOCK_PROCESS_CPUTIME_ID);
  for (int64_t i = 0; i < batches; i++) {
    petra_batch *batch;
    PETRA_TRY(petra_loader_next(loader, &batch));
    samples += batch->count;
    petra_loader_give_back(loader, batch);
  }
  *rate = (double)samples / (now_s(CLOCK_MONOTONIC) - start);
  *core_s = (now_s(CLOCK_PROCESS_CPUTIME_ID) - core_start) / (double)samples;
  return PETRA_OK;
}

static petra_status measure(const petra_config *config, const petra_dataset *set) {
  petra_loader *loader;
  double rate[ROUNDS + 1], core_s[ROUNDS + 1];
  int32_t batch = config->data.batch < set->count ? (int32_t)config->data.batch : (int32_t)set->count;
  const petra_loader_options options = {.batch = batch,
                                        .shuffle = config->data.shuffle,
                                        .augment = config->data.augment,
                                        .drop_last = true,
                                        .threads = (int)config->data.workers,
                                        .seed = (uint64_t)config->run.seed,
                                        .end = INT64_MAX};
  petra_status status = PETRA_OK;
  PETRA_TRY(petra_loader_create(set, &options, &loader));
  for (int i = 0; i <= ROUNDS && status == PETRA_OK; i++)
    status = run_round(loader, (SAMPLES + batch - 1) / batch, &rate[i], &core_s[i]);
  petra_loader_destroy(loader);
  PETRA_TRY(status);
  qsort(rate + 1, ROUNDS, sizeof *rate, compare);
  qsort(core_s + 1, ROUNDS, sizeof *core_s, compare);
  const char *decoder = petra_jpeg_decoder();
  const petra_sample_words *words = petra_sample_words_of(set->samples);
  char size[64];
  if (set->samples == PETRA_SAMPLE_TOKENS)
    snprintf(size, sizeof size, "%d tokens", set->context);
  else
    snprintf(size, sizeof size, "%d x %d", set->width, set->height);
  printf("%s, %lld %s of %s, batches of %d, %d threads, %s\n",
         petra_config_choice_name("data.set", (int)config->data.set), (long long)set->count, words->samples, size,
         batch, options.threads, decoder ? decoder : "no JPEG decoder");
  printf("%s/s, %d rounds of %d: minimum %.0f, median %.0f, maximum %.0f\n", words->samples, ROUNDS, SAMPLES, rate[1],
         rate[1 + ROUNDS / 2], rate[ROUNDS]);
  printf("core time, ms/%s: minimum %.3f, median %.3f, maximum %.3f\n", words->sample, 1e3 * core_s[1],
         1e3 * core_s[1 + ROUNDS / 2], 1e3 * core_s[ROUNDS]);
  return PETRA_OK;
}

int main(int argc, char **argv) {
  const char *sets[64] = {"data.set=shapes"}; /* the default; a config file brings its own */
  const char *path = NULL;
  int set_count = 1;
  petra_config *config;
  petra_dataset *set = NULL;
  for (int i = 1; i < argc && set_count < 64; i++)
    if (strcmp(argv[i], "--set") == 0 && i + 1 < argc)
      sets[set_count++] = argv[++i];
    else
      path = argv[i];
  int skipped = path ? 1 : 0;
  petra_status status = petra_config_load(path, sets + skipped, set_count - skipped, &config);
  if (status != PETRA_OK)
    return petra_status_exit_code(status);
  status = petra_dataset_open(config, PETRA_SPLIT_TRAIN, &set);
  if (status == PETRA_OK)
    status = measure(config, set);
  petra_dataset_destroy(set);
  petra_config_destroy(config);
  return petra_status_exit_code(status);
}
