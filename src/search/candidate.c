/* SPDX-License-Identifier: Apache-2.0 */
#include "search/candidate.h"

#include "base/log.h"
#include "base/mem.h"
#include "run/folder.h"
#include "run/simulation.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

static const char text_name[] = "the config"; /* comes before the line in labels of keys */

/* --- the data that all candidates share --- */

static petra_status make_plain(petra_candidates *c) {
  static const char *const sets[] = {"method.program=preset",
                                     "method.forward_weights=preset",
                                     "method.backward_weights=preset",
                                     "method.invert_weights=preset",
                                     "method.keep=preset",
                                     "method.sync_period=0",
                                     "method.head=preset",
                                     "method.early_recompute=false",
                                     "method.extra_delay=[]",
                                     "method.schedule=\"\"",
                                     "stages.devices=preset"};
  petra_config_text text = {.path = text_name};
  PETRA_TRY(petra_folder_expand_config(c->config, &c->text, &text.size));
  text.text = c->text;
  PETRA_TRY(petra_config_load_text(&text, sets, sizeof sets / sizeof *sets, &c->plain));
  c->plain->run.trace_actions = false;
  return PETRA_OK;
}

static petra_status check(const petra_config *config) {
  if (config->cluster.stragglers.stages.count > 0)
    return petra_config_fail(config, "cluster.stragglers.stages",
                             "a list of stages, which differ from method to method; expected [] (cluster.speeds is by "
                             "device)");
  return PETRA_OK;
}

petra_status petra_candidates_create(const petra_config *config, int32_t devices, petra_candidates **out) {
  const petra_run_options alone = {.kind = PETRA_RUN_SIMULATE, .times_alone = true};
  petra_candidates *c;
  petra_run *own;
  petra_status status;
  PETRA_TRY(check(config));
  PETRA_TRY(petra_allocate(&c, 1, sizeof *c));
  PETRA_TRY_GOTO(status, petra_run_open(config, &alone, &own), fail);
  const petra_plan *plan = petra_run_plan(own);
  *c = (petra_candidates){.config = config,
                          .stages = plan->stages,
                          .devices = devices > 0 ? devices : petra_program_devices(&plan->program),
                          .blocks = plan->model.block_count,
                          .reversible = plan->model.reversible};
  petra_run_destroy(own);
  PETRA_TRY_GOTO(status, make_plain(c), fail);
  PETRA_TRY_GOTO(status, petra_memory_cache_create(&c->memory), fail);
  *out = c;
  return PETRA_OK;
fail:
  petra_candidates_destroy(c);
  return status;
}

void petra_candidates_destroy(petra_candidates *c) {
  if (!c)
    return;
  petra_config_destroy(c->plain);
  petra_memory_cache_destroy(c->memory);
  PETRA_FREE_ALL(c->text, c);
}

int32_t petra_candidates_chunks(const petra_candidates *c, const petra_method *method) {
  const bool set = method->program->layout == PETRA_LAYOUT_LOOP && c->config->method.chunks > 1;
  return set ? (int32_t)c->config->method.chunks : method->chunks;
}

/* --- the config of a candidate --- */

/* Scales the costs of equal stages: each has `share` times the work of a stage of the config. */
static void scale_equal_costs(petra_config *config, double share) {
  const bool unit = config->cluster.cost.model == PETRA_COST_UNIT;
  if (!unit && config->cluster.cost.model != PETRA_COST_CONSTANT)
    return;
  config->cluster.cost.model = PETRA_COST_CONSTANT;
  config->cluster.cost.forward_s = share * (unit ? 1 : config->cluster.cost.forward_s);
  config->cluster.cost.backward_s = share * (unit ? 2 : config->cluster.cost.backward_s);
  config->cluster.cost.reconstruct_s = share * (unit ? 1 : config->cluster.cost.reconstruct_s);
  config->cluster.cost.weight_gradient_s = share * (unit ? 1 : config->cluster.cost.weight_gradient_s);
  config->cluster.cost.update_s = share * (unit ? 0 : config->cluster.cost.update_s);
}

