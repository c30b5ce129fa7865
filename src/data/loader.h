/* SPDX-License-Identifier: Apache-2.0 */
/* The loader: threads prepare batches of samples (normalised images or windows of tokens) in advance. The content of a
 * batch depends only on (seed, epoch, batch number), never on the number of threads. */
#pragma once

#include "config/config.h"
#include "data/dataset.h"

typedef struct petra_loader petra_loader;

/* One batch. For images: values (count, 3, H, W), normalised to (pixel / 255 - mean) / deviation after augmentation
 * (crop: zero padding of 4 pixels [applied before normalisation, as torchvision's RandomCrop on the image does] and a
 * window at a uniform offset; flip: horizontal, probability 1/2; imagefolder has another crop: see below).
 * Values are doubles: 1.2 MB for an image of 224 x 224, 77 MB for a batch of 64; a loader holds threads + 2 batches.
 * With the option `bytes`, values is NULL; the batch has the bytes as they were read and the augmentation choices, and
 * its receiver augments and normalises. Of tokens: values (count, T, 1, 1), whole numbers, and T labels a sample, in
 * the order of the positions (data/data_sets.h); `bytes` changes nothing. */
typedef struct petra_batch {
  petra_sample_kind samples;
  int32_t shape[4];    /* shape of the tensor that it becomes */
  int32_t count;       /* number of samples; the last batch of an evaluation may be smaller */
  int32_t label_count; /* count times the labels of a sample */
  double *values;
  uint8_t *pixels;                /* (count, 3, H, W), or NULL */
  petra_augment_choice *choices;  /* of each image, with pixels */
  const double *mean, *deviation; /* for images, by channel */
  int32_t *labels;
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
 * valid until petra_loader_give_back; at most threads + 2 batches may be held at once, in any order (PETRA_INTERNAL
 * beyond that, and for a microbatch past the end). A failed read is returned here, once for the batch that it hit. */
petra_status petra_loader_next(petra_loader *loader, petra_batch **out);
void petra_loader_give_back(petra_loader *loader, petra_batch *batch);

/* --- sampler.c: samples --- */

/* Augmentation and normalisation of one image: crop, flip, then pixels to normalised doubles, in that order.
 *
 * The random decisions of a record in an epoch come from the stream (run.seed, PETRA_RNG_AUGMENT, epoch, record), where
 * record is its number in the data set, not its position in the epoch. Three draws are always made in this order,
 * whatever is switched on, so that crop alone and crop with flip make the same crops:
 *   1. offset_y = petra_rng_below(9): 32-bit words are taken until one is >= 4 (2^32 mod 9); the offset is word mod 9.
 *   2. offset_x likewise.
 *   3. flip = the highest bit of the next word.
 * Crop: the image gets PETRA_AUGMENT_PADDING rows and columns of zeros on each side, and the window of the original
 * size whose upper left corner is (offset_y, offset_x) of the padded image is kept. Flip: column x of the result is
 * column width - 1 - x of the window.
 *
 * Sets whose images are larger than their records (imagefolder) have another crop. There the stream gives, whatever is
 * switched on, first the flip (the highest bit of a word) and then the draws of the window (data/resize.h). */

enum { PETRA_AUGMENT_PADDING = 4 };

/* The normalised number for every pixel value: value[channel][byte]. */
typedef struct petra_augment_table {
  double value[3][256];
} petra_augment_table;

/* Draws the choice of a record. `flags`: bits of petra_augment_flag. Without flags the choice changes nothing. */
petra_augment_choice petra_augment_choose(unsigned flags, uint64_t seed, uint32_t epoch, int64_t record);

/* Reads a record and augments it as `flags` say, except for the part that *choice leaves to petra_augment_apply. */
petra_status petra_augment_read(const petra_dataset *set, unsigned flags, uint64_t seed, uint32_t epoch, int64_t record,
                                uint8_t *pixels, int32_t *label, petra_augment_choice *choice);

/* Computes value[c][p] = (p / 255 - mean[c]) / deviation[c] in double precision. */
void petra_augment_table_init(petra_augment_table *table, const double mean[3], const double deviation[3]);

/* Applies the choice and normalises. `pixels` and `out` are (3, height, width); they must not overlap. */
void petra_augment_apply(const petra_augment_choice *choice, const petra_augment_table *table, const uint8_t *pixels,
                         int32_t height, int32_t width, double *out);

/* The sampler turns a record of a data set into a sample of a batch. */

typedef struct petra_sampler petra_sampler;

struct petra_sampler {
  /* Reads record `record` of epoch `epoch` into position `at` of the batch; with the option `labels` only its labels.
   * `scratch` belongs to the calling thread. Thread-safe; errors are the errors of the set. */
  petra_status (*read)(const petra_sampler *sampler, uint32_t epoch, int64_t record, const petra_batch *batch,
                       int64_t at, void *scratch);
  const petra_dataset *set;
  const petra_loader_options *options; /* shuffle, augment, bytes, labels and seed */
  bool bytes;                          /* samples come as pixels and choices */
  int32_t shape[3];                    /* of a sample in the tensor of a batch */
  int64_t values;                      /* per sample; 0: labels only */
  int32_t labels;                      /* of a sample */
  size_t scratch_bytes;                /* per thread; 0: none */
  petra_augment_table table;
};

/* Initialises the sampler, which owns nothing. `set` and `options` must outlive it. */
void petra_sampler_init(petra_sampler *sampler, const petra_dataset *set, const petra_loader_options *options);
