/* SPDX-License-Identifier: Apache-2.0 */
/* petra inspect --requests and petra simulate --requests. */
#include "cli/command.h"

#include "base/json.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/text.h"
#include "config/config_private.h"
#include "run/loss_times.h"
#include "run/simulation.h"
#include "setup/describe.h"
#include "setup/plan.h"

#include <errno.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>

/* --- members of a request --- */

static petra_status fail_member(const char *name, const char *expected) {
  return petra_fail(PETRA_USAGE, "a request: '%s' is not what it should be; expected %s", name, expected);
}

/* Checks that all members are known, because misspelled members would be ignored. */
static petra_status check_members(const json_t *object, const char *const *known) {
  const char *name;
  json_t *value;
  json_object_foreach((json_t *)(uintptr_t)object, name, value) {
    if (!petra_text_is_in(known, name))
      return petra_fail(PETRA_USAGE, "a request: unknown member '%s'; see docs/requests.md", name);
  }
  return PETRA_OK;
}

/* *out is NULL if the object does not have the member. */
static petra_status get_text(const json_t *object, const char *name, const char **out) {
  const json_t *value = json_object_get(object, name);
  *out = json_string_value(value);
  return !value || *out ? PETRA_OK : fail_member(name, "a text");
}

/* *out is 0 if the object does not have the member. */
static petra_status get_count(const json_t *object, const char *name, int64_t *out) {
  const json_t *value = json_object_get(object, name);
  *out = json_integer_value(value);
  return !value || (json_is_integer(value) && *out >= 0) ? PETRA_OK : fail_member(name, "a number, at least 0");
}

static petra_status get_flag(const json_t *object, const char *name, bool *out) {
  const json_t *value = json_object_get(object, name);
  *out = json_is_true(value);
  return !value || json_is_boolean(value) ? PETRA_OK : fail_member(name, "true or false");
}

/* Gets a list of texts, which belong to the request. Free *out, even after a failure. *count is 0 if the object does
 * not have the member. */
static petra_status get_texts(const json_t *object, const char *name, const char ***out, int *count) {
  const json_t *list = json_object_get(object, name);
  *count = (int)json_array_size(list);
  if (list && !json_is_array(list))
    return fail_member(name, "a list of texts");
  PETRA_TRY(petra_allocate(out, (size_t)*count, sizeof **out));
  for (int i = 0; i < *count; i++) {
    (*out)[i] = json_string_value(json_array_get(list, (size_t)i));
    if (!(*out)[i])
      return fail_member(name, "a list of texts");
  }
  return PETRA_OK;
}

/* --- the config of a request --- */

/* Returns true if a key belongs to the cluster. The formats of messages affect the results of a run, so they do not
 * belong to the cluster. */
static bool is_of_cluster(const char *key) {
  static const char *const others[] = {"cluster.message.up", "cluster.message.down", "cluster.replicas",
                                       "cluster.stages",     "cluster.placement",    "cluster.gpus",
                                       "cluster.transport",  "cluster.timeout_s",    NULL};
  return strncmp(key, "cluster.", strlen("cluster.")) == 0 && !petra_text_is_in(others, key);
}

static bool is_of_model(const char *key) {
  static const char *const others[] = {"model.weights", "model.new_head", NULL};
  static const char *const more[] = {"data.set",        "data.path",       "data.batch",
                                     "data.vocabulary", "data.image_size", "stages.partition",
                                     "stages.count",    "stages.blocks",   NULL};
  return (strncmp(key, "model.", strlen("model.")) == 0 && !petra_text_is_in(others, key)) ||
         petra_text_is_in(more, key);
}

/* Gets the line numbers of settings that are part of a file. Free *out, which is NULL if the object does not have the
 * member. */
