/* SPDX-License-Identifier: Apache-2.0 */
/* A data set, addressed by record number: labelled RGB images of one size, bytes in (3, H, W) order, or windows of
 * tokens (data/data_sets.h). */
#pragma once

#include "config/config.h"
#include "base/rng.h"
#include "base/status.h"

#include <stdint.h>

typedef enum petra_split { PETRA_SPLIT_TRAIN, PETRA_SPLIT_EVAL } petra_split;

typedef struct petra_dataset petra_dataset;

typedef struct petra_stored_image {
  int32_t height, width;
  bool turned; /* its file requests viewers to turn or mirror it, which petra does not */
} petra_stored_image;

/* Functions for the other kind of samples are NULL. */
typedef struct petra_dataset_ops {
  void (*destroy)(petra_dataset *set);
  /* --- images --- */
  /* Reads record `index` (0 <= index < set->count): 3 * height * width bytes and its label. Thread-safe. */
  petra_status (*read)(const petra_dataset *set, int64_t index, uint8_t *pixels, int32_t *label);
  /* Returns the label without the image. NULL: only `read` gets it. Thread-safe. */
  int32_t (*label)(const petra_dataset *set, int64_t index);
  /* Does the same as `read`, but reads a random window of the stored image; it replaces the padded crop of
   * data/loader.h. data/resize.h defines the draws from `rng` and their use. NULL: stored images have the size of a
   * record. Thread-safe. */
  petra_status (*read_window)(const petra_dataset *set, int64_t index, petra_rng *rng, uint8_t *pixels, int32_t *label);
  /* Gets the properties of the stored image. NULL: height x width, as for every record, and not turned. Thread-safe. */
  petra_status (*stored)(const petra_dataset *set, int64_t index, petra_stored_image *out);
  /* Returns the name of a class, 0 <= label < classes. NULL: classes have no names. */
  const char *(*class_name)(const petra_dataset *set, int32_t label);
  /* --- tokens --- */
  /* Reads tokens first .. first + count - 1 of the split, 0 <= first, first + count <= set->tokens; each is below
   * set->classes. Errors: PETRA_DATA if a token is not: its file, position and value. Thread-safe. */
  petra_status (*read_tokens)(const petra_dataset *set, int64_t first, int64_t count, int32_t *tokens);
} petra_dataset_ops;

struct petra_dataset {
  const petra_dataset_ops *ops;
  petra_sample_kind samples;
  int64_t count;                /* records of an epoch, after data.limit / data.eval_limit */
  int32_t classes;              /* tokens: size of the vocabulary */
  int32_t height, width;        /* of images */
  double mean[3], deviation[3]; /* of pixel / 255, for normalisation */
  int32_t context;              /* tokens: positions of a window */
  int64_t tokens;               /* tokens of the split; with a limit, only the tokens from which it makes windows */
};

/* The shape for which a network must be built; classes 0: unknown before the set is opened. Images have height and
 * width, tokens context. */
typedef struct petra_dataset_shape {
  petra_sample_kind samples;
  int32_t classes, height, width, context;
  double best_loss; /* tokens: minimal mean loss of any network with this context, nats per token; 0: unknown */
} petra_dataset_shape;

/* Opens the split that the config names. cifar10, cifar100: data.path is a folder with the set's original
 * binary files (data_batch_1..5.bin, test_batch.bin; train.bin, test.bin), each with any whole number of
 * records, or one such file, which is then the training split; there is no evaluation split then. shapes: generated,
 * needs no file; the seed of the images is fixed, so that runs with different run.seed see the same images.
 * Every file is checked whole before it is used. imagefolder, hdf5: data/data_sets.h;
 * there the pixels are checked when they are read. text, tokens, grammar: data/data_sets.h. Fails with PETRA_IO
 * (missing, unreadable), PETRA_DATA (empty, no multiple of the record length, label out of range: file, record, value,
 * what was expected) or PETRA_CONFIG.
 *
 * If `problems` is NULL, the first problem makes the call fail. Otherwise each problem is logged and counted in
 * *problems, and the remaining records, perhaps none, are opened. A set that cannot be opened at all still makes the
 * call fail. */
petra_status petra_dataset_open(const petra_config *config, petra_split split, petra_dataset **out);
petra_status petra_dataset_open_counting(const petra_config *config, petra_split split, int64_t *problems,
                                         petra_dataset **out);

/* Gets whether the set that the config names has an evaluation split. Errors: the errors of opening it, if the split is
 * part of a file that cannot be read. */
petra_status petra_dataset_has_eval(const petra_config *config, bool *out);

/* Gets the shape of the samples that the config names. cifar10, cifar100, shapes, imagefolder, text and grammar:
 * nothing is read. hdf5, tokens: reads the head of the file; errors are the errors of opening it. If the file of tokens
 * is missing, data.vocabulary replaces it. */
petra_status petra_dataset_shape_of(const petra_config *config, petra_dataset_shape *out);

/* Gets the number of training samples of an epoch if it is known without reading the samples: for generated sets, for
 * existing token files, and for image sets, for which it is 50,000, CIFAR's number; data.limit is the maximum. *out is
 * 0 if a token file is missing. Errors: the errors of petra_dataset_open for what exists. */
petra_status petra_dataset_nominal_count(const petra_config *config, int64_t *out);

/* For the functions that open a set: passes `status` on or, if problems are counted, counts it and returns PETRA_OK.
 * Always passes on PETRA_NO_MEMORY and PETRA_INTERNAL. */
petra_status petra_dataset_problem(int64_t *problems, petra_status status);

/* NULL is allowed. */
void petra_dataset_destroy(petra_dataset *set);

/* The fingerprint by which a resumed run recognises its data, wherever they are stored. */

/* The XXH64 hash of a split, with numbers as 64 bits, least significant byte first: kind of samples, number of samples,
 * number of classes; then
 *   tokens   all tokens of the split, 16 bits each, if there are at most 2^24; else 256 runs of 2^16 tokens, evenly
 *            spaced from the first to the last
 *   images   all labels; and, of 16 records evenly spaced from the first to the last, the pixels or, if the set stores
 *            images of various sizes (imagefolder), only the size, because the decoded pixels of a JPEG depend on the
 *            library
 * Two sets that agree in all of this have the same fingerprint. It takes milliseconds. Errors are the errors of
 * reading. */
petra_status petra_dataset_fingerprint(const petra_dataset *set, uint64_t *out);
