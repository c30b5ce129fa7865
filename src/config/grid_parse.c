/* SPDX-License-Identifier: Apache-2.0 */
/* Parses the YAML of a grid into its rows, axes and seeds. */
#include "config/config_private.h"
#include "config/grid_private.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/text.h"
#include "base/utf8.h"

#include <stdio.h>
#include <string.h>
#include <yaml.h>

#define GRID_KEYS "base, config, command, axes, rows, seeds"

enum { PATH_BYTES = 160, MAX_ROW_NAME = 64 };

typedef struct parser {
  petra_grid *grid;
  petra_config_origin origin;
} parser;

static const yaml_node_t *node_at(const parser *in, int id) {
  return yaml_document_get_node(in->grid->document, id);
}

static const char *kind_of(const yaml_node_t *node) {
  return node->type == YAML_MAPPING_NODE ? "a mapping" : node->type == YAML_SEQUENCE_NODE ? "a list" : "a single value";
}

static size_t items_of(const yaml_node_t *list) {
  return (size_t)(list->data.sequence.items.top - list->data.sequence.items.start);
}

static size_t pairs_of(const yaml_node_t *mapping) {
  return (size_t)(mapping->data.mapping.pairs.top - mapping->data.mapping.pairs.start);
}

/* Gets the text of a scalar that is not empty. `path` names it in the error line. */
static petra_status read_text(const parser *in, const yaml_node_t *node, int line, const char *path,
                              const char *expected, const char **out) {
  if (node->type != YAML_SCALAR_NODE)
    return petra_config_fail_at(&in->origin, line, path, "%s; expected %s", kind_of(node), expected);
  const char *text = (const char *)node->data.scalar.value;
  if (node->data.scalar.length == 0)
    return petra_config_fail_at(&in->origin, line, path, "no value; expected %s", expected);
  if (strlen(text) != node->data.scalar.length)
    return petra_config_fail_at(&in->origin, line, path, "a string with a NUL byte; expected %s", expected);
  *out = text;
  return PETRA_OK;
}

/* Gets the name of pair `index` of a mapping, which must not occur twice. */
static petra_status read_name(const parser *in, const yaml_node_t *mapping, size_t index, const char *section,
                              const char **out) {
  const yaml_node_pair_t *pairs = mapping->data.mapping.pairs.start;
  const yaml_node_t *key = node_at(in, pairs[index].key);
  PETRA_TRY(read_text(in, key, petra_config_line(key), section, "a key", out));
  return petra_config_check_duplicate(&in->origin, in->grid->document, mapping, &pairs[index], *out);
}

/* Finds the config key with this path, which a grid must be able to vary. */
static petra_status find_key(const parser *in, int line, const char *path, int *out) {
  char shown[PATH_BYTES];
  petra_utf8_show(shown, sizeof shown, path, strlen(path));
  PETRA_TRY(petra_config_resolve(&in->origin, line, shown, out));
  if (strcmp(path, "run.name") == 0 || strcmp(path, "run.output") == 0)
    return petra_config_fail_at(&in->origin, line, path,
                                "a grid names the folders of its cells itself; expected another key");
  return PETRA_OK;
}

static petra_status read_value(const parser *in, int key, const yaml_node_t *node, petra_grid_value *out) {
  *out = (petra_grid_value){.key = key, .line = petra_config_line(node), .node = node};
  if (node->type == YAML_SCALAR_NODE)
    return petra_duplicate_string(&out->text, (const char *)node->data.scalar.value);
  size_t size = 3, count = node->type == YAML_SEQUENCE_NODE ? items_of(node) : 0;
  for (size_t i = 0; i < count; i++) {
    const yaml_node_t *item = node_at(in, node->data.sequence.items.start[i]);
    size += item->type == YAML_SCALAR_NODE ? item->data.scalar.length + 2 : 3;
  }
  PETRA_TRY(petra_allocate(&out->text, size, 1));
  size_t used = (size_t)snprintf(out->text, size, "[");
  for (size_t i = 0; i < count; i++) {
    const yaml_node_t *item = node_at(in, node->data.sequence.items.start[i]);
    used += (size_t)snprintf(out->text + used, size - used, "%s%s", i ? ", " : "",
                             item->type == YAML_SCALAR_NODE ? (const char *)item->data.scalar.value : "?");
  }
  snprintf(out->text + used, size - used, "]");
  return PETRA_OK;
}

