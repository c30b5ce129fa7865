/* petra methods: the table of methods and what each expands to. */
#include "base/json.h"
#include "base/table.h"
#include "cli/command.h"
#include "schedule/method.h"

#include <jansson.h>

static petra_status method_json(const petra_method *method, json_t *object) {
  PETRA_TRY(petra_json_set(object, "name", json_string(method->name)));
  PETRA_TRY(petra_json_set(object, "program", json_string(method->program->name)));
  PETRA_TRY(petra_json_set(object, "forward_weights", json_string(petra_weights_name(method->forward_weights))));
  PETRA_TRY(petra_json_set(object, "backward_weights", json_string(petra_weights_name(method->backward_weights))));
  PETRA_TRY(petra_json_set(object, "invert_weights", json_string(petra_weights_name(method->invert_weights))));
  PETRA_TRY(petra_json_set(object, "keep", json_string(petra_keep_name(method->keep))));
  PETRA_TRY(petra_json_set(object, "inverts", json_boolean(method->inverts)));
  PETRA_TRY(petra_json_set(object, "recomputes", json_boolean(method->recomputes)));
  PETRA_TRY(petra_json_set(object, "head", json_string(method->split_head ? "split" : "fused")));
  PETRA_TRY(petra_json_set(object, "chunks", json_integer(method->chunks)));
  return petra_json_set(object, "help", json_string(method->help));
}

static petra_status print_json(void) {
  json_t *root = json_object(), *list = json_array();
  petra_status status = petra_json_set(root, "methods", list);
  for (int i = 0; i < petra_method_count() && status == PETRA_OK; i++) {
    json_t *object = json_object();
    json_array_append_new(list, object);
    const petra_method method = petra_method_get(i);
    status = method_json(&method, object);
  }
  if (status == PETRA_OK)
    status = petra_json_print(root, stdout);
  json_decref(root);
  return status;
}

enum { COLUMNS = 9 };

static petra_status print_table(void) {
  static const petra_table_column columns[COLUMNS] = {
      {"method", PETRA_TABLE_LEFT},     {"program", PETRA_TABLE_LEFT},      {"F reads", PETRA_TABLE_LEFT},
      {"B reads", PETRA_TABLE_LEFT},    {"inverts with", PETRA_TABLE_LEFT}, {"kept", PETRA_TABLE_LEFT},
      {"recomputes", PETRA_TABLE_LEFT}, {"head", PETRA_TABLE_LEFT},         {"what it is", PETRA_TABLE_LEFT}};
  petra_table *table;
  petra_status status = PETRA_OK;
  PETRA_TRY(petra_table_create(columns, COLUMNS, &table));
  for (int i = 0; i < petra_method_count() && status == PETRA_OK; i++) {
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
    for (int c = 0; c < COLUMNS && status == PETRA_OK; c++)
      status = petra_table_cell(table, "%s", cells[c]);
  }
  if (status == PETRA_OK)
    status = petra_table_print(table, stdout);
  petra_table_destroy(table);
  return status;
}

static petra_status run(const petra_arguments *arguments) {
  return arguments->json ? print_json() : print_table();
}

const petra_command petra_command_methods = {
    .name = "methods",
    .summary = "prints the methods and what each expands to",
    .arguments = "[--json]",
    .help = "Prints the presets that method.name can name: the program that orders the actions, the weights that\n"
            "forward and backward read, what is kept between them, whether backward computes the graph again,\n"
            "whether the last stage's forward and backward are two actions (split) or one (fused). Each choice\n"
            "can be replaced alone by a key of the config's method section.\n",
    .run = run};
