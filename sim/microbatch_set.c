/* SPDX-License-Identifier: Apache-2.0 */
#include "sim/microbatch_set.h"

#include "base/mem.h"

static bool bit(const petra_microbatch_set *set, int64_t microbatch) {
  int64_t place = microbatch % (64 * set->words);
  return set->beyond[place / 64] >> (place % 64) & 1;
}

static void set_bit(uint64_t *words, int64_t count, int64_t microbatch, bool value) {
  int64_t place = microbatch % (64 * count);
  uint64_t mask = (uint64_t)1 << (place % 64);
  words[place / 64] = value ? words[place / 64] | mask : words[place / 64] & ~mask;
}

static petra_status make_room(petra_microbatch_set *set, int64_t microbatch) {
  int64_t words = set->words ? set->words : 1;
  while (64 * words <= microbatch - set->next)
    words *= 2;
  if (words == set->words)
    return PETRA_OK;
  uint64_t *beyond;
  PETRA_TRY(petra_allocate(&beyond, (size_t)words, sizeof *beyond));
  for (int64_t m = set->next; m < set->next + 64 * set->words; m++)
    set_bit(beyond, words, m, bit(set, m));
  petra_free(set->beyond);
  set->beyond = beyond;
  set->words = words;
  return PETRA_OK;
}

petra_status petra_microbatch_set_put(petra_microbatch_set *set, int64_t microbatch) {
  if (petra_microbatch_set_has(set, microbatch))
    return PETRA_OK;
  if (microbatch == set->next && !set->words) {
    set->next++;
    return PETRA_OK;
  }
  PETRA_TRY(make_room(set, microbatch));
  set_bit(set->beyond, set->words, microbatch, true);
  for (; bit(set, set->next); set->next++)
    set_bit(set->beyond, set->words, set->next, false);
  return PETRA_OK;
}

bool petra_microbatch_set_has(const petra_microbatch_set *set, int64_t microbatch) {
  if (microbatch < set->next)
    return true;
  return set->words && microbatch - set->next < 64 * set->words && bit(set, microbatch);
}

void petra_microbatch_set_fini(petra_microbatch_set *set) {
  petra_free(set->beyond);
  *set = (petra_microbatch_set){0};
}

void petra_microbatch_set_state(const petra_microbatch_set *set, petra_cycle *cycle) {
  const bool empty = set->next == 0 && !set->words;
  petra_cycle_value(cycle, empty ? INT64_MAX : set->next - cycle->microbatch);
  for (int64_t m = set->next; m < set->next + 64 * set->words; m++)
    if (bit(set, m))
      petra_cycle_microbatch(cycle, m);
  petra_cycle_value(cycle, INT64_MIN);
}
