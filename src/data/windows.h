/* SPDX-License-Identifier: Apache-2.0 */
/* Windows: what the samples of a set of tokens are. A window of context T is T + 1 consecutive tokens: the first T are the input,
 * the last T the labels, so that the label of each position is the token that follows it. Windows i = 0, 1, ... of an epoch begin at
 * offset + i T: their inputs do not overlap, and each has one token in common with the next.
 *
 * Evaluation: offset 0, as many windows as fit, so that each token but the first is a label once (up to T - 1 tokens at the end are
 * left out). Training that shuffles: each epoch draws its offset, 0 <= offset < T; there are as many windows in every epoch as fit at the
 * largest one. Training that does not shuffle: as many, at offset 0. */
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
