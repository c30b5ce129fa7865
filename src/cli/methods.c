/* SPDX-License-Identifier: Apache-2.0 */
/* petra methods: the table of methods and what each expands to. */
#include "base/json.h"
#include "base/text.h"
#include "cli/command.h"
#include "schedule/method.h"

#include <jansson.h>

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

static petra_status run(const petra_arguments *arguments) {
  return arguments->json ? print_json() : print_table();
}

const petra_command petra_command_methods = {
    .name = "methods",
    .summary = "prints the methods and their settings",
    .arguments = "[--json]",
    .help = "Prints the presets for method.name: the program that orders the actions, the weights that forward and\n"
            "backward read, what is stored between them, whether backward computes the graph again, and whether\n"
            "forward and backward of the last stage are two actions (split) or one (fused). The keys of method\n"
            "override each setting.",
    .run = run};
