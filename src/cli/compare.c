/* SPDX-License-Identifier: Apache-2.0 */
/* petra compare: the differences between runs, in their configs and in their results. */
#include "base/json.h"
#include "io/file.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/text.h"
#include "base/utf8.h"
#include "cli/command.h"
#include "cli/run_facts.h"
#include "io/weights.h"
#include "setup/describe.h"
#include "record/training.h"
#include "run/folder.h"

#include <jansson.h>
#include <math.h>
#include <stddef.h>
#include <string.h>
#include <unistd.h>

/* One of the figures that petra compare shows of runs side by side. */
typedef struct result {
  int value;         /* which one: a petra_result, or one of those below */
  const char *name;  /* in JSON, with its unit unless that is 1 */
  const char *title; /* in the table, with its unit */
  double scale;      /* from the unit of JSON to that of the table */
  int decimals;      /* in the table */
} result;

/* After the results of every run. */
enum {
  EPOCHS = PETRA_RESULTS,
  MICROBATCHES,
  LOSSES,
  BEST_LOSS,
  BEST_TOP1,
  IMAGES_PER_S,
  TOKENS_PER_S,
  MICROBATCH_S,
  MAKESPAN_S,
  DEVICES,
  UPDATE_SAMPLES,
  RESULTS
};

/* In the order of the table; fewer losses than microbatches if the pipeline is not drained. */
static const result figures[] = {
    {EPOCHS, "epochs", "epochs", 1, 0},
    {MICROBATCHES, "microbatches", "microbatches", 1, 0},
    {LOSSES, "losses", "microbatches with a loss", 1, 0},
    {DEVICES, "devices", "devices", 1, 0},
    {UPDATE_SAMPLES, "samples_per_update", "samples per update", 1, 0},
    {PETRA_RESULT_TRAIN_LOSS, "train_loss", "train loss, last epoch", 1, 4},
    {PETRA_RESULT_TRAIN_TOP1, "train_top1", "train top-1 %, last epoch", 100, 2},
    {PETRA_RESULT_EVAL_LOSS, "eval_loss", "eval loss, last", 1, 4},
    {PETRA_RESULT_EVAL_TOP1, "eval_top1", "eval top-1 %, last", 100, 2},
    {BEST_LOSS, "eval_loss_best", "eval loss, lowest", 1, 4},
    {BEST_TOP1, "eval_top1_best", "eval top-1 %, best", 100, 2},
    {PETRA_RESULT_EVAL_TOP5, "eval_top5", "eval top-5 %, last", 100, 2},
    {IMAGES_PER_S, "images_per_s", "images/s, last epoch", 1, 0},
    {TOKENS_PER_S, "tokens_per_s", "tokens/s, last epoch", 1, 0},
    {PETRA_RESULT_VIRTUAL_S, "virtual_s", "virtual time s", 1, 3},
    {PETRA_RESULT_WALL_S, "wall_s", "wall time s", 1, 1},
    {MICROBATCH_S, "time_per_microbatch_s", "simulated ms a microbatch", 1e3, 4},
    {MAKESPAN_S, "makespan_s", "simulated time s", 1, 3},
    {PETRA_RESULT_PEAK_BYTES, "peak_bytes", "peak MB, sum of stages", 1e-6, 3},
};
enum { FIGURES = sizeof figures / sizeof *figures };

/* Gets all figures of a run; NaN: it has none. A simulation has no rows of training. */
static void results_of(const petra_run_facts *facts, double values[RESULTS]) {
  const petra_run_h5_summary *summary = facts->summary;
  const petra_plan_size size = petra_plan_size_of(facts->config);
  petra_run_h5_results(summary, values);
  for (int i = PETRA_RESULTS; i < RESULTS; i++)
    values[i] = NAN;
  if (size.devices > 0) {
    values[DEVICES] = (double)size.devices;
    values[UPDATE_SAMPLES] = (double)size.update_samples;
  }
  if (summary->simulated) {
    values[MICROBATCHES] = (double)*summary->simulated;
    values[MICROBATCH_S] = *summary->time_per_microbatch_s;
    values[MAKESPAN_S] = *summary->makespan_s;
  } else if (!petra_run_is_simulated(facts)) {
    values[EPOCHS] = (double)summary->epochs;
    values[LOSSES] = (double)summary->microbatches;
  }
  for (int64_t e = 0; e < summary->epochs; e++) { /* with a number and NaN: the number */
    values[BEST_LOSS] = fmin(values[BEST_LOSS], summary->epoch[e].eval_loss);
    values[BEST_TOP1] = fmax(values[BEST_TOP1], summary->epoch[e].eval_top1);
  }
  if (summary->epochs > 0)
    values[summary->samples == PETRA_SAMPLE_TOKENS ? TOKENS_PER_S : IMAGES_PER_S] =
        summary->epoch[summary->epochs - 1].rate;
}

