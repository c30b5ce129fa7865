/* SPDX-License-Identifier: Apache-2.0 */
/* The folder of a sweep, which is never that of a run, and what the sweep stores in it. */
#include "base/json.h"
#include "base/log.h"
#include "base/mem.h"
#include "io/file.h"
#include "run/folder.h"
#include "sweep/sweep.h"

#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* Cuts off and returns the last component of a path, or "". */
static const char *cut_last(char *path) {
  size_t length = strlen(path);
  while (length > 1 && path[length - 1] == '/')
    path[--length] = 0;
  char *slash = strrchr(path, '/');
  if (!slash)
    return path;
  *slash = 0;
  return slash + 1;
}

/* Returns what is before the last component: "" is the current folder or, of an absolute path, the root. */
static const char *parent(const char *rest, const char *name, bool absolute) {
  return name == rest ? "." : *rest ? rest : absolute ? "/" : ".";
}

/* Gets whether two paths, of which neither need exist, lead to the same folder. */
static petra_status is_same(const char *a, const char *b, bool *out) {
  struct stat of_a, of_b;
  char *rest_a = NULL, *rest_b = NULL;
  const bool has_a = stat(a, &of_a) == 0, has_b = stat(b, &of_b) == 0;
  petra_status status = PETRA_OK;
  *out = has_a && has_b && of_a.st_dev == of_b.st_dev && of_a.st_ino == of_b.st_ino;
  if (has_a || has_b)
    return PETRA_OK;
  PETRA_TRY_GOTO(status, petra_duplicate_string(&rest_a, a), done);
  PETRA_TRY_GOTO(status, petra_duplicate_string(&rest_b, b), done);
  const char *name_a = cut_last(rest_a), *name_b = cut_last(rest_b);
  if (strcmp(name_a, name_b) == 0)
    status = is_same(parent(rest_a, name_a, *a == '/'), parent(rest_b, name_b, *b == '/'), out);
done:
  petra_free(rest_a);
  petra_free(rest_b);
  return status;
}

/* Joins run.output of the base and the name of the grid's file without its ending. */
static petra_status name_after_grid(const petra_sweep *sweep, const petra_config *base, char **out) {
  const char *input = sweep->options.input, *slash = strrchr(input, '/');
  char *name;
  if (strcmp(input, "-") == 0)
    return petra_fail(PETRA_USAGE,
                      "a grid from standard input with a base has no name for its folder; expected --output DIR");
  PETRA_TRY(petra_duplicate_string(&name, slash ? slash + 1 : input));
  char *dot = strrchr(name, '.');
  if (dot && dot != name)
    *dot = 0;
  petra_status status = petra_join_path(base->run.output, name, out);
  petra_free(name);
  return status;
}

/* Fails if the folder is that of the base's own run, or holds another run. */
static petra_status refuse_runs(const petra_sweep *sweep, const petra_config *base) {
  static const char *const marks[] = {"run.h5", "checkpoint.h5"};
  char *own, *path;
  bool same = false;
  PETRA_TRY(petra_folder_of_run(base, NULL, &own));
  petra_status status = petra_grid_base(sweep->grid) ? is_same(sweep->directory, own, &same) : PETRA_OK;
  petra_free(own);
  PETRA_TRY(status);
  if (same)
    return petra_fail(PETRA_CONFIG,
                      "%s: the folder of the base's own run (run.output/run.name of %s); expected another one for the "
                      "sweep (--output)",
                      sweep->directory, petra_grid_base(sweep->grid));
  for (size_t i = 0; i < sizeof marks / sizeof *marks; i++) {
    PETRA_TRY(petra_join_path(sweep->directory, marks[i], &path));
    const bool there = access(path, F_OK) == 0;
    petra_free(path);
    if (there)
      return petra_fail(PETRA_CONFIG, "%s: contains a run (%s); expected another folder for the sweep (--output)",
                        sweep->directory, marks[i]);
  }
  return PETRA_OK;
}

petra_status petra_sweep_find_folder(petra_sweep *sweep, const char *output) {
  petra_config *base;
  petra_status status;
  PETRA_TRY(petra_grid_config(sweep->grid, -1, sweep->options.sets, sweep->options.set_count, &base));
  if (output)
    status = petra_duplicate_string(&sweep->directory, output);
  else if (petra_grid_base(sweep->grid))
    status = name_after_grid(sweep, base, &sweep->directory);
  else
    status = petra_folder_of_run(base, NULL, &sweep->directory);
  if (status == PETRA_OK)
    status = refuse_runs(sweep, base);
  petra_config_destroy(base);
  return status;
}

/* --- the --set arguments, kept in the folder for --jobs 0: summary.settings.json, {"set": ["KEY=VALUE", ...]} --- */

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
  if (sweep->options.set_count > 0 || access(path, F_OK) == 0) /* the settings of an earlier run no longer apply */
    status = text ? petra_file_write_atomically(path, text, strlen(text))
                  : petra_fail(PETRA_NO_MEMORY, "%s: out of memory", path);
  free(text);
  json_decref(root);
  petra_free(path);
  return status;
}

/* Takes the settings of the list, then those that were given, which override them. */
static petra_status take(petra_sweep *sweep, const char *path, const json_t *list) {
  const petra_sweep_options *options = &sweep->options;
  const size_t kept = json_array_size(list);
  PETRA_TRY(petra_allocate(&sweep->kept, kept + (size_t)options->set_count + 1, sizeof *sweep->kept));
  PETRA_TRY(petra_allocate(&sweep->sets, kept + (size_t)options->set_count + 1, sizeof *sweep->sets));
  for (size_t i = 0; i < kept; i++) {
    const char *set = json_string_value(json_array_get(list, i));
    if (!set)
      return petra_fail(PETRA_DATA, "%s: 'set' is not a list of strings; expected a file that petra sweep wrote", path);
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
    status = root
                 ? take(sweep, path, json_object_get(root, "set"))
                 : petra_fail(PETRA_DATA, "%s: not JSON: %s; expected a file that petra sweep wrote", path, error.text);
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
