/* SPDX-License-Identifier: Apache-2.0 */
#include "sim/executor_virtual.h"

#include "base/log.h"
#include "base/mem.h"
#include "base/rng.h"

#include <gsl/gsl_cdf.h>
#include <gsl/gsl_randist.h>
#include <math.h>
#include <stdlib.h>

enum { STAGE_BITS = 17, MAX_FAILURES = 10000 };

bool petra_jitter_is_none(const petra_config *config) {
  bool random = config->cluster.jitter.model != PETRA_JITTER_NONE && config->cluster.jitter.scale > 0;
  bool slow = config->cluster.stragglers.stages.count > 0 && config->cluster.stragglers.factor != 1;
  bool pauses = config->cluster.pauses.mean_between_s > 0 && config->cluster.pauses.duration_s > 0;
  return !random && !slow && !pauses && config->cluster.failures.mean_between_s <= 0;
}

/* Returns a uniform number in (0, 1): the inverse distribution functions are infinite at the ends. */
static double open_uniform(petra_rng *rng) {
  return petra_rng_uniform(rng) + 0x1p-54;
}

static double exponential(petra_rng *rng, double mean) {
  return gsl_cdf_exponential_Pinv(open_uniform(rng), mean);
}

/* Returns a quantile of the gamma distribution with mean 1 and standard deviation s > 0. GSL's search fails (NaN) far
 * from shapes of about 1: for large shapes Wilson and Hilferty's cube of a normal variable is used, for small ones the
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

/* --- quantiles of the gamma law without a search for each quantile ---
 *
 * The search takes 0.4 to 5 us. Distances from the nearer end of (0, 1) are cut into octaves, and octaves into cells.
 * Within a cell the quantile is a polynomial up to rounding, because its singularity is at least 8 cells away. A cell
 * is fitted after MET draws have met it. Rounding to whole nanoseconds hides the error of the fit, except next to half
 * a nanosecond, where the quantile is searched for. */

enum { OCTAVES = 11, WIDE_OCTAVES = 3, CELLS = 8, TERMS = 10, MET = 16 };

/* Fits differ from GSL by up to 3e-13 (measured over 10^6 draws for each of 25 shapes). A fit is not used if it differs
 * by more than check_error at a point from which it was not made. */
static const double fit_error = 1e-11, check_error = 1e-12;

typedef struct cell {
  int met; /* number of draws; -1: it cannot be fitted */
  double terms[TERMS];
} cell;

struct petra_jitter_quantiles {
  double s;
  int octaves;
  cell cells[2][OCTAVES][CELLS]; /* lower and upper half; octave o: from 2^-(o + 2) to 2^-(o + 1) */
};

petra_status petra_jitter_quantiles_create(const petra_config *config, petra_jitter_quantiles **out) {
  const double s = config->cluster.jitter.scale, shape = 1 / (s * s);
  *out = NULL;
  if (config->cluster.jitter.model != PETRA_JITTER_GAMMA || s > 2 ||
      shape >= 2000) /* GSL's search fails for s > 2: gamma_quantile */
    return PETRA_OK;
  PETRA_TRY(petra_allocate(out, 1, sizeof **out));
  (*out)->s = s;
  /* For larger shapes GSL's search is inaccurate, or fails, further out. */
  (*out)->octaves = shape < 600 ? OCTAVES : WIDE_OCTAVES;
  return PETRA_OK;
}

/* Returns the sum of Chebyshev polynomials at t in [-1, 1] (Clenshaw). */
static double chebyshev(const double *terms, double t) {
  double next = 0, second = 0;
  for (int i = TERMS - 1; i > 0; i--) {
    const double sum = 2 * t * next - second + terms[i];
    second = next;
    next = sum;
  }
  return t * next - second + terms[0];
}

/* Fits the cell whose middle is at distance `middle` from the end of (0, 1); the cell extends `half` to both sides. */
static void fit(cell *c, double s, bool upper, double middle, double half) {
  double values[TERMS];
  c->met = MET;
  for (int i = 0; i < TERMS; i++) {
    const double v = middle + half * cos(M_PI * (i + 0.5) / TERMS);
    values[i] = gamma_quantile(upper ? 1 - v : v, s);
  }
  for (int k = 0; k < TERMS; k++) {
    double sum = 0;
    for (int i = 0; i < TERMS; i++)
      sum += values[i] * cos(M_PI * k * (i + 0.5) / TERMS);
    c->terms[k] = sum * (k > 0 ? 2 : 1) / TERMS;
  }
  for (int i = 0; i < 4; i++) {
    const double t = -0.95 + 0.63 * i, v = middle + half * t, exact = gamma_quantile(upper ? 1 - v : v, s);
    if (!(fabs(chebyshev(c->terms, t) - exact) <= check_error * exact))
      c->met = -1;
  }
}

