/* SPDX-License-Identifier: Apache-2.0 */
/* The data sets, for dataset.c, each of which opens a split of the set that the config names: images (cifar.c,
 * shapes.c, hdf5_set.c, imagefolder.c), then tokens (token_set.c, grammar.c); and how they read files (files.c). */
#pragma once

#include "base/status.h"
#include "data/dataset.h"

#include <stddef.h>
#include <stdint.h>

/* Ends the opening of `set`: sets *out to it or, if `status` is a failure, destroys it. Returns `status`. */
petra_status petra_dataset_opened(petra_dataset *set, petra_status status, petra_dataset **out);

/* --- files.c: reads bytes of files --- */

/* Joins names to "a/b" or "a/b/c" (c may be NULL), with one slash between. Free with petra_free. */
petra_status petra_folder_path(const char *a, const char *b, const char *c, char **out);

typedef struct petra_file {
  char *path; /* NULL before it is opened */
  int fd;     /* -1 if that failed */
  int64_t bytes;
} petra_file;

/* Opens the file at `path`, which should be `what` ("a JPEG image"), for reading. Close it even after a failure.
 * Errors: PETRA_IO: missing, unreadable, not a regular file. Thread-safe. */
petra_status petra_file_open(const char *path, const char *what, petra_file *out);

void petra_file_close(petra_file *file);

/* Reads exactly `size` bytes at `offset`. Errors: PETRA_IO: the path and the reason. Thread-safe. */
petra_status petra_file_read_at(const petra_file *file, int64_t offset, void *out, size_t size);

/* --- sets of images --- The functions open the whole split; data.limit and data.eval_limit apply later. */

/* CIFAR-10 and CIFAR-100 (Krizhevsky, "Learning multiple layers of features from tiny images", 2009) in their original
 * binary form: records of one label byte (CIFAR-100: two label bytes, coarse and fine) and 3072 pixel bytes, the red,
 * green and blue planes of 32 x 32 one after the other, row by row. */

typedef enum petra_cifar_kind { PETRA_CIFAR10, PETRA_CIFAR100 } petra_cifar_kind;

/* Opens the split and checks every record of its files. Images are read from the files on demand. `path`, the errors
 * and `problems` are as in petra_dataset_open: with `problems`, records with a label out of range are left out.
 * CIFAR-100 uses the fine label. */
petra_status petra_cifar_open(petra_cifar_kind kind, const char *path, petra_split split, int64_t *problems,
                              petra_dataset **out);

/* Returns true unless `path` is a single file. */
bool petra_cifar_has_eval(const char *path);

/* The generated data set `shapes`: 32 x 32 colour images of ten plane figures, for trials without a download. shapes.c
 * describes the images and their difficulty. */

enum { PETRA_SHAPES_TRAIN_COUNT = 50000, PETRA_SHAPES_EVAL_COUNT = 10000 };

/* Opens the set. An image depends only on (split, index) and is drawn again whenever it is read. */
petra_status petra_shapes_open(petra_split split, petra_dataset **out);

/* Data sets in HDF5, `data.set: hdf5`; schema: docs/hdf5-schema.md, "Data sets". */

/* Opens a split. HDF5 is used only here, to find the images in the file and to read the labels. Records are then read
 * directly from the file, because HDF5 itself is not made for several threads. Hence images have to be stored in one
 * piece, uncompressed. PETRA_IO: missing, unreadable; PETRA_DATA: no HDF5 file, truncated, something missing, of
 * another type or shape, a label out of range; PETRA_CONFIG: no path, no evaluation split. `problems` as in
 * petra_dataset_open_counting; records with a label out of range are then left out. */
petra_status petra_hdf5_set_open(const char *path, petra_split split, int64_t *problems, petra_dataset **out);

petra_status petra_hdf5_set_shape(const char *path, petra_dataset_shape *out);

/* Folders of JPEG images, as ImageNet is usually laid out: data.path/train/CLASS/FILE.jpeg and
 * data.path/val/CLASS/FILE.jpeg, or, without these two folders, data.path/CLASS/FILE.jpeg. In the latter case the
 * images are the training split, and there is no evaluation split. imagefolder.c says which files are read, in which
 * order and with which labels. Classes are numbered by the folders of the training split; the evaluation split may lack
 * some of them.
 *
 * A record is data.image_size x data.image_size. `read` gives the record of an evaluation: the image is decoded at full
 * size, resized so that its shorter side is data.resize, and its centre is cut out. `read_window` gives the record of
 * training: a random window (data/resize.h), resized to the size of a record. The image is decoded at 1/8, 1/4 or 1/2
 * of its size if the window is then still at least as large as a record. The content of a file is checked when it is
 * read (`petra data verify` reads all files). */

/* Open the set and check for its splits. Errors: PETRA_UNSUPPORTED: this build has no decoder (libjpeg-turbo).
 * PETRA_CONFIG: no data.path, data.resize below data.image_size, no evaluation split. PETRA_IO, PETRA_DATA: as
 * imagefolder.c says of its lists, and for `read` a file that is missing, empty, not a JPEG, damaged or truncated. */
petra_status petra_imagefolder_open(const petra_config *config, petra_split split, int64_t *problems,
                                    petra_dataset **out);

bool petra_imagefolder_has_eval(const char *path);

/* --- sets of tokens --- */

/* The samples of a token set are windows. A window of context T is T + 1 consecutive tokens: the first T are the input,
 * the last T the labels, so that the label of each position is the token that follows it. Windows i = 0, 1, ... of an
 * epoch begin at offset + i T: their inputs do not overlap, and each has one token in common with the next.
 *
 * An evaluation has offset 0 and as many windows as fit, so that each token except the first is a label exactly once
 * (up to T - 1 tokens at the end are left out). Training with shuffling draws an offset for each epoch, 0 <= offset <
 * T; every epoch has as many windows as fit at the largest offset. Training without shuffling has the same number of
 * windows, at offset 0. */

