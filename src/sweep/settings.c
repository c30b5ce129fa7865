/* SPDX-License-Identifier: Apache-2.0 */
/* The --set arguments of a sweep, kept in its folder for --jobs 0: DIR/summary.settings.json, {"set": ["KEY=VALUE", ...]}. */
#include "base/json.h"
#include "base/log.h"
#include "base/mem.h"
#include "io/file.h"
#include "run/folder.h"
#include "sweep/sweep.h"

#include <jansson.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const char NAME[] = "summary.settings.json";

petra_status petra_sweep_keep_settings(const petra_sweep *sweep) {
  char *path, *text;
  PETRA_TRY(petra_join_path(sweep->directory, NAME, &path));
  json_t *list = json_array(), *root = json_object();
  for (int i = 0; i < sweep->options.set_count; i++)
    petra_json_append(&list, petra_json_string(sweep->options.sets[i]));
  petra_json_set(&root, "set", list);
  text = root ? json_dumps(root, JSON_INDENT(2)) : NULL;
  petra_status status = PETRA_OK;
  if (sweep->options.set_count > 0 || access(path, F_OK) == 0) /* those of an earlier run no longer hold */
    status = text ? petra_file_write_atomically(path, text, strlen(text))
                  : petra_fail(PETRA_NO_MEMORY, "%s: out of memory", path);
  free(text);
  json_decref(root);
  petra_free(path);
  return status;
}

/* Those of the list, then those that were given, which so override them. */
static petra_status take(petra_sweep *sweep, const char *path, const json_t *list) {
  const petra_sweep_options *options = &sweep->options;
  const size_t kept = json_array_size(list);
  PETRA_TRY(petra_allocate(&sweep->kept, kept + (size_t)options->set_count + 1, sizeof *sweep->kept));
  PETRA_TRY(petra_allocate(&sweep->sets, kept + (size_t)options->set_count + 1, sizeof *sweep->sets));
  for (size_t i = 0; i < kept; i++) {
    const char *set = json_string_value(json_array_get(list, i));
    if (!set)
      return petra_fail(PETRA_DATA, "%s: 'set' is no list of texts; expected what petra sweep writes", path);
    PETRA_TRY(petra_duplicate_string(&sweep->kept[i], set));
    PETRA_TRY(petra_grid_check_set(sweep->grid, set));
    sweep->sets[i] = sweep->kept[i];
  }
  for (int i = 0; i < options->set_count; i++)
    sweep->sets[kept + (size_t)i] = options->sets[i];
  sweep->options.sets = sweep->sets;
  sweep->options.set_count += (int)kept;
  return PETRA_OK;
}

petra_status petra_sweep_take_settings(petra_sweep *sweep) {
  json_error_t error;
  char *path;
  PETRA_TRY(petra_join_path(sweep->directory, NAME, &path));
  petra_status status = PETRA_OK;
  if (access(path, F_OK) == 0) {
    json_t *root = json_load_file(path, 0, &error);
    status = root ? take(sweep, path, json_object_get(root, "set"))
                  : petra_fail(PETRA_DATA, "%s: no JSON: %s; expected what petra sweep writes", path, error.text);
    json_decref(root);
  }
  petra_free(path);
  return status;
}

void petra_sweep_free_settings(petra_sweep *sweep) {
  for (int i = 0; sweep->kept && sweep->kept[i]; i++)
    petra_free(sweep->kept[i]);
  petra_free(sweep->kept);
  petra_free(sweep->sets);
}
