/* SPDX-License-Identifier: Apache-2.0 */
#include "reach/price.h"

#include "base/log.h"
#include "base/mem.h"
#include "run/simulation.h"

#include <stddef.h>
#include <stdio.h>
#include <string.h>

/* --- the config --- */

static bool is_in(const char *const *list, const char *key) {
  while (*list && strcmp(*list, key) != 0)
    list++;
  return *list != NULL;
}

/* The formats of messages decide what a run computed, so that they stay those of the run. */
static bool is_of_cluster(const char *key) {
  static const char *const others[] = {"cluster.message.up", "cluster.message.down", "cluster.replicas",
                                       "cluster.stages",     "cluster.placement",    "cluster.gpus",
                                       "cluster.transport",  "cluster.timeout_s",    NULL};
  return strncmp(key, "cluster.", strlen("cluster.")) == 0 && !is_in(others, key);
}

static bool is_of_model(const char *key) {
  static const char *const others[] = {"model.weights", "model.new_head", NULL};
  static const char *const more[] = {"data.set",        "data.path",       "data.batch",
                                     "data.vocabulary", "data.image_size", "stages.partition",
                                     "stages.count",    "stages.blocks",   NULL};
  return (strncmp(key, "model.", strlen("model.")) == 0 && !is_in(others, key)) || is_in(more, key);
}

/* Names the file of --as or --on if the line does not. */
static petra_status fail_there(const petra_reach_place *place, petra_status status, const char *line) {
  if (place->as && !strstr(line, place->as))
    return petra_fail(status, "with --as %s: %s", place->as, line);
  if (!place->as && place->on && !strstr(line, place->on))
    return petra_fail(status, "with --on %s: %s", place->on, line);
  return petra_fail(status, "%s", line);
}

/* The order is that of all devices of the plan, whatever processes have executed it. */
petra_status petra_reach_config(const petra_reach_run *run, const petra_reach_place *place, const char *set,
                                petra_config **out) {
  const bool of_pytorch = petra_run_h5_of_pytorch(run->summary);
  const char *sets[9] = {"run.mode=emulate",
                         "cluster.placement=[]",
                         "run.trace_actions=false",
                         "cluster.stages=0",
                         "cluster.message.forward_bytes=0",
                         "cluster.message.backward_bytes=0",
                         "cluster.message.gradient_bytes=0"};
  int set_count = of_pytorch && place->as ? 7 : 3; /* a model has messages of its own */
  if (place->as_set)
    sets[set_count++] = place->as_set;
  if (set)
    sets[set_count++] = set;
  const petra_config_text text = {run->log, run->summary->config, strlen(run->summary->config)};
  petra_config_part parts[2];
  int count = 0;
  if (place->on)
    parts[count++] = (petra_config_part){place->on, is_of_cluster};
  if (place->as)
    parts[count++] = (petra_config_part){place->as, is_of_model};
  petra_log_kept kept = {.line = "out of memory while reading a config"};
  petra_log_keep(&kept);
  const petra_status status =
      petra_config_load_parts(&text, parts, count, &(petra_config_sets){"--over", sets, set_count}, out);
  petra_log_keep_end(&kept);
  return status == PETRA_OK ? PETRA_OK : fail_there(place, status, kept.line);
}

/* --- the files --- */

/* The keys that a file sets. */
typedef struct keys {
  bool (*takes)(const char *key);
  bool (*takes_too)(const char *key); /* if it is given for both options; NULL: it is not */
  bool replicas, vocabulary, data;
  const char *last;
  char ignored[400];
} keys;

static bool is_read(const keys *k, const char *key) {
  return k->takes(key) || (k->takes_too && k->takes_too(key));
}

