/* SPDX-License-Identifier: Apache-2.0 */
/* The groups on one cluster: when each run reaches the target, intervals over seeds, the best, and what delay costs. */
#include "reach/reach.h"

#include "base/log.h"
#include "base/mem.h"
#include "setup/plan.h"
#include "schedule/method.h"
#include "reach/interval.h"

#include <math.h>
#include <string.h>

static const double LEVEL = 0.95;

static const petra_reach_run *first_of(const petra_reach *reach, int group) {
  return &reach->groups.runs[reach->groups.groups[group].first];
}

/* --- the clocks of a group --- */

/* Returns the row at which a run reaches the target, or its last one. */
static int64_t end_of(const petra_reach_run *run) {
  return run->curve.crossing >= 0 ? run->curve.crossing : run->count - 1;
}

/* Returns the largest number of a microbatch in the first `rows` rows. */
static int64_t last_microbatch(const petra_reach_run *run, int64_t rows) {
  int64_t last = 0;
  for (int64_t i = 0; i < rows; i++)
    last = run->rows[i].microbatch > last ? run->rows[i].microbatch : last;
  return last;
}

/* The clocks of the runs of a group, of which those with equal times share one. */
typedef struct clocks {
  int count;
  petra_reach_clock *clock; /* of each run; empty if it shares that of the run before it */
  bool known;               /* the order could be simulated */
} clocks;

static void clocks_fini(clocks *c) {
  for (int i = 0; c->clock && i < c->count; i++)
    petra_reach_clock_fini(&c->clock[i]);
  petra_free(c->clock);
}

static const petra_reach_clock *clock_of(const clocks *c, int run) {
  while (run > 0 && c->clock[run].count == 0)
    run--;
  return &c->clock[run];
}

/* Returns true if two runs have the same times: nothing is drawn, and both have the same length. */
static bool share_times(const petra_reach_run *a, const petra_reach_run *b) {
  return !petra_reach_is_random(a->config) && a->summary->batches == b->summary->batches && a->count == b->count &&
         petra_plan_microbatches(a->config, a->summary->batches) ==
             petra_plan_microbatches(b->config, b->summary->batches);
}

/* Simulates the runs of a group. `whole`: up to the end of the logs, else only until they reach the target. */
static petra_status price_group(const petra_reach *reach, const petra_reach_place *place, const char *set, int group,
                                bool whole, clocks *c) {
  const petra_reach_group *g = &reach->groups.groups[group];
  *c = (clocks){.count = g->count, .known = true};
  PETRA_TRY(petra_allocate(&c->clock, (size_t)g->count, sizeof *c->clock));
  int64_t last = 0;
  for (int i = 0; i < g->count; i++) {
    const petra_reach_run *run = &reach->groups.runs[g->first + i];
    const int64_t own = last_microbatch(run, whole ? run->count : end_of(run) + 1);
    last = own > last ? own : last;
  }
  for (int i = 0; i < g->count; i++) {
    const petra_reach_run *run = &reach->groups.runs[g->first + i];
    petra_config *config;
    PETRA_TRY(petra_reach_config(run, place, set, &config));
    const bool again = i == 0 || petra_reach_is_random(config) || !share_times(run - 1, run);
    const petra_status status = again ? petra_reach_price(run, config, place, last, &c->clock[i]) : PETRA_OK;
    petra_config_destroy(config);
    PETRA_TRY(status);
  }
  return PETRA_OK;
}

/* A run without --on and --as has its times in its log, and its order is simulated only for the bytes. That is not
 * possible if its costs were measured, or if its processes did what came first. */
static petra_status can_simulate(const petra_reach_run *run, bool *out) {
  petra_method method;
  PETRA_TRY(petra_method_from_config(run->config, &method));
  *out = run->config->cluster.cost.model != PETRA_COST_MEASURED &&
         !(run->config->run.mode == PETRA_MODE_EXECUTE && method.program->arrival);
  return PETRA_OK;
}

static bool is_logged(const petra_reach_place *place) {
  return !place->on && !place->as;
}

/* --- the ends of runs --- */

/* A log whose times are not those of its config comes from a version with other costs, or was changed. */
static petra_status check_logged(const petra_reach_run *run, double logged_s, double simulated_s) {
  if (fabs(logged_s - simulated_s) > 1.5e-9 * (1 + 1e-6 * logged_s))
    petra_log(PETRA_LOG_WARNING,
              "%s: reaches the target after %.9f s by its log, after %.9f s by a simulation of its config with this "
              "version of petra; the seconds are those of the log",
              run->log, logged_s, simulated_s);
  return PETRA_OK;
}

