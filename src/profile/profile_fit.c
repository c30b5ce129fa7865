/* SPDX-License-Identifier: Apache-2.0 */
#include "profile/profile.h"

#include "base/log.h"

#include <gsl/gsl_multimin.h>
#include <math.h>
#include <string.h>

/* --- the rates --- */

/* A shorter launch time counts as none: a nanosecond is the unit of the virtual clock. */
#define LEAST_LAUNCH_S 1e-9

enum { MAX_EVALUATIONS = 2000 };

/* Distances, in units of the logarithm of a rate. */
static const double first_step = 0.7, close_enough = 1e-4;

typedef struct fitting {
  const petra_plan *plan;
  const petra_profile *profile;
  const petra_device_peaks *peaks;
  petra_cost_arithmetic arithmetic;
  petra_kernel_fit *fit;
} fitting;

static petra_status stage_seconds(const fitting *f, int stage, petra_roofline_seconds *sum) {
  const int *first = f->plan->partition.first;
  for (int b = first[stage]; b < first[stage + 1]; b++) {
    petra_kernel_list list;
    petra_plan_kernels(f->plan, b, &list);
    PETRA_TRY(petra_roofline_add(f->peaks, f->arithmetic, &f->fit->rates, list.kernel, list.count, sum));
  }
  return PETRA_OK;
}

/* Computes the mean square of ln(model / measured), weighted by the measured time, at the logarithms of the rates: the
 * longest parts have the largest weight. */
static petra_status misfit_at(fitting *f, const double *x, double *value) {
  petra_kernel_fit *fit = f->fit;
  double sum = 0, weight = 0;
  fit->rates = (petra_kernel_rates){exp(x[0]), exp(x[1]), exp(x[2]), exp(x[3])};
  fit->times = 0;
  fit->worst = 0;
  for (int j = 0; j < f->profile->stages; j++) {
    petra_roofline_seconds s = {0};
    PETRA_TRY(stage_seconds(f, j, &s));
    const double model[PETRA_PROFILE_PARTS] = {s.forward, s.backward, s.reconstruct, s.weight_gradient, s.update};
    for (int p = 0; p < PETRA_PROFILE_PARTS; p++) {
      const double measured = f->profile->stage[j].part[p].mean;
      if (!(measured > 0 && model[p] > 0))
        continue;
      const double apart = log(model[p] / measured);
      sum += measured * apart * apart;
      weight += measured;
      fit->worst = fmax(fit->worst, fabs(apart));
      fit->times++;
    }
  }
  *value = weight > 0 ? sum / weight : 0;
  return PETRA_OK;
}

/* Moves the shares into their limits; returns the distance by which they were moved. */
static double limit(const double *x, double *nearest) {
  const double maximum = log(PETRA_FIT_MAX_SHARE);
  double beyond = 0;
  for (int i = 0; i < PETRA_FIT_RATES; i++) {
    nearest[i] = i == PETRA_FIT_LAUNCH ? x[i] : fmin(fmax(x[i], -maximum), maximum);
    beyond += fabs(x[i] - nearest[i]);
  }
  return beyond;
}

/* Computes the misfit. Beyond the limits the misfit continues with a slope, which leads the search back. */
static petra_status misfit(fitting *f, const double *x, double *value) {
  double nearest[PETRA_FIT_RATES];
  const double beyond = limit(x, nearest);
  PETRA_TRY(misfit_at(f, nearest, value));
  *value += beyond;
  return PETRA_OK;
}

/* --- the simplex of Nelder and Mead, GSL's nmsimplex2: it needs no derivatives, so the function may have kinks --- */

typedef struct descent {
  fitting *f;
  int left;            /* number of evaluations that remain */
  petra_status status; /* a failure ends the search */
} descent;

/* GSL ends a search at a value that is not finite. */
static double evaluate(const gsl_vector *x, void *context) {
  descent *s = context;
  double value;
  s->left--;
  if (s->status == PETRA_OK)
    s->status = misfit(s->f, gsl_vector_const_ptr(x, 0), &value);
  return s->status == PETRA_OK ? value : NAN;
}

static petra_status descend(descent *s, gsl_multimin_fminimizer *minimiser, gsl_vector *x, double step) {
  gsl_multimin_function function = {evaluate, x->size, s};
  gsl_vector *sides = gsl_vector_alloc(x->size);
  if (!sides)
    return petra_fail(PETRA_NO_MEMORY, "out of memory: GSL");
  gsl_vector_set_all(sides, step);
  int failed = gsl_multimin_fminimizer_set(minimiser, &function, x, sides);
  while (!failed && s->left > 0 && gsl_multimin_fminimizer_size(minimiser) > close_enough)
    failed = gsl_multimin_fminimizer_iterate(minimiser);
  gsl_vector_free(sides);
  PETRA_TRY(s->status);
  if (failed)
    return petra_fail(PETRA_INTERNAL, "a search for a minimum met a value that is not finite");
  gsl_vector_memcpy(x, gsl_multimin_fminimizer_x(minimiser));
  return PETRA_OK;
}

