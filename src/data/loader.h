/* SPDX-License-Identifier: Apache-2.0 */
/* The loader: threads prepare batches of samples (normalised images or windows of tokens) in advance. The content of a
 * batch depends only on (seed, epoch, batch number), never on the number of threads. */
#pragma once

#include "config/config.h"
#include "data/dataset.h"

typedef struct petra_loader petra_loader;

/* One batch. Of images: values (count, 3, H, W), normalised to (pixel / 255 - mean) / deviation after augmentation
 * (crop: zero padding of 4 pixels [applied before normalisation, as torchvision's RandomCrop on the image does] and a
 * window at a uniform offset; flip: horizontal, probability 1/2; imagefolder has another crop: data/sampler.h).
 * Values are doubles: 1.2 MB for an image of 224 x 224, 77 MB for a batch of 64; a loader holds threads + 2 batches.
 * With the option `bytes`, values is NULL; the batch has the bytes as they were read and the augmentation choices, and
 * its receiver augments and normalises. Of tokens: values (count, T, 1, 1), whole numbers, and T labels a sample, in
 * the order of the positions (data/data_sets.h); `bytes` changes nothing. */
typedef struct petra_batch {
  petra_sample_kind samples;
  int32_t shape[4];    /* shape of the tensor that it becomes */
  int32_t count;       /* number of samples; the last batch of an evaluation may be smaller */
  int32_t label_count; /* count times the labels of a sample */
  const double *values;
  const uint8_t *pixels;               /* (count, 3, H, W), or NULL */
  const petra_augment_choice *choices; /* of each image, with pixels */
  const double *mean, *deviation;      /* for images, by channel */
  const int32_t *labels;
  int64_t microbatch; /* its number, from 0 */
} petra_batch;

typedef struct petra_loader_options {
  int32_t batch;
  /* For replicas: a microbatch is `parts` batches of consecutive samples of its epoch, of which this loader delivers
   * number `part` (from 0). The random draws of a sample do not depend on the parts. 0, 0: a microbatch is one batch.
   * With drop_last. */
  int32_t parts, part;
  bool shuffle;     /* a new order in every epoch; for tokens also new windows */
  unsigned augment; /* bits of petra_augment_flag */
  bool bytes;       /* images as bytes, for a backend that normalises them */
  bool labels;    /* only labels: values and pixels of a batch are NULL, and no image is read unless the set needs it */
  bool drop_last; /* training: drops the partial last batch of an epoch */
  int threads;
  uint64_t seed;
  int64_t first, end; /* range of microbatches, excluding `end` (end = INT64_MAX: no end) */
} petra_loader_options;

/* Creates a loader. `set` must outlive it. Errors: PETRA_CONFIG if an epoch holds no batch (fewer samples than one
 * batch, drop_last). */
petra_status petra_loader_create(const petra_dataset *set, const petra_loader_options *options, petra_loader **out);
void petra_loader_destroy(petra_loader *loader);

/* Returns the number of labels of a sample: 1 for images, the positions of a window of tokens. */
int32_t petra_loader_labels(const petra_loader *loader);

/* Waits for the next batch in order (first, first + 1, ...; epoch = microbatch / batches of an epoch). The batch is
 * valid until petra_loader_give_back; at most threads + 2 may be held at once, in any order (PETRA_INTERNAL beyond
 * that, and for a microbatch past the end). A failure of a read is returned here, once for the batch that it hit. */
petra_status petra_loader_next(petra_loader *loader, petra_batch **out);
void petra_loader_give_back(petra_loader *loader, petra_batch *batch);
