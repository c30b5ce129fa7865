/* SPDX-License-Identifier: Apache-2.0 */
#include "profile/fit.h"

#include "base/log.h"
#include "base/mem.h"
#include "profile/simplex.h"
#include "run/folder.h"
#include "run/simulation.h"

#include <math.h>
#include <stdio.h>

/* The search is limited to factors of e^12. */
#define FARTHEST 12.0

/* In units of ln(factor). */
static const double first_step = 0.4, close_enough = 1e-5;
enum { MAX_EVALUATIONS = 600 };

typedef struct fitting {
  petra_fit *fit;
  petra_config_text text; /* the expanded config */
} fitting;

static petra_status simulate(const petra_config *config, double *seconds) {
  const petra_run_options options = {.kind = PETRA_RUN_SIMULATE, .times_alone = true};
  petra_run *simulation = NULL;
  petra_status status;
  PETRA_TRY_GOTO(status, petra_run_open(config, &options, &simulation), done);
  PETRA_TRY_GOTO(status, petra_run_go(simulation), done);
  *seconds = petra_run_simulated(simulation)->figures.time_per_microbatch_s;
  if (!(*seconds > 0))
    status =
        petra_config_fail(config, "run.max_microbatches",
                          "the simulation gives no time per microbatch to fit; expected more microbatches, or costs");
done:
  petra_run_destroy(simulation);
  return status;
}

/* Returns the time of a measurement with the factors of the fit. */
static petra_status simulate_one(const fitting *f, const petra_fit_measurement *measurement, double *seconds) {
  enum { LENGTH = 160 };
  char varied[PETRA_FIT_FACTORS * PETRA_FIT_KEYS][LENGTH];
  const char *sets[PETRA_FIT_FACTORS * PETRA_FIT_KEYS];
  petra_config *config;
  int texts = 0;
  for (int i = 0; i < f->fit->factors; i++)
    for (int k = 0; k < f->fit->factor[i].count; k++) {
      const petra_fit_factor *factor = &f->fit->factor[i];
      snprintf(varied[texts], LENGTH, "%s=%.17g", factor->keys[k], factor->start[k] * factor->factor);
      sets[texts] = varied[texts];
      texts++;
    }
  const petra_config_sets layers[] = {
      {measurement->where, (const char *const *)measurement->settings, measurement->count}, {"--vary", sets, texts}};
  PETRA_TRY(petra_config_load_layers(&f->text, layers, 2, &config));
  petra_status status = simulate(config, seconds);
  petra_config_destroy(config);
  return status;
}

/* Computes the mean square of ln(simulated / measured) at the logarithms of the factors. */
static petra_status misfit(void *context, const double *x, double *value) {
  fitting *f = context;
  petra_fit *fit = f->fit;
  double sum = 0, beyond = 0;
  fit->worst = 0;
  for (int i = 0; i < fit->factors; i++) {
    beyond += fmax(0, fabs(x[i]) - FARTHEST);
    fit->factor[i].factor = exp(fmin(fmax(x[i], -FARTHEST), FARTHEST));
  }
  for (int i = 0; i < fit->measurements; i++) {
    petra_fit_measurement *one = &fit->measurement[i];
    PETRA_TRY(simulate_one(f, one, &one->simulated_s));
    const double apart = log(one->simulated_s / one->measured_s);
    sum += apart * apart;
    fit->worst = fmax(fit->worst, fabs(apart));
  }
  *value = sum / fit->measurements + beyond;
  return PETRA_OK;
}

/* Finds the factors that the measurements do not determine; leaves the fit at x. */
static petra_status find_undetermined(fitting *f, double *x, double best) {
  petra_fit *fit = f->fit;
  for (int i = 0; i < fit->factors; i++) {
    double lower, upper;
    x[i] -= log(2);
    PETRA_TRY(misfit(f, x, &lower));
    x[i] += 2 * log(2);
    PETRA_TRY(misfit(f, x, &upper));
    x[i] -= log(2);
    fit->factor[i].undetermined = fmax(fabs(lower - best), fabs(upper - best)) <= 1e-9;
  }
  return misfit(f, x, &best);
}

petra_status petra_fit_find(const petra_config *config, const char *path, const char *vary, petra_fit **out) {
  fitting f = {.text.path = "the config of the fit"};
  double x[PETRA_FIT_FACTORS] = {0}, best;
  char *text = NULL;
  petra_status status;
  PETRA_TRY(petra_allocate(&f.fit, 1, sizeof *f.fit));
  PETRA_TRY_GOTO(status, petra_fit_read(f.fit, config, path, vary), done);
  PETRA_TRY_GOTO(status, petra_folder_expand_config(config, &text, &f.text.size), done);
  f.text.text = text;
  PETRA_TRY_GOTO(
      status, petra_simplex_minimise(misfit, &f, f.fit->factors, first_step, close_enough, MAX_EVALUATIONS, x, &best),
      done);
  PETRA_TRY_GOTO(status, misfit(&f, x, &best), done);
  PETRA_TRY_GOTO(status, find_undetermined(&f, x, best), done);
  f.fit->rms = sqrt(best);
done:
  petra_free(text);
  if (status == PETRA_OK)
    *out = f.fit;
  else
    petra_fit_destroy(f.fit);
  return status;
}
