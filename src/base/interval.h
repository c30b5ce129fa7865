/* SPDX-License-Identifier: Apache-2.0 */
/* The mean of a few repetitions and how well they know it. */
#ifndef PETRA_BASE_INTERVAL_H
#define PETRA_BASE_INTERVAL_H

typedef struct petra_interval {
  int count;        /* of the values that are finite; the others are left out */
  double mean;      /* NaN where count is 0 */
  double deviation; /* sqrt(sum (x - mean)^2 / (count - 1)); NaN where count < 2 */
  double half;      /* Student's t interval is mean -+ half, half = t deviation / sqrt(count); NaN where count < 2 */
} petra_interval;

/* `level` is the probability of the interval, such as 0.95: t is the (1 + level) / 2 quantile of Student's
 * distribution with count - 1 degrees of freedom. */
petra_interval petra_interval_of(const double *values, int count, double level);

#endif
