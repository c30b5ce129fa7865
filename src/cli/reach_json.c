/* SPDX-License-Identifier: Apache-2.0 */
/* The JSON object of petra reach (docs/reach.md lists its members). */
#include "cli/reach.h"

#include "base/json.h"
#include "base/mem.h"

#include <jansson.h>
#include <math.h>

static json_t *reals(const double *values, int count) {
  json_t *list = json_array();
  for (int i = 0; i < count; i++)
    petra_json_append(&list, petra_json_real(values[i]));
  return list;
}

static json_t *integers(const int64_t *values, int count) {
  json_t *list = json_array();
  for (int i = 0; i < count; i++)
    petra_json_append(&list, json_integer(values[i]));
  return list;
}

static json_t *estimate_json(const petra_reach_estimate *e) {
  return json_pack("{s:i, s:i, s:o, s:o, s:o}", "runs", e->count, "reached", e->reached, "mean",
                   e->reached > 0 ? petra_json_real(e->mean) : json_null(), "low", petra_json_real(e->low), "high",
                   petra_json_real(e->high));
}

static json_t *ratio_json(const petra_reach_ratio *r) {
  if (!r->known)
    return json_null();
  return json_pack("{s:b, s:o, s:o, s:o}", "lower_bound", r->censored, "mean", petra_json_real(r->mean), "low",
                   petra_json_real(r->low), "high", petra_json_real(r->high));
}

static json_t *target_json(const petra_reach *reach) {
  const petra_reach_target *target = &reach->options.target;
  const bool evaluates = target->metric == PETRA_REACH_EVAL;
  char text[PETRA_REACH_SENTENCE], rule[PETRA_REACH_SENTENCE];
  petra_reach_target_text(reach, text);
  petra_reach_rule_text(reach, rule);
  return json_pack("{s:s, s:s, s:o, s:o, s:s, s:s, s:s}", "quantity",
                   target->quantity == PETRA_REACH_TOP1 ? "top1" : "loss", "metric", evaluates ? "eval" : "train",
                   "value", petra_json_real(target->value), "window_updates",
                   evaluates ? json_null() : json_integer(target->window), "text", text, "rule", rule, "intervals",
                   petra_reach_interval_text);
}

static json_t *group_json(const petra_reach *reach, int number) {
  const petra_reach_group *group = &reach->groups.groups[number];
  const petra_reach_run *runs = &reach->groups.runs[group->first];
  json_t *keys = json_object(), *list = json_array();
  for (int k = 0; k < reach->groups.key_count; k++)
    petra_json_set(&keys, reach->groups.keys[k].key, petra_json_string(reach->groups.keys[k].values[number]));
  for (int i = 0; i < group->count; i++)
    petra_json_append(&list, json_pack("{s:o, s:I, s:I}", "log", petra_json_string(runs[i].log), "seed",
                                       (json_int_t)runs[i].config->run.seed, "losses", (json_int_t)runs[i].count));
  return json_pack("{s:o, s:o, s:o, s:I, s:b, s:o, s:o}", "label", petra_json_string(group->label), "method",
                   petra_json_string(runs->config->method.name), "optimiser", petra_json_string(runs->optimiser),
                   "accumulate", (json_int_t)runs->config->method.accumulate, "delayed", group->delayed, "keys", keys,
                   "runs", list);
}

static json_t *lowest_json(const petra_reach_end *end) {
  return json_pack("{s:o, s:I, s:o}", "value", petra_json_real(end->lowest), "updates", (json_int_t)end->lowest_updates,
                   "seconds", petra_json_real(end->lowest_seconds));
}

static json_t *end_json(const petra_reach_end *end, int64_t labels) {
  return json_pack("{s:b, s:I, s:I, s:o, s:o, s:o, s:o, s:o}", "reached", end->reached, "microbatch",
                   (json_int_t)end->microbatch, "updates", (json_int_t)end->updates, "samples",
                   petra_json_real(end->samples), "labels", petra_json_real(end->samples * (double)labels), "seconds",
                   petra_json_real(end->seconds), "bytes", petra_json_real(end->bytes), "nearest", lowest_json(end));
}

static json_t *band_json(const petra_reach_band *band) {
  return json_pack("{s:o, s:o, s:o, s:o, s:o}", "microbatch", integers(band->microbatch, band->count), "updates",
                   integers(band->updates, band->count), "seconds", reals(band->seconds, band->count), "mean",
                   reals(band->mean, band->count), "half", reals(band->half, band->count));
}

