/* SPDX-License-Identifier: Apache-2.0 */
/* The samples of a token set are windows. A window of context T is T + 1 consecutive tokens: the first T are the input,
 * the last T the labels, so that the label of each position is the token that follows it. Windows i = 0, 1, ... of an
 * epoch begin at offset + i T: their inputs do not overlap, and each has one token in common with the next.
 *
 * An evaluation has offset 0 and as many windows as fit, so that each token except the first is a label exactly once
 * (up to T - 1 tokens at the end are left out). Training with shuffling draws an offset for each epoch, 0 <= offset <
 * T; every epoch has as many windows as fit at the largest offset. Training without shuffling has the same number of
 * windows, at offset 0. */
#pragma once

#include "data/dataset.h"

/* Returns the number of windows of an epoch over `tokens` tokens; 0: not one fits. */
int64_t petra_windows_count(int64_t tokens, int32_t context, petra_split split);

/* Returns petra_rng_below(context) of the stream (seed, PETRA_RNG_WINDOW, epoch, 0). */
int32_t petra_windows_offset(uint64_t seed, uint32_t epoch, int32_t context);

/* Returns PETRA_CONFIG if the config contradicts sets of tokens: augmentation, statistics of batch norms. */
petra_status petra_windows_check(const petra_config *config);

/* Gets the size of the vocabulary: `stated` by the set `where` or, if that is 0, data.vocabulary. Errors: PETRA_CONFIG:
 * neither states it, or they differ. */
petra_status petra_windows_vocabulary(const petra_config *config, const char *where, int32_t stated, int32_t *out);

/* Fills the members of `set` for a split of `tokens` tokens, 0 .. vocabulary - 1, except ops. `where`: the file, for
 * messages. Errors: PETRA_CONFIG, PETRA_DATA: less than a window of model.context. */
petra_status petra_windows_init(const petra_config *config, petra_split split, const char *where, int64_t tokens,
                                int32_t vocabulary, petra_dataset *set);

/* Tokens from files: data.set: text and tokens (forms: token_set.c). Where the splits are:
 *   data.path, a folder (tokens)  train.bin; val.bin
 *   data.path, in HDF5 (tokens)   /train; /eval, which may be missing
 *   data.path, another file       with data.eval_share e the first floor(n (1 - e)) of its n tokens; the others
 * With data.eval_path, the whole file data.path (in a folder: train.bin) is the training split, and the whole file
 * data.eval_path is the evaluation split. */

/* Open a split and check for the evaluation split. Tokens are checked when they are read. Errors: those of opening the
 * file and of petra_windows_init; PETRA_CONFIG: no path, no evaluation split, a vocabulary that is not given or not
 * that of the file. */
petra_status petra_token_set_open(const petra_config *config, petra_split split, petra_dataset **out);
petra_status petra_token_set_has_eval(const petra_config *config, bool *out);

/* Gets whether the file of the training split is missing. */
petra_status petra_token_set_is_missing(const petra_config *config, bool *out);

/* Gets whether data.path is an HDF5 file. Errors: PETRA_IO. */
petra_status petra_token_set_in_hdf5(const petra_config *config, bool *out);

/* Gets the shape. For text nothing is read, for tokens the head of the training split's file; if that is missing,
 * data.vocabulary replaces it. Errors: PETRA_IO if data.vocabulary is 0 then. */
petra_status petra_token_set_shape(const petra_config *config, petra_dataset_shape *out);

/* The generated token set, data.set: grammar. Its entropy is known exactly, so the best possible loss of a network is
 * known; its memory is longer than a few tokens, so a longer context helps.
 *
 * A token is a number of six bits, 0 .. 63, made of three letters of two bits: a + 4 b + 16 c. Each letter depends on
 * the same letter of an earlier token: a on that 1 token before, b on that 8 tokens before, c on that 64 tokens before.
 * With probability 7/8 it is that letter plus one (modulo 4), otherwise one of the four letters with equal probability.
 * So the tokens are a stationary Markov chain of order 64. The first 64 tokens are uniform; so is any token, if none of
 * the earlier ones is known.
 *
 * A network that has seen t tokens can know this about each letter of the next one: nothing (entropy ln 4) if t is less
 * than the letter's distance; otherwise the law above, with one probability p = 7/8 + 1/32 = 29/32 and three of q =
 * 1/32, so that the entropy is h = -p ln p - 3 q ln q = 0.4141 nats. The positions of a window have seen 1 .. T of its
 * tokens. The mean of the entropy over these T positions is the smallest expected loss of any network with context T:
 *   loss(T) = sum over distances d of (min(T, d - 1) ln 4 + (T - min(T, d - 1)) h) / T. */

enum { PETRA_GRAMMAR_TRAIN_TOKENS = 1 << 20, PETRA_GRAMMAR_EVAL_TOKENS = 1 << 17, PETRA_GRAMMAR_VOCABULARY = 64 };

/* Open the set and get its shape. The tokens are the same in every run; they are generated here and take a byte each in
 * memory. Errors: those of petra_windows_init. */
petra_status petra_grammar_open(const petra_config *config, petra_split split, petra_dataset **out);
petra_status petra_grammar_shape(const petra_config *config, petra_dataset_shape *out);

/* Returns loss(context), nats per token; context >= 1. */
double petra_grammar_best_loss(int64_t context);
