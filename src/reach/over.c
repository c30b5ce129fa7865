/* SPDX-License-Identifier: Apache-2.0 */
/* The seconds of each group over the values of a key of the cluster, and the values at which their order changes. */
#include "reach/reach.h"

#include "base/log.h"
#include "base/mem.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { VALUES = 21, SET = 128 };
static const double DEFAULT_SPAN = 100; /* the key varies from its value / SPAN to its value x SPAN: the smallest and
                                         * the largest value of the groups */
static const double EXACT = 1.0002;     /* two values this close are one */

/* --- the option --- */

static petra_status fail_range(const char *text) {
  return petra_fail(PETRA_USAGE, "--over: '%s'; expected KEY or KEY=FROM:TO with 0 < FROM < TO", text);
}

static petra_status read_range(const char *text, const char *range, double *from, double *to) {
  char *end;
  *from = strtod(range, &end);
  if (end == range || *end != ':')
    return fail_range(text);
  range = end + 1;
  *to = strtod(range, &end);
  return end == range || *end || !(*from > 0 && *from < *to && isfinite(*to)) ? fail_range(text) : PETRA_OK;
}

static petra_status read_value(const petra_config *config, const char *key, double *out) {
  petra_log_kept kept = {.line = ""};
  petra_log_keep(&kept);
  const petra_status status = petra_config_number(config, key, out);
  petra_log_keep_end(&kept);
  return status == PETRA_OK ? PETRA_OK : petra_fail(status, "--over: %s", kept.line);
}

static petra_status read_option(const petra_reach *reach, const petra_reach_cluster *cluster, petra_reach_over *over,
                                double *from, double *to) {
  const char *text = reach->options.over, *equals = strchr(text, '=');
  PETRA_TRY(petra_duplicate_string(&over->key, text));
  if (equals)
    over->key[equals - text] = 0;
  if (strcmp(over->key, "cluster") == 0)
    return petra_fail(PETRA_USAGE, "--over: cluster is a section; expected a real number in it, such as "
                                   "cluster.link.bandwidth_Bps");
  if (strncmp(over->key, "cluster.", strlen("cluster.")) != 0)
    return petra_fail(PETRA_USAGE,
                      "--over: %s is no key of the cluster, so the updates could depend on it; expected a number of "
                      "the section cluster, such as cluster.link.bandwidth_Bps",
                      over->key);
  PETRA_TRY(read_value(cluster->rows[0].config, over->key, from));
  *to = *from;
  for (int g = 1; g < reach->groups.count; g++) {
    double value;
    PETRA_TRY(read_value(cluster->rows[g].config, over->key, &value));
    *from = fmin(*from, value);
    *to = fmax(*to, value);
  }
  if (equals)
    return read_range(text, equals + 1, from, to);
  if (*from <= 0)
    return petra_fail(PETRA_USAGE, "--over: %s is %g here, so no range follows from it; expected %s=FROM:TO", over->key,
                      *from, over->key);
  *from /= DEFAULT_SPAN;
  *to *= DEFAULT_SPAN;
  return PETRA_OK;
}

/* --- seconds --- */

typedef struct variation {
  const petra_reach *reach;
  const petra_reach_cluster *cluster;
  petra_reach_over *over;
} variation;

static bool is_whole(const variation *v, int group) {
  const petra_reach_estimate *seconds = &v->cluster->rows[group].seconds;
  return seconds->reached == seconds->count;
}

/* An error names the range, and not a value in it that nobody has typed. `line` begins with the setting. */
static petra_status fail_within(const variation *v, petra_status status, const char *set, const char *line) {
  const char *what = strstr(line, set);
  what = what && strncmp(what + strlen(set), ": ", 2) == 0 ? what + strlen(set) + 2 : line;
  return petra_fail(status, "--over: %s from %g to %g: %s", v->over->key, v->over->values[0],
                    v->over->values[v->over->count - 1], what);
}

/* *out is NaN for a group of which a run does not reach the target. */
static petra_status seconds_at(const variation *v, int group, double value, double *out) {
  petra_reach_estimate estimate;
  char set[SET];
  *out = NAN;
  if (!is_whole(v, group))
    return PETRA_OK;
  snprintf(set, sizeof set, "%s=%.17g", v->over->key, value);
  petra_log_kept kept = {.line = "out of memory while a key varies"};
  petra_log_keep(&kept);
  const petra_status status = petra_reach_seconds(v->reach, &v->cluster->place, set, group, &estimate);
  petra_log_keep_end(&kept);
  if (status != PETRA_OK)
    return fail_within(v, status, set, kept.line);
  *out = estimate.mean;
  return PETRA_OK;
}

