/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/run_facts.h"

#include "io/file.h"
#include "base/json.h"
#include "base/mem.h"
#include "base/text.h"
#include "base/utf8.h"
#include "setup/describe.h"
#include "record/run_h5_columns.h"
#include "run/folder.h"
#include "run/simulation.h"

#include <jansson.h>
#include <math.h>
#include <string.h>
#include <sys/stat.h>

bool petra_is_folder(const char *path) {
  struct stat info;
  return stat(path, &info) == 0 && S_ISDIR(info.st_mode);
}

petra_status petra_run_log_path(const char *place, char **out) {
  if (!petra_is_folder(place))
    return petra_duplicate_string(out, place);
  PETRA_TRY(petra_folder_report_aside(place));
  return petra_join_path(place, "run.h5", out);
}

/* Gets the folder of a file: the part before its last slash. */
static petra_status folder_of(const char *path, char **out) {
  const char *slash = strrchr(path, '/');
  PETRA_TRY(petra_duplicate_string(out, !slash ? "." : slash == path ? "/" : path));
  if (slash && slash != path)
    (*out)[slash - path] = 0;
  return PETRA_OK;
}

static petra_status print_method(const void *context, FILE *out) {
  PETRA_TRY(petra_describe_method(context, out));
  return petra_config_print_changes(context, "cluster.message.", (const char *const[]){NULL}, ", ", out);
}

static petra_status print_network(const void *context, FILE *out) {
  const petra_run_facts *facts = context;
  petra_describe_run_network(facts->summary, facts->config, out);
  return PETRA_OK;
}

static petra_status print_optimiser(const void *context, FILE *out) {
  const petra_run_facts *facts = context;
  return petra_describe_run_optimiser(facts->summary, facts->config, out);
}

static petra_status print_data(const void *context, FILE *out) {
  const petra_run_facts *facts = context;
  petra_describe_run_data(facts->summary, facts->config, out);
  return PETRA_OK;
}

petra_status petra_run_facts_init(petra_run_facts *facts, const char *place) {
  size_t size;
  *facts = (petra_run_facts){0};
  PETRA_TRY(petra_run_log_path(place, &facts->log));
  PETRA_TRY(petra_is_folder(place) ? petra_duplicate_string(&facts->folder, place) : folder_of(place, &facts->folder));
  PETRA_TRY(petra_run_h5_summary_read(facts->log, &facts->summary));
  const petra_config_text text = {facts->log, facts->summary->config, strlen(facts->summary->config)};
  PETRA_TRY(petra_config_load_text(&text, NULL, 0, &facts->config));
  facts->state = facts->summary->complete                ? PETRA_RUN_COMPLETE
                 : petra_folder_is_locked(facts->folder) ? PETRA_RUN_RUNNING
                                                         : PETRA_RUN_STOPPED;
  PETRA_TRY(petra_text_print(print_method, facts->config, "the name of a method", &facts->method, &size));
  PETRA_TRY(petra_text_print(print_network, facts, "the name of a network", &facts->network, &size));
  PETRA_TRY(petra_text_print(print_optimiser, facts, "the name of an optimiser", &facts->optimiser, &size));
  return petra_text_print(print_data, facts, "the name of a data set", &facts->data, &size);
}

void petra_run_facts_fini(petra_run_facts *facts) {
  petra_free(facts->folder);
  petra_free(facts->log);
  petra_free(facts->method);
  petra_free(facts->network);
  petra_free(facts->optimiser);
  petra_free(facts->data);
  petra_run_h5_summary_destroy(facts->summary);
  petra_config_destroy(facts->config);
}

const char *petra_run_state_name(petra_run_state state) {
  static const char *const names[] = {"complete", "running", "stopped"};
  return names[state];
}

bool petra_run_is_simulated(const petra_run_facts *facts) {
  return strcmp(facts->summary->backend, PETRA_SIMULATION_BACKEND) == 0;
}

bool petra_run_trains(const petra_run_facts *facts) {
  return !petra_run_is_simulated(facts) &&
         (facts->config->cluster.stages == 0 || petra_run_h5_of_pytorch(facts->summary));
}

const char *petra_run_mode_name(const petra_run_facts *facts) {
  return petra_run_is_simulated(facts)             ? "simulate"
         : petra_run_h5_of_pytorch(facts->summary) ? "pytorch"
                                                   : petra_config_choice_name("run.mode", (int)facts->config->run.mode);
}

void petra_run_optimiser_name(const petra_run_facts *facts, char out[PETRA_OPTIMISER_NAME]) {
  snprintf(out, PETRA_OPTIMISER_NAME, "%.*s", (int)strcspn(facts->optimiser, ","), facts->optimiser);
}

int64_t petra_run_stages(const petra_run_facts *facts) {
  return facts->summary->stages > 0 ? facts->summary->stages : facts->config->cluster.stages;
}

json_t *petra_epoch_json(const petra_run_h5_epoch *row, petra_sample_kind samples, bool recalibrated) {
  const petra_column_group *group = petra_run_h5_epoch_group(samples, recalibrated);
  json_t *object = json_object();
  for (int c = 0; c < group->count; c++)
    petra_json_set(&object, group->columns[c].name,
                   group->columns[c].type == PETRA_COLUMN_I32
                       ? json_integer(row->epoch)
                       : petra_json_real(petra_column_real(&group->columns[c], row)));
  return object;
}

json_t *petra_peaks_json(const int64_t bytes[PETRA_MEMORY_CATEGORIES], int64_t total) {
  json_t *object = json_object();
  for (int c = 0; c < PETRA_MEMORY_CATEGORIES; c++)
    petra_json_set(&object, petra_memory_category_name((petra_memory_category)c), json_integer(bytes[c]));
  petra_json_set(&object, "total", json_integer(total));
  return object;
}

static void print_words(const char *words, FILE *out) {
  petra_utf8_print(out, "%s", words ? words : "not in the log");
}

void petra_describe_run_network(const petra_run_h5_summary *run, const petra_config *config, FILE *out) {
  if (petra_run_h5_of_pytorch(run))
    petra_utf8_print(out, "%s (PyTorch)", run->network ? run->network : "not in the log");
  else
    petra_describe_network(config, out);
}

petra_status petra_describe_run_optimiser(const petra_run_h5_summary *run, const petra_config *config, FILE *out) {
  if (!petra_run_h5_of_pytorch(run))
    return petra_describe_optimiser(config, out);
  print_words(run->optimiser, out);
  return PETRA_OK;
}

void petra_describe_run_data(const petra_run_h5_summary *run, const petra_config *config, FILE *out) {
  if (petra_run_h5_of_pytorch(run))
    print_words(run->data, out);
  else
    petra_describe_data(config, out);
}
