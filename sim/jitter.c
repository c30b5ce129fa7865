/* SPDX-License-Identifier: Apache-2.0 */
#include "sim/jitter.h"

#include "base/log.h"
#include "base/rng.h"

#include <gsl/gsl_cdf.h>
#include <gsl/gsl_randist.h>
#include <math.h>

enum { STAGE_BITS = 17, MOST_FAILURES = 10000 };

bool petra_jitter_is_none(const petra_jitter_options *o) {
  bool random = o->law != PETRA_JITTER_NONE && o->scale > 0;
  bool slow = o->slow_count > 0 && o->factor != 1;
  bool pauses = o->pause_mean_s > 0 && o->pause_s > 0;
  return !random && !slow && !pauses && o->failure_mean_s <= 0;
}

/* Uniform in (0, 1): the inverse distribution functions are infinite at the ends. */
static double open_uniform(petra_rng *rng) {
  return petra_rng_uniform(rng) + 0x1p-54;
}

static double exponential(petra_rng *rng, double mean) {
  return gsl_cdf_exponential_Pinv(open_uniform(rng), mean);
}

/* Quantile of the gamma distribution of mean 1 and standard deviation s > 0. GSL's search fails (NaN) far from
 * shapes of about 1: for large ones Wilson and Hilferty's cube of a normal variable serves, for small ones the
 * leading term at 0. */
static double gamma_quantile(double u, double s) {
  double shape = 1 / (s * s), x = shape < 2000 ? gsl_cdf_gamma_Pinv(u, shape, 1 / shape) : NAN;
  if (isfinite(x))
    return x;
  if (shape < 1)
    return exp((log(u) + lgamma(shape + 1)) / shape) / shape;
  double root = 1 - 1 / (9 * shape) + gsl_cdf_ugaussian_Pinv(u) / (3 * sqrt(shape));
  return root > 0 ? root * root * root : 0;
}

/* A factor of mean 1 and, but for the cut of the normal law, of standard deviation `s`. */
static double random_factor(petra_jitter_model law, double s, petra_rng *rng) {
  double u = open_uniform(rng);
  switch (law) {
  case PETRA_JITTER_NORMAL: {
    /* The mean of max(0, 1 + s Z) is P(1/s) + s p(1/s), with the normal distribution P and density p. */
    double mean = gsl_cdf_ugaussian_P(1 / s) + s * gsl_ran_ugaussian_pdf(1 / s);
    return fmax(0, 1 + s * gsl_cdf_ugaussian_Pinv(u)) / mean;
  }
  case PETRA_JITTER_LOGNORMAL: {
    double variance = log1p(s * s);
    return gsl_cdf_lognormal_Pinv(u, -variance / 2, sqrt(variance));
  }
  case PETRA_JITTER_GAMMA:
    return gamma_quantile(u, s);
  case PETRA_JITTER_EXPONENTIAL:
    return 1 - s + s * gsl_cdf_exponential_Pinv(u, 1);
  case PETRA_JITTER_NONE:
    break;
  }
  return 1;
}

static bool is_slow(const petra_jitter_options *options, int32_t stage) {
  int64_t low = 0, high = options->slow_count;
  while (low < high) {
    int64_t middle = (low + high) / 2;
    if (options->slow[middle] < stage)
      low = middle + 1;
    else
      high = middle;
  }
  return low < options->slow_count && options->slow[low] == stage;
}

/* Adds what failures cost an action of `work_s`: the lost work and the restarts. */
static petra_status add_failures(const petra_jitter_options *options, int32_t stage, petra_rng *rng, double work_s,
                                 double *total_s) {
  for (int failures = 0;; failures++) {
    double until_s = exponential(rng, options->failure_mean_s);
    if (until_s >= work_s)
      return PETRA_OK;
    if (failures == MOST_FAILURES)
      return petra_fail(PETRA_CONFIG,
                        "cluster.failures.mean_between_s: %g s between failures, but an action of stage %d "
                        "takes %g s and failed %d times; expected a mean not much below an action",
                        options->failure_mean_s, stage, work_s, MOST_FAILURES);
    *total_s += until_s + options->restart_s;
  }
}

petra_status petra_jitter_duration(const petra_jitter_options *options, int32_t stage, int kind, int64_t microbatch,
                                   int64_t cost_ns, int64_t *out) {
  petra_rng rng;
  double factor = 1;
  if (cost_ns == 0) {
    *out = 0;
    return PETRA_OK;
  }
  petra_rng_init(&rng, options->seed, PETRA_RNG_JITTER, (uint32_t)kind,
                 (uint64_t)stage | (uint64_t)microbatch << STAGE_BITS);
  if (options->law != PETRA_JITTER_NONE && options->scale > 0)
    factor = random_factor(options->law, options->scale, &rng);
  if (is_slow(options, stage))
    factor *= options->factor;
  double work_s = 1e-9 * (double)cost_ns * factor, extra_s = 0;
  if (options->failure_mean_s > 0)
    PETRA_TRY(add_failures(options, stage, &rng, work_s, &extra_s));
  if (options->pause_mean_s > 0 && options->pause_s > 0)
    for (double at_s = exponential(&rng, options->pause_mean_s); at_s < work_s;
         at_s += exponential(&rng, options->pause_mean_s))
      extra_s += exponential(&rng, options->pause_s);
  double total_ns = (double)cost_ns * factor + 1e9 * extra_s;
  if (!(total_ns < 9e18))
    return petra_fail(PETRA_CONFIG, "stage %d: an action of %g s; expected less than 9e9 s", stage, 1e-9 * total_ns);
  *out = llround(total_ns);
  return PETRA_OK;
}
