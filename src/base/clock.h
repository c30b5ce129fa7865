/* SPDX-License-Identifier: Apache-2.0 */
/* The wall clock, CLOCK_MONOTONIC. It never goes back. Its origin is arbitrary, so that only differences are
 * meaningful. */
#ifndef PETRA_BASE_CLOCK_H
#define PETRA_BASE_CLOCK_H

#include <stdint.h>

int64_t petra_clock_ns(void);

double petra_clock_s(void);

#endif
