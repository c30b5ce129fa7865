/* SPDX-License-Identifier: Apache-2.0 */
#include "data/dataset.h"

#include "base/mem.h"
#include "base/xxh64.h"

#include <endian.h>
#include <xxhash.h>

enum { IMAGES = 16, RUNS = 256, RUN = 1 << 16 }; /* RUNS x RUN tokens are read */

static void add_number(XXH64_state_t *hash, int64_t value) {
  const uint64_t word = htole64((uint64_t)value);
  XXH64_update(hash, &word, sizeof word);
}

/* Returns the position of number `i` of `count` that are spread over `places`, including the first and the last. */
static int64_t spread(int i, int count, int64_t places) {
  return count < 2 ? 0 : (int64_t)((double)i / (count - 1) * (double)(places - 1));
}

/* --- tokens --- */

/* A token is 16 bits, which overwrite the number as which it was read. */
static petra_status add_run(XXH64_state_t *hash, const petra_dataset *set, int64_t first, int64_t count,
                            int32_t *room) {
  unsigned char *bytes = (unsigned char *)room;
  PETRA_TRY(set->ops->read_tokens(set, first, count, room));
  for (int64_t i = 0; i < count; i++) {
    const int32_t token = room[i];
    bytes[2 * i] = (unsigned char)(token & 0xff);
    bytes[2 * i + 1] = (unsigned char)(token >> 8);
  }
  XXH64_update(hash, bytes, 2 * (size_t)count);
  return PETRA_OK;
}

static petra_status add_tokens(XXH64_state_t *hash, const petra_dataset *set) {
  const int64_t maximum = (int64_t)RUNS * RUN;
  int32_t *room;
  petra_status status = PETRA_OK;
  PETRA_TRY(petra_allocate(&room, RUN, sizeof *room));
  if (set->tokens > maximum)
    for (int i = 0; i < RUNS && status == PETRA_OK; i++)
      status = add_run(hash, set, spread(i, RUNS, set->tokens - RUN + 1), RUN, room);
  else
    for (int64_t first = 0; first < set->tokens && status == PETRA_OK; first += RUN)
      status = add_run(hash, set, first, set->tokens - first < RUN ? set->tokens - first : RUN, room);
  petra_free(room);
  return status;
}

/* --- images --- */

static petra_status add_image(XXH64_state_t *hash, const petra_dataset *set, int64_t index, uint8_t *pixels,
                              size_t bytes) {
  int32_t label;
  petra_stored_image stored;
  if (!set->ops->stored) {
    PETRA_TRY(set->ops->read(set, index, pixels, &label));
    XXH64_update(hash, pixels, bytes);
    return PETRA_OK;
  }
  PETRA_TRY(set->ops->stored(set, index, &stored));
  add_number(hash, stored.height);
  add_number(hash, stored.width);
  return PETRA_OK;
}

static petra_status add_images(XXH64_state_t *hash, const petra_dataset *set) {
  const int count = set->count < IMAGES ? (int)set->count : IMAGES;
  const size_t bytes = 3 * (size_t)set->height * (size_t)set->width;
  uint8_t *pixels;
  petra_status status = PETRA_OK;
  for (int64_t i = 0; set->ops->label && i < set->count; i++)
    add_number(hash, set->ops->label(set, i));
  PETRA_TRY(petra_allocate_raw(&pixels, bytes, 1));
  for (int i = 0; i < count && status == PETRA_OK; i++)
    status = add_image(hash, set, spread(i, count, set->count), pixels, bytes);
  petra_free(pixels);
  return status;
}

petra_status petra_dataset_fingerprint(const petra_dataset *set, uint64_t *out) {
  XXH64_state_t *hash;
  PETRA_TRY(petra_xxh64_create(&hash));
  add_number(hash, set->samples);
  add_number(hash, set->count);
  add_number(hash, set->classes);
  const petra_status status = set->samples == PETRA_SAMPLE_TOKENS ? add_tokens(hash, set) : add_images(hash, set);
  if (status == PETRA_OK)
    *out = XXH64_digest(hash);
  XXH64_freeState(hash);
  return status;
}
