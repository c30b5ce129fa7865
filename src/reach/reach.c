/* SPDX-License-Identifier: Apache-2.0 */
#include "reach/reach.h"

#include "base/log.h"
#include "base/mem.h"

/* --- the target --- */

static petra_status check_window(const petra_reach *reach, const petra_reach_run *run) {
  const petra_reach_target *target = &reach->options.target;
  const int64_t k = run->config->method.accumulate;
  if (run->curve.count > 0)
    return PETRA_OK;
  if (target->metric == PETRA_REACH_EVAL)
    return petra_fail(PETRA_USAGE,
                      "--metric: eval, but %s has no evaluation by the end of its log; expected train, or a run with "
                      "run.eval_every",
                      run->log);
  return petra_fail(PETRA_USAGE,
                    "--window: %lld updates of %lld microbatches, but %s has losses of %lld microbatches; expected at "
                    "most %lld",
                    (long long)target->window, (long long)k, run->log, (long long)run->count,
                    (long long)(run->count / k));
}

static petra_status make_curves(petra_reach *reach) {
  for (int i = 0; i < reach->groups.run_count; i++) {
    petra_reach_run *run = &reach->groups.runs[i];
    PETRA_TRY(petra_reach_curve_init(&reach->options.target, run->summary, run->rows, run->count,
                                     run->config->method.accumulate, &run->curve));
    PETRA_TRY(check_window(reach, run));
  }
  return PETRA_OK;
}

/* --- clusters that are not one cluster --- */

static petra_status warn_key(void *context, const char *key, petra_config_role role, char *const *values) {
  petra_reach_cluster *cluster = context;
  (void)role;
  (void)values;
  if (!cluster->differs)
    petra_log(PETRA_LOG_WARNING,
              "%s: the groups differ in %s, so their seconds are not those of one cluster; a file of --on that sets "
              "this key makes them comparable",
              cluster->place.on ? cluster->place.on : "the runs' own clusters", key);
  cluster->differs = cluster->differs ? cluster->differs : key;
  return PETRA_OK;
}

/* --- all of it --- */

static petra_status fill_clusters(petra_reach *reach) {
  const petra_reach_options *options = &reach->options;
  const int count = options->on_count > 0 ? options->on_count : 1;
  petra_reach_place place = {.as = options->as};
  for (int i = 0; i < options->on_count; i++)
    PETRA_TRY(petra_reach_check_cluster(options->on[i], &reach->groups));
  PETRA_TRY(petra_reach_check_model(&place));
  PETRA_TRY(petra_allocate(&reach->clusters, (size_t)count, sizeof *reach->clusters));
  reach->cluster_count = count;
  for (int i = 0; i < count; i++) {
    petra_reach_cluster *cluster = &reach->clusters[i];
    cluster->place = place;
    cluster->place.on = options->on_count > 0 ? options->on[i] : NULL;
    PETRA_TRY(petra_reach_fill(reach, cluster));
    PETRA_TRY(petra_reach_cluster_differences(cluster, NULL, reach->groups.count, warn_key, cluster));
    PETRA_TRY(petra_reach_warn_ignored(&cluster->place, i == 0));
  }
  reach->samples = petra_sample_kind_of(reach->clusters[0].rows[0].config);
  return PETRA_OK;
}

static petra_status vary(petra_reach *reach) {
  if (!reach->options.over)
    return PETRA_OK;
  PETRA_TRY(petra_allocate(&reach->over, (size_t)reach->cluster_count, sizeof *reach->over));
  for (int i = 0; i < reach->cluster_count; i++)
    PETRA_TRY(petra_reach_vary(reach, &reach->clusters[i], &reach->over[i]));
  return PETRA_OK;
}

petra_status petra_reach_create(const petra_reach_options *options, petra_reach **out) {
  petra_reach *reach;
  PETRA_TRY(petra_allocate(&reach, 1, sizeof *reach));
  reach->options = *options;
  petra_status status = petra_reach_groups_init(&reach->groups, options->places, options->place_count);
  if (status == PETRA_OK)
    status = make_curves(reach);
  if (status == PETRA_OK)
    status = fill_clusters(reach);
  if (status == PETRA_OK)
    status = vary(reach);
  if (status == PETRA_OK)
    *out = reach;
  else
    petra_reach_destroy(reach);
  return status;
}

void petra_reach_destroy(petra_reach *reach) {
  if (!reach)
    return;
  for (int i = 0; reach->over && i < reach->cluster_count; i++)
    petra_reach_over_fini(&reach->over[i]);
  for (int i = 0; reach->clusters && i < reach->cluster_count; i++)
    petra_reach_cluster_fini(reach, &reach->clusters[i]);
  petra_free(reach->over);
  petra_free(reach->clusters);
  petra_reach_groups_fini(&reach->groups);
  petra_free(reach);
}
