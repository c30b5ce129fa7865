/* SPDX-License-Identifier: Apache-2.0 */
/* petra methods: the table of methods and what each expands to; with a config, what each would cost. */
#include "base/json.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/text.h"
#include "cli/command.h"
#include "setup/describe.h"
#include "search/candidate.h"

#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

static json_t *method_json(const petra_method *m) {
  return json_pack("{s:s, s:s, s:s, s:s, s:s, s:s, s:b, s:b, s:s, s:i, s:s}", "name", m->name, "program",
                   m->program->name, "forward_weights", petra_weights_name(m->forward_weights), "backward_weights",
                   petra_weights_name(m->backward_weights), "invert_weights", petra_weights_name(m->invert_weights),
                   "keep", petra_keep_name(m->keep), "inverts", m->inverts, "recomputes", m->recomputes, "head",
                   m->split_head ? "split" : "fused", "chunks", (int)m->chunks, "help", m->help);
}

static petra_status print_json(void) {
  json_t *list = json_array();
  for (int i = 0; i < petra_method_count(); i++) {
    const petra_method method = petra_method_get(i);
    petra_json_append(&list, method_json(&method));
  }
  return petra_json_print_new(json_pack("{s:o}", "methods", list));
}

enum { COLUMNS = 9 };

static petra_status print_table(void) {
  static const petra_table_column columns[COLUMNS] = {
      {"method", PETRA_TABLE_LEFT},     {"program", PETRA_TABLE_LEFT},      {"F reads", PETRA_TABLE_LEFT},
      {"B reads", PETRA_TABLE_LEFT},    {"inverts with", PETRA_TABLE_LEFT}, {"kept", PETRA_TABLE_LEFT},
      {"recomputes", PETRA_TABLE_LEFT}, {"head", PETRA_TABLE_LEFT},         {"what it is", PETRA_TABLE_LEFT}};
  petra_table *table;
  PETRA_TRY(petra_table_create(columns, COLUMNS, &table));
  for (int i = 0; i < petra_method_count(); i++) {
    const petra_method method = petra_method_get(i), *m = &method;
    const char *const cells[COLUMNS] = {m->name,
                                        m->program->name,
                                        petra_weights_name(m->forward_weights),
                                        petra_weights_name(m->backward_weights),
                                        m->inverts ? petra_weights_name(m->invert_weights) : "-",
                                        petra_keep_name(m->keep),
                                        m->recomputes ? "yes" : "no",
                                        m->split_head ? "split" : "fused",
                                        m->help};
    for (int c = 0; c < COLUMNS; c++)
      petra_table_cell(table, "%s", cells[c]);
  }
  return petra_table_print(table, stdout);
}

/* --- with a config: what every method would cost --- */

static json_t *figures_json(const petra_method_figures *f) {
  const bool runs = !*f->found.reason;
  return json_pack(
      "{s:s, s:s, s:i, s:i, s:o, s:o, s:o, s:o, s:o, s:s, s:o, s:b, s:s?}", "name", f->method.name, "program",
      f->method.program->name, "devices", (int)f->devices, "stages", (int)f->stages, "time_per_microbatch_s",
      petra_json_real(f->found.time_per_microbatch_s), "bubble_fraction", petra_json_real(f->found.bubble_fraction),
      "peak_bytes", f->found.peak_bytes < 0 ? json_null() : json_integer(f->found.peak_bytes), "kept_max",
      runs ? json_integer(f->found.kept_max) : json_null(), "device_kept_max",
      runs ? petra_json_real(f->found.device_kept_max) : json_null(), "keep", petra_keep_name(f->found.keep), "lag_max",
      runs ? json_integer(f->found.lag_max) : json_null(), "exact", f->exact, "reason", runs ? NULL : f->found.reason);
}

static petra_status figures_print_json(const petra_config *config, const petra_method_figures *rows, int32_t devices,
                                       int32_t stages) {
  json_t *list = json_array();
  for (int i = 0; i < petra_method_count(); i++)
    petra_json_append(&list, figures_json(&rows[i]));
  return petra_json_print_new(json_pack("{s:i, s:i, s:I, s:o}", "devices", (int)devices, "stages", (int)stages,
                                        "accumulate", (json_int_t)config->method.accumulate, "methods", list));
}

/* Prints what was found and what was expected, without the explanation between them. */
static void add_reason(petra_table *table, const petra_method_figures *f) {
  const char *end = strchr(f->found.reason, ';'), *expected = strstr(f->found.reason, "expected");
  if (end && expected && expected > end)
    petra_table_cell(table, "%.*s; %s", (int)(end - f->found.reason), f->found.reason, expected);
  else if (isnan(f->found.time_per_microbatch_s) && !*f->found.reason)
    petra_table_cell(table, "too few microbatches for a steady state");
  else
    petra_table_cell(table, "%s", f->found.reason);
}

