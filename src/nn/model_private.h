/* SPDX-License-Identifier: Apache-2.0 */
/* The families that a model may be of, one file each, and what these share. Private to model*.c. */
#ifndef PETRA_NN_MODEL_PRIVATE_H
#define PETRA_NN_MODEL_PRIVATE_H

#include "nn/model.h"

/* The blocks of a model whose family, depth, width and input are set. As petra_model_init; blocks that are there after a
 * failure are the caller's to give back. */
petra_status petra_resnet_make(petra_model *model, const petra_config *config);
petra_status petra_transformer_make(petra_model *model, const petra_config *config, int32_t vocabulary);

/* The next block of the table, which has room for it. */
petra_block *petra_model_next_block(petra_model *model);

void petra_block_set_kind(petra_block *block, const petra_block_ops *ops);

/* PETRA_CONFIG, with its name, for the first of `keys` (ended by NULL) that has not its default: the family has no use
 * for it. */
petra_status petra_model_refuse_keys(const petra_config *config, const char *const *keys);

#endif
