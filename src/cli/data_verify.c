/* SPDX-License-Identifier: Apache-2.0 */
/* petra data verify: reads all of a data set. */
#include "base/json.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/seal.h"
#include "cli/data_verify.h"
#include "data/grammar.h"
#include "data/token_set.h"
#include "plan/plan.h"

#include <jansson.h>
#include <stdio.h>
#include <string.h>

enum { SPLITS = 2 };

/* All that is looked into. */
typedef struct verification {
  const petra_config *config;
  const petra_verification *kind;
  const petra_sample_words *words;
  petra_split_report reports[SPLITS];
  double best_loss; /* petra_dataset_shape */
} verification;

/* What `petra train` asks of an open split: the network takes samples as those of the training split. */
static petra_status check_for_training(verification *v, petra_split split) {
  petra_split_report *report = &v->reports[split];
  const petra_dataset *train = v->reports[PETRA_SPLIT_TRAIN].set;
  if (!train)
    return PETRA_OK;
  const bool tokens = train->samples == PETRA_SAMPLE_TOKENS;
  const int32_t given = (int32_t)v->config->model.classes;
  const int32_t outputs = tokens || (split == PETRA_SPLIT_EVAL && given < train->classes) ? train->classes : given;
  const petra_stream_shape input =
      tokens ? petra_token_stream(train->context) : petra_image_stream(train->height, train->width);
  PETRA_TRY(petra_dataset_problem(&report->problems, petra_plan_check_split(v->config, &input, outputs, report->set)));
  if (split != PETRA_SPLIT_TRAIN)
    return PETRA_OK;
  if (!tokens)
    PETRA_TRY(petra_dataset_problem(&report->problems, petra_plan_check_network(v->config, &input, train->classes)));
  return report->problems > 0 /* without the wrong records there may be too few */
             ? PETRA_OK
             : petra_dataset_problem(&report->problems, petra_plan_check_batch(v->config, train));
}

/* A run that evaluates wants the split: opening it says so. */
static petra_status check_absent(verification *v) {
  petra_split_report *report = &v->reports[PETRA_SPLIT_EVAL];
  if (report->there || v->config->run.eval_every == 0 || !v->reports[PETRA_SPLIT_TRAIN].set)
    return PETRA_OK;
  return petra_dataset_problem(&report->problems, petra_dataset_open(v->config, PETRA_SPLIT_EVAL, &report->set));
}

/* The line that opening a split ends with; "" if it can be opened. */
static void take_line(const verification *v, petra_split split, petra_log_kept *kept) {
  petra_dataset *set = NULL;
  petra_log_keep(kept);
  if (petra_dataset_open(v->config, split, &set) == PETRA_OK)
    kept->line[0] = 0;
  petra_log_keep_end(kept);
  petra_dataset_destroy(set);
}

/* Whether the evaluation split cannot be opened for the reason that has ended the opening of the training split, as of two
 * parts of one file. */
static bool fails_alike(const verification *v) {
  petra_log_kept train, evaluation;
  if (v->reports[PETRA_SPLIT_TRAIN].set)
    return false;
  take_line(v, PETRA_SPLIT_TRAIN, &train);
  take_line(v, PETRA_SPLIT_EVAL, &evaluation);
  return evaluation.line[0] && strcmp(train.line, evaluation.line) == 0;
}

/* A config that cannot be is an error; a set that cannot be opened is a problem of it. */
static petra_status examine(verification *v, petra_split split) {
  petra_split_report *report = &v->reports[split];
  if (!report->there || (split == PETRA_SPLIT_EVAL && fails_alike(v)))
    return PETRA_OK;
  petra_status status = petra_dataset_open_counting(v->config, split, &report->problems, &report->set);
  if (status == PETRA_IO || status == PETRA_DATA)
    return petra_dataset_problem(&report->problems, status);
  PETRA_TRY(status);
  PETRA_TRY(check_for_training(v, split));
  PETRA_TRY(petra_allocate(&report->class_count, (size_t)report->set->classes, sizeof *report->class_count));
  PETRA_TRY(petra_allocate(&report->more, 1, v->kind->more_bytes));
  return v->kind->examine(report, v->config);
}

static const char *split_name(petra_split split) {
  return split == PETRA_SPLIT_TRAIN ? "train" : "eval";
}

