/* SPDX-License-Identifier: Apache-2.0 */
/* The generated set of tokens, data.set: grammar: a source whose entropy is known exactly, so that it is known how good a network can
 * become, and whose memory is longer than a few tokens, so that a longer context helps.
 *
 * A token is a number of six bits, 0 .. 63, made of three letters of two bits: a + 4 b + 16 c. Each letter follows its own earlier self,
 * a the one of 1, b of 8, c of 64 tokens before: with the probability 7/8 it is that letter plus one (modulo 4), else one of the four,
 * each as likely. So the tokens are a stationary Markov chain of order 64; the first 64 are uniform, as all are for one who has seen
 * nothing.
 *
 * What a network that has seen t tokens can say of the next one: letter by letter, nothing (entropy ln 4) while t is less than the
 * letter's distance, and then the law above, whose probabilities are p = 7/8 + 1/32 = 29/32 and three times q = 1/32, with the entropy
 * h = -p ln p - 3 q ln q = 0.4141 nats. The mean over the T positions of a window, which have seen 1 .. T tokens of it, is the least loss of
 * any network of context T, in the mean over all texts:
 *   loss(T) = sum over distances d of (min(T, d - 1) ln 4 + (T - min(T, d - 1)) h) / T. */
#pragma once

#include "data/dataset.h"

enum { PETRA_GRAMMAR_TRAIN_TOKENS = 1 << 20, PETRA_GRAMMAR_EVAL_TOKENS = 1 << 17, PETRA_GRAMMAR_VOCABULARY = 64 };

/* Open the set and get its shape. The tokens are the same in every run; they are generated here and take a byte each in
 * memory. Errors: those of petra_windows_init. */
petra_status petra_grammar_open(const petra_config *config, petra_split split, petra_dataset **out);
petra_status petra_grammar_shape(const petra_config *config, petra_dataset_shape *out);

/* Returns loss(context), nats per token; context >= 1. */
double petra_grammar_best_loss(int64_t context);
