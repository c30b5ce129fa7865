/* SPDX-License-Identifier: Apache-2.0 */
/* dump_batches CONFIG.yaml FIRST END [--set KEY=VALUE]...: the training samples of the microbatches FIRST ..
 * END - 1 as the loader gives them, doubles one behind the other, on standard output. For tests/cli/data.py.
 *
 * dump_batches --window SEED EPOCH RECORD HEIGHT WIDTH: the flip and the window that an image of that size
 * gets, as data/loader.h and data/resize.h say: "flip top left height width". */
#include "base/rng.h"
#include "data/loader.h"
#include "data/resize.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static petra_status dump(const petra_dataset *set, const petra_config *config, int64_t first, int64_t end) {
  petra_loader *loader;
  const petra_loader_options options = {.batch = (int32_t)config->data.batch,
                                        .shuffle = config->data.shuffle,
                                        .augment = config->data.augment,
                                        .drop_last = true,
                                        .threads = (int)config->data.workers,
                                        .seed = (uint64_t)config->run.seed,
                                        .first = first,
                                        .end = end};
  petra_status status = PETRA_OK;
  PETRA_TRY(petra_loader_create(set, &options, &loader));
  for (int64_t i = first; i < end && status == PETRA_OK; i++) {
    petra_batch *batch;
    PETRA_TRY_GOTO(status, petra_loader_next(loader, &batch), done);
    const int32_t *shape = batch->shape;
    fwrite(batch->values, sizeof *batch->values,
           (size_t)shape[0] * (size_t)shape[1] * (size_t)shape[2] * (size_t)shape[3], stdout);
    petra_loader_give_back(loader, batch);
  }
done:
  petra_loader_destroy(loader);
  return status;
}

static int window(char **argv) {
  petra_rng rng;
  petra_rng_init(&rng, strtoull(argv[0], NULL, 10), PETRA_RNG_AUGMENT, (uint32_t)strtoul(argv[1], NULL, 10),
                 strtoull(argv[2], NULL, 10));
  int flip = petra_rng_u32(&rng) >> 31;
  petra_crop crop = petra_crop_random(&rng, (int32_t)strtol(argv[3], NULL, 10), (int32_t)strtol(argv[4], NULL, 10));
  printf("%d %d %d %d %d\n", flip, crop.top, crop.left, crop.height, crop.width);
  return 0;
}

enum { MAX_SETS = 32 };

int main(int argc, char **argv) {
  const char *sets[MAX_SETS];
  int set_count = 0;
  petra_config *config;
  petra_dataset *set = NULL;
  if (argc == 7 && strcmp(argv[1], "--window") == 0)
    return window(argv + 2);
  if (argc < 4)
    return 2;
  if (argc > 4 + 2 * MAX_SETS) {
    fprintf(stderr, "%s: over %d settings\n", argv[0], MAX_SETS);
    return 2;
  }
  for (int i = 4; i + 1 < argc; i += 2)
    sets[set_count++] = argv[i + 1];
  petra_status status = petra_config_load(argv[1], sets, set_count, &config);
  if (status != PETRA_OK)
    return petra_status_exit_code(status);
  status = petra_dataset_open(config, PETRA_SPLIT_TRAIN, &set);
  if (status == PETRA_OK)
    status = dump(set, config, strtoll(argv[2], NULL, 10), strtoll(argv[3], NULL, 10));
  petra_dataset_destroy(set);
  petra_config_destroy(config);
  return petra_status_exit_code(status);
}