/* Gets the gamma quantile at u, up to fit_error; returns false if a search is needed. */
static bool fitted_quantile(petra_jitter_quantiles *quantiles, double u, double *out) {
  const bool upper = u > 0.5;
  int exponent;
  const double v = upper ? 1 - u : u, mantissa = frexp(v, &exponent);
  const int octave = -exponent - 1;
  if (octave < 0 || octave >= quantiles->octaves)
    return false;
  const double place = (2 * mantissa - 1) * CELLS;
  const int number = (int)place;
  cell *c = &quantiles->cells[upper][octave][number];
  if (c->met >= 0 && c->met < MET && ++c->met == MET) {
    const double width = ldexp(1.0 / CELLS, exponent - 1);
    fit(c, quantiles->s, upper, (CELLS + number + 0.5) * width, 0.5 * width);
  }
  *out = chebyshev(c->terms, 2 * (place - number) - 1);
  return c->met == MET;
}

/* Draws a factor of mean 1 and, except for the cut of the normal law, of standard deviation `s`. */
static double random_factor(petra_jitter_model law, double s, double u) {
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

static int compare_stages(const void *a, const void *b) {
  const int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
  return (x > y) - (x < y);
}

/* Adds the cost of failures during an action of `work_s`: the lost work and the restarts. */
static petra_status add_failures(const petra_config *config, int32_t stage, petra_rng *rng, double work_s,
                                 double *total_s) {
  for (int failures = 0;; failures++) {
    double until_s = exponential(rng, config->cluster.failures.mean_between_s);
    if (until_s >= work_s)
      return PETRA_OK;
    if (failures == MAX_FAILURES)
      return petra_fail(PETRA_CONFIG,
                        "cluster.failures.mean_between_s: %g s between failures, but an action of stage %d takes %g s "
                        "and failed %d times; expected a mean that is not much shorter than an action",
                        config->cluster.failures.mean_between_s, stage, work_s, MAX_FAILURES);
    *total_s += until_s + config->cluster.failures.restart_s;
  }
}

/* Computes the duration for u without failures and pauses, if a fit is available. */
static bool fitted_duration(petra_jitter_quantiles *quantiles, double u, double cost_ns, double slow, int64_t *out) {
  double quantile;
  if (!fitted_quantile(quantiles, u, &quantile))
    return false;
  const double least = cost_ns * (quantile * (1 - fit_error) * slow),
               maximum = cost_ns * (quantile * (1 + fit_error) * slow);
  if (!(maximum < 9e18) || llround(least) != llround(maximum))
    return false;
  *out = llround(least);
  return true;
}

petra_status petra_jitter_duration(const petra_config *config, petra_jitter_quantiles *quantiles, int32_t stage,
                                   int kind, int64_t microbatch, int64_t cost_ns, int64_t *out) {
  petra_rng rng;
  double factor = 1;
  const int64_t key = stage;
  const bool is_slow = config->cluster.stragglers.stages.count > 0 &&
                       bsearch(&key, config->cluster.stragglers.stages.values,
                               (size_t)config->cluster.stragglers.stages.count, sizeof key, compare_stages);
  const double slow = is_slow ? config->cluster.stragglers.factor : 1;
  const bool pauses = config->cluster.pauses.mean_between_s > 0 && config->cluster.pauses.duration_s > 0;
  if (cost_ns == 0) {
    *out = 0;
    return PETRA_OK;
  }
  petra_rng_init(&rng, (uint64_t)config->run.seed, PETRA_RNG_JITTER, (uint32_t)kind,
                 (uint64_t)stage | (uint64_t)microbatch << STAGE_BITS);
  if (config->cluster.jitter.model != PETRA_JITTER_NONE && config->cluster.jitter.scale > 0) {
    const double u = open_uniform(&rng);
    if (quantiles && !pauses && config->cluster.failures.mean_between_s <= 0 &&
        fitted_duration(quantiles, u, (double)cost_ns, slow, out))
      return PETRA_OK;
    factor = random_factor(config->cluster.jitter.model, config->cluster.jitter.scale, u);
  }
  factor *= slow;
  double work_s = 1e-9 * (double)cost_ns * factor, extra_s = 0;
  if (config->cluster.failures.mean_between_s > 0)
    PETRA_TRY(add_failures(config, stage, &rng, work_s, &extra_s));
  if (pauses)
    for (double at_s = exponential(&rng, config->cluster.pauses.mean_between_s); at_s < work_s;
         at_s += exponential(&rng, config->cluster.pauses.mean_between_s))
      extra_s += exponential(&rng, config->cluster.pauses.duration_s);
  double total_ns = (double)cost_ns * factor + 1e9 * extra_s;
  if (!(total_ns < 9e18))
    return petra_fail(PETRA_CONFIG, "stage %d: an action of %g s; expected less than 9e9 s", stage, 1e-9 * total_ns);
  *out = llround(total_ns);
  return PETRA_OK;
}
