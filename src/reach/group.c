/* SPDX-License-Identifier: Apache-2.0 */
#include "reach/group.h"

#include "base/log.h"
#include "base/mem.h"
#include "config/config.h"
#include "io/file.h"
#include "record/training.h"
#include "run/folder.h"
#include "run/simulation.h"
#include "schedule/method.h"

#include <jansson.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { LABEL = 160 };

/* --- one run --- */

static void run_fini(petra_reach_run *run) {
  petra_free(run->log);
  petra_free(run->optimiser);
  petra_free(run->row);
  petra_run_h5_summary_destroy(run->summary);
  petra_config_destroy(run->config);
  petra_free(run->rows);
  petra_free(run->curve.points);
}

static petra_status check_run(const petra_reach_run *run) {
  const bool model = run->config->cluster.stages == 0 || petra_run_h5_of_pytorch(run->summary);
  if (strcmp(run->summary->backend, PETRA_SIMULATION_BACKEND) == 0 || !model)
    return petra_fail(PETRA_USAGE, "%s: nothing was trained in this run; expected a run of petra train with a model",
                      run->log);
  if (run->count == 0)
    return petra_fail(PETRA_USAGE, "%s: has no loss yet; expected a run with losses", run->log);
  if (run->summary->batches == 0)
    return petra_fail(PETRA_USAGE,
                      "%s: does not say how many microbatches an epoch has (petra %s wrote it); expected the log of a "
                      "newer version",
                      run->log, run->summary->petra_version);
  for (int64_t i = 0; i < run->count; i++)
    if (!isfinite(run->rows[i].loss) || run->rows[i].microbatch < 0)
      return petra_fail(PETRA_DATA, "%s: row %lld of /train has microbatch %lld and loss %g; expected finite numbers",
                        run->log, (long long)i, (long long)run->rows[i].microbatch, run->rows[i].loss);
  return PETRA_OK;
}

static bool of_pytorch(const petra_reach_run *run) {
  return petra_run_h5_of_pytorch(run->summary);
}

/* Returns a description in a log; "" if it has none. */
static const char *words(const char *description) {
  return description ? description : "";
}

/* A description begins with the name: "SGD, lr 0.1". */
static petra_status name_optimiser(petra_reach_run *run) {
  PETRA_TRY(petra_duplicate_string(&run->optimiser,
                                   of_pytorch(run) ? words(run->summary->optimiser) : run->config->optim.name));
  run->optimiser[strcspn(run->optimiser, ",")] = 0;
  return PETRA_OK;
}

static petra_status read_run(petra_reach_run *run) {
  PETRA_TRY(petra_run_h5_summary_read(run->log, &run->summary));
  const petra_config_text text = {run->log, run->summary->config, strlen(run->summary->config)};
  PETRA_TRY(petra_config_load_text(&text, NULL, 0, &run->config));
  PETRA_TRY(name_optimiser(run));
  PETRA_TRY(petra_run_h5_read_train(run->log, &run->rows, &run->count));
  return check_run(run);
}

/* --- the places --- */

typedef struct list {
  petra_reach_run *runs;
  int64_t capacity;
  int count;
} list;

/* Takes over `log`. `row` is NULL for a run that was given alone. */
static petra_status add_run(list *found, char *log, const char *row) {
  petra_status status = petra_array_reserve(&found->runs, &found->capacity, found->count + 1, sizeof *found->runs);
  if (status != PETRA_OK) {
    petra_free(log);
    return status;
  }
  petra_reach_run *run = &found->runs[found->count++];
  *run = (petra_reach_run){.log = log};
  if (row)
    PETRA_TRY(petra_duplicate_string(&run->row, row));
  PETRA_TRY(read_run(run));
  if (!row && !run->summary->complete)
    petra_log(PETRA_LOG_WARNING, "%s: this run is not complete, and counts as far as its log goes", run->log);
  return PETRA_OK;
}

