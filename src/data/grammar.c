/* SPDX-License-Identifier: Apache-2.0 */

#include "base/mem.h"
#include "data/data_sets.h"

#include <math.h>

enum { LETTERS = 3, LETTER_VALUES = 4, DISTANCE_MAX = 64 };
static const int distances[LETTERS] = {1, 8, 64};
enum { REPLACED = 8, DRAW_BITS = 5 }; /* one of 8 letters is drawn anew: 3 bits decide that, 2 the letter */

static const char name[] = "data.set: grammar";
static const uint64_t SEED = 0x7065747261ULL; /* fixed, so that the tokens are the same in every run */

typedef struct grammar {
  petra_dataset base;
  uint8_t *tokens;
} grammar;

double petra_grammar_best_loss(int64_t context) {
  const double other = 1.0 / (REPLACED * LETTER_VALUES), next = 1 - (LETTER_VALUES - 1) * other;
  const double known = -next * log(next) - (LETTER_VALUES - 1) * other * log(other), unknown = log(LETTER_VALUES);
  double sum = 0;
  for (int i = 0; i < LETTERS; i++) {
    const int64_t blind = context < distances[i] - 1 ? context : distances[i] - 1;
    sum += (double)blind * unknown + (double)(context - blind) * known;
  }
  return sum / (double)context;
}

/* Decodes one word of the stream per token: five bits per letter. */
static uint8_t draw_token(petra_rng *rng, const uint8_t *tokens, int64_t t) {
  uint32_t word = petra_rng_u32(rng);
  unsigned token = 0;
  for (int i = 0; i < LETTERS; i++, word >>= DRAW_BITS) {
    const unsigned drawn = word & (LETTER_VALUES - 1);
    const bool anew = t < DISTANCE_MAX || (word >> 2) % REPLACED == 0;
    const unsigned before = anew ? 0 : tokens[t - distances[i]] >> 2 * i & (LETTER_VALUES - 1);
    token |= (anew ? drawn : (before + 1) % LETTER_VALUES) << 2 * i;
  }
  return (uint8_t)token;
}

static void grammar_destroy(petra_dataset *set) {
  grammar *self = (grammar *)set;
  PETRA_FREE_ALL(self->tokens, self);
}

static petra_status grammar_read(const petra_dataset *set, int64_t first, int64_t count, int32_t *tokens) {
  const grammar *self = (const grammar *)set;
  for (int64_t i = 0; i < count; i++)
    tokens[i] = self->tokens[first + i];
  return PETRA_OK;
}

static const petra_dataset_ops grammar_ops = {.destroy = grammar_destroy, .read_tokens = grammar_read};

petra_status petra_grammar_vocabulary(const petra_config *config, int32_t *out) {
  return petra_windows_vocabulary(config, name, PETRA_GRAMMAR_VOCABULARY, out);
}

static petra_status fill(const petra_config *config, petra_split split, grammar *self) {
  const int64_t count = split == PETRA_SPLIT_TRAIN ? PETRA_GRAMMAR_TRAIN_TOKENS : PETRA_GRAMMAR_EVAL_TOKENS;
  int32_t vocabulary;
  petra_rng rng;
  PETRA_TRY(petra_grammar_vocabulary(config, &vocabulary));
  PETRA_TRY(petra_windows_init(config, split, name, count, vocabulary, &self->base));
  PETRA_TRY(petra_allocate_raw(&self->tokens, (size_t)count, 1));
  petra_rng_init(&rng, SEED, PETRA_RNG_GRAMMAR, split == PETRA_SPLIT_TRAIN ? 0 : 1, 0);
  for (int64_t t = 0; t < count; t++)
    self->tokens[t] = draw_token(&rng, self->tokens, t);
  return PETRA_OK;
}

petra_status petra_grammar_open(const petra_config *config, petra_split split, petra_dataset **out) {
  grammar *self;
  PETRA_TRY(petra_allocate(&self, 1, sizeof *self));
  self->base.ops = &grammar_ops;
  return petra_dataset_opened(&self->base, fill(config, split, self), out);
}
