/* SPDX-License-Identifier: Apache-2.0 */
/* What has arrived for a stage. Messages come in the order of microbatches as a rule: then a count is all there is. */
#include "base/log.h"
#include "base/mem.h"
#include "sim/executor_device.h"

static bool bit(const petra_inbox *box, int64_t microbatch) {
  int64_t place = microbatch % (64 * box->words);
  return box->beyond[place / 64] >> (place % 64) & 1;
}

static void set_bit(uint64_t *words, int64_t count, int64_t microbatch, bool value) {
  int64_t place = microbatch % (64 * count);
  uint64_t mask = (uint64_t)1 << (place % 64);
  words[place / 64] = value ? words[place / 64] | mask : words[place / 64] & ~mask;
}

/* Room for microbatches next .. microbatch. */
static petra_status make_room(petra_inbox *box, int64_t microbatch) {
  int64_t words = box->words ? box->words : 1;
  while (64 * words <= microbatch - box->next)
    words *= 2;
  if (words == box->words)
    return PETRA_OK;
  uint64_t *beyond;
  PETRA_TRY(petra_allocate(&beyond, (size_t)words, sizeof *beyond));
  for (int64_t m = box->next; m < box->next + 64 * box->words; m++)
    set_bit(beyond, words, m, bit(box, m));
  petra_free(box->beyond);
  box->beyond = beyond;
  box->words = words;
  return PETRA_OK;
}

petra_status petra_inbox_put(petra_inbox *box, int64_t microbatch) {
  if (petra_inbox_has(box, microbatch))
    return petra_fail(PETRA_SCHEDULE, "a message of microbatch %lld comes twice", (long long)microbatch);
  if (microbatch == box->next && !box->words) {
    box->next++;
    return PETRA_OK;
  }
  PETRA_TRY(make_room(box, microbatch));
  set_bit(box->beyond, box->words, microbatch, true);
  for (; bit(box, box->next); box->next++)
    set_bit(box->beyond, box->words, box->next, false);
  return PETRA_OK;
}

bool petra_inbox_has(const petra_inbox *box, int64_t microbatch) {
  if (microbatch < box->next)
    return true;
  return box->words && microbatch - box->next < 64 * box->words && bit(box, microbatch);
}

void petra_inbox_fini(petra_inbox *box) {
  petra_free(box->beyond);
  *box = (petra_inbox){0};
}