/* Adds a cell of a sweep. The summary names its folder as it was when the sweep ran; here it is the one in `place`. */
static petra_status add_cell(list *found, const char *place, const char *name, const char *row) {
  char *folder, *log = NULL;
  PETRA_TRY(petra_join_path(place, name, &folder));
  petra_status status = petra_join_path(folder, "run.h5", &log);
  petra_free(folder);
  return status == PETRA_OK ? add_run(found, log, row) : status;
}

/* Cells of a sweep that are not read. */
typedef struct left_out {
  int failed, open;
} left_out;

static void warn_left_out(const char *place, const left_out *out, size_t cells) {
  const int count = out->failed + out->open;
  const char *are = count == 1 ? "is" : "are";
  if (out->failed > 0 && out->open > 0)
    petra_log(PETRA_LOG_WARNING, "%s: %d of %zu cells are left out: %d failed, %d %s not complete", place, count, cells,
              out->failed, out->open, out->open == 1 ? "is" : "are");
  else if (count > 0)
    petra_log(PETRA_LOG_WARNING, "%s: %d of %zu cells %s left out, because %s %s", place, count, cells, are,
              count == 1 ? "it" : "they",
              out->failed > 0 ? "failed"
              : count == 1    ? "is not complete"
                              : "are not complete");
}

static petra_status add_cells(list *found, const char *place, const char *path, const json_t *root) {
  const json_t *cells = json_object_get(root, "cells"), *rows = json_object_get(root, "combinations");
  const char *command = json_string_value(json_object_get(root, "command"));
  const size_t count = json_array_size(cells), row_count = json_array_size(rows);
  const int before = found->count;
  left_out left = {0};
  if (!command || count == 0 || row_count == 0 || count % row_count != 0)
    return petra_fail(PETRA_DATA, "%s: not the summary of a sweep; expected a file that petra sweep wrote", path);
  if (strcmp(command, "train") != 0)
    return petra_fail(PETRA_USAGE, "%s: a sweep of petra %s, which trains nothing; expected one of petra train", path,
                      command);
  for (size_t c = 0; c < count; c++) {
    const json_t *cell = json_array_get(cells, c), *row = json_array_get(rows, c / (count / row_count));
    const char *name = json_string_value(json_object_get(cell, "name")),
               *state = json_string_value(json_object_get(cell, "state")),
               *label = json_string_value(json_object_get(row, "name"));
    if (!name || !state || !label)
      return petra_fail(PETRA_DATA, "%s: cell %zu has no name or state; expected a file that petra sweep wrote", path,
                        c + 1);
    if (strcmp(state, "complete") == 0)
      PETRA_TRY(add_cell(found, place, name, label));
    else
      *(strcmp(state, "failed") == 0 ? &left.failed : &left.open) += 1;
  }
  if (found->count == before)
    return petra_fail(PETRA_USAGE, "%s: no cell is complete; expected at least one", place);
  warn_left_out(place, &left, count);
  return PETRA_OK;
}

static petra_status add_sweep(list *found, const char *place, const char *path) {
  json_error_t error;
  json_t *root = json_load_file(path, 0, &error);
  if (!root)
    return petra_fail(PETRA_DATA, "%s: not JSON: %s; expected a file that petra sweep wrote", path, error.text);
  const petra_status status = add_cells(found, place, path, root);
  json_decref(root);
  return status;
}

static petra_status add_folder(list *found, const char *place) {
  char *log = NULL, *summary = NULL;
  petra_status status;
  PETRA_TRY(petra_folder_report_aside(place));
  PETRA_TRY_GOTO(status, petra_join_path(place, "run.h5", &log), done);
  PETRA_TRY_GOTO(status, petra_join_path(place, "summary.json", &summary), done);
  if (access(log, F_OK) == 0) {
    status = add_run(found, log, NULL);
    log = NULL;
  } else if (access(summary, F_OK) == 0)
    status = add_sweep(found, place, summary);
  else
    status = petra_fail(PETRA_IO, "%s: has neither run.h5 nor summary.json; expected the folder of a run or of a sweep",
                        place);
done:
  petra_free(log);
  petra_free(summary);
  return status;
}