static double seconds_at(const petra_reach_run *run, const petra_reach_clock *clock, bool logged, int64_t row) {
  const int64_t m = run->rows[row].microbatch;
  if (logged)
    return run->rows[row].virtual_s;
  return clock && m < clock->count && clock->start_ns[m] >= 0 ? 1e-9 * (double)clock->start_ns[m] : NAN;
}

static petra_status find_end(const petra_reach_run *run, const clocks *c, int index, const petra_config *config,
                             bool logged, petra_reach_end *out) {
  const int64_t row = end_of(run), m = run->rows[row].microbatch;
  const petra_reach_clock *clock = c->known ? clock_of(c, index) : NULL;
  *out = (petra_reach_end){.reached = run->curve.crossing >= 0,
                           .row = row,
                           .microbatch = m,
                           .updates = m / config->method.accumulate,
                           .samples = (double)(m + 1) * (double)petra_plan_microbatch_samples(config),
                           .seconds = seconds_at(run, clock, logged, row),
                           .bytes = clock && m < clock->count && clock->bytes[m] >= 0 ? (double)clock->bytes[m] : NAN};
  const int64_t lowest = run->curve.points[run->curve.lowest].row;
  out->lowest = run->curve.points[run->curve.lowest].value;
  out->lowest_updates = run->rows[lowest].microbatch / config->method.accumulate;
  out->lowest_seconds = seconds_at(run, clock, logged, lowest);
  if (isnan(out->seconds))
    return petra_fail(PETRA_DATA,
                      "%s: the loss of microbatch %lld never comes back in a simulation of its config; expected the "
                      "log of a run with this config",
                      run->log, (long long)m);
  return logged && clock ? check_logged(run, out->seconds, seconds_at(run, clock, false, row)) : PETRA_OK;
}

/* --- estimates over the runs of a group --- */

typedef enum column { UPDATES, SAMPLES, SECONDS, BYTES } column;

static double of_column(const petra_reach_end *end, column which) {
  return which == UPDATES   ? (double)end->updates
         : which == SAMPLES ? end->samples
         : which == SECONDS ? end->seconds
                            : end->bytes;
}

static petra_status estimate(const petra_reach_end *ends, int count, column which, petra_reach_estimate *out) {
  petra_reach_value *values;
  PETRA_TRY(petra_allocate(&values, (size_t)count, sizeof *values));
  for (int i = 0; i < count; i++)
    values[i] = (petra_reach_value){of_column(&ends[i], which), !ends[i].reached};
  *out = petra_reach_estimate_of(values, count);
  petra_free(values);
  return PETRA_OK;
}

petra_status petra_reach_seconds(const petra_reach *reach, const petra_reach_place *place, const char *set, int group,
                                 petra_reach_estimate *out) {
  const petra_reach_group *g = &reach->groups.groups[group];
  petra_reach_end *ends = NULL;
  clocks c = {0};
  petra_status status;
  PETRA_TRY_GOTO(status, price_group(reach, place, set, group, false, &c), done);
  PETRA_TRY_GOTO(status, petra_allocate(&ends, (size_t)g->count, sizeof *ends), done);
  for (int i = 0; i < g->count; i++) {
    const petra_reach_run *run = &reach->groups.runs[g->first + i];
    PETRA_TRY_GOTO(status, find_end(run, &c, i, run->config, false, &ends[i]), done);
  }
  status = estimate(ends, g->count, SECONDS, out);
done:
  petra_free(ends);
  clocks_fini(&c);
  return status;
}

/* --- the band --- */

static petra_status band_allocate(petra_reach_band *band, int count) {
  band->count = count;
  PETRA_TRY(petra_allocate(&band->microbatch, (size_t)count, sizeof *band->microbatch));
  PETRA_TRY(petra_allocate(&band->updates, (size_t)count, sizeof *band->updates));
  PETRA_TRY(petra_allocate(&band->seconds, (size_t)count, sizeof *band->seconds));
  PETRA_TRY(petra_allocate(&band->mean, (size_t)count, sizeof *band->mean));
  return petra_allocate(&band->half, (size_t)count, sizeof *band->half);
}

static void band_fini(petra_reach_band *band) {
  petra_free(band->microbatch);
  petra_free(band->updates);
  petra_free(band->seconds);
  petra_free(band->mean);
  petra_free(band->half);
}