/* A run compared with the first one. */
typedef struct beside {
  bool has_weights;                 /* both have a weights.h5 */
  petra_weights_difference weights; /* if they have */
  int64_t losses;                   /* number of microbatches for which both have a loss */
  int64_t equal;                    /* number of these, from the first on, that are equal to the bit */
} beside;

typedef struct comparison {
  int count;
  char *const *place;
  petra_run_facts *run;
  double *value;  /* (count, RESULTS) */
  beside *other;  /* (count); that of the first is unused */
  json_t *config; /* list of {key, decides, values} */
} comparison;

/* --- differences --- */

/* A run without a value has null. */
static void add_difference(comparison *c, const char *key, petra_config_role role, const char *const *values) {
  static const char *const decides[] = {"results", "length", "way", "place"};
  json_t *list = json_array();
  for (int i = 0; i < c->count; i++)
    petra_json_append(&list, values[i] ? petra_json_string(values[i]) : json_null());
  petra_json_append(&c->config, json_pack("{s:o, s:s, s:o}", "key", petra_json_string(key), "decides", decides[role],
                                          "values", list));
}

/* Keys that have no effect in a run in PyTorch have no value there. */
static petra_status note_key(void *context, const char *key, petra_config_role role, char *const *values) {
  comparison *c = context;
  const char **shown;
  bool differ = false;
  PETRA_TRY(petra_allocate(&shown, (size_t)c->count, sizeof *shown));
  for (int i = 0; i < c->count; i++) {
    shown[i] = petra_training_has_key(c->run[i].summary, key) ? values[i] : NULL;
    differ |= !shown[i] != !shown[0] || (shown[i] && strcmp(shown[i], shown[0]) != 0);
  }
  if (differ)
    add_difference(c, key, role, shown);
  petra_free(shown);
  return PETRA_OK;
}

static petra_status note_training(void *context, const char *key, petra_config_role role, char *const *values) {
  add_difference(context, key, role, (const char *const *)values);
  return PETRA_OK;
}

/* Adds what the logs of runs in PyTorch say in words, if it differs. */
static petra_status note_words(comparison *c, const char *key, size_t offset) {
  const char **values;
  bool differ = false, any = false;
  PETRA_TRY(petra_allocate(&values, (size_t)c->count, sizeof *values));
  for (int i = 0; i < c->count; i++) {
    memcpy(&values[i], (const char *)&c->run[i] + offset, sizeof *values);
    differ |= strcmp(values[i], values[0]) != 0;
    any |= petra_run_h5_of_pytorch(c->run[i].summary);
  }
  if (differ && any)
    add_difference(c, key, PETRA_ROLE_RESULT, values);
  petra_free(values);
  return PETRA_OK;
}

static petra_status compare_configs(comparison *c) {
  const petra_config **configs = NULL;
  const petra_run_h5_summary **summaries = NULL;
  petra_status status;
  PETRA_TRY_GOTO(status, petra_allocate(&configs, (size_t)c->count, sizeof *configs), done);
  PETRA_TRY_GOTO(status, petra_allocate(&summaries, (size_t)c->count, sizeof *summaries), done);
  for (int i = 0; i < c->count; i++) {
    configs[i] = c->run[i].config;
    summaries[i] = c->run[i].summary;
  }
  c->config = json_array();
  PETRA_TRY_GOTO(status, petra_config_report_differences(configs, c->count, note_key, c), done);
  PETRA_TRY_GOTO(status, petra_training_report_differences(summaries, c->count, note_training, c), done);
  PETRA_TRY_GOTO(status, note_words(c, "network", offsetof(petra_run_facts, network)), done);
  PETRA_TRY_GOTO(status, note_words(c, "optimiser", offsetof(petra_run_facts, optimiser)), done);
  PETRA_TRY_GOTO(status, note_words(c, "data", offsetof(petra_run_facts, data)), done);
  if (!c->config)
    status = petra_fail(PETRA_NO_MEMORY, "out of memory while comparing the configs");
done:
  petra_free(configs);
  petra_free(summaries);
  return status;
}