static petra_status add_place(list *found, const char *place) {
  struct stat info;
  char *log;
  if (stat(place, &info) == 0 && S_ISDIR(info.st_mode))
    return add_folder(found, place);
  PETRA_TRY(petra_duplicate_string(&log, place));
  return add_run(found, log, NULL);
}

/* --- the data --- */

/* Losses on different data are not comparable. data.limit may differ: the data are the same. */
static petra_status check_data_key(void *context, const char *key, petra_config_role role, char *const *values) {
  const petra_reach_run *const *runs = context;
  const petra_data_set set = runs[0]->config->data.set;
  const bool tokens = petra_sample_kind_of(runs[0]->config) == PETRA_SAMPLE_TOKENS;
  const bool file = set == PETRA_SET_TEXT || set == PETRA_SET_TOKENS;
  (void)role;
  if (strcmp(key, "data.set") == 0 || (file && strcmp(key, "data.path") == 0) ||
      (tokens && strcmp(key, "data.vocabulary") == 0) || (!tokens && strcmp(key, "model.classes") == 0))
    return petra_fail(PETRA_USAGE, "%s is trained with %s: %s, %s with %s: %s; expected runs on the same data",
                      runs[0]->log, key, values[0], runs[1]->log, key, values[1]);
  return PETRA_OK;
}

static petra_status check_data(const petra_reach_run *a, const petra_reach_run *b) {
  const petra_reach_run *runs[] = {a, b};
  if (of_pytorch(a) != of_pytorch(b))
    return petra_fail(PETRA_USAGE,
                      "%s was trained in PyTorch, %s by petra, and the log of the first does not say on which files; "
                      "expected runs on the same data",
                      of_pytorch(a) ? a->log : b->log, of_pytorch(a) ? b->log : a->log);
  if (strcmp(words(a->summary->data), words(b->summary->data)) != 0)
    return petra_fail(PETRA_USAGE, "%s is trained on '%s', %s on '%s'; expected runs on the same data", a->log,
                      words(a->summary->data), b->log, words(b->summary->data));
  if (of_pytorch(a))
    return PETRA_OK;
  const petra_config *configs[] = {a->config, b->config};
  return petra_config_report_differences(configs, 2, check_data_key, runs);
}

/* --- groups --- */

/* Keys by which a run is not put into another group. */
static bool is_seed(const char *key) {
  const size_t length = strlen(key), end = strlen("seed");
  return length >= end && strcmp(key + length - end, "seed") == 0;
}

typedef struct pair {
  const petra_run_h5_summary *runs[2];
  bool differ;
} pair;

static petra_status note_difference(void *context, const char *key, petra_config_role role, char *const *values) {
  pair *p = context;
  const bool counts = petra_training_has_key(p->runs[0], key) || petra_training_has_key(p->runs[1], key);
  (void)values;
  p->differ |= role == PETRA_ROLE_RESULT && counts && strcmp(key, "run.seed") != 0;
  return PETRA_OK;
}

static petra_status note_training(void *context, const char *key, petra_config_role role, char *const *values) {
  pair *p = context;
  (void)role;
  (void)values;
  p->differ |= !is_seed(key);
  return PETRA_OK;
}

/* Compares two runs without their seeds. In PyTorch the config does not say what network and optimiser are. */
static petra_status differ_in_seed_alone(const petra_reach_run *a, const petra_reach_run *b, bool *out) {
  const petra_config *configs[] = {a->config, b->config};
  pair p = {.runs = {a->summary, b->summary}};
  PETRA_TRY(petra_config_report_differences(configs, 2, note_difference, &p));
  PETRA_TRY(petra_training_report_differences(p.runs, 2, note_training, &p));
  *out = !p.differ && strcmp(words(a->summary->network), words(b->summary->network)) == 0 &&
         strcmp(words(a->summary->optimiser), words(b->summary->optimiser)) == 0;
  return PETRA_OK;
}