static petra_status get_lines(const json_t *layer, int count, int64_t **out) {
  const json_t *list = json_object_get(layer, "lines");
  *out = NULL;
  if (!list)
    return PETRA_OK;
  if ((int)json_array_size(list) != count || !json_object_get(layer, "name"))
    return fail_member("lines", "a number for each setting, beside the name of the file");
  PETRA_TRY(petra_allocate(out, (size_t)count, sizeof **out));
  for (int i = 0; i < count; i++)
    (*out)[i] = json_integer_value(json_array_get(list, (size_t)i));
  return PETRA_OK;
}

static petra_status apply_settings(petra_config *config, const json_t *layer, bool check) {
  petra_config_sets sets = {0};
  PETRA_FREED const char **texts = NULL;
  PETRA_FREED int64_t *lines = NULL;
  PETRA_TRY(get_text(layer, "name", &sets.where));
  PETRA_TRY(get_texts(layer, "set", &texts, &sets.count));
  PETRA_TRY(get_lines(layer, sets.count, &lines));
  sets.sets = texts;
  sets.lines = lines;
  return check ? petra_config_check_sets(&sets) : petra_config_apply_sets(config, &sets);
}

static petra_status apply_part(petra_config *config, const char *path, const char *keys) {
  const bool model = strcmp(keys, "model") == 0;
  if (!path || (!model && strcmp(keys, "cluster") != 0))
    return fail_member("keys", "cluster or model, beside a path");
  return petra_config_apply_part(config, path, model ? is_of_model : is_of_cluster);
}

/* Applies a layer: the text of a file, a file, the keys of a file that belong to the cluster or to the model, or
 * settings. With "check", a text or settings are checked and have no other effect. */
static petra_status apply_layer(petra_config *config, const json_t *layer) {
  static const char *const known[] = {"name", "text", "path", "keys", "set", "lines", "check", NULL};
  const json_t *text = json_object_get(layer, "text");
  const char *name, *path, *keys;
  bool check;
  PETRA_TRY(check_members(layer, known));
  PETRA_TRY(get_flag(layer, "check", &check));
  if (json_object_get(layer, "set"))
    return apply_settings(config, layer, check);
  PETRA_TRY(get_text(layer, "name", &name));
  PETRA_TRY(get_text(layer, "path", &path));
  PETRA_TRY(get_text(layer, "keys", &keys));
  if (keys)
    return apply_part(config, path, keys);
  if (path)
    return petra_config_apply_text(config, &(petra_config_text){.path = path}, NULL);
  if (!name || !json_is_string(text))
    return fail_member("config", "layers with a path, with a name and a text, or with settings");
  const petra_config_text whole = {name, json_string_value(text), json_string_length(text)};
  return check ? petra_config_check_yaml(&whole) : petra_config_apply_text(config, &whole, NULL);
}

/* Reads "config": a list of layers, each of which overrides the previous layers. Destroy the config even after a
 * failure. */
static petra_status read_config(const json_t *request, petra_config **out) {
  const json_t *layers = json_object_get(request, "config"), *layer;
  size_t i;
  if (!json_is_array(layers))
    return fail_member("config", "a list of layers");
  PETRA_TRY(petra_config_create(out));
  json_array_foreach(layers, i, layer) PETRA_TRY(apply_layer(*out, layer));
  return PETRA_OK;
}

/* --- answers of petra inspect --- */

static json_t *key_json(const petra_config *config, const petra_config *plain, int key, const char *value) {
  static const char *const decides[] = {"results", "length", "way", "place"};
  const petra_config_key *one = &petra_config_keys[key];
  const char *label = config->labels[key];
  return json_pack("{s:o, s:s, s:b, s:b, s:o}", "value", petra_json_string(value), "decides", decides[one->role], "set",
                   petra_config_is_set(config, key), "default", petra_config_same_value(one, config, plain), "label",
                   label ? petra_json_string(label) : json_null());
}

