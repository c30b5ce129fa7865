/* SPDX-License-Identifier: Apache-2.0 */
#include "reach/interval.h"

#include <gsl/gsl_cdf.h>
#include <math.h>

static const double LEVEL = 0.95;

/* Returns half of the interval of a mean with this variance. */
static double half_of(double variance, double freedom) {
  return variance == 0 ? 0 : gsl_cdf_tdist_Pinv((1 + LEVEL) / 2, freedom) * sqrt(variance);
}

petra_reach_estimate petra_reach_estimate_of(const petra_reach_value *values, int count) {
  petra_reach_estimate e = {.count = count, .mean = NAN, .low = NAN, .high = NAN, .log_mean = NAN, .log_variance = NAN};
  double sum = 0, squares = 0;
  bool equal = true;
  for (int i = 0; i < count; i++) {
    e.reached += !values[i].censored;
    sum += log(values[i].value);
    equal = equal && values[i].value == values[0].value;
  }
  if (count == 0 || isnan(sum))
    return e;
  e.log_mean = equal ? log(values[0].value) : sum / count;
  e.mean = equal ? values[0].value : exp(e.log_mean); /* a lone value is not rounded */
  if (e.reached < count) {
    e.low = e.mean;
    e.high = INFINITY;
  }
  if (e.reached < count || count < 2 || isinf(sum))
    return e;
  for (int i = 0; i < count; i++)
    squares += pow(log(values[i].value) - e.log_mean, 2);
  e.log_variance = squares / (count - 1) / count;
  const double factor = exp(half_of(e.log_variance, count - 1));
  e.low = e.mean / factor;
  e.high = e.mean * factor;
  return e;
}

petra_reach_ratio petra_reach_ratio_of(const petra_reach_estimate *a, const petra_reach_estimate *b) {
  petra_reach_ratio r = {.mean = NAN, .low = NAN, .high = NAN};
  const double difference = a->log_mean - b->log_mean, variance = a->log_variance + b->log_variance;
  if (a->reached == 0 || b->count == 0 || b->reached < b->count || !isfinite(difference))
    return r;
  r.known = true;
  r.censored = a->reached < a->count;
  r.mean = exp(difference);
  if (r.censored) {
    r.low = r.mean;
    r.high = INFINITY;
  }
  if (r.censored || isnan(variance)) /* a group of one seed has no variance */
    return r;
  const double freedom =
      variance * variance /
      (a->log_variance * a->log_variance / (a->count - 1) + b->log_variance * b->log_variance / (b->count - 1));
  const double half = half_of(variance, freedom);
  r.low = exp(difference - half);
  r.high = exp(difference + half);
  return r;
}

petra_interval petra_interval_of(const double *values, int count, double level) {
  petra_interval result = {0, NAN, NAN, NAN};
  double sum = 0, squares = 0;
  for (int i = 0; i < count; i++)
    if (isfinite(values[i])) {
      sum += values[i];
      result.count++;
    }
  if (result.count > 0)
    result.mean = sum / result.count;
  if (result.count < 2)
    return result;
  for (int i = 0; i < count; i++)
    if (isfinite(values[i]))
      squares += (values[i] - result.mean) * (values[i] - result.mean);
  double freedom = result.count - 1;
  result.deviation = sqrt(squares / freedom);
  result.half = gsl_cdf_tdist_Pinv((1 + level) / 2, freedom) * result.deviation / sqrt(result.count);
  return result;
}