/* Orders runs by group and seed; then by the seeds of their trainings. */
static int compare_runs(const void *a, const void *b) {
  const petra_reach_run *left = a, *right = b;
  const int64_t of_left = left->config->run.seed, of_right = right->config->run.seed;
  if (left->group != right->group)
    return left->group < right->group ? -1 : 1;
  return of_left != of_right ? (of_left > of_right ? 1 : -1)
                             : strcmp(words(left->summary->training), words(right->summary->training));
}

static bool have_equal_seeds(const petra_reach_run *a, const petra_reach_run *b) {
  return a->config->run.seed == b->config->run.seed &&
         strcmp(words(a->summary->training), words(b->summary->training)) == 0;
}

static petra_status number_groups(petra_reach_groups *g) {
  for (int i = 0; i < g->run_count; i++) {
    int other = 0;
    bool same = false;
    for (; other < i; other++) {
      PETRA_TRY(differ_in_seed_alone(&g->runs[other], &g->runs[i], &same));
      if (same)
        break;
    }
    g->runs[i].group = same ? g->runs[other].group : g->count++;
  }
  return PETRA_OK;
}

/* A schedule from a file may have any delay, so its group counts as delayed. */
static petra_status classify(const petra_config *config, petra_reach_group *out) {
  petra_method method;
  PETRA_TRY(petra_method_from_config(config, &method));
  out->delayed = method.program->moment != PETRA_MOMENT_WINDOW || *config->method.schedule;
  out->local = method.program->local;
  return PETRA_OK;
}

static petra_status make_groups(petra_reach_groups *g) {
  PETRA_TRY(number_groups(g));
  qsort(g->runs, (size_t)g->run_count, sizeof *g->runs, compare_runs);
  PETRA_TRY(petra_allocate(&g->groups, (size_t)g->count, sizeof *g->groups));
  for (int i = 0; i < g->run_count; i++) {
    petra_reach_group *group = &g->groups[g->runs[i].group];
    if (group->count++ == 0) {
      group->first = i;
      PETRA_TRY(classify(g->runs[i].config, group));
      group->size = petra_plan_size_of(g->runs[i].config);
    } else if (have_equal_seeds(&g->runs[i - 1], &g->runs[i]))
      return petra_fail(PETRA_USAGE,
                        "%s and %s are the same training with the same seed (%lld); expected each training once",
                        g->runs[i - 1].log, g->runs[i].log, (long long)g->runs[i].config->run.seed);
  }
  return PETRA_OK;
}

/* --- labels --- */

typedef struct key_collector {
  petra_reach_groups *groups;
  int64_t capacity;
} key_collector;

/* Copies a value without the quotes of YAML. */
static petra_status copy_value(char **out, const char *value) {
  const size_t length = strlen(value);
  const bool quoted = length >= 2 && *value == '"' && value[length - 1] == '"';
  PETRA_TRY(petra_duplicate_string(out, value + quoted));
  (*out)[length - 2 * (size_t)quoted] = 0;
  return PETRA_OK;
}

/* A run that does not have a key of `training` has no value. */
static petra_status add_key(key_collector *c, const char *key, const char *const *values) {
  petra_reach_groups *g = c->groups;
  PETRA_TRY(petra_array_reserve(&g->keys, &c->capacity, g->key_count + 1, sizeof *g->keys));
  petra_reach_key *one = &g->keys[g->key_count++];
  *one = (petra_reach_key){0};
  PETRA_TRY(petra_duplicate_string(&one->key, key));
  PETRA_TRY(petra_allocate(&one->values, (size_t)g->count, sizeof *one->values));
  for (int i = 0; i < g->count; i++)
    PETRA_TRY(copy_value(&one->values[i], values[i] ? values[i] : "-"));
  return PETRA_OK;
}