static bool same_loss(const petra_run_h5_train *a, const petra_run_h5_train *b) {
  return a->microbatch == b->microbatch && memcmp(&a->loss, &b->loss, sizeof a->loss) == 0;
}

static petra_status compare_losses(const petra_run_facts *a, const petra_run_facts *b, beside *out) {
  petra_run_h5_train *first = NULL, *second = NULL;
  int64_t first_count, second_count;
  petra_status status;
  PETRA_TRY_GOTO(status, petra_run_h5_read_train(a->log, &first, &first_count), done);
  PETRA_TRY_GOTO(status, petra_run_h5_read_train(b->log, &second, &second_count), done);
  out->losses = first_count < second_count ? first_count : second_count;
  while (out->equal < out->losses && same_loss(&first[out->equal], &second[out->equal]))
    out->equal++;
done:
  petra_free(first);
  petra_free(second);
  return status;
}

static petra_status compare_weights(const petra_run_facts *a, const petra_run_facts *b, beside *out) {
  char *first = NULL, *second = NULL;
  petra_status status;
  PETRA_TRY_GOTO(status, petra_join_path(a->folder, "weights.h5", &first), done);
  PETRA_TRY_GOTO(status, petra_join_path(b->folder, "weights.h5", &second), done);
  out->has_weights = access(first, F_OK) == 0 && access(second, F_OK) == 0;
  if (out->has_weights)
    status = petra_weights_compare(first, second, &out->weights);
done:
  petra_free(first);
  petra_free(second);
  return status;
}

static petra_status compare(comparison *c) {
  PETRA_TRY(petra_allocate(&c->run, (size_t)c->count, sizeof *c->run));
  PETRA_TRY(petra_allocate(&c->value, (size_t)c->count * RESULTS, sizeof *c->value));
  PETRA_TRY(petra_allocate(&c->other, (size_t)c->count, sizeof *c->other));
  for (int i = 0; i < c->count; i++) {
    PETRA_TRY(petra_run_facts_init(&c->run[i], c->place[i]));
    results_of(&c->run[i], c->value + (size_t)i * RESULTS);
  }
  for (int i = 1; i < c->count; i++) {
    PETRA_TRY(compare_losses(&c->run[0], &c->run[i], &c->other[i]));
    PETRA_TRY(compare_weights(&c->run[0], &c->run[i], &c->other[i]));
  }
  return compare_configs(c);
}

/* --- as JSON --- */

static json_t *beside_json(const beside *other) {
  const petra_weights_difference *w = &other->weights;
  json_t *weights = !other->has_weights
                        ? json_null()
                        : json_pack("{s:b, s:I, s:I, s:I, s:I, s:o, s:o}", "equal", w->differing + w->more == 0,
                                    "tensors", (json_int_t)w->tensors, "differing", (json_int_t)w->differing,
                                    "shapes_differing", (json_int_t)w->shapes, "more", (json_int_t)w->more,
                                    "first_difference", *w->first ? petra_json_string(w->first) : json_null(),
                                    "largest_difference", petra_json_real(w->largest));
  return json_pack("{s:I, s:I, s:o}", "losses_of_both", (json_int_t)other->losses, "losses_equal_from_the_first",
                   (json_int_t)other->equal, "weights", weights);
}

static json_t *run_json(const comparison *c, int i) {
  json_t *results = json_object();
  for (int f = 0; f < FIGURES; f++)
    petra_json_set(&results, figures[f].name, petra_json_real(c->value[i * RESULTS + figures[f].value]));
  const petra_run_facts *run = &c->run[i];
  const bool trains = petra_run_trains(run);
  char optimiser[PETRA_OPTIMISER_NAME];
  petra_run_optimiser_name(run, optimiser);
  return json_pack("{s:o, s:s, s:s, s:o, s:o, s:o, s:o, s:o}", "run", petra_json_string(c->place[i]), "state",
                   petra_run_state_name(run->state), "mode", petra_run_mode_name(run), "optimiser",
                   trains ? petra_json_string(optimiser) : json_null(), "data",
                   trains ? petra_json_string(run->data) : json_null(), "petra_version",
                   petra_json_string(run->summary->petra_version), "results", results, "beside_the_first",
                   i == 0 ? json_null() : beside_json(&c->other[i]));
}