/* Moves x to a local minimum near its start; *value is the value of the function at the minimum. The search begins with
 * a simplex of side first_step; it is then restarted once, at the point where it ended, with a quarter of that side. It
 * ends when the root mean square distance of the corners from their centre is at most close_enough, or after about
 * MAX_EVALUATIONS. PETRA_NO_MEMORY; PETRA_INTERNAL if a value is not finite. */
static petra_status minimise(fitting *f, double x[PETRA_FIT_RATES], double *value) {
  descent s = {.f = f, .left = MAX_EVALUATIONS};
  gsl_vector_view at = gsl_vector_view_array(x, PETRA_FIT_RATES);
  gsl_multimin_fminimizer *minimiser =
      gsl_multimin_fminimizer_alloc(gsl_multimin_fminimizer_nmsimplex2, PETRA_FIT_RATES);
  if (!minimiser)
    return petra_fail(PETRA_NO_MEMORY, "out of memory: GSL");
  petra_status status = descend(&s, minimiser, &at.vector, first_step);
  if (status == PETRA_OK)
    status = descend(&s, minimiser, &at.vector, first_step / 4);
  if (status == PETRA_OK)
    *value = minimiser->fval;
  gsl_multimin_fminimizer_free(minimiser);
  return status;
}

/* --- the fit --- */

/* Finds the shares whose increase changes nothing: no kernel is limited by them. */
static petra_status find_unlimited(fitting *f, double *x, double best) {
  for (int i = PETRA_FIT_MATRIX_FLOPS; i < PETRA_FIT_RATES; i++) {
    double twice;
    x[i] += log(2);
    PETRA_TRY(misfit_at(f, x, &twice));
    x[i] -= log(2);
    f->fit->unlimited[i] = fabs(twice - best) <= 1e-9;
  }
  return PETRA_OK;
}

/* Starts from several points, because there may be several minima: 1 to 100 microseconds per kernel, a twentieth to a
 * half of the peaks. */
static petra_status search(fitting *f, double *x) {
  static const double launch_s[] = {1e-6, 1e-5, 1e-4}, shares[] = {0.05, 0.5};
  double least = INFINITY;
  for (int start = 0; start < 3 * 2 * 2 * 2; start++) {
    double at[PETRA_FIT_RATES] = {log(launch_s[start % 3]), log(shares[start / 3 % 2]), log(shares[start / 6 % 2]),
                                  log(shares[start / 12])};
    double value = INFINITY;
    PETRA_TRY(minimise(f, at, &value));
    if (value >= least)
      continue;
    least = value;
    memcpy(x, at, sizeof at);
  }
  return PETRA_OK;
}

const char *petra_fit_rate_name(int rate) {
  static const char *const names[PETRA_FIT_RATES] = {"launch_s", "matrix_flops", "matrix_bytes", "elementwise_bytes"};
  return names[rate];
}

petra_status petra_profile_fit(const petra_plan *plan, const petra_profile *profile, petra_kernel_fit *out) {
  const petra_config *config = plan->config;
  const bool gpu = config->device.backend == PETRA_BACKEND_CUDA;
  const petra_cost_device device = gpu ? config->cluster.cost.device : PETRA_COST_CPU_CORE;
  fitting f = {.plan = plan, .profile = profile, .peaks = petra_device_peaks_at((int)device), .fit = out};
  double found[PETRA_FIT_RATES], x[PETRA_FIT_RATES], best;
  *out = (petra_kernel_fit){.device = NULL};
  if (config->device.precision == PETRA_PRECISION_FP64)
    return PETRA_OK;
  f.arithmetic = config->device.precision == PETRA_PRECISION_TF32   ? PETRA_COST_TF32
                 : config->device.precision == PETRA_PRECISION_BF16 ? PETRA_COST_BF16
                                                                    : PETRA_COST_FP32;
  if (!(f.peaks->matrix_flops[f.arithmetic] > 0))
    return PETRA_OK;
  PETRA_TRY(search(&f, found));
  limit(found, x);
  PETRA_TRY(misfit_at(&f, x, &best));
  PETRA_TRY(find_unlimited(&f, x, best));
  PETRA_TRY(misfit_at(&f, x, &best));
  if (out->rates.launch_s < LEAST_LAUNCH_S)
    out->rates.launch_s = 0;
  out->rms = sqrt(best);
  out->device = f.peaks->name;
  return PETRA_OK;
}
