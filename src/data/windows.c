/* SPDX-License-Identifier: Apache-2.0 */
#include "data/windows.h"

#include "base/log.h"

#include <inttypes.h>

/* Returns the number of tokens before the last position where a window may begin: T - 1 are reserved for the offset. */
int64_t petra_windows_count(int64_t tokens, int32_t context, petra_split split) {
  const int64_t room = split == PETRA_SPLIT_TRAIN ? tokens - context : tokens - 1;
  return room > 0 ? room / context : 0;
}

int32_t petra_windows_offset(uint64_t seed, uint32_t epoch, int32_t context) {
  petra_rng rng;
  petra_rng_init(&rng, seed, PETRA_RNG_WINDOW, epoch, 0);
  return (int32_t)petra_rng_below(&rng, (uint32_t)context);
}

petra_status petra_windows_check(const petra_config *config) {
  const char *set = petra_config_choice_name("data.set", (int)config->data.set);
  if (config->data.augment)
    return petra_config_fail(config, "data.augment", "changes images, but data.set: %s has tokens; expected []", set);
  return PETRA_OK;
}

petra_status petra_windows_vocabulary(const petra_config *config, const char *where, int32_t stated, int32_t *out) {
  const int32_t given = (int32_t)config->data.vocabulary;
  if (!given && !stated)
    return petra_config_fail(config, "data.vocabulary",
                             "0, but %s does not state how many different tokens there can be; expected that number "
                             "(GPT-2's: 50257)",
                             where);
  if (given && stated && given != stated)
    return petra_config_fail(config, "data.vocabulary", "%d, but %s has %d different tokens; expected that number or 0",
                             given, where, stated);
  *out = given ? given : stated;
  return PETRA_OK;
}

petra_status petra_windows_init(const petra_config *config, petra_split split, const char *where, int64_t tokens,
                                int32_t vocabulary, petra_dataset *set) {
  const int32_t context = (int32_t)config->model.context;
  const int64_t count = petra_windows_count(tokens, context, split);
  const int64_t limit = split == PETRA_SPLIT_TRAIN ? config->data.limit : config->data.eval_limit;
  PETRA_TRY(petra_windows_check(config));
  if (count < 1)
    return petra_fail(PETRA_DATA,
                      "%s: %" PRId64 " %s tokens are too few for a window of model.context: %" PRId32
                      ", expected at least %" PRId64,
                      where, tokens, split == PETRA_SPLIT_TRAIN ? "training" : "evaluation", context,
                      split == PETRA_SPLIT_TRAIN ? 2 * (int64_t)context : (int64_t)context + 1);
  set->samples = PETRA_SAMPLE_TOKENS;
  const bool limited = limit > 0 && limit < count;
  set->count = limited ? limit : count;
  set->classes = vocabulary;
  set->context = context;
  set->tokens = !limited ? tokens : limit * context + (split == PETRA_SPLIT_TRAIN ? context : 1);
  return PETRA_OK;
}