/* Returns the values of keys. Prints all values into one text, so that one stream is enough. */
static petra_status keys_json(const petra_config *config, const petra_config *plain, const bool *wanted,
                              json_t **answer) {
  char *text = NULL;
  size_t size = 0;
  FILE *stream = open_memstream(&text, &size);
  if (!stream)
    return petra_fail(PETRA_NO_MEMORY, "out of memory for the values of a config");
  json_t *keys = json_object();
  for (int k = 0; k < petra_config_key_count; k++) {
    const size_t start = size;
    if (!wanted[k])
      continue;
    petra_config_print_value(&petra_config_keys[k], config, stream);
    fflush(stream);
    petra_json_set(&keys, petra_config_keys[k].path, key_json(config, plain, k, text + start));
  }
  fclose(stream);
  free(text);
  petra_json_set(answer, "keys", keys);
  return PETRA_OK;
}

/* Marks the keys of a list, or all keys if there is no list. */
static petra_status read_keys(const json_t *names, bool *wanted) {
  const json_t *name;
  size_t i;
  memset(wanted, !json_is_array(names), (size_t)petra_config_key_count * sizeof *wanted);
  json_array_foreach(names, i, name) {
    const int key = petra_config_key_find(json_is_string(name) ? json_string_value(name) : "");
    if (key < 0)
      return fail_member("keys", "true, or a list of keys of a config");
    wanted[key] = true;
  }
  return PETRA_OK;
}

static petra_status answer_keys(const petra_config *config, const json_t *names, json_t **answer) {
  PETRA_DESTROYED(petra_config_destroy) petra_config *plain = NULL;
  PETRA_FREED bool *wanted = NULL;
  PETRA_TRY(petra_allocate(&wanted, (size_t)petra_config_key_count, sizeof *wanted));
  PETRA_TRY(read_keys(names, wanted));
  PETRA_TRY(petra_config_plain(config, &plain));
  return keys_json(config, plain, wanted, answer);
}

static petra_status print_formats(const petra_config *config, FILE *out) {
  return petra_config_print_changes(config, "cluster.message.", (const char *const[]){NULL}, ", ", out);
}

static void print_links(const petra_config *config, FILE *out) {
  petra_describe_links(config, false, out);
}

/* The descriptions of "words"; `try_print` is for a description that needs memory. */
static const struct {
  const char *name;
  void (*print)(const petra_config *config, FILE *out);
  petra_status (*try_print)(const petra_config *config, FILE *out);
} descriptions[] = {{"network", petra_describe_network, NULL},
                    {"method", NULL, petra_describe_method},
                    {"formats", NULL, print_formats},
                    {"data", petra_describe_data, NULL},
                    {"optimiser", NULL, petra_describe_optimiser},
                    {"costs", NULL, petra_describe_costs},
                    {"links", print_links, NULL},
                    {"numbers", petra_describe_numbers, NULL},
                    {"config", NULL, petra_config_print}};
enum { DESCRIPTIONS = sizeof descriptions / sizeof *descriptions };

typedef struct wanted_words {
  const petra_config *config;
  int number; /* of the description */
} wanted_words;

static petra_status print_words(const void *context, FILE *out) {
  const wanted_words *w = context;
  if (descriptions[w->number].try_print)
    return descriptions[w->number].try_print(w->config, out);
  descriptions[w->number].print(w->config, out);
  return PETRA_OK;
}

static petra_status answer_words(const petra_config *config, const json_t *names, json_t **answer) {
  json_auto_t *words = json_object();
  const json_t *name;
  size_t n, size;
  json_array_foreach(names, n, name) {
    PETRA_FREED char *text = NULL;
    wanted_words w = {config, 0};
    while (w.number < DESCRIPTIONS &&
           strcmp(descriptions[w.number].name, json_is_string(name) ? json_string_value(name) : "") != 0)
      w.number++;
    if (w.number == DESCRIPTIONS)
      return fail_member("words", "a list of network, method, formats, data, optimiser, costs, links, numbers, config");
    PETRA_TRY(petra_text_print(print_words, &w, descriptions[w.number].name, &text, &size));
    petra_json_set(&words, descriptions[w.number].name, petra_json_string(text));
  }
  petra_json_set(answer, "words", json_incref(words));
  return PETRA_OK;
}

