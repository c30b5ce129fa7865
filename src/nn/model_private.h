/* SPDX-License-Identifier: Apache-2.0 */
/* The families of models, one file each, and their common parts. Private to model*.c. */
#pragma once

#include "nn/model.h"

/* Make the blocks of a model whose family, depth, width and input are set. Errors: those of petra_model_init; the
 * caller releases blocks that exist after a failure. */
petra_status petra_resnet_make(petra_model *model, const petra_config *config);
petra_status petra_transformer_make(petra_model *model, const petra_config *config, int32_t vocabulary);

/* Returns true for llama and revllama. */
bool petra_family_is_llama(petra_family family);

/* Sets the members of a Llama's model that follow from the config: kv_heads, hidden, rotary_base. */
void petra_llama_set(petra_model *model, const petra_config *config);

/* Make the auxiliary head that reads the output of `last`; number and name are set. */
void petra_resnet_make_auxiliary(const petra_model *model, petra_block *block, const petra_block *last);
void petra_transformer_make_auxiliary(const petra_model *model, petra_block *block, const petra_block *last);

/* Returns the next block of the table, which has room for it. */
petra_block *petra_model_next_block(petra_model *model);

void petra_block_set_kind(petra_block *block, const petra_block_ops *ops);

/* Returns PETRA_CONFIG for the first of `keys` (ended by NULL) that does not have its default: the family does not use
 * it. */
petra_status petra_model_refuse_keys(const petra_config *config, const char *const *keys);