/* Point i of the curves of all runs is the same microbatch, or the evaluation of the same epoch. */
static petra_status draw(const petra_reach *reach, const clocks *c, int group, bool logged, petra_reach_band *band) {
  const petra_reach_group *g = &reach->groups.groups[group];
  const petra_reach_run *runs = &reach->groups.runs[g->first];
  int64_t points = runs[0].curve.count;
  double *values;
  for (int i = 1; i < g->count; i++)
    points = runs[i].curve.count < points ? runs[i].curve.count : points;
  const int shown = points < PETRA_REACH_POINTS ? (int)points : PETRA_REACH_POINTS;
  PETRA_TRY(band_allocate(band, shown));
  PETRA_TRY(petra_allocate(&values, (size_t)g->count, sizeof *values));
  for (int p = 0; p < shown; p++) {
    const int64_t point = shown < 2 ? 0 : (int64_t)llround((double)p * (double)(points - 1) / (shown - 1));
    const int64_t m = runs[0].rows[runs[0].curve.points[point].row].microbatch;
    double seconds = 0;
    for (int i = 0; i < g->count; i++) {
      values[i] = runs[i].curve.points[point].value;
      seconds += seconds_at(&runs[i], c->known ? clock_of(c, i) : NULL, logged, runs[i].curve.points[point].row);
    }
    const petra_interval interval = petra_interval_of(values, g->count, LEVEL);
    band->microbatch[p] = m;
    band->updates[p] = m / runs[0].config->method.accumulate;
    band->seconds[p] = seconds / g->count;
    band->mean[p] = interval.mean;
    band->half[p] = interval.half;
  }
  petra_free(values);
  return PETRA_OK;
}

/* --- the rows --- */

static petra_status fill_ends(const petra_reach *reach, petra_reach_cluster *cluster, int group, const clocks *c) {
  const petra_reach_group *g = &reach->groups.groups[group];
  petra_reach_row *row = &cluster->rows[group];
  PETRA_TRY(petra_allocate(&row->ends, (size_t)g->count, sizeof *row->ends));
  for (int i = 0; i < g->count; i++) {
    const petra_reach_run *run = &reach->groups.runs[g->first + i];
    petra_config *config;
    PETRA_TRY(petra_reach_config(run, &cluster->place, NULL, &config));
    const petra_status status = find_end(run, c, i, config, is_logged(&cluster->place), &row->ends[i]);
    petra_config_destroy(config);
    PETRA_TRY(status);
  }
  PETRA_TRY(estimate(row->ends, g->count, UPDATES, &row->updates));
  PETRA_TRY(estimate(row->ends, g->count, SAMPLES, &row->samples));
  PETRA_TRY(estimate(row->ends, g->count, SECONDS, &row->seconds));
  return estimate(row->ends, g->count, BYTES, &row->bytes);
}

static petra_status fill_row(const petra_reach *reach, petra_reach_cluster *cluster, int group) {
  const bool logged = is_logged(&cluster->place);
  bool simulates = true;
  clocks c = {0};
  petra_status status = PETRA_OK;
  cluster->rows[group].reference = -1;
  PETRA_TRY(petra_reach_config(first_of(reach, group), &cluster->place, NULL, &cluster->rows[group].config));
  cluster->rows[group].size = petra_plan_size_of(cluster->rows[group].config);
  if (logged)
    PETRA_TRY(can_simulate(first_of(reach, group), &simulates));
  if (simulates)
    status = price_group(reach, &cluster->place, NULL, group, true, &c);
  if (status == PETRA_OK)
    status = fill_ends(reach, cluster, group, &c);
  if (status == PETRA_OK)
    status = draw(reach, &c, group, logged, &cluster->rows[group].band);
  clocks_fini(&c);
  return status;
}

static bool is_whole(const petra_reach_row *row) {
  return row->seconds.reached == row->seconds.count && !isnan(row->seconds.mean);
}

/* --- groups that are alike --- */

typedef struct differences {
  petra_config_reporter report;
  void *context;
} differences;

/* The formats of messages belong to the training, as do replicas and stages, of which the numbers of devices speak. Of
 * runs in PyTorch, the sizes of messages belong to the network. */
static petra_status pass_key(void *context, const char *key, petra_config_role role, char *const *values) {
  const differences *d = context;
  if (role != PETRA_ROLE_RESULT || strncmp(key, "cluster.", strlen("cluster.")) != 0 ||
      strncmp(key, "cluster.message.", strlen("cluster.message.")) == 0 || strcmp(key, "cluster.replicas") == 0 ||
      strcmp(key, "cluster.stages") == 0)
    return PETRA_OK;
  return d->report(d->context, key, role, values);
}