/* Notes what is not read. A section of which no key is read is named once. */
static petra_status note_key(void *context, const char *key, petra_config_role role, char *const *values) {
  static const char *const examples[] = {"cluster.engines", "model.width", "data.batch", "stages.count"};
  keys *k = context;
  const size_t length = strlen(k->ignored), section = strcspn(key, ".");
  size_t size = section;
  (void)role;
  (void)values;
  for (size_t i = 0; i < sizeof examples / sizeof *examples; i++)
    if (strncmp(key, examples[i], section + 1) == 0 && is_read(k, examples[i]))
      size = strlen(key);
  k->replicas |= strcmp(key, "cluster.replicas") == 0;
  k->vocabulary |= strcmp(key, "data.vocabulary") == 0;
  k->data |= strcmp(key, "data.set") == 0;
  const bool checked = strcmp(key, "cluster.replicas") == 0 || strcmp(key, "cluster.stages") == 0;
  const bool again = k->last && strncmp(k->last, key, size) == 0 && size == section;
  if (is_read(k, key) || again || (k->takes == is_of_cluster && checked))
    return PETRA_OK;
  snprintf(k->ignored + length, sizeof k->ignored - length, "%s%.*s", length ? ", " : "", (int)size, key);
  k->last = key;
  return PETRA_OK;
}

/* That a file sets no key of those that are read is an error of petra_reach_config. */
static petra_status read_file(const petra_reach_place *place, petra_config **out, keys *k) {
  petra_log_kept kept = {.line = "out of memory while reading a config"};
  const char *path = place->on ? place->on : place->as;
  petra_log_keep(&kept);
  petra_status status = petra_config_load(path, NULL, 0, out);
  if (status == PETRA_OK)
    status = petra_config_report_set(*out, note_key, k);
  petra_log_keep_end(&kept);
  return status == PETRA_OK ? PETRA_OK : fail_there(place, status, kept.line);
}

petra_status petra_reach_warn_ignored(const petra_reach_place *place, bool of_model) {
  petra_config *config = NULL;
  for (int i = 0; i < 2; i++) {
    const char *path = i == 0 ? place->on : place->as, *other = i == 0 ? place->as : place->on;
    keys k = {.takes = i == 0 ? is_of_cluster : is_of_model};
    if (!path || (i == 1 && !of_model))
      continue;
    if (other && strcmp(other, path) == 0)
      k.takes_too = i == 0 ? is_of_model : is_of_cluster;
    PETRA_TRY(read_file(&(petra_reach_place){.on = path}, &config, &k));
    petra_config_destroy(config);
    if (*k.ignored)
      petra_log(PETRA_LOG_WARNING, "%s: no effect in a file of --%s: %s; they stay those of the runs", path,
                i == 0 ? "on" : "as", k.ignored);
  }
  return PETRA_OK;
}

petra_status petra_reach_check_cluster(const char *path, const petra_reach_groups *groups) {
  petra_config *config = NULL;
  keys k = {.takes = is_of_cluster};
  petra_status status = read_file(&(petra_reach_place){.on = path}, &config, &k);
  if (status == PETRA_OK && config->cluster.stages > 0)
    status = petra_config_fail(config, "cluster.stages",
                               "%lld stages without a model, but the runs have their own; expected 0",
                               (long long)config->cluster.stages);
  for (int i = 0; i < groups->run_count && status == PETRA_OK && k.replicas; i++)
    if (groups->runs[i].config->cluster.replicas != config->cluster.replicas)
      status = petra_config_fail(config, "cluster.replicas",
                                 "%lld, but %s was trained with %lld, which its updates depend on; expected no "
                                 "cluster.replicas",
                                 (long long)config->cluster.replicas, groups->runs[i].log,
                                 (long long)groups->runs[i].config->cluster.replicas);
  petra_config_destroy(config);
  return status;
}

petra_status petra_reach_check_model(petra_reach_place *place) {
  petra_config *config = NULL;
  keys k = {.takes = is_of_model};
  if (!place->as)
    return PETRA_OK;
  PETRA_TRY(read_file(place, &config, &k));
  if (k.vocabulary && config->data.vocabulary > 0 && !k.data)
    place->as_set = "data.set=tokens";
  else if (k.data && config->data.set != PETRA_SET_TOKENS && !k.vocabulary)
    place->as_set = "data.vocabulary=0";
  petra_config_destroy(config);
  return PETRA_OK;
}

bool petra_reach_is_random(const petra_config *config) {
  return (config->cluster.jitter.model != PETRA_JITTER_NONE && config->cluster.jitter.scale > 0) ||
         config->cluster.pauses.mean_between_s > 0 || config->cluster.failures.mean_between_s > 0;
}