static void add_figures(petra_table *table, const petra_method_figures *f) {
  petra_table_cell(table, "%s", f->method.name);
  petra_table_cell(table, "%d", f->stages);
  for (int c = 0; *f->found.reason && c < 6; c++)
    petra_table_cell(table, "-");
  if (!*f->found.reason) {
    petra_table_cell(table, isnan(f->found.time_per_microbatch_s) ? "-" : "%.6g", f->found.time_per_microbatch_s);
    petra_table_cell(table, "%.4f", f->found.bubble_fraction);
    petra_table_cell(table, f->found.peak_bytes < 0 ? "-" : "%.3f", 1e-6 * (double)f->found.peak_bytes);
    petra_table_cell(table, "%lld", (long long)f->found.kept_max);
    petra_table_cell(table, "%.4g", f->found.device_kept_max);
    petra_table_cell(table, "%lld", (long long)f->found.lag_max);
  }
  petra_table_cell(table, "%s", petra_keep_name(f->found.keep));
  petra_table_cell(table, "%s", f->exact ? "exact" : f->method.program->local ? "local" : "delayed");
  add_reason(table, f);
}

static petra_status figures_print_table(const petra_config *config, const petra_method_figures *rows, int32_t devices,
                                        int32_t stages) {
  static const petra_table_column columns[] = {
      {"method", PETRA_TABLE_LEFT},     {"stages", PETRA_TABLE_RIGHT},  {"s/microbatch", PETRA_TABLE_RIGHT},
      {"bubble", PETRA_TABLE_RIGHT},    {"peak MB", PETRA_TABLE_RIGHT}, {"by stage", PETRA_TABLE_RIGHT},
      {"by device", PETRA_TABLE_RIGHT}, {"lag max", PETRA_TABLE_RIGHT}, {"keeps", PETRA_TABLE_LEFT},
      {"gradients", PETRA_TABLE_LEFT},  {"", PETRA_TABLE_LEFT}};
  petra_table *table;
  fputs("network  ", stdout);
  petra_describe_network(config, stdout);
  printf(", %d stage%s\ndevices  %d for each method, k = %lld, %lld engine%s per device\ncosts    ", stages,
         stages == 1 ? "" : "s", devices, (long long)config->method.accumulate, (long long)config->cluster.engines,
         config->cluster.engines == 1 ? "" : "s");
  PETRA_TRY(petra_describe_costs(config, stdout));
  fputs("\nlinks    ", stdout);
  petra_describe_links(config, false, stdout);
  fputs("\n\n", stdout);
  PETRA_TRY(petra_table_create(columns, sizeof columns / sizeof *columns, &table));
  for (int i = 0; i < petra_method_count(); i++)
    add_figures(table, &rows[i]);
  PETRA_TRY(petra_table_print(table, stdout));
  printf(
      "\ns/microbatch: seconds per microbatch of the whole network; bubble: share of the run in which a device is "
      "idle\n"
      "peak MB: maximum memory of a device in 10^6 bytes; lag max: maximum number of updates of a stage between F and "
      "B\n"
      "by stage: maximum number of microbatches that a device keeps, over its stages; by device: divided by its "
      "stages\n"
      "keeps: what it keeps of them between F and B (nothing: the input of blocks that are not reversible; in a "
      "network "
      "without reversible blocks: input)\n");
  return PETRA_OK;
}

static petra_status compare(const petra_arguments *arguments) {
  petra_config *config;
  petra_method_figures *rows = NULL;
  int32_t devices, stages;
  petra_status status;
  PETRA_TRY(petra_arguments_config(arguments, "methods", &config));
  PETRA_TRY_GOTO(status, petra_allocate(&rows, (size_t)petra_method_count(), sizeof *rows), done);
  PETRA_TRY_GOTO(status, petra_compare_methods(config, rows, &devices, &stages), done);
  status = arguments->json ? figures_print_json(config, rows, devices, stages)
                           : figures_print_table(config, rows, devices, stages);
done:
  petra_free(rows);
  petra_config_destroy(config);
  return status;
}

static petra_status run(const petra_arguments *arguments) {
  if (arguments->input)
    return compare(arguments);
  if (arguments->set_count > 0)
    return petra_fail(PETRA_USAGE, "petra methods: --set without a config; expected CONFIG.yaml as well");
  return arguments->json ? print_json() : print_table();
}

const petra_command petra_command_methods = {
    .name = "methods",
    .summary = "prints the methods and their settings, or what each would cost with a config",
    .arguments = "[CONFIG.yaml [--set KEY=VALUE]...] [--json]",
    .help = "Prints the presets for method.name: the program that orders the actions, the weights that forward and\n"
            "backward read, what is stored between them, whether backward computes the graph again, and whether\n"
            "forward and backward of the last stage are two actions (split) or one (fused). The keys of method\n"
            "override each setting.\n"
            "\n"
            "With a config, petra simulates every method with its network, costs, links and length, and prints one\n"
            "row per method, the fastest first. A method that cannot run with this config has a row with the reason.\n"
            "Of the section method, the comparison uses only accumulate, chunks and credit; without a credit,\n"
            "petra-arrival has 2 J - 1 microbatches in flight for J stages.\n"
            "\n"
            "All methods have the devices of the config: as many as its own method uses. A method with one stage per\n"
            "device has that many stages, a method with a loop or a V has two stages per device (in a loop\n"
            "method.chunks, if it is set). If that is not the number of stages of the config, the network is cut by\n"
            "stages.partition: balanced. The stages of cluster.stages, and costs that are the same for all stages\n"
            "(cluster.cost.model: unit or constant), are scaled instead, so that the work of the whole network stays\n"
            "the same: if a method has half as many stages, each takes twice the time.",
    .takes_config = true,
    .run = run};