petra_status petra_reach_cluster_differences(const petra_reach_cluster *cluster, const int *groups, int count,
                                             petra_config_reporter report, void *context) {
  const petra_config **configs;
  PETRA_TRY(petra_allocate(&configs, (size_t)count, sizeof *configs));
  for (int i = 0; i < count; i++)
    configs[i] = cluster->rows[groups ? groups[i] : i].config;
  const petra_status status =
      petra_config_report_differences(configs, count, pass_key, &(differences){report, context});
  petra_free(configs);
  return status;
}

static petra_status note_any(void *context, const char *key, petra_config_role role, char *const *values) {
  (void)key;
  (void)role;
  (void)values;
  *(bool *)context = true;
  return PETRA_OK;
}

/* A ratio of two groups says something if both have as many devices and as many samples an update, on one cluster. */
static bool are_alike(const petra_reach *reach, const petra_reach_cluster *cluster, int a, int b) {
  bool differ = false;
  const petra_status status = petra_reach_cluster_differences(cluster, (const int[]){a, b}, 2, note_any, &differ);
  return reach->options.compare_unlike ||
         (status == PETRA_OK && !differ &&
          petra_plan_size_alike(&reach->groups.groups[a].size, &reach->groups.groups[b].size));
}

static void find_best(const petra_reach *reach, petra_reach_cluster *cluster) {
  cluster->best = -1;
  for (int g = 0; g < reach->groups.count; g++)
    if (is_whole(&cluster->rows[g]) &&
        (cluster->best < 0 || cluster->rows[g].seconds.mean < cluster->rows[cluster->best].seconds.mean))
      cluster->best = g;
  for (int g = 0; cluster->best >= 0 && g < reach->groups.count; g++)
    if (are_alike(reach, cluster, g, cluster->best))
      cluster->rows[g].to_best = petra_reach_ratio_of(&cluster->rows[g].seconds, &cluster->rows[cluster->best].seconds);
}

/* Returns the fastest group like `group` with end-to-end gradients without delay, of optimiser `optimiser` unless that
 * is NULL; -1: there is none. */
static int best_exact(const petra_reach *reach, const petra_reach_cluster *cluster, int group, const char *optimiser) {
  int best = -1;
  for (int g = 0; g < reach->groups.count; g++) {
    const bool fits = !optimiser || strcmp(first_of(reach, g)->optimiser, optimiser) == 0;
    const bool exact = !reach->groups.groups[g].delayed && !reach->groups.groups[g].local;
    if (exact && fits && is_whole(&cluster->rows[g]) && are_alike(reach, cluster, group, g) &&
        (best < 0 || cluster->rows[g].seconds.mean < cluster->rows[best].seconds.mean))
      best = g;
  }
  return best;
}

static void compare_delayed(const petra_reach *reach, petra_reach_cluster *cluster, int group) {
  petra_reach_row *row = &cluster->rows[group];
  if (!reach->groups.groups[group].delayed || row->seconds.reached == 0)
    return;
  row->reference = best_exact(reach, cluster, group, first_of(reach, group)->optimiser);
  if (row->reference < 0)
    row->reference = best_exact(reach, cluster, group, NULL);
  if (row->reference < 0)
    return;
  const petra_reach_row *other = &cluster->rows[row->reference];
  row->more_updates = petra_reach_ratio_of(&row->updates, &other->updates);
  row->more_seconds = petra_reach_ratio_of(&row->seconds, &other->seconds);
}

petra_status petra_reach_fill(const petra_reach *reach, petra_reach_cluster *cluster) {
  PETRA_TRY(petra_allocate(&cluster->rows, (size_t)reach->groups.count, sizeof *cluster->rows));
  for (int g = 0; g < reach->groups.count; g++)
    PETRA_TRY(fill_row(reach, cluster, g));
  find_best(reach, cluster);
  for (int g = 0; g < reach->groups.count; g++)
    compare_delayed(reach, cluster, g);
  return PETRA_OK;
}

void petra_reach_cluster_fini(const petra_reach *reach, petra_reach_cluster *cluster) {
  for (int g = 0; cluster->rows && g < reach->groups.count; g++) {
    petra_config_destroy(cluster->rows[g].config);
    petra_free(cluster->rows[g].ends);
    band_fini(&cluster->rows[g].band);
  }
  petra_free(cluster->rows);
}