static void cut_anew(const petra_candidates *c, petra_config *config, int32_t stages) {
  const double share = (double)c->stages / (double)stages;
  if (stages == c->stages)
    return;
  scale_equal_costs(config, share);
  config->cluster.message.gradient_bytes = llround(share * (double)config->cluster.message.gradient_bytes);
  if (config->cluster.stages > 0) {
    config->cluster.stages = stages;
    return;
  }
  config->stages.partition = PETRA_PARTITION_BALANCED;
  config->stages.count = stages;
}

static petra_status cut_by_list(petra_config *config, const int64_t *blocks, int32_t stages) {
  petra_int_list *list = &config->stages.blocks;
  int64_t *values;
  PETRA_TRY(petra_allocate(&values, (size_t)stages, sizeof *values));
  memcpy(values, blocks, (size_t)stages * sizeof *values);
  petra_free(list->values);
  *list = (petra_int_list){.values = values, .count = stages};
  config->stages.partition = PETRA_PARTITION_LIST;
  return PETRA_OK;
}

static petra_status set_method(const petra_candidates *c, const petra_candidate *candidate, petra_config *config) {
  const petra_method *method = &candidate->method;
  char *name;
  PETRA_TRY(petra_duplicate_string(&name, method->name));
  petra_free(config->method.name);
  config->method.name = name;
  config->method.keep = candidate->keep;
  config->method.early_recompute = candidate->early_recompute;
  config->method.mitigation = method->mitigation;
  const int32_t chunks = candidate->stages / c->devices;
  config->method.chunks = method->program->layout == PETRA_LAYOUT_LOOP || chunks > 1 ? chunks : 0;
  if (candidate->accumulate > 0)
    config->method.accumulate = candidate->accumulate;
  if (candidate->batch > 0)
    config->data.batch = candidate->batch;
  if (!method->program->arrival)
    config->method.credit = 0;
  else if (config->method.credit == 0)
    config->method.credit = 2 * (int64_t)candidate->stages - 1;
  return PETRA_OK;
}

petra_status petra_candidate_make(const petra_candidates *c, const petra_candidate *candidate, petra_config **out) {
  petra_config *config;
  PETRA_TRY(petra_config_copy(c->plain, &config));
  petra_status status = set_method(c, candidate, config);
  if (!candidate->blocks)
    cut_anew(c, config, candidate->stages);
  else if (status == PETRA_OK)
    status = cut_by_list(config, candidate->blocks, candidate->stages);
  if (status == PETRA_OK)
    *out = config;
  else
    petra_config_destroy(config);
  return status;
}

/* --- its figures --- */

static void take(const petra_simulated *result, int32_t stages, petra_candidate_figures *out, int64_t *kept) {
  const petra_run_h5_simulation *f = &result->figures;
  out->time_per_microbatch_s = f->time_per_microbatch_s;
  out->bubble_fraction = f->bubble_fraction;
  out->microbatches = f->microbatches;
  if (result->plan->method.inverts && result->plan->model.block_count > 0 && !result->plan->inverts)
    out->keep = PETRA_KEEP_INPUT;
  out->in_flight_max = f->in_flight_max[0];
  for (int32_t j = 0; j < stages; j++)
    out->lag_max = f->lag_max[j] > out->lag_max ? f->lag_max[j] : out->lag_max;
  for (int32_t j = 0; kept && j < stages; j++)
    kept[j] = f->kept_max[j];
  for (int32_t d = 0; d < result->device_count; d++) {
    if (result->devices[d].kept_max > out->kept_max)
      out->kept_max = result->devices[d].kept_max;
    if (result->device_accounts && result->device_accounts[d].total_peak_bytes > out->peak_bytes)
      out->peak_bytes = result->device_accounts[d].total_peak_bytes;
  }
  out->device_kept_max = (double)out->kept_max * result->device_count / stages;
}

static petra_status simulate(const petra_candidates *c, const petra_candidate *candidate, petra_candidate_figures *out,
                             int64_t *kept) {
  const petra_run_options options = {.kind = PETRA_RUN_SIMULATE, .memory_cache = c->memory};
  petra_config *config = NULL;
  petra_run *run = NULL;
  petra_status status;
  PETRA_TRY_GOTO(status, petra_candidate_make(c, candidate, &config), done);
  PETRA_TRY_GOTO(status, petra_run_open(config, &options, &run), done);
  PETRA_TRY_GOTO(status, petra_run_go(run), done);
  PETRA_TRY_GOTO(status, petra_run_close(run), done);
  take(petra_run_simulated(run), candidate->stages, out, kept);
done:
  petra_run_destroy(run);
  petra_config_destroy(config);
  return status;
}