static void answer_size(const petra_config *config, json_t **answer) {
  const petra_plan_size size = petra_plan_size_of(config);
  const petra_sample_words *words = petra_sample_words_of(petra_sample_kind_of(config));
  petra_json_set(answer, "size",
                 json_pack("{s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:s, s:s, s:s, s:s}", "devices",
                           (json_int_t)size.devices, "update_samples", (json_int_t)size.update_samples, "update_labels",
                           (json_int_t)size.update_labels, "parameters", (json_int_t)size.parameters, "vocabulary",
                           (json_int_t)size.vocabulary, "microbatch_samples",
                           (json_int_t)petra_plan_microbatch_samples(config), "sample_labels",
                           (json_int_t)petra_sample_labels(config), "sample", words->sample, "samples", words->samples,
                           "labels", words->labels, "rate", words->rate));
}

/* Answers about the method. A schedule from a file may have any delay. */
static petra_status answer_method(const petra_config *config, json_t **answer) {
  petra_method method;
  PETRA_TRY(petra_method_from_config(config, &method));
  petra_json_set(answer, "method",
                 json_pack("{s:b, s:b, s:b}", "delayed",
                           method.program->moment != PETRA_MOMENT_WINDOW || *config->method.schedule, "local",
                           method.program->local, "by_arrival", method.program->arrival));
  return PETRA_OK;
}

static petra_status answer_plan(const petra_config *config, const json_t *request, json_t **answer) {
  PETRA_FINISHED(petra_plan_fini) petra_plan plan = {0};
  int64_t batches;
  PETRA_TRY(get_count(request, "batches", &batches));
  PETRA_TRY(petra_plan_init_any(&plan, config));
  PETRA_TRY(petra_plan_read_order(&plan));
  petra_json_set(answer, "plan",
                 json_pack("{s:i, s:b, s:I}", "stages", (int)plan.stages, "by_arrival", plan.method.program->arrival,
                           "microbatches", (json_int_t)petra_plan_microbatches(config, batches)));
  return PETRA_OK;
}

/* Does the checks that petra train or petra simulate does before it reads data. */
static petra_status check_run(const petra_config *config, const char *command) {
  const bool trains = strcmp(command, "train") == 0;
  PETRA_FINISHED(petra_plan_fini) petra_plan plan = {.config = config};
  if (!trains && strcmp(command, "simulate") != 0)
    return fail_member("check", "train or simulate");
  if (trains && config->cluster.stages > 0)
    return petra_config_fail(config, "cluster.stages",
                             "%lld stages without a model cannot be trained; expected 0, or command: simulate",
                             (long long)config->cluster.stages);
  if (config->cluster.stages > 0)
    return petra_method_from_config(config, &plan.method);
  PETRA_TRY(petra_plan_init(&plan, config));
  return petra_plan_check_norms(&plan);
}

static petra_status answer_numbers(const petra_config *config, const json_t *request, json_t **answer) {
  json_auto_t *numbers = json_object();
  PETRA_FREED const char **keys = NULL;
  int count;
  PETRA_TRY(get_texts(request, "numbers", &keys, &count));
  for (int i = 0; i < count; i++) {
    double value;
    PETRA_TRY(petra_config_number(config, keys[i], &value));
    petra_json_set(&numbers, keys[i], petra_json_real(value));
  }
  petra_json_set(answer, "numbers", json_incref(numbers));
  return PETRA_OK;
}

