/* SPDX-License-Identifier: Apache-2.0 */
/* Levels over time in bins: against the same levels sampled at every nanosecond. */
#include "base/rng.h"
#include "harness.h"
#include "sim/observer_memory.h"

enum { ROWS = 3, COLUMNS = 2, BINS = 8, MAX_NS = 700 };

static int64_t below(petra_rng *rng, int64_t bound) {
  return (int64_t)(petra_rng_uniform(rng) * (double)bound);
}

START_TEST(bins_hold_the_highest_level) {
  for (int number = 0; number < 300; number++) {
    static int64_t every[MAX_NS + 1][ROWS][COLUMNS]; /* the highest level at that nanosecond */
    petra_rng rng;
    petra_time_bins *samples;
    int64_t level[ROWS][COLUMNS] = {{0}}, now_ns = 0, end_ns;
    petra_rng_init(&rng, 3, PETRA_RNG_TEST, 0, (uint64_t)number);
    memset(every, 0, sizeof every);
    ck_assert_int_eq(petra_time_bins_create(ROWS, COLUMNS, BINS, &samples), PETRA_OK);
    for (int change = (int)below(&rng, 40); change >= 0; change--) {
      int row = (int)below(&rng, ROWS);
      int64_t peak[COLUMNS];
      int64_t next_ns = now_ns + below(&rng, 30) * below(&rng, 2);
      if (next_ns > MAX_NS)
        break;
      for (int64_t t = now_ns + 1; t <= next_ns; t++)
        memcpy(every[t], level, sizeof level);
      now_ns = next_ns;
      for (int c = 0; c < COLUMNS; c++) {
        level[row][c] = below(&rng, 100);
        peak[c] = level[row][c] + below(&rng, 50);
        if (peak[c] > every[now_ns][row][c])
          every[now_ns][row][c] = peak[c];
      }
      petra_time_bins_put(samples, row, now_ns, peak, level[row]);
    }
    for (end_ns = now_ns; end_ns < MAX_NS && below(&rng, 20); end_ns++)
      memcpy(every[end_ns + 1], level, sizeof level);
    int32_t bins;
    int64_t width_ns;
    const int64_t *values;
    petra_time_bins_finish(samples, end_ns, &bins, &width_ns, &values);
    ck_assert_int_le(bins, BINS);
    ck_assert_int_eq(bins, end_ns / width_ns + 1);
    ck_assert(width_ns == 1 || bins > BINS / 2); /* no coarser than it must be */
    for (int32_t b = 0; b < bins; b++)
      for (int r = 0; r < ROWS; r++)
        for (int c = 0; c < COLUMNS; c++) {
          int64_t highest = 0;
          for (int64_t t = b * width_ns; t < (b + 1) * width_ns && t <= end_ns; t++)
            if (every[t][r][c] > highest)
              highest = every[t][r][c];
          ck_assert_int_eq(values[((size_t)b * ROWS + (size_t)r) * COLUMNS + (size_t)c], highest);
        }
    petra_free(samples);
  }
}
END_TEST

int main(void) {
  const TTest *const tests[] = {bins_hold_the_highest_level};
  return harness_run("samples", tests, HARNESS_COUNT(tests));
}
