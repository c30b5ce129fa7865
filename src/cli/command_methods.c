/* SPDX-License-Identifier: Apache-2.0 */
/* petra methods: the table of methods and the choices of each; with a config, the cost of each method. */
#include "base/json.h"
#include "base/log.h"
#include "base/mem.h"
#include "cli/command.h"
#include "cli/rows.h"
#include "setup/describe.h"
#include "search/candidate.h"

#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

static void add_method(petra_rows *rows, const petra_method *m) {
  const char *inverts = petra_weights_name(m->invert_weights);
  petra_rows_next(rows);
  petra_row_text(rows, "method", "name", m->name);
  petra_row_text(rows, "program", "program", m->program->name);
  petra_row_text(rows, "F reads", "forward_weights", petra_weights_name(m->forward_weights));
  petra_row_text(rows, "B reads", "backward_weights", petra_weights_name(m->backward_weights));
  petra_row_text(rows, "inverts with", NULL, m->inverts ? inverts : "-");
  petra_row_text(rows, NULL, "invert_weights", inverts);
  petra_row_text(rows, "kept", "keep", petra_keep_name(m->keep));
  petra_row_choice(rows, NULL, "inverts", m->inverts, "yes", "no");
  petra_row_choice(rows, "recomputes", "recomputes", m->recomputes, "yes", "no");
  petra_row_text(rows, "head", "head", m->split_head ? "split" : "fused");
  petra_row_integer(rows, NULL, "chunks", m->chunks);
  petra_row_text(rows, "what it is", "help", m->help);
}

static petra_status print_methods(bool json) {
  petra_rows *rows;
  PETRA_TRY(petra_rows_create(json, &rows));
  for (int i = 0; i < petra_method_count(); i++) {
    const petra_method method = petra_method_get(i);
    add_method(rows, &method);
  }
  return json ? petra_json_print_new(
                    json_pack("{s:i, s:o}", "schema", PETRA_SCHEMA_METHODS, "methods", petra_rows_list(rows)))
              : petra_rows_print(rows);
}

/* --- with a config: the cost of every method --- */

/* Adds the found and the expected value of a reason, without the explanation between them. */
static void add_reason(petra_rows *rows, const petra_method_figures *f) {
  const char *reason = f->found.reason, *end = strchr(reason, ';'), *expected = strstr(reason, "expected");
  if (end && expected && expected > end)
    petra_row_cell(rows, "", PETRA_TABLE_LEFT, "%.*s; %s", (int)(end - reason), reason, expected);
  else if (isnan(f->found.time_per_microbatch_s) && !*reason)
    petra_row_text(rows, "", NULL, "too few microbatches for a steady state");
  else
    petra_row_text(rows, "", NULL, reason);
  if (petra_rows_have(rows, "reason"))
    petra_row_member(rows, "reason", *reason ? json_string(reason) : json_null());
}

static void add_figures(petra_rows *rows, const petra_method_figures *f) {
  const bool runs = !*f->found.reason;
  petra_rows_next(rows);
  petra_row_text(rows, "method", "name", f->method.name);
  petra_row_text(rows, NULL, "program", f->method.program->name);
  petra_row_integer(rows, NULL, "devices", f->devices);
  petra_row_integer(rows, "stages", "stages", f->stages);
  petra_row_significant(rows, "s/microbatch", "time_per_microbatch_s", f->found.time_per_microbatch_s, 6);
  petra_row_real(rows, "bubble", "bubble_fraction", f->found.bubble_fraction, 1, 4);
  petra_row_megabytes(rows, "peak MB", "peak_bytes", f->found.peak_bytes);
  petra_row_integer(rows, "by stage", "kept_max", runs ? f->found.kept_max : PETRA_ROW_NONE);
  petra_row_significant(rows, "by device", "device_kept_max", runs ? f->found.device_kept_max : NAN, 4);
  petra_row_text(rows, NULL, "keep", petra_keep_name(f->found.keep));
  petra_row_integer(rows, "lag max", "lag_max", runs ? f->found.lag_max : PETRA_ROW_NONE);
  petra_row_text(rows, "keeps", NULL, petra_keep_name(f->found.keep));
  petra_row_choice(rows, "gradients", "exact", f->exact, "exact", f->method.program->local ? "local" : "delayed");
  add_reason(rows, f);
}

static petra_status print_figures(const petra_config *config, petra_rows *rows, int32_t devices, int32_t stages) {
  fputs("network  ", stdout);
  petra_describe_network(config, stdout);
  printf(", %d stage%s\ndevices  %d for each method, k = %lld, %lld engine%s per device\ncosts    ", stages,
         stages == 1 ? "" : "s", devices, (long long)config->method.accumulate, (long long)config->cluster.engines,
         config->cluster.engines == 1 ? "" : "s");
  PETRA_TRY(petra_describe_costs(config, stdout));
  fputs("\nlinks    ", stdout);
  petra_describe_links(config, false, stdout);
  fputs("\n\n", stdout);
  PETRA_TRY(petra_rows_print(rows));
  printf(
      "\ns/microbatch: seconds per microbatch of the whole network; bubble: share of the run in which a device is "
      "idle\npeak MB: maximum memory of a device in 10^6 bytes; lag max: maximum number of updates of a stage between "
      "F and B\nby stage: maximum number of microbatches that a device keeps, over its stages; by device: divided by "
      "its stages\nkeeps: what it keeps of them between F and B (nothing: the input of blocks that are not "
      "reversible; in a network without reversible blocks: input)\n");
  return PETRA_OK;
}

static petra_status compare(const petra_arguments *arguments) {
  PETRA_DESTROYED(petra_config_destroy) petra_config *config = NULL;
  PETRA_FREED petra_method_figures *figures = NULL;
  petra_rows *rows;
  int32_t devices, stages;
  PETRA_TRY(petra_arguments_config(arguments, "methods", &config));
  PETRA_TRY(petra_allocate(&figures, (size_t)petra_method_count(), sizeof *figures));
  PETRA_TRY(petra_compare_methods(config, figures, &devices, &stages));
  PETRA_TRY(petra_rows_create(arguments->json, &rows));
  for (int i = 0; i < petra_method_count(); i++)
    add_figures(rows, &figures[i]);
  if (arguments->json)
    return petra_json_print_new(json_pack("{s:i, s:i, s:i, s:I, s:o}", "schema", PETRA_SCHEMA_METHODS, "devices",
                                          (int)devices, "stages", (int)stages, "accumulate",
                                          (json_int_t)config->method.accumulate, "methods", petra_rows_list(rows)));
  return print_figures(config, rows, devices, stages);
}

static petra_status run(const petra_arguments *arguments) {
  if (arguments->input)
    return compare(arguments);
  if (arguments->set_count > 0)
    return petra_fail(PETRA_USAGE, "petra methods: --set without a config; expected CONFIG.yaml as well");
  return print_methods(arguments->json);
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