static petra_status print_json(comparison *c) {
  json_t *runs = json_array(), *config = c->config;
  c->config = NULL;
  for (int i = 0; i < c->count; i++)
    petra_json_append(&runs, run_json(c, i));
  return petra_json_print_new(json_pack("{s:o, s:o}", "runs", runs, "config", config));
}

/* --- as tables --- */

/* Returns the label of a run in the tables: "A", "B", ..., "Z", "27", ... */
static const char *letter(int i, char text[16]) {
  if (i < 26)
    snprintf(text, 16, "%c", 'A' + i);
  else
    snprintf(text, 16, "%d", i + 1);
  return text;
}

/* Columns: the name of the row, then one for each run. */
static petra_status create_table(const comparison *c, const char *first, char (*names)[16], petra_table_column *columns,
                                 petra_table **out) {
  columns[0] = (petra_table_column){first, PETRA_TABLE_LEFT};
  for (int i = 0; i < c->count; i++)
    columns[i + 1] = (petra_table_column){letter(i, names[i]), PETRA_TABLE_RIGHT};
  return petra_table_create(columns, c->count + 1, out);
}

static void config_rows(const comparison *c, petra_table *table) {
  size_t index;
  json_t *row;
  json_array_foreach(c->config, index, row) {
    petra_table_cell(table, "%s", json_string_value(json_object_get(row, "key")));
    for (int i = 0; i < c->count; i++) {
      const char *value = json_string_value(json_array_get(json_object_get(row, "values"), (size_t)i));
      petra_table_cell(table, "%s", value ? value : "-");
    }
  }
}

static void result_rows(const comparison *c, petra_table *table) {
  petra_table_cell(table, "mode");
  for (int i = 0; i < c->count; i++)
    petra_table_cell(table, "%s", petra_run_mode_name(&c->run[i]));
  petra_table_cell(table, "state");
  for (int i = 0; i < c->count; i++)
    petra_table_cell(table, "%s", petra_run_state_name(c->run[i].state));
  for (const result *figure = figures; figure < figures + FIGURES; figure++) {
    bool any = false;
    for (int i = 0; i < c->count; i++)
      any |= !isnan(c->value[i * RESULTS + figure->value]);
    if (!any)
      continue;
    petra_table_cell(table, "%s", figure->title);
    for (int i = 0; i < c->count; i++) {
      const double value = c->value[i * RESULTS + figure->value];
      if (isnan(value))
        petra_table_cell(table, "-");
      else
        petra_table_cell(table, "%.*f", figure->decimals, figure->scale * value);
    }
  }
}

/* A tensor with another shape in the other file has no largest difference. */
static void print_weights(const petra_weights_difference *w) {
  printf("%lld of %lld tensors differ", (long long)w->differing, (long long)w->tensors);
  if (*w->first)
    petra_utf8_print(stdout, ", first %s", w->first);
  if (w->shapes > 0)
    printf(", %lld in shape or by name", (long long)w->shapes);
  if (w->differing > w->shapes)
    printf(", %sby at most %.3g", w->shapes > 0 ? "the others " : "", w->largest);
  if (w->more > 0)
    printf("; %lld only in the other file", (long long)w->more);
  putchar('\n');
}

static void print_beside(const beside *other, const char *name) {
  const petra_weights_difference *w = &other->weights;
  printf("losses   A and %s: ", name);
  if (other->losses == 0)
    printf("no microbatch has a loss in both runs\n");
  else if (other->equal == other->losses)
    printf("equal to the bit in all %lld microbatches of both runs\n", (long long)other->losses);
  else
    printf("equal to the bit in the first %lld of %lld microbatches\n", (long long)other->equal,
           (long long)other->losses);
  printf("weights  A and %s: ", name);
  if (!other->has_weights)
    printf("weights.h5 is missing in one of the runs or in both\n");
  else if (w->differing + w->more == 0)
    printf("equal to the bit, all %lld tensors\n", (long long)w->tensors);
  else
    print_weights(w);
}

static void print_run(const petra_run_facts *run, const char *place, const char *name) {
  petra_utf8_print(stdout, "%s  %s: %s", name, place, run->method);
  if (petra_run_h5_of_pytorch(run->summary))
    petra_utf8_print(stdout, "; %s", run->network);
  if (petra_run_trains(run))
    petra_utf8_print(stdout, "; %s; %s", run->optimiser, run->data);
  putchar('\n');
}

