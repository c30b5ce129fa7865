/* SPDX-License-Identifier: Apache-2.0 */
#include "run/compare_methods.h"

#include "base/log.h"
#include "base/mem.h"
#include "run/folder.h"
#include "run/simulation.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

/* Holds what is the same for all methods. */
typedef struct comparison {
  petra_config_text text; /* the config, expanded */
  const petra_config *config;
  int32_t stages, devices; /* of its own method */
} comparison;

static int32_t stages_per_device(const comparison *c, const petra_method *method) {
  const bool set = method->program->layout == PETRA_LAYOUT_LOOP && c->config->method.chunks > 1;
  return set ? (int32_t)c->config->method.chunks : method->chunks;
}

/* --- the config of one method --- */

/* Gives equal stages the work of `share` of the config's. */
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

static void cut_anew(const comparison *c, petra_config *config, int32_t stages) {
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

/* Loads the config with the method in the place of its own. */
static petra_status load(const comparison *c, const petra_method *method, int32_t stages, petra_config **out) {
  char name[80];
  snprintf(name, sizeof name, "method.name=%s", method->name);
  const char *const sets[] = {name,
                              "method.program=preset",
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
  PETRA_TRY(petra_config_load_text(&c->text, sets, sizeof sets / sizeof *sets, out));
  petra_config *config = *out;
  config->method.mitigation = method->mitigation;
  config->method.chunks = stages / c->devices > 1 ? stages / c->devices : 0;
  if (!method->program->arrival)
    config->method.credit = 0;
  else if (config->method.credit == 0)
    config->method.credit = 2 * (int64_t)stages - 1;
  config->run.trace_actions = false;
  cut_anew(c, config, stages);
  return PETRA_OK;
}

/* --- the figures of one method --- */

static void take(const petra_simulated *result, petra_method_figures *out) {
  const petra_run_h5_simulation *f = &result->figures;
  out->time_per_microbatch_s = f->time_per_microbatch_s;
  out->bubble_fraction = f->bubble_fraction;
  for (int32_t j = 0; j < out->stages; j++)
    out->lag_max = f->lag_max[j] > out->lag_max ? f->lag_max[j] : out->lag_max;
  for (int32_t d = 0; d < result->device_count; d++) {
    if (result->devices[d].kept_max > out->kept_max)
      out->kept_max = result->devices[d].kept_max;
    if (result->device_accounts && result->device_accounts[d].total_peak_bytes > out->peak_bytes)
      out->peak_bytes = result->device_accounts[d].total_peak_bytes;
  }
  out->device_kept_max = (double)out->kept_max * result->device_count / out->stages;
}

static petra_status simulate(const comparison *c, petra_method_figures *out) {
  const petra_run_options options = {.kind = PETRA_RUN_SIMULATE};
  petra_config *config = NULL;
  petra_run *run = NULL;
  petra_status status;
  PETRA_TRY_GOTO(status, load(c, &out->method, out->stages, &config), done);
  PETRA_TRY_GOTO(status, petra_run_open(config, &options, &run), done);
  PETRA_TRY_GOTO(status, petra_run_go(run), done);
  PETRA_TRY_GOTO(status, petra_run_close(run), done);
  take(petra_run_simulated(run), out);
done:
  petra_run_destroy(run);
  petra_config_destroy(config);
  return status;
}

/* Config, schedule: the method is not for this config, which is no failure of the command. */
static bool cannot_run(petra_status status) {
  return status == PETRA_CONFIG || status == PETRA_SCHEDULE || status == PETRA_UNSUPPORTED;
}

/* Lines begin with "FILE:LINE: " or "default: " before the key. */
static const char *find_key(const comparison *c, const char *line) {
  const size_t length = strlen(c->text.path);
  if (strncmp(line, c->text.path, length) != 0 || line[length] != ':')
    return line;
  const char *after = strstr(line + length, ": ");
  return after ? after + 2 : line;
}

static petra_status fill(const comparison *c, const petra_method *method, petra_method_figures *out) {
  petra_log_kept kept = {.line = "out of memory while simulating a method"};
  *out = (petra_method_figures){.method = *method,
                                .stages = stages_per_device(c, method) * c->devices,
                                .devices = c->devices,
                                .exact = method->program->moment == PETRA_MOMENT_WINDOW,
                                .time_per_microbatch_s = NAN,
                                .bubble_fraction = NAN,
                                .peak_bytes = -1};
  petra_log_keep(&kept);
  const petra_status status = simulate(c, out);
  petra_log_keep_end(&kept);
  if (status != PETRA_OK && !cannot_run(status))
    return petra_fail(status, "%s", kept.line);
  if (status != PETRA_OK)
    snprintf(out->reason, sizeof out->reason, "%s", find_key(c, kept.line));
  return PETRA_OK;
}

/* --- all of them --- */

/* A method without a time comes last. */
static bool comes_before(const petra_method_figures *a, const petra_method_figures *b) {
  if (isnan(a->time_per_microbatch_s) || isnan(b->time_per_microbatch_s))
    return isnan(b->time_per_microbatch_s) && !isnan(a->time_per_microbatch_s);
  return a->time_per_microbatch_s < b->time_per_microbatch_s;
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

static petra_status check(const petra_config *config) {
  if (config->cluster.stragglers.stages.count > 0)
    return petra_config_fail(config, "cluster.stragglers.stages",
                             "a list of stages, which differ from method to method; expected [] (cluster.speeds is by "
                             "device)");
  return PETRA_OK;
}

petra_status petra_compare_methods(const petra_config *config, petra_method_figures *out, int32_t *devices,
                                   int32_t *stages) {
  const petra_run_options alone = {.kind = PETRA_RUN_SIMULATE, .times_alone = true};
  comparison c = {.config = config};
  petra_run *own;
  char *text = NULL;
  PETRA_TRY(check(config));
  PETRA_TRY(petra_run_open(config, &alone, &own));
  c.stages = petra_run_plan(own)->stages;
  c.devices = petra_program_devices(&petra_run_plan(own)->program);
  petra_run_destroy(own);
  PETRA_TRY(petra_folder_expand_config(config, &text, &c.text.size));
  c.text = (petra_config_text){"the config", text, c.text.size};
  petra_status status = PETRA_OK;
  for (int i = 0; status == PETRA_OK && i < petra_method_count(); i++) {
    const petra_method method = petra_method_get(i);
    status = fill(&c, &method, &out[i]);
  }
  petra_free(text);
  if (status == PETRA_OK)
    sort(out, petra_method_count());
  *devices = c.devices;
  *stages = c.stages;
  return status;
}