static petra_status read_axis(const parser *in, int key, const char *path, int line, const yaml_node_t *node) {
  petra_grid_axis *axis = &in->grid->axis[in->grid->axes];
  if (node->type != YAML_SEQUENCE_NODE)
    return petra_config_fail_at(
        &in->origin, line, path, "%s; expected a list of values%s", kind_of(node),
        node->type == YAML_MAPPING_NODE ? " and, before it, a key with dots, such as method.name" : "");
  size_t count = items_of(node);
  if (count == 0)
    return petra_config_fail_at(&in->origin, line, path, "an empty list; expected at least one value");
  if (count > PETRA_GRID_MAX_CELLS)
    return petra_config_fail_at(&in->origin, line, path, "%zu values; expected at most %d", count,
                                PETRA_GRID_MAX_CELLS);
  *axis = (petra_grid_axis){.key = key, .line = line};
  in->grid->axes++;
  PETRA_TRY(petra_allocate(&axis->value, count, sizeof *axis->value));
  for (size_t i = 0; i < count; i++) {
    axis->count++;
    PETRA_TRY(read_value(in, key, node_at(in, node->data.sequence.items.start[i]), &axis->value[i]));
    for (size_t j = 0; j < i; j++)
      if (strcmp(axis->value[i].text, axis->value[j].text) == 0) {
        char shown[PETRA_CONFIG_SHOWN];
        return petra_config_fail_at(
            &in->origin, axis->value[i].line, path, "'%s' is repeated; expected each value once",
            petra_utf8_show(shown, sizeof shown, axis->value[i].text, strlen(axis->value[i].text)));
      }
  }
  return PETRA_OK;
}

static petra_status read_axes(const parser *in, const yaml_node_t *node, int line) {
  if (node->type != YAML_MAPPING_NODE || pairs_of(node) == 0)
    return petra_config_fail_at(&in->origin, line, "axes",
                                "%s; expected 'KEY: [VALUE, ...]' lines, such as method.name: [petra, delayed]",
                                node->type == YAML_MAPPING_NODE ? "nothing in it" : kind_of(node));
  for (size_t i = 0; i < pairs_of(node); i++) {
    const char *path = NULL;
    int key;
    PETRA_TRY(read_name(in, node, i, "axes", &path));
    int at = petra_config_line(node_at(in, node->data.mapping.pairs.start[i].key));
    PETRA_TRY(find_key(in, at, path, &key));
    if (strcmp(path, "run.seed") == 0)
      return petra_config_fail_at(&in->origin, at, path, "an axis of seeds; expected them in 'seeds: [...]'");
    PETRA_TRY(read_axis(in, key, path, at, node_at(in, node->data.mapping.pairs.start[i].value)));
  }
  return PETRA_OK;
}

/* Checks a row's name, which becomes part of a folder's: letters, digits and "._+-=", of which the first is a letter or
 * a digit. */