/* Says something of the logs that do not record their trainings; returns how many these are. */
static int print_untold(const comparison *c, const char *what) {
  int count = 0;
  char name[16];
  for (int i = 0; i < c->count; i++)
    if (petra_training_is_missing(c->run[i].summary))
      printf("%s%s", count++ == 0 ? "note: " : ", ", letter(i, name));
  if (count > 0)
    puts(what);
  return count;
}

static petra_status print_unlike(const comparison *c) {
  char(*letters)[16] = NULL;
  const char **names = NULL;
  petra_plan_size *sizes = NULL;
  petra_status status;
  PETRA_TRY_GOTO(status, petra_allocate(&letters, (size_t)c->count, sizeof *letters), done);
  PETRA_TRY_GOTO(status, petra_allocate(&names, (size_t)c->count, sizeof *names), done);
  PETRA_TRY_GOTO(status, petra_allocate(&sizes, (size_t)c->count, sizeof *sizes), done);
  for (int i = 0; i < c->count; i++) {
    names[i] = letter(i, letters[i]);
    sizes[i] = petra_plan_size_of(c->run[i].config);
  }
  if (petra_describe_unlike(sizes, names, c->count, "samples", "unlike   ", stdout))
    fputs("\n\n", stdout);
done:
  petra_free(letters);
  petra_free(names);
  petra_free(sizes);
  return status;
}

static petra_status print_tables(const comparison *c, char (*names)[16], petra_table_column *columns) {
  petra_table *table;
  char name[16];
  for (int i = 0; i < c->count; i++)
    print_run(&c->run[i], c->place[i], letter(i, name));
  putchar('\n');
  if (json_array_size(c->config) > 0) {
    PETRA_TRY(create_table(c, "config", names, columns, &table));
    config_rows(c, table);
    PETRA_TRY(petra_table_print(table, stdout));
    print_untold(c, ": the keys of model, optim and data.set do not describe what a run in PyTorch trains");
  }
  const int untold =
      print_untold(c, ": the log does not record its optimiser in full, so that runs with equal keys may "
                      "be different trainings");
  if (json_array_size(c->config) == 0)
    printf("their configs are equal in every key%s\n", untold > 0 ? " that their logs record" : "");
  putchar('\n');
  PETRA_TRY(print_unlike(c));
  PETRA_TRY(create_table(c, "result", names, columns, &table));
  result_rows(c, table);
  PETRA_TRY(petra_table_print(table, stdout));
  putchar('\n');
  for (int i = 1; i < c->count; i++)
    print_beside(&c->other[i], letter(i, name));
  return PETRA_OK;
}

static petra_status print(const comparison *c) {
  char(*names)[16] = NULL;
  petra_table_column *columns = NULL;
  petra_status status;
  PETRA_TRY_GOTO(status, petra_allocate(&names, (size_t)c->count, sizeof *names), done);
  PETRA_TRY_GOTO(status, petra_allocate(&columns, (size_t)c->count + 1, sizeof *columns), done);
  status = print_tables(c, names, columns);
done:
  petra_free(names);
  petra_free(columns);
  return status;
}

static petra_status run(const petra_arguments *arguments) {
  comparison c = {.count = arguments->input_count, .place = arguments->inputs};
  petra_status status = compare(&c);
  if (status == PETRA_OK)
    status = arguments->json ? print_json(&c) : print(&c);
  for (int i = 0; c.run && i < c.count; i++)
    petra_run_facts_fini(&c.run[i]);
  petra_free(c.run);
  petra_free(c.value);
  petra_free(c.other);
  json_decref(c.config);
  return status;
}

const petra_command petra_command_compare = {
    .name = "compare",
    .summary = "compares runs: configs (key by key), results, and losses and weights (bit by bit)",
    .arguments = "RUN RUN... [--json]",
    .help = "Compares two or more runs (folders or their run.h5). Prints the keys in which the configs differ, and\n"
            "the results side by side. For each run after the first, prints whether its losses and its weights\n"
            "(weights.h5) are equal to those of the first run to the bit.",
    .inputs_min = 2,
    .inputs_max = PETRA_MAX_INPUTS,
    .run = run};