static void print_split(const verification *v, petra_split split) {
  const petra_split_report *report = &v->reports[split];
  printf("%-6s ", split_name(split));
  if (!report->there || !report->set) {
    puts(report->there ? "cannot be opened" : "none");
    return;
  }
  v->kind->print(report);
  printf("       problems: %lld\n", (long long)report->problems);
}

static void print_text(const verification *v) {
  for (int i = 0; i < SPLITS; i++)
    print_split(v, (petra_split)i);
  const petra_dataset *train = v->reports[PETRA_SPLIT_TRAIN].set;
  if (train && train->samples == PETRA_SAMPLE_IMAGE && v->config->model.classes > train->classes)
    printf(PETRA_PLAN_OUTPUTS "\n", (int)v->config->model.classes, train->classes);
  if (v->best_loss > 0)
    printf("lowest possible mean loss with model.context %lld: %.4f nats per token\n",
           (long long)v->config->model.context, v->best_loss);
}

static json_t *split_json(const verification *v, petra_split split) {
  const petra_split_report *report = &v->reports[split];
  json_t *object = json_pack("{s:s, s:I, s:I}", "name", split_name(split), "problems", (json_int_t)report->problems,
                             v->words->labels, (json_int_t)report->labels);
  if (report->set)
    v->kind->add_json(report, &object);
  return object;
}

static petra_status print_json(const verification *v) {
  json_t *splits = json_array();
  for (int i = 0; i < SPLITS; i++)
    if (v->reports[i].there)
      petra_json_append(&splits, split_json(v, (petra_split)i));
  json_t *object =
      json_pack("{s:s, s:I, s:o}", "set", petra_config_choice_name("data.set", (int)v->config->data.set), "problems",
                (json_int_t)(v->reports[0].problems + v->reports[1].problems), "splits", splits);
  if (v->best_loss > 0)
    petra_json_set(&object, "best_loss", petra_json_real(v->best_loss));
  return petra_json_print_new(object);
}

/* Of a file in HDF5 that petra wrote also its records' digest. */
static petra_status check_seal(const petra_config *config) {
  bool sealed = config->data.set == PETRA_SET_HDF5;
  if (config->data.set == PETRA_SET_TOKENS)
    PETRA_TRY(petra_token_set_in_hdf5(config, &sealed));
  return sealed ? petra_seal_check_parts(config->data.path) : PETRA_OK;
}

static petra_status examine_all(verification *v) {
  petra_split_report *reports = v->reports;
  int64_t *problems = &reports[0].problems;
  reports[PETRA_SPLIT_TRAIN].there = reports[PETRA_SPLIT_EVAL].there = true;
  petra_status status = petra_dataset_has_eval(v->config, &reports[PETRA_SPLIT_EVAL].there);
  if (status == PETRA_IO || status == PETRA_DATA) /* the line is there */
    return petra_dataset_problem(problems, status);
  PETRA_TRY(status);
  PETRA_TRY(petra_dataset_problem(problems, check_seal(v->config)));
  for (int i = 0; i < SPLITS; i++)
    PETRA_TRY(examine(v, (petra_split)i));
  return check_absent(v);
}

petra_status petra_data_verify(const petra_arguments *arguments, const petra_config *config) {
  static const petra_verification *const kinds[] = {
      [PETRA_SAMPLE_IMAGE] = &petra_verification_images, [PETRA_SAMPLE_TOKENS] = &petra_verification_tokens};
  const petra_sample_kind samples = petra_samples_of(config);
  verification v = {.config = config, .kind = kinds[samples], .words = petra_sample_words_of(samples)};
  petra_status status;
  PETRA_TRY_GOTO(status, examine_all(&v), done);
  if (config->data.set == PETRA_SET_GRAMMAR)
    v.best_loss = petra_grammar_best_loss(config->model.context);
  if (arguments->json)
    PETRA_TRY_GOTO(status, print_json(&v), done);
  else if (!arguments->quiet)
    print_text(&v);
  if (v.reports[0].problems + v.reports[1].problems > 0)
    status = PETRA_DATA; /* each has its line */
done:
  for (int i = 0; i < SPLITS; i++) {
    petra_free(v.reports[i].class_count);
    petra_free(v.reports[i].more);
    petra_dataset_destroy(v.reports[i].set);
  }
  return status;
}