static const petra_run_h5_summary *summary_of(const petra_reach_groups *g, int group) {
  return g->runs[g->groups[group].first].summary;
}

static petra_status collect_key(void *context, const char *key, petra_config_role role, char *const *values) {
  const key_collector *c = context;
  bool counts = false;
  for (int i = 0; i < c->groups->count; i++)
    counts = counts || petra_training_has_key(summary_of(c->groups, i), key);
  if (role != PETRA_ROLE_RESULT || strcmp(key, "run.seed") == 0 || !counts)
    return PETRA_OK;
  return add_key(context, key, (const char *const *)values);
}

static petra_status collect_training(void *context, const char *key, petra_config_role role, char *const *values) {
  (void)role;
  return is_seed(key) ? PETRA_OK : add_key(context, key, (const char *const *)values);
}

/* Adds a description as a key if groups differ in it. `offset` is that of the text in the summary. */
static petra_status collect_words(key_collector *c, const char *key, size_t offset) {
  const petra_reach_groups *g = c->groups;
  const char **values;
  bool differ = false;
  PETRA_TRY(petra_allocate(&values, (size_t)g->count, sizeof *values));
  for (int i = 0; i < g->count; i++) {
    memcpy(&values[i], (const char *)summary_of(g, i) + offset, sizeof *values);
    values[i] = words(values[i]);
    differ |= strcmp(values[i], values[0]) != 0;
  }
  const petra_status status = differ ? add_key(c, key, values) : PETRA_OK;
  petra_free(values);
  return status;
}

static petra_status collect_keys(petra_reach_groups *g) {
  key_collector collector = {.groups = g};
  const petra_config **configs = NULL;
  const petra_run_h5_summary **summaries = NULL;
  petra_status status;
  PETRA_TRY_GOTO(status, petra_allocate(&configs, (size_t)g->count, sizeof *configs), done);
  PETRA_TRY_GOTO(status, petra_allocate(&summaries, (size_t)g->count, sizeof *summaries), done);
  for (int i = 0; i < g->count; i++) {
    configs[i] = g->runs[g->groups[i].first].config;
    summaries[i] = summary_of(g, i);
  }
  status = petra_config_report_differences(configs, g->count, collect_key, &collector);
  if (status == PETRA_OK)
    status = petra_training_report_differences(summaries, g->count, collect_training, &collector);
done:
  petra_free(configs);
  petra_free(summaries);
  PETRA_TRY(status);
  PETRA_TRY(collect_words(&collector, "network", offsetof(petra_run_h5_summary, network)));
  return collect_words(&collector, "optimiser", offsetof(petra_run_h5_summary, optimiser));
}

/* Returns true if the keys used so far do not distinguish two groups, and this key does. */
static bool distinguishes(const petra_reach_groups *g, const bool *used, int key) {
  for (int a = 0; a < g->count; a++)
    for (int b = a + 1; b < g->count; b++) {
      bool apart = false;
      for (int k = 0; k < g->key_count && !apart; k++)
        apart = used[k] && strcmp(g->keys[k].values[a], g->keys[k].values[b]) != 0;
      if (!apart && strcmp(g->keys[key].values[a], g->keys[key].values[b]) != 0)
        return true;
    }
  return false;
}

/* Readers know these by their value alone. */
static bool is_known_by_value(const char *key) {
  static const char *const names[] = {"method.name", "optim.name", "network", "optimiser"};
  bool found = false;
  for (size_t n = 0; n < sizeof names / sizeof *names; n++)
    found |= strcmp(key, names[n]) == 0;
  return found;
}

static bool is_format(const char *key) {
  return strcmp(key, "cluster.message.up") == 0 || strcmp(key, "cluster.message.down") == 0;
}