static double seconds_of(const variation *v, int group, int index) {
  return v->over->seconds[group * v->over->count + index];
}

static petra_status fill(variation *v, double from, double to) {
  petra_reach_over *over = v->over;
  const int groups = v->reach->groups.count;
  over->count = VALUES;
  PETRA_TRY(petra_allocate(&over->values, VALUES, sizeof *over->values));
  PETRA_TRY(petra_allocate(&over->seconds, (size_t)groups * VALUES, sizeof *over->seconds));
  for (int i = 0; i < VALUES; i++)
    over->values[i] = i == VALUES - 1 ? to : from * pow(to / from, (double)i / (VALUES - 1));
  for (int g = 0; g < groups; g++)
    for (int n = 0; n < VALUES; n++) { /* the last one first: an error then shows an end of the range */
      const int i = n == 0 ? VALUES - 1 : n - 1;
      PETRA_TRY(seconds_at(v, g, over->values[i], &over->seconds[g * VALUES + i]));
    }
  return PETRA_OK;
}

/* --- changes of the order --- */

static petra_status add_change(variation *v, petra_reach_change change) {
  petra_reach_over *over = v->over;
  PETRA_TRY(petra_array_reserve(&over->changes, &over->capacity, over->change_count + 1, sizeof *over->changes));
  over->changes[over->change_count++] = change;
  return PETRA_OK;
}

/* Finds, by bisection of the logarithm, where `a`, which is faster at `low`, stops to be faster than `b`. */
static petra_status bisect(const variation *v, int a, int b, double low, double high, double *out) {
  while (high / low > EXACT) {
    const double middle = sqrt(low * high);
    double of_a, of_b;
    PETRA_TRY(seconds_at(v, a, middle, &of_a));
    PETRA_TRY(seconds_at(v, b, middle, &of_b));
    *(of_a <= of_b ? &low : &high) = middle;
  }
  *out = sqrt(low * high);
  return PETRA_OK;
}

/* Returns the fastest group at a value of the curve; -1: no group reaches the target. */
static int best_at(const variation *v, int index) {
  int best = -1;
  for (int g = 0; g < v->reach->groups.count; g++)
    if (is_whole(v, g) && (best < 0 || seconds_of(v, g, index) < seconds_of(v, best, index)))
      best = g;
  return best;
}

static petra_status find_best_changes(variation *v) {
  for (int i = 1; i < v->over->count; i++) {
    const int before = best_at(v, i - 1), after = best_at(v, i);
    petra_reach_change change = {PETRA_REACH_BEST_CHANGES, 0, before, after};
    if (before < 0 || before == after)
      continue;
    PETRA_TRY(bisect(v, before, after, v->over->values[i - 1], v->over->values[i], &change.value));
    PETRA_TRY(add_change(v, change));
  }
  return PETRA_OK;
}

static petra_status find_pair_changes(variation *v, int group) {
  const int other = v->cluster->rows[group].reference;
  for (int i = 1; other >= 0 && is_whole(v, group) && i < v->over->count; i++) {
    const bool first = seconds_of(v, group, i - 1) <= seconds_of(v, other, i - 1),
               then = seconds_of(v, group, i) <= seconds_of(v, other, i);
    petra_reach_change change = {PETRA_REACH_PAIR_CHANGES, 0, first ? group : other, first ? other : group};
    if (first == then)
      continue;
    PETRA_TRY(bisect(v, change.before, change.after, v->over->values[i - 1], v->over->values[i], &change.value));
    PETRA_TRY(add_change(v, change));
  }
  return PETRA_OK;
}

petra_status petra_reach_vary(const petra_reach *reach, const petra_reach_cluster *cluster, petra_reach_over *out) {
  variation v = {reach, cluster, out};
  double from = 0, to = 0;
  *out = (petra_reach_over){0};
  PETRA_TRY(read_option(reach, cluster, out, &from, &to));
  PETRA_TRY(fill(&v, from, to));
  PETRA_TRY(find_best_changes(&v));
  for (int g = 0; g < reach->groups.count; g++)
    PETRA_TRY(find_pair_changes(&v, g));
  return PETRA_OK;
}

void petra_reach_over_fini(petra_reach_over *over) {
  petra_free(over->key);
  petra_free(over->values);
  petra_free(over->seconds);
  petra_free(over->changes);
}
