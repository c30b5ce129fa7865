/* SPDX-License-Identifier: Apache-2.0 */
#include "profile/fit.h"

#include "base/text.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/utf8.h"
#include "profile/profile.h"
#include "run/folder.h"
#include "run/simulation.h"

#include <math.h>
#include <stdio.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* --- the factors --- */

/* A key with two factors would use only the last one. */
static petra_status check_new(const petra_fit *fit, const char *key) {
  for (int i = 0; i < fit->factors; i++)
    for (int k = 0; k < fit->factor[i].count; k++)
      if (strcmp(fit->factor[i].keys[k], key) == 0)
        return petra_fail(PETRA_USAGE, "--vary: %s twice; expected each key once", key);
  return PETRA_OK;
}

static petra_status add_key(petra_fit_factor *factor, const petra_config *config, const char *key) {
  if (factor->count == PETRA_FIT_KEYS)
    return petra_fail(PETRA_USAGE, "--vary: more than %d keys of one factor; expected fewer", PETRA_FIT_KEYS);
  double *start = &factor->start[factor->count];
  PETRA_TRY(petra_config_number(config, key, start));
  if (!(*start > 0))
    return petra_config_fail(config, key,
                             "%g with --vary, which multiplies it; expected a number above 0 to begin with", *start);
  PETRA_TRY(petra_duplicate_string(&factor->keys[factor->count], key));
  factor->count++;
  return PETRA_OK;
}

/* Splits `vary` at its commas and +. */
static petra_status read_factors(petra_fit *fit, const petra_config *config, char *vary) {
  char *rest, *more;
  for (char *group = strtok_r(vary, ",", &rest); group; group = strtok_r(NULL, ",", &rest)) {
    if (fit->factors == PETRA_FIT_FACTORS)
      return petra_fail(PETRA_USAGE, "--vary: more than %d factors; expected fewer", PETRA_FIT_FACTORS);
    petra_fit_factor *factor = &fit->factor[fit->factors++];
    factor->factor = 1;
    for (char *key = strtok_r(group, "+", &more); key; key = strtok_r(NULL, "+", &more)) {
      PETRA_TRY(check_new(fit, key));
      PETRA_TRY(add_key(factor, config, key));
    }
  }
  if (fit->factors == 0 || fit->factor[fit->factors - 1].count == 0)
    return petra_fail(PETRA_USAGE,
                      "--vary: no key; expected keys, such as cluster.host.action_s,cluster.cost.launch_s");
  return PETRA_OK;
}

/* --- the measurements --- */

typedef struct reader {
  const char *path;
  int line, columns;
  char *keys[PETRA_FIT_KEYS + 1]; /* including `seconds`, the last one */
} reader;

/* Splits a line into its cells, and terminates each in the line; returns their number, at most `maximum` + 1. */
static int cut(char *line, char **fields, int maximum) {
  const char *at = line, *end = line + strlen(line);
  char *behind = line; /* the cell before */
  bool first = true;
  int count = 0;
  for (petra_csv_cell cell; count <= maximum && petra_csv_next(&at, end, &first, &cell); count++) {
    char *text = line + (cell.text - line);
    if (count > 0)
      *behind = 0;
    behind = text + cell.length;
    if (count < maximum)
      fields[count] = text;
  }
  *behind = 0;
  return count;
}

/* Checks that keys to vary are the same in all measurements, and that no column occurs twice. */
static petra_status check_column(const reader *r, const petra_fit *fit, const char *key) {
  for (int i = 0; i < r->columns; i++)
    if (strcmp(r->keys[i], key) == 0)
      return petra_fail(PETRA_CONFIG, "%s:%d: %s twice; expected each key once", r->path, r->line, key);
  for (int i = 0; i < fit->factors; i++)
    for (int k = 0; k < fit->factor[i].count; k++)
      if (strcmp(fit->factor[i].keys[k], key) == 0)
        return petra_fail(PETRA_CONFIG, "%s:%d: %s, which --vary also names; expected the key in only one of them",
                          r->path, r->line, key);
  return PETRA_OK;
}

static petra_status read_header(reader *r, char *line, const petra_fit *fit) {
  char *fields[PETRA_FIT_KEYS + 1];
  const int count = cut(line, fields, PETRA_FIT_KEYS + 1);
  if (count > PETRA_FIT_KEYS + 1 || count < 2 || strcmp(fields[count - 1], "seconds") != 0)
    return petra_fail(
        PETRA_CONFIG,
        "%s:%d: not the header of a file of measurements; expected up to %d config keys and, last, seconds", r->path,
        r->line, PETRA_FIT_KEYS);
  for (; r->columns < count; r->columns++) {
    PETRA_TRY(check_column(r, fit, fields[r->columns]));
    PETRA_TRY(petra_duplicate_string(&r->keys[r->columns], fields[r->columns]));
  }
  return PETRA_OK;
}

