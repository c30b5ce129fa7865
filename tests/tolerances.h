/* SPDX-License-Identifier: Apache-2.0 */
/* The tolerances of tolerances.def as constants TOLERANCE_NAME. */
#pragma once

#define X(name, value, reason) static const double TOLERANCE_##name __attribute__((unused)) = (value);
#include "tolerances.def"
#undef X

/* For a test: a measured value, printed (it is in the test's log), against its tolerance. */
#define within(what, value, tolerance)                                                                                 \
  do {                                                                                                                 \
    double within_value_ = (value), within_limit_ = (tolerance);                                                       \
    printf("%s: %.3e (tolerance %.1e)\n", (what), within_value_, within_limit_);                                       \
    ck_assert_msg(within_value_ <= within_limit_, "%s: %.3e, tolerance %.1e", (what), within_value_, within_limit_);   \
  } while (0)

/* The call must succeed; the line that it logged otherwise. */
#define must(call) ck_assert_msg((call) == PETRA_OK, "%s: %s", #call, harness_line)
