/* SPDX-License-Identifier: Apache-2.0 */
/* The wall clock, CLOCK_MONOTONIC. It never goes back. Its origin is arbitrary, so that only differences are
 * meaningful. */
#pragma once

#include <stdint.h>
#include <time.h>

static inline int64_t petra_clock_ns(void) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

static inline double petra_clock_s(void) {
  return 1e-9 * (double)petra_clock_ns();
}