/* Chooses keys that distinguish all groups, as few as a choice in this order gives: method and optimiser, which readers
 * know by name, then the others in the order of the table. The two formats of messages are named together. */
static void choose_keys(const petra_reach_groups *g, bool *used) {
  for (int k = 0; k < g->key_count; k++)
    used[k] = is_known_by_value(g->keys[k].key);
  bool formats = false;
  for (int k = 0; k < g->key_count; k++) {
    if (!used[k])
      used[k] = distinguishes(g, used, k);
    formats |= used[k] && is_format(g->keys[k].key);
  }
  for (int k = 0; k < g->key_count; k++)
    used[k] |= formats && is_format(g->keys[k].key);
}

static petra_status label_by_keys(petra_reach_groups *g, const bool *used) {
  for (int i = 0; i < g->count; i++) {
    char text[LABEL] = "";
    const char *method = g->runs[g->groups[i].first].config->method.name;
    for (int k = 0; k < g->key_count; k++) {
      const char *key = g->keys[k].key, *dot = strrchr(key, '.'), *leaf = dot ? dot + 1 : key;
      const size_t length = strlen(text);
      const bool name = is_known_by_value(key);
      if (used[k])
        snprintf(text + length, sizeof text - length, "%s%s%s%s", length ? ", " : "", name ? "" : leaf, name ? "" : " ",
                 g->keys[k].values[i]);
    }
    PETRA_TRY(petra_duplicate_string(&g->groups[i].label, *text ? text : method));
  }
  return PETRA_OK;
}

/* Returns true if the rows of sweeps name all groups, each by another name. */
static bool has_rows(const petra_reach_groups *g) {
  for (int a = 0; a < g->count; a++) {
    const char *row = g->runs[g->groups[a].first].row;
    if (!row || strcmp(row, "all") == 0)
      return false;
    for (int b = 0; b < a; b++)
      if (strcmp(row, g->runs[g->groups[b].first].row) == 0)
        return false;
  }
  return true;
}

static petra_status label(petra_reach_groups *g) {
  bool *used;
  PETRA_TRY(collect_keys(g));
  for (int i = 0; has_rows(g) && i < g->count; i++)
    PETRA_TRY(petra_duplicate_string(&g->groups[i].label, g->runs[g->groups[i].first].row));
  if (has_rows(g))
    return PETRA_OK;
  PETRA_TRY(petra_allocate(&used, (size_t)g->key_count, sizeof *used));
  choose_keys(g, used);
  const petra_status status = label_by_keys(g, used);
  petra_free(used);
  return status;
}

/* --- all of it --- */

petra_status petra_reach_groups_init(petra_reach_groups *groups, char *const *places, int place_count) {
  list found = {0};
  petra_status status = PETRA_OK;
  *groups = (petra_reach_groups){0};
  for (int i = 0; i < place_count && status == PETRA_OK; i++)
    status = add_place(&found, places[i]);
  groups->runs = found.runs;
  groups->run_count = found.count;
  PETRA_TRY(status);
  for (int i = 1; i < groups->run_count; i++)
    PETRA_TRY(check_data(&groups->runs[0], &groups->runs[i]));
  PETRA_TRY(make_groups(groups));
  return label(groups);
}

void petra_reach_groups_fini(petra_reach_groups *g) {
  for (int i = 0; i < g->run_count; i++)
    run_fini(&g->runs[i]);
  for (int i = 0; g->groups && i < g->count; i++)
    petra_free(g->groups[i].label);
  for (int k = 0; k < g->key_count; k++) {
    for (int i = 0; g->keys[k].values && i < g->count; i++)
      petra_free(g->keys[k].values[i]);
    petra_free(g->keys[k].values);
    petra_free(g->keys[k].key);
  }
  petra_free(g->keys);
  petra_free(g->groups);
  petra_free(g->runs);
}