static petra_status read_row(const reader *r, char *line, petra_fit *fit) {
  char *fields[PETRA_FIT_KEYS + 1], *end;
  const int count = cut(line, fields, PETRA_FIT_KEYS + 1), last = r->columns - 1;
  if (count != r->columns)
    return petra_fail(PETRA_CONFIG, "%s:%d: %d values; expected %d, as in the header", r->path, r->line, count,
                      r->columns);
  if (fit->measurements == PETRA_FIT_MEASUREMENTS)
    return petra_fail(PETRA_CONFIG, "%s:%d: too many measurements; expected at most %d", r->path, r->line,
                      PETRA_FIT_MEASUREMENTS);
  petra_fit_measurement *one = &fit->measurement[fit->measurements++];
  const size_t room = strlen(r->path) + 16;
  PETRA_TRY(petra_allocate(&one->where, room, 1));
  snprintf(one->where, room, "%s:%d", r->path, r->line);
  one->measured_s = strtod(fields[last], &end);
  if (*end || end == fields[last] || !isfinite(one->measured_s) || one->measured_s <= 0)
    return petra_fail(PETRA_CONFIG, "%s:%d: '%s' seconds; expected a number above 0", r->path, r->line, fields[last]);
  for (; one->count < last; one->count++) {
    const size_t size = strlen(r->keys[one->count]) + strlen(fields[one->count]) + 2;
    PETRA_TRY(petra_allocate(&one->settings[one->count], size, 1));
    snprintf(one->settings[one->count], size, "%s=%s", r->keys[one->count], fields[one->count]);
  }
  return PETRA_OK;
}

static petra_status read_lines(reader *r, FILE *file, petra_fit *fit) {
  char *line = NULL;
  size_t room = 0;
  petra_status status = PETRA_OK;
  while (status == PETRA_OK && getline(&line, &room, file) >= 0) {
    char *text = line + (++r->line == 1 ? petra_utf8_mark_bytes(line, strlen(line)) : 0);
    const char first = text[strspn(text, " \t\r\n")];
    if (first && first != '#')
      status = r->columns == 0 ? read_header(r, text, fit) : read_row(r, text, fit);
  }
  free(line); /* owned by getline */
  if (status == PETRA_OK && ferror(file))
    status = petra_fail(PETRA_IO, "%s: cannot read: %s", r->path, strerror(errno));
  if (status == PETRA_OK && fit->measurements == 0)
    status = petra_fail(PETRA_CONFIG, "%s: no measurement; expected a header and a line for each measurement", r->path);
  return status;
}

/* Fills the measurements and the factors of `fit`, which is all zeros. Call petra_fit_destroy even on failure. */
static petra_status read_fit(petra_fit *fit, const petra_config *config, const char *path, const char *vary) {
  reader r = {.path = path};
  char *keys = NULL;
  FILE *file = NULL;
  petra_status status;
  PETRA_TRY_GOTO(status, petra_duplicate_string(&keys, vary), done);
  PETRA_TRY_GOTO(status, read_factors(fit, config, keys), done);
  file = fopen(path, "r");
  if (!file)
    PETRA_TRY_GOTO(status, petra_fail(PETRA_IO, "%s: cannot open: %s", path, strerror(errno)), done);
  status = read_lines(&r, file, fit);
done:
  if (file)
    fclose(file);
  for (int i = 0; i < r.columns; i++)
    petra_free(r.keys[i]);
  petra_free(keys);
  return status;
}

/* --- the fit --- */

void petra_fit_destroy(petra_fit *fit) {
  if (!fit)
    return;
  for (int i = 0; i < fit->factors; i++)
    for (int k = 0; k < fit->factor[i].count; k++)
      petra_free(fit->factor[i].keys[k]);
  for (int i = 0; i < fit->measurements; i++) {
    for (int k = 0; k < fit->measurement[i].count; k++)
      petra_free(fit->measurement[i].settings[k]);
    petra_free(fit->measurement[i].where);
  }
  petra_free(fit);
}

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
  PETRA_TRY_GOTO(status, read_fit(f.fit, config, path, vary), done);
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
