/* SPDX-License-Identifier: Apache-2.0 */
/* The wall clock, CLOCK_MONOTONIC. It never goes back. Its origin is arbitrary, so that only differences are
 * meaningful. */
#pragma once

#include <stdint.h>

int64_t petra_clock_ns(void);

double petra_clock_s(void);