static petra_status inspect(const petra_config *config, const json_t *request, json_t **answer) {
  const json_t *keys = json_object_get(request, "keys"), *words = json_object_get(request, "words");
  bool idle, size, method, plan;
  const char *check;
  PETRA_TRY(get_flag(request, "idle", &idle));
  PETRA_TRY(get_flag(request, "size", &size));
  PETRA_TRY(get_flag(request, "method", &method));
  PETRA_TRY(get_flag(request, "plan", &plan));
  PETRA_TRY(get_text(request, "check", &check));
  if (idle)
    PETRA_TRY(petra_config_warn_idle(config));
  if (keys && !json_is_false(keys))
    PETRA_TRY(answer_keys(config, keys, answer));
  if (json_object_get(request, "numbers"))
    PETRA_TRY(answer_numbers(config, request, answer));
  if (words)
    PETRA_TRY(answer_words(config, words, answer));
  if (size)
    answer_size(config, answer);
  if (method)
    PETRA_TRY(answer_method(config, answer));
  if (plan)
    PETRA_TRY(answer_plan(config, request, answer));
  return check ? check_run(config, check) : PETRA_OK;
}

/* --- answers of petra simulate --- */

static json_t *times_json(const int64_t *values, int64_t index) {
  return values[index] < 0 ? json_null() : json_integer(values[index]);
}

/* Adds the times of the losses of all microbatches, or of the microbatches in the list `of`. */
static petra_status losses_json(const petra_loss_times *times, const json_t *of, json_t **answer) {
  const int64_t count = of ? (int64_t)json_array_size(of) : times->count;
  json_auto_t *start_ns = json_array(), *bytes = json_array();
  for (int64_t i = 0; i < count; i++) {
    const json_int_t m = of ? json_integer_value(json_array_get(of, (size_t)i)) : i;
    if (m < 0 || m >= times->count)
      return fail_member("losses_of", "microbatches below 'losses'");
    petra_json_append(&start_ns, times_json(times->start_ns, m));
    petra_json_append(&bytes, times_json(times->bytes, m));
  }
  petra_json_set(answer, "losses", json_pack("{s:O, s:O}", "start_ns", start_ns, "bytes", bytes));
  return PETRA_OK;
}

static petra_status simulate_losses(const petra_config *config, const json_t *request, json_t **answer) {
  static const char *const known[] = {"batches", "losses", NULL};
  const json_t *training = json_object_get(request, "training");
  petra_loss_request wanted;
  PETRA_FINISHED(petra_loss_times_fini) petra_loss_times times = {0};
  PETRA_TRY(get_count(request, "losses", &wanted.count));
  if (!json_is_object(training))
    return fail_member("training", "the object {\"batches\": N, \"losses\": N}");
  PETRA_TRY(check_members(training, known));
  PETRA_TRY(get_count(training, "batches", &wanted.batches));
  PETRA_TRY(get_count(training, "losses", &wanted.logged));
  PETRA_TRY(petra_loss_times_simulate(config, &wanted, &times));
  return losses_json(&times, json_object_get(request, "losses_of"), answer);
}

static petra_status simulate(const petra_config *config, const json_t *request, json_t **answer) {
  petra_run_options options = {.kind = PETRA_RUN_SIMULATE};
  PETRA_DESTROYED(petra_run_destroy) petra_run *simulation = NULL;
  if (json_object_get(request, "losses"))
    return simulate_losses(config, request, answer);
  PETRA_TRY(get_text(request, "memory", &options.memory));
  PETRA_TRY(get_flag(request, "times_alone", &options.times_alone));
  PETRA_TRY(get_flag(request, "critical_path", &options.critical_path));
  PETRA_TRY(petra_config_warn_idle(config));
  PETRA_TRY(petra_simulate(config, &options, &simulation));
  json_auto_t *result = petra_simulate_json(simulation);
  return *answer && result && json_object_update(*answer, result) == 0
             ? PETRA_OK
             : petra_fail(PETRA_NO_MEMORY, "out of memory for the result of a simulation");
}

/* --- the loop --- */

