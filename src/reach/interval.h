/* SPDX-License-Identifier: Apache-2.0 */
/* Means of a positive quantity over the seeds of a group, and ratios of two such means, with 95 % intervals.
 *
 * The quantity (updates, seconds, bytes to a target) is positive, and its scatter grows with its size. Its logarithms
 * are therefore averaged: the mean is geometric, and Student's t interval of the logarithms becomes an interval around
 * it that never contains 0. A ratio of two groups is a difference of logarithms. Welch's interval is used for it,
 * because the groups may differ in scatter and in their number of seeds.
 *
 * A seed that does not reach the target enters with its last value, which is less than the unknown one. The mean of
 * these values is then a lower bound of the mean over these seeds. There is no interval: their scatter is not that of
 * the unknown values. */
#pragma once

#include <stdbool.h>

typedef struct petra_reach_value {
  double value;
  bool censored; /* the target was not reached: the true value is larger */
} petra_reach_value;

typedef struct petra_reach_estimate {
  int count, reached;  /* values; those that are not censored */
  double mean;         /* geometric, of all values; a lower bound unless all are reached; NaN: not known */
  double low, high;    /* ends of the 95 % interval, NaN: not known; if a value is censored, the mean and infinity */
  double log_mean;     /* of the logarithms */
  double log_variance; /* of log_mean: deviation^2 / count; NaN for one value, and if a value is censored */
} petra_reach_estimate;

petra_reach_estimate petra_reach_estimate_of(const petra_reach_value *values, int count);

/* Estimates the ratio a / b. It is known if all values of b are reached, and some of a. */
typedef struct petra_reach_ratio {
  bool known;
  bool censored;          /* a is: the ratio is a lower bound */
  double mean, low, high; /* as above */
} petra_reach_ratio;

petra_reach_ratio petra_reach_ratio_of(const petra_reach_estimate *a, const petra_reach_estimate *b);

/* The mean of a few repetitions and its uncertainty. */
typedef struct petra_interval {
  int count;        /* number of finite values; others are ignored */
  double mean;      /* NaN if count is 0 */
  double deviation; /* sqrt(sum (x - mean)^2 / (count - 1)); NaN if count < 2 */
  double half;      /* Student's t interval is mean -+ half, half = t deviation / sqrt(count); NaN if count < 2 */
} petra_interval;

/* `level` is the probability of the interval, such as 0.95: t is the (1 + level) / 2 quantile of Student's
 * distribution with count - 1 degrees of freedom. */
petra_interval petra_interval_of(const double *values, int count, double level);