/* PETRA_CONFIG and PETRA_SCHEDULE mean that the candidate cannot run with this config, which is not a failure of the
 * command. */
static bool cannot_run(petra_status status) {
  return status == PETRA_CONFIG || status == PETRA_SCHEDULE || status == PETRA_UNSUPPORTED;
}

/* Finds the key in a line, which begins with "FILE:LINE: " or "default: " before the key. */
static const char *find_key(const char *line) {
  const size_t length = strlen(text_name);
  if (strncmp(line, text_name, length) != 0 || line[length] != ':')
    return line;
  const char *after = strstr(line + length, ": ");
  return after ? after + 2 : line;
}

petra_status petra_candidate_simulate(const petra_candidates *c, const petra_candidate *candidate,
                                      petra_candidate_figures *out, int64_t *kept) {
  petra_log_kept log = {.line = "out of memory while simulating a method"};
  *out = (petra_candidate_figures){.time_per_microbatch_s = NAN,
                                   .bubble_fraction = NAN,
                                   .peak_bytes = -1,
                                   .keep =
                                       candidate->keep == PETRA_KEEP_PRESET ? candidate->method.keep : candidate->keep};
  petra_log_keep(&log);
  const petra_status status = simulate(c, candidate, out, kept);
  petra_log_keep_end(&log);
  if (status != PETRA_OK && !cannot_run(status))
    return petra_fail(status, "%s", log.line);
  if (status != PETRA_OK)
    snprintf(out->reason, sizeof out->reason, "%s", find_key(log.line));
  return PETRA_OK;
}

/* --- its settings --- */

petra_status petra_candidate_settings(const petra_candidates *c, const petra_candidate *candidate,
                                      petra_status (*report)(void *context, const char *setting), void *context) {
  petra_config *config;
  PETRA_TRY(petra_candidate_make(c, candidate, &config));
  config->run.trace_actions = c->config->run.trace_actions; /* this changes no figure */
  const petra_status status = petra_config_report_settings(c->config, config, report, context);
  petra_config_destroy(config);
  return status;
}

/* --- every method --- */

/* Returns true if `a` comes before `b` by time. A method without a time comes last. */
static bool comes_before(const petra_method_figures *a, const petra_method_figures *b) {
  const double a_s = a->found.time_per_microbatch_s, b_s = b->found.time_per_microbatch_s;
  return isnan(a_s) || isnan(b_s) ? isnan(b_s) && !isnan(a_s) : a_s < b_s;
}

/* Methods that are equally fast stay in the order of the presets. */
static void sort(petra_method_figures *rows, int count) {
  for (int i = 1; i < count; i++) {
    const petra_method_figures row = rows[i];
    int j = i;
    for (; j > 0 && comes_before(&row, &rows[j - 1]); j--)
      rows[j] = rows[j - 1];
    rows[j] = row;
  }
}

static petra_status fill(const petra_candidates *c, const petra_method *method, petra_method_figures *out) {
  const int32_t devices = c->devices;
  const petra_candidate candidate = {
      .method = *method, .stages = petra_candidates_chunks(c, method) * devices, .keep = PETRA_KEEP_PRESET};
  *out = (petra_method_figures){.method = *method,
                                .stages = candidate.stages,
                                .devices = devices,
                                .exact = method->program->moment == PETRA_MOMENT_WINDOW && !method->program->local};
  return petra_candidate_simulate(c, &candidate, &out->found, NULL);
}

petra_status petra_compare_methods(const petra_config *config, petra_method_figures *out, int32_t *devices,
                                   int32_t *stages) {
  petra_candidates *c;
  petra_status status = PETRA_OK;
  PETRA_TRY(petra_candidates_create(config, 0, &c));
  for (int i = 0; status == PETRA_OK && i < petra_method_count(); i++) {
    const petra_method method = petra_method_get(i);
    status = fill(c, &method, &out[i]);
  }
  if (status == PETRA_OK)
    sort(out, petra_method_count());
  *devices = c->devices;
  *stages = c->stages;
  petra_candidates_destroy(c);
  return status;
}