/* The questions of a command. */
typedef struct questions {
  const char *const *members; /* the members of a request */
  petra_status (*answer)(const petra_config *config, const json_t *request, json_t **answer);
} questions;

/* The lines that the program logs for a request. They go into the answer instead of stderr. */
typedef struct said {
  char error[8192];
  json_t *warnings;
} said;

static void keep_line(void *context, petra_log_level level, const char *line) {
  said *s = context;
  if (level == PETRA_LOG_ERROR)
    snprintf(s->error, sizeof s->error, "%s", line);
  else if (level == PETRA_LOG_WARNING)
    petra_json_append(&s->warnings, petra_json_string(line));
}

static petra_status fail_request(const json_t *request, const json_error_t *error) {
  if (!request && json_error_code(error) == json_error_out_of_memory)
    return petra_fail(PETRA_NO_MEMORY, "out of memory for a request");
  return petra_fail(PETRA_USAGE, "a request: %s; expected a JSON object on one line",
                    request ? "not an object" : error->text);
}

static petra_status answer_request(const questions *q, const json_t *request, json_t **answer) {
  PETRA_DESTROYED(petra_config_destroy) petra_config *config = NULL;
  PETRA_TRY(check_members(request, q->members));
  PETRA_TRY(read_config(request, &config));
  return q->answer(config, request, answer);
}

static petra_status answer_line(const questions *q, const char *line, size_t length) {
  said s = {.error = "", .warnings = json_array()};
  json_error_t error;
  json_t *answer = json_object(), *request = json_loadb(line, length, JSON_ALLOW_NUL, &error);
  petra_log_set_sink(keep_line, &s);
  const petra_status status =
      json_is_object(request) ? answer_request(q, request, &answer) : fail_request(request, &error);
  petra_log_set_sink(NULL, NULL);
  json_decref(request);
  if (status != PETRA_OK) {
    json_decref(answer);
    answer = json_pack("{s:o, s:i}", "error", petra_json_string(s.error), "status", petra_status_exit_code(status));
  }
  petra_json_set(&answer, "warnings", s.warnings);
  PETRA_TRY(petra_json_put_new(answer, stdout));
  putchar('\n');
  return petra_json_end(stdout);
}

/* Answers requests. A request that fails gets an answer as well; only a failure to read or write ends the program with
 * an error. */
static petra_status serve(const petra_arguments *arguments, const questions *q) {
  const char *path = arguments->requests;
  char *line = NULL;
  size_t room = 0;
  ssize_t length;
  petra_status status = PETRA_OK;
  if (arguments->input || arguments->set_count > 0)
    return petra_fail(PETRA_USAGE, "--requests: also a config or --set; expected them inside the requests");
  FILE *in = strcmp(path, "-") == 0 ? stdin : fopen(path, "r");
  if (!in)
    return petra_fail(PETRA_IO, "%s: cannot open: %s", path, strerror(errno));
  while (status == PETRA_OK && (length = getline(&line, &room, in)) >= 0)
    if (line[strspn(line, " \t\r\n")])
      status = answer_line(q, line, (size_t)length);
  if (status == PETRA_OK && ferror(in))
    status = petra_fail(PETRA_IO, "%s: cannot read: %s", path, strerror(errno));
  free(line); /* getline has allocated the line */
  if (in != stdin)
    fclose(in);
  return status;
}

petra_status petra_requests_inspect(const petra_arguments *arguments) {
  static const char *const members[] = {"config", "idle", "keys",    "numbers", "words", "size",
                                        "method", "plan", "batches", "check",   NULL};
  return serve(arguments, &(questions){members, inspect});
}

petra_status petra_requests_simulate(const petra_arguments *arguments) {
  static const char *const members[] = {"config",    "memory",   "times_alone", "critical_path",
                                        "losses_of", "training", "losses",      NULL};
  return serve(arguments, &(questions){members, simulate});
}