static json_t *delay_json(const petra_reach *reach, const petra_reach_cluster *cluster, int group) {
  const petra_reach_row *row = &cluster->rows[group];
  char text[PETRA_REACH_SENTENCE];
  if (row->reference < 0)
    return json_null();
  petra_reach_delay_text(reach, cluster, group, text);
  return json_pack("{s:o, s:o, s:o, s:o}", "reference", petra_json_string(reach->groups.groups[row->reference].label),
                   "updates", ratio_json(&row->more_updates), "seconds", ratio_json(&row->more_seconds), "text",
                   *text ? petra_json_string(text) : json_null());
}

/* 0: not known. */
static json_t *count_json(int64_t value) {
  return value > 0 ? json_integer(value) : json_null();
}

/* Returns what is said about a group; null: nothing. */
static json_t *words_json(const petra_reach *reach, const petra_reach_cluster *cluster, int group,
                          petra_reach_words which) {
  char *text = NULL;
  if (petra_reach_view_text(&(petra_reach_view){reach, cluster, group}, which, &text) != PETRA_OK)
    return NULL;
  json_t *words = *text ? petra_json_string(text) : json_null();
  petra_free(text);
  return words;
}

static json_t *row_json(const petra_reach *reach, const petra_reach_cluster *cluster, int group) {
  const petra_reach_row *row = &cluster->rows[group];
  const int64_t labels = petra_sample_labels(row->config);
  json_t *ends = json_array();
  for (int i = 0; i < row->seconds.count; i++)
    petra_json_append(&ends, end_json(&row->ends[i], labels));
  return json_pack("{s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o}", "group",
                   petra_json_string(reach->groups.groups[group].label), "network",
                   words_json(reach, cluster, group, PETRA_REACH_NETWORK), "parameters",
                   count_json(row->size.parameters), "devices", count_json(row->size.devices), "samples_per_update",
                   count_json(row->size.update_samples), "updates", estimate_json(&row->updates), "samples",
                   estimate_json(&row->samples), "seconds", estimate_json(&row->seconds), "bytes",
                   estimate_json(&row->bytes), "seconds_to_best", ratio_json(&row->to_best), "delay",
                   delay_json(reach, cluster, group), "runs", ends, "curve", band_json(&row->band));
}

static json_t *change_json(const petra_reach *reach, const petra_reach_change *change) {
  return json_pack("{s:s, s:o, s:o, s:o}", "what", change->kind == PETRA_REACH_BEST_CHANGES ? "best" : "pair", "value",
                   petra_json_real(change->value), "below",
                   petra_json_string(reach->groups.groups[change->before].label), "above",
                   petra_json_string(reach->groups.groups[change->after].label));
}

static json_t *over_json(const petra_reach *reach, const petra_reach_over *over) {
  json_t *seconds = json_object(), *changes = json_array();
  for (int g = 0; g < reach->groups.count; g++)
    petra_json_set(&seconds, reach->groups.groups[g].label, reals(over->seconds + g * over->count, over->count));
  for (int c = 0; c < over->change_count; c++)
    petra_json_append(&changes, change_json(reach, &over->changes[c]));
  return json_pack("{s:o, s:o, s:o, s:o}", "key", petra_json_string(over->key), "values",
                   reals(over->values, over->count), "seconds", seconds, "changes", changes);
}

static json_t *cluster_json(const petra_reach *reach, int number) {
  const petra_reach_cluster *cluster = &reach->clusters[number];
  char name[PETRA_REACH_SENTENCE];
  json_t *rows = json_array();
  petra_reach_name(cluster, name);
  for (int g = 0; g < reach->groups.count; g++)
    petra_json_append(&rows, row_json(reach, cluster, g));
  return json_pack("{s:o, s:o, s:b, s:o, s:o, s:o, s:o}", "name", petra_json_string(name), "file",
                   cluster->place.on ? petra_json_string(cluster->place.on) : json_null(), "logged",
                   !cluster->place.on && !cluster->place.as, "best",
                   cluster->best < 0 ? json_null() : petra_json_string(reach->groups.groups[cluster->best].label),
                   "unlike", words_json(reach, cluster, 0, PETRA_REACH_UNLIKE), "rows", rows, "over",
                   reach->over ? over_json(reach, &reach->over[number]) : json_null());
}

petra_status petra_reach_print_json(const petra_reach *reach) {
  json_t *groups = json_array(), *clusters = json_array();
  for (int g = 0; g < reach->groups.count; g++)
    petra_json_append(&groups, group_json(reach, g));
  for (int i = 0; i < reach->cluster_count; i++)
    petra_json_append(&clusters, cluster_json(reach, i));
  json_t *as = reach->options.as
                   ? json_pack("{s:o, s:s}", "file", petra_json_string(reach->options.as), "text", petra_reach_as_text)
                   : json_null();
  return petra_json_print_new(json_pack("{s:o, s:s, s:o, s:o, s:o}", "target", target_json(reach), "labels",
                                        petra_sample_words_of(reach->samples)->labels, "as", as, "groups", groups,
                                        "clusters", clusters));
}