/* --- the plan --- */

static petra_status count_stages(const petra_config *config, int32_t *out) {
  petra_plan plan;
  petra_status status = petra_plan_init_any(&plan, config);
  *out = plan.stages;
  petra_plan_fini(&plan);
  return status;
}

/* The updates of a run with J stages say nothing about one with another number. */
static petra_status check_stages(const petra_reach_run *run, const petra_plan *plan, const petra_reach_place *place) {
  int32_t stages;
  if (!place->as)
    return PETRA_OK;
  PETRA_TRY(count_stages(run->config, &stages));
  if (plan->stages == stages)
    return PETRA_OK;
  return petra_fail(PETRA_CONFIG, "%s: gives %d stages, but %s was trained with %d; expected %d (stages.partition)",
                    place->as, plan->stages, run->log, stages, stages);
}

static petra_status check_times(const petra_config *config, const petra_plan *plan, const petra_reach_place *place) {
  if (config->cluster.cost.model == PETRA_COST_MEASURED)
    return petra_config_fail(config, "cluster.cost.model",
                             "measured: these costs are known only to the run itself; expected another model in a "
                             "file of --on");
  const bool preset = strcmp(config->method.program, "preset") == 0;
  if (plan->method.program->arrival && (place->on || place->as))
    return petra_config_fail(config, preset ? "method.name" : "method.program",
                             "%s has no fixed order: with other times its updates would differ; expected a method with "
                             "a fixed order, or neither --on nor --as",
                             preset ? config->method.name : config->method.program);
  return PETRA_OK;
}

/* Sets the length of the run. A run that --resume made longer has the config of its beginning in its log, but more
 * losses. */
static petra_status set_length(const petra_reach_run *run, petra_plan *plan) {
  const int64_t batches = run->summary->batches, planned = petra_plan_microbatches(plan->config, batches);
  PETRA_TRY(petra_plan_program(plan, planned, batches));
  const int64_t without = plan->program.microbatches - petra_program_losses(plan->method.program, &plan->program);
  return run->count + without <= planned || plan->schedule ? PETRA_OK
                                                           : petra_plan_program(plan, run->count + without, batches);
}

static petra_status make_plan(const petra_reach_run *run, const petra_config *config, const petra_reach_place *place,
                              petra_plan *plan) {
  PETRA_TRY(petra_plan_init_any(plan, config));
  PETRA_TRY(petra_plan_read_order(plan));
  PETRA_TRY(check_stages(run, plan, place));
  PETRA_TRY(check_times(config, plan, place));
  PETRA_TRY(set_length(run, plan));
  return petra_plan_load_profile(plan);
}

/* --- the simulation --- */

typedef struct watch {
  petra_observer base;
  const petra_plan *plan;
  petra_stage_summary *stage; /* of each stage */
  petra_reach_clock *clock;
  int64_t sent;    /* bytes so far */
  int64_t missing; /* microbatches that have not begun their loss */
} watch;

static bool has_loss(const watch *w, const petra_action *action) {
  return action->stage == w->plan->stages &&
         action->kind == (w->plan->program.split_head ? PETRA_ACTION_FORWARD : PETRA_ACTION_BACKWARD);
}

/* Ends the simulation when it knows all that was asked for. */
static petra_status on_started(petra_observer *base, int64_t now_ns, const petra_action *actions,
                               const petra_action_result *results, int count) {
  watch *w = (watch *)base;
  (void)results;
  for (int i = 0; i < count; i++) {
    const int64_t m = actions[i].microbatch;
    if (!has_loss(w, &actions[i]) || m >= w->clock->count)
      continue;
    w->missing -= w->clock->start_ns[m] < 0;
    w->clock->start_ns[m] = now_ns;
    w->clock->bytes[m] = w->sent;
  }
  return w->missing > 0 ? PETRA_OK : PETRA_STOPPED;
}

static bool leaves_device(const watch *w, int32_t from, int32_t to) {
  return petra_program_device(&w->plan->program, from) != petra_program_device(&w->plan->program, to);
}

