/* SPDX-License-Identifier: Apache-2.0 */
/* Turns a record of a data set into a sample of a batch, with augmentation of images. */
#pragma once

#include "data/dataset.h"
#include "data/loader.h"

/* Augmentation and normalisation of one image: crop, flip, then pixels to normalised doubles, in that order.
 *
 * The random decisions of a record in an epoch come from the stream (run.seed, PETRA_RNG_AUGMENT, epoch, record), where
 * record is its number in the data set, not its place in the epoch. Three draws are made, in this order and always all
 * three, whatever is switched on, so that crop alone and crop with flip make the same crops:
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

/* Reads a record and augments it as `flags` say, except for the part that *choice leaves to petra_augment_apply.
 * `pixels` has room for a record. Thread-safe; errors are the errors of the set. */
petra_status petra_augment_read(const petra_dataset *set, unsigned flags, uint64_t seed, uint32_t epoch, int64_t record,
                                uint8_t *pixels, int32_t *label, petra_augment_choice *choice);

/* Computes value[c][p] = (p / 255 - mean[c]) / deviation[c] in double precision. */
void petra_augment_table_init(petra_augment_table *table, const double mean[3], const double deviation[3]);

/* Applies the choice and normalises. `pixels` and `out` are (3, height, width); they must not overlap. */
void petra_augment_apply(const petra_augment_choice *choice, const petra_augment_table *table, const uint8_t *pixels,
                         int32_t height, int32_t width, double *out);

/* --- samplers --- */

typedef struct petra_sampler petra_sampler;

/* The destination of a sample. */
typedef struct petra_sample_buffers {
  double *values; /* or, with a sampler that returns bytes: */
  uint8_t *pixels;
  petra_augment_choice *choice;
  int32_t *labels;
  void *scratch; /* of the calling thread */
} petra_sample_buffers;

struct petra_sampler {
  /* Reads record `record` of epoch `epoch`; with the option `labels` only its labels. Thread-safe; errors are the
   * errors of the set. */
  petra_status (*read)(const petra_sampler *sampler, uint32_t epoch, int64_t record,
                       const petra_sample_buffers *buffers);
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