/* Returns the number of windows of an epoch over `tokens` tokens; 0: no window fits. */
int64_t petra_windows_count(int64_t tokens, int32_t context, petra_split split);

/* Returns petra_rng_below(context) of the stream (seed, PETRA_RNG_WINDOW, epoch, 0). */
int32_t petra_windows_offset(uint64_t seed, uint32_t epoch, int32_t context);

/* Returns PETRA_CONFIG if the config sets something that sets of tokens do not have: augmentation, statistics of batch
 * norms. */
petra_status petra_windows_check(const petra_config *config);

/* Gets the size of the vocabulary: `stated` by the set `where` or, if that is 0, data.vocabulary. Errors: PETRA_CONFIG:
 * neither states it, or they differ. */
petra_status petra_windows_vocabulary(const petra_config *config, const char *where, int32_t stated, int32_t *out);

/* Fills the members of `set` for a split of `tokens` tokens, 0 .. vocabulary - 1, except ops. `where`: the file, for
 * messages. Errors: PETRA_CONFIG, PETRA_DATA: less than a window of model.context. */
petra_status petra_windows_init(const petra_config *config, petra_split split, const char *where, int64_t tokens,
                                int32_t vocabulary, petra_dataset *set);

/* Tokens from files: data.set: text and tokens (forms: token_set.c). The two splits are:
 *   data.path, a folder (tokens)  train.bin; val.bin
 *   data.path, in HDF5 (tokens)   /train; /eval, which may be missing
 *   data.path, another file       with data.eval_share e: the first floor(n (1 - e)) of its n tokens; the other tokens
 * With data.eval_path, the whole file data.path (in a folder: train.bin) is the training split, and the whole file
 * data.eval_path is the evaluation split. */

/* Open a split and check for the evaluation split. Tokens are checked when they are read. Errors: the errors of opening
 * the file and of petra_windows_init; PETRA_CONFIG: no path, no evaluation split, a vocabulary that is not given or not
 * the vocabulary of the file. */
petra_status petra_token_set_open(const petra_config *config, petra_split split, petra_dataset **out);
petra_status petra_token_set_has_eval(const petra_config *config, bool *out);

/* Gets whether the file of the training split is missing. */
petra_status petra_token_set_is_missing(const petra_config *config, bool *out);

/* Gets whether data.path is an HDF5 file. Errors: PETRA_IO. */
petra_status petra_token_set_in_hdf5(const petra_config *config, bool *out);

/* Gets the size of the vocabulary. For text nothing is read; for tokens the head of the training split's file is read.
 * If this file is missing, data.vocabulary is used. Errors: PETRA_IO if data.vocabulary is 0 then. */
petra_status petra_token_set_vocabulary(const petra_config *config, int32_t *out);

/* The generated token set, data.set: grammar. Its entropy is known exactly, so the best possible loss of a network is
 * known; its memory is longer than a few tokens, so a longer context helps.
 *
 * A token is a number of six bits, 0 .. 63, made of three letters of two bits: a + 4 b + 16 c. Each letter depends on
 * the same letter of an earlier token: a on the a of 1 token before, b on the b of 8 tokens before, c on the c of 64
 * tokens before. With probability 7/8 it is that letter plus one (modulo 4), otherwise one of the four letters with
 * equal probability. The tokens are therefore a stationary Markov chain of order 64. The first 64 tokens are uniform;
 * any other token is also uniform if no earlier token is known.
 *
 * About each letter of the next token, a network that has seen t tokens can know nothing (entropy ln 4) if t is less
 * than the letter's distance; otherwise it can know the law above, with one probability p = 7/8 + 1/32 = 29/32 and
 * three of q = 1/32, so that the entropy is h = -p ln p - 3 q ln q = 0.4141 nats. The positions of a window have seen 1
 * .. T of its tokens. The mean of the entropy over these T positions is the smallest expected loss of any network with
 * context T:
 *   loss(T) = sum over distances d of (min(T, d - 1) ln 4 + (T - min(T, d - 1)) h) / T. */

enum { PETRA_GRAMMAR_TRAIN_TOKENS = 1 << 20, PETRA_GRAMMAR_EVAL_TOKENS = 1 << 17, PETRA_GRAMMAR_VOCABULARY = 64 };

/* Open the set and get the size of its vocabulary. The tokens are the same in every run; they are generated here and
 * take a byte each in memory. Errors: the errors of petra_windows_init. */
petra_status petra_grammar_open(const petra_config *config, petra_split split, petra_dataset **out);
petra_status petra_grammar_vocabulary(const petra_config *config, int32_t *out);

/* Returns loss(context), nats per token; context >= 1. */
double petra_grammar_best_loss(int64_t context);

/* hdf5_set.c, for token_set.c: the position of the data set /SPLIT/tokens in an HDF5 file. The data set is stored in
 * one piece and lies within the file. No identifier of HDF5 leaves hdf5_set.c. */
typedef struct petra_hdf5_tokens {
  int32_t vocabulary; /* 1 .. 65,536 */
  int64_t count, offset;
} petra_hdf5_tokens;

/* Opens the file and reads the layout. Errors: the errors of petra_hdf5_set_open. */
petra_status petra_hdf5_layout_tokens(const char *path, petra_split split, petra_file *file, petra_hdf5_tokens *out);

/* Gets whether there is an evaluation split. Errors: the errors of a file that cannot be read. */
petra_status petra_hdf5_layout_has_eval(const char *path, bool *out);