static petra_status on_ended(petra_observer *base, const petra_trace_row *row) {
  watch *w = (watch *)base;
  const int32_t stage = row->action.stage, replicas = (int32_t)w->plan->config->cluster.replicas;
  const petra_stage_summary *sizes = &w->stage[stage - 1];
  if (row->action.kind == PETRA_ACTION_FORWARD && stage < w->plan->stages && leaves_device(w, stage, stage + 1))
    w->sent += replicas * sizes->forward_bytes;
  else if (row->action.kind == PETRA_ACTION_BACKWARD && stage > 1 && leaves_device(w, stage, stage - 1))
    w->sent += replicas * sizes->backward_bytes;
  else if (row->action.kind == PETRA_ACTION_UPDATE)
    w->sent += replicas * petra_cost_exchange_bytes(replicas, sizes->gradient_bytes);
  return PETRA_OK;
}

static petra_status simulate(const petra_plan *plan, watch *w) {
  const petra_run_options options = {.kind = PETRA_RUN_SIMULATE, .times_alone = true, .plan = plan};
  petra_run *run;
  PETRA_TRY(petra_run_open(plan->config, &options, &run));
  petra_run_observe(run, &w->base);
  petra_status status = petra_run_go(run);
  if (status == PETRA_STOPPED && w->missing == 0)
    status = PETRA_OK;
  petra_run_destroy(run);
  return status;
}

/* Gets the bytes of the messages of a stage. */
static void get_sizes(const petra_plan *plan, int32_t stage, petra_stage_summary *out) {
  const petra_config *config = plan->config;
  if (config->cluster.stages == 0)
    petra_plan_stage_summary(plan, stage, out);
  else
    *out = (petra_stage_summary){.forward_bytes = config->cluster.message.forward_bytes,
                                 .backward_bytes = config->cluster.message.backward_bytes,
                                 .gradient_bytes = config->cluster.message.gradient_bytes};
}

static petra_status prepare(watch *w, int64_t last) {
  petra_reach_clock *clock = w->clock;
  clock->count = w->missing = last + 1;
  PETRA_TRY(petra_allocate(&clock->start_ns, (size_t)clock->count, sizeof *clock->start_ns));
  PETRA_TRY(petra_allocate(&clock->bytes, (size_t)clock->count, sizeof *clock->bytes));
  for (int64_t m = 0; m < clock->count; m++)
    clock->start_ns[m] = clock->bytes[m] = -1;
  PETRA_TRY(petra_allocate(&w->stage, (size_t)w->plan->stages, sizeof *w->stage));
  for (int32_t j = 0; j < w->plan->stages; j++)
    get_sizes(w->plan, j, &w->stage[j]);
  return PETRA_OK;
}

static petra_status price(const petra_reach_run *run, const petra_config *config, const petra_reach_place *place,
                          int64_t last, petra_reach_clock *clock) {
  static const petra_observer_ops ops = {.started = on_started, .ended = on_ended};
  petra_plan plan = {0};
  watch w = {.base.ops = &ops, .plan = &plan, .clock = clock};
  petra_status status;
  PETRA_TRY_GOTO(status, make_plan(run, config, place, &plan), done);
  PETRA_TRY_GOTO(status, prepare(&w, last), done);
  status = simulate(&plan, &w);
done:
  petra_free(w.stage);
  petra_plan_fini(&plan);
  return status;
}

/* The plan's warnings were printed when the run was trained. */
petra_status petra_reach_price(const petra_reach_run *run, const petra_config *config, const petra_reach_place *place,
                               int64_t last, petra_reach_clock *clock) {
  petra_log_kept kept = {.line = "out of memory while simulating a run"};
  *clock = (petra_reach_clock){0};
  petra_log_keep(&kept);
  const petra_status status = price(run, config, place, last, clock);
  petra_log_keep_end(&kept);
  if (status == PETRA_OK)
    return PETRA_OK;
  return fail_there(place, status, kept.line);
}

void petra_reach_clock_fini(petra_reach_clock *clock) {
  petra_free(clock->start_ns);
  petra_free(clock->bytes);
  *clock = (petra_reach_clock){0};
}
