/* SPDX-License-Identifier: Apache-2.0 */
#include "golden_data.h"

#include "base/log.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

/* Draw `number` >= 1 of the splitmix64 stream that starts at `start` (Steele, Lea, Flood, "Fast splittable
 * pseudorandom number generators", OOPSLA'14). */
static uint64_t draw(uint64_t start, uint64_t number) {
  uint64_t z = start + number * UINT64_C(0x9E3779B97F4A7C15);
  z = (z ^ (z >> 30)) * UINT64_C(0xBF58476D1CE4E5B9);
  z = (z ^ (z >> 27)) * UINT64_C(0x94D049BB133111EB);
  return z ^ (z >> 31);
}

void golden_data_record(int64_t index, uint8_t *record) {
  /* An odd factor that is no multiple of the stream's own step, so that the streams of different records stay
   * apart. */
  uint64_t start = ((uint64_t)index + 1) * UINT64_C(0xD1342543DE82EF95);
  uint64_t first = draw(start, 1);
  int label = (int)(first % 10), dx = (int)(first >> 8 & 7), dy = (int)(first >> 16 & 7);
  uint64_t bits = 0;
  record[0] = (uint8_t)label;
  for (int i = 0; i < GOLDEN_DATA_RECORD_BYTES - 1; i++) {
    int channel = i / 1024, y = i / 32 % 32, x = i % 32;
    int phase = (3 + 7 * label % 23) * (x + dx) + (2 + 11 * label % 19) * (y + dy) + 40 * channel * (1 + label % 3);
    phase &= 255;
    /* One draw serves eight pixels, the lowest byte first. */
    if (i % 8 == 0)
      bits = draw(start, 2 + (uint64_t)i / 8);
    int noise = (int)(bits >> (i % 8 * 8) & 63);
    record[1 + i] = (uint8_t)(32 + (phase < 128 ? phase : 255 - phase) + noise);
  }
}

petra_status golden_data_write(const char *path, int64_t records, uint64_t *fnv1a) {
  FILE *file = fopen(path, "wb");
  if (!file)
    return petra_fail(PETRA_IO, "%s: cannot be created: %s", path, strerror(errno));
  uint64_t hash = UINT64_C(0xCBF29CE484222325);
  uint8_t record[GOLDEN_DATA_RECORD_BYTES];
  for (int64_t i = 0; i < records; i++) {
    golden_data_record(i, record);
    for (size_t b = 0; b < sizeof record; b++)
      hash = (hash ^ record[b]) * UINT64_C(0x100000001B3);
    if (fwrite(record, 1, sizeof record, file) != sizeof record) {
      int cause = errno;
      fclose(file);
      return petra_fail(PETRA_IO, "%s: cannot be written: %s", path, strerror(cause));
    }
  }
  if (fclose(file) != 0)
    return petra_fail(PETRA_IO, "%s: cannot be written: %s", path, strerror(errno));
  *fnv1a = hash;
  return PETRA_OK;
}