static petra_status read_row_name(const parser *in, const yaml_node_t *node, petra_grid_row *row) {
  static const char letters[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._+-=";
  const char *text = NULL;
  PETRA_TRY(read_text(in, node, petra_config_line(node), "rows: name", "a name", &text));
  char shown[PETRA_CONFIG_SHOWN];
  petra_utf8_show(shown, sizeof shown, text, strlen(text));
  if (text[strspn(text, letters)] || strchr("._+-=", text[0]) || strlen(text) > MAX_ROW_NAME)
    return petra_config_fail_at(
        &in->origin, petra_config_line(node), "rows: name",
        "'%s' cannot be a part of a folder's name; expected at most %d letters, digits and ._+-=, "
        "a letter or a digit first",
        shown, MAX_ROW_NAME);
  for (const petra_grid_row *other = in->grid->row; other < row; other++)
    if (strcmp(other->name, text) == 0)
      return petra_config_fail_at(&in->origin, petra_config_line(node), "rows: name",
                                  "'%s' is repeated (first in line %d); expected each once", shown, other->line);
  return petra_duplicate_string(&row->name, text);
}

static petra_status read_row_set(const parser *in, const yaml_node_t *node, int line, petra_grid_row *row) {
  if (node->type != YAML_MAPPING_NODE)
    return petra_config_fail_at(&in->origin, line, "rows: set", "%s; expected a mapping such as {method.name: petra}",
                                kind_of(node));
  PETRA_TRY(petra_allocate(&row->value, pairs_of(node), sizeof *row->value));
  for (size_t i = 0; i < pairs_of(node); i++) {
    const char *path = NULL;
    int key;
    PETRA_TRY(read_name(in, node, i, "rows: set", &path));
    PETRA_TRY(find_key(in, petra_config_line(node_at(in, node->data.mapping.pairs.start[i].key)), path, &key));
    row->count++;
    PETRA_TRY(read_value(in, key, node_at(in, node->data.mapping.pairs.start[i].value), &row->value[i]));
  }
  return PETRA_OK;
}

static petra_status read_row(const parser *in, const yaml_node_t *node, petra_grid_row *row) {
  bool has_set = false;
  row->line = petra_config_line(node);
  if (node->type != YAML_MAPPING_NODE)
    return petra_config_fail_at(&in->origin, row->line, "rows", "%s; expected {name: NAME, set: {KEY: VALUE, ...}}",
                                kind_of(node));
  for (size_t i = 0; i < pairs_of(node); i++) {
    const char *name = NULL;
    PETRA_TRY(read_name(in, node, i, "rows", &name));
    const yaml_node_t *key = node_at(in, node->data.mapping.pairs.start[i].key);
    const yaml_node_t *value = node_at(in, node->data.mapping.pairs.start[i].value);
    if (strcmp(name, "name") == 0) {
      PETRA_TRY(read_row_name(in, value, row));
    } else if (strcmp(name, "set") == 0) {
      has_set = true;
      PETRA_TRY(read_row_set(in, value, petra_config_line(key), row));
    } else {
      char shown[PETRA_CONFIG_SHOWN];
      return petra_config_fail_at(&in->origin, petra_config_line(key), "rows",
                                  "unknown key '%s'; expected name and set",
                                  petra_utf8_show(shown, sizeof shown, name, strlen(name)));
    }
  }
  if (!row->name || !has_set)
    return petra_config_fail_at(&in->origin, row->line, "rows",
                                "a row without %s; expected {name: NAME, set: {KEY: VALUE, ...}}",
                                row->name ? "set" : "name");
  return PETRA_OK;
}

static petra_status read_rows(const parser *in, const yaml_node_t *node, int line) {
  if (node->type != YAML_SEQUENCE_NODE || items_of(node) == 0 || items_of(node) > PETRA_GRID_MAX_CELLS)
    return petra_config_fail_at(&in->origin, line, "rows",
                                "%s; expected a list of 1 .. %d rows {name: NAME, set: {KEY: VALUE, ...}}",
                                node->type != YAML_SEQUENCE_NODE ? kind_of(node)
                                : items_of(node)                 ? "too many rows"
                                                                 : "an empty list",
                                PETRA_GRID_MAX_CELLS);
  size_t count = items_of(node);
  PETRA_TRY(petra_allocate(&in->grid->row, count, sizeof *in->grid->row));
  for (size_t i = 0; i < count; i++) {
    in->grid->rows++;
    PETRA_TRY(read_row(in, node_at(in, node->data.sequence.items.start[i]), &in->grid->row[i]));
  }
  return PETRA_OK;
}

static petra_status read_base(const parser *in, const yaml_node_t *node, int line, const char *folder) {
  const char *text = NULL;
  PETRA_TRY(read_text(in, node, line, "base", "the file of a config", &text));
  if (strcmp(text, "-") == 0)
    return petra_config_fail_at(&in->origin, line, "base",
                                "standard input cannot be read once per cell; expected the file of a config");
  if (*text == '/')
    return petra_duplicate_string(&in->grid->base, text);
  size_t size = strlen(folder) + strlen(text) + 1;
  PETRA_TRY(petra_allocate(&in->grid->base, size, 1));
  snprintf(in->grid->base, size, "%s%s", folder, text);
  return PETRA_OK;
}

static petra_status read_command(const parser *in, const yaml_node_t *node, int line) {
  static const char *const commands[] = {"train", "simulate", NULL};
  const char *text = NULL;
  PETRA_TRY(read_text(in, node, line, "command", "train or simulate", &text));
  if (strcmp(text, "train") != 0 && strcmp(text, "simulate") != 0) {
    char shown[PETRA_CONFIG_SHOWN], near[PETRA_CONFIG_SHOWN];
    return petra_config_fail_at(&in->origin, line, "command", "'%s'; expected train or simulate%s",
                                petra_utf8_show(shown, sizeof shown, text, strlen(text)),
                                petra_nearest_hint(near, sizeof near, "", text, commands));
  }
  in->grid->command = *text == 't' ? PETRA_GRID_TRAIN : PETRA_GRID_SIMULATE;
  return PETRA_OK;
}

/* Reads the value of one key of the grid. The seeds are read last, whatever their position. */
static petra_status read_part(const parser *in, const char *name, const yaml_node_t *node, int line,
                              const char *folder) {
  if (strcmp(name, "base") == 0)
    return read_base(in, node, line, folder);
  if (strcmp(name, "command") == 0)
    return read_command(in, node, line);
  if (strcmp(name, "axes") == 0)
    return read_axes(in, node, line);
  if (strcmp(name, "rows") == 0)
    return read_rows(in, node, line);
  if (strcmp(name, "config") == 0) {
    in->grid->config = node;
    in->grid->config_line = line;
    return PETRA_OK;
  }
  if (strcmp(name, "seeds") == 0)
    return PETRA_OK;
  static const char *const keys[] = {"base", "config", "command", "axes", "rows", "seeds", NULL};
  char shown[PETRA_CONFIG_SHOWN], near[PETRA_CONFIG_SHOWN];
  return petra_config_fail_at(&in->origin, line, petra_utf8_show(shown, sizeof shown, name, strlen(name)),
                              "unknown key of a grid; expected one of " GRID_KEYS "%s",
                              petra_nearest_hint(near, sizeof near, "", name, keys));
}

static petra_status read_grid(const parser *in, const yaml_node_t *root, const char *folder) {
  const yaml_node_t *seeds = NULL;
  int seeds_line = 0;
  if (!root || root->type != YAML_MAPPING_NODE)
    return petra_config_fail_at(&in->origin, root ? petra_config_line(root) : 1, "",
                                "%s; expected a grid, a mapping with any of " GRID_KEYS,
                                root && root->type == YAML_SEQUENCE_NODE ? "a list" : "no mapping");
  PETRA_TRY(petra_allocate(&in->grid->axis, (size_t)petra_config_key_count + 1,
                           sizeof *in->grid->axis)); /* no key occurs twice */
  for (size_t i = 0; i < pairs_of(root); i++) {
    const char *name = NULL;
    PETRA_TRY(read_name(in, root, i, "", &name));
    const yaml_node_t *value = node_at(in, root->data.mapping.pairs.start[i].value);
    int line = petra_config_line(node_at(in, root->data.mapping.pairs.start[i].key));
    PETRA_TRY(read_part(in, name, value, line, folder));
    if (strcmp(name, "seeds") == 0)
      seeds = value, seeds_line = line;
  }
  if (!in->grid->base == !in->grid->config)
    return petra_config_fail_at(&in->origin, in->grid->config ? in->grid->config_line : 1, "",
                                "%s; expected either 'base: FILE' or 'config: {...}'",
                                in->grid->base ? "both base and config" : "neither base nor config");
  if (!seeds && in->grid->axes == 0 && in->grid->rows == 0)
    return petra_config_fail_at(&in->origin, 1, "", "nothing is varied; expected axes, rows or seeds");
  in->grid->has_seeds = seeds != NULL;
  return seeds ? read_axis(in, petra_config_key_find("run.seed"), "seeds", seeds_line, seeds) : PETRA_OK;
}

petra_status petra_grid_parse(petra_grid *grid, const char *folder, const char *text, size_t length) {
  const parser in = {grid, {grid->file, NULL}};
  yaml_document_t *document = NULL;
  PETRA_TRY(petra_allocate(&document, 1, sizeof *document));
  petra_status status = petra_config_document_load(&in.origin, text, length, document);
  if (status != PETRA_OK) {
    petra_free(document);
    return status;
  }
  grid->document = document;
  return read_grid(&in, yaml_document_get_root_node(document), folder);
}

static void free_values(petra_grid_value *value, int count) {
  for (int i = 0; i < count; i++)
    petra_free(value[i].text);
  petra_free(value);
}

void petra_grid_release(petra_grid *grid) {
  for (int i = 0; i < grid->rows; i++) {
    free_values(grid->row[i].value, grid->row[i].count);
    petra_free(grid->row[i].name);
  }
  for (int i = 0; i < grid->axes; i++)
    free_values(grid->axis[i].value, grid->axis[i].count);
  petra_free(grid->row);
  petra_free(grid->axis);
  petra_free(grid->base);
  if (grid->document)
    yaml_document_delete(grid->document);
  petra_free(grid->document);
}
