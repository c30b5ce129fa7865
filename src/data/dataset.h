/* A data set: labelled RGB images of one size, addressed by record number. Records are bytes in (3, H, W) order. */
#ifndef PETRA_DATA_DATASET_H
#define PETRA_DATA_DATASET_H

#include "base/config.h"
#include "base/status.h"

#include <stdint.h>

typedef enum petra_split { PETRA_SPLIT_TRAIN, PETRA_SPLIT_EVAL } petra_split;

typedef struct petra_dataset petra_dataset;

typedef struct petra_dataset_ops {
  void (*destroy)(petra_dataset *set);
  /* Writes record `index` (0 <= index < set->count): 3 * height * width bytes and its label. Thread-safe. */
  petra_status (*read)(const petra_dataset *set, int64_t index, uint8_t *pixels, int32_t *label);
} petra_dataset_ops;

struct petra_dataset {
  const petra_dataset_ops *ops;
  int64_t count; /* records, after data.limit / data.eval_limit */
  int32_t height, width, classes;
  double mean[3], deviation[3]; /* of pixel / 255, for normalisation */
};

/* Opens the split that the config names. cifar10, cifar100: data.path is a folder with the set's original binary
 * files (data_batch_1..5.bin, test_batch.bin; train.bin, test.bin), of any whole number of records each, or one such
 * file, which is then the training split and has no evaluation split. shapes: generated, needs no file; the seed of
 * the images is fixed, so that runs with different run.seed see the same images. Every file is checked whole before
 * it is used. Fails with PETRA_IO (missing, unreadable), PETRA_DATA (empty, no multiple of the record length, label out
 * of range: file, record, value, what was expected) or PETRA_CONFIG. */
petra_status petra_dataset_open(const petra_config *config, petra_split split, petra_dataset **out);

/* NULL is allowed. */
void petra_dataset_destroy(petra_dataset *set);

#endif
