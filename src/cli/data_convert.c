/* SPDX-License-Identifier: Apache-2.0 */
/* petra data convert: a data set as an HDF5 file. */
#include "base/json.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/utf8.h"
#include "cli/data.h"
#include "io/data_file.h"

#include <jansson.h>
#include <stdio.h>
#include <string.h>

enum { SPLITS = 2 };

typedef struct conversion {
  const petra_arguments *arguments;
  const petra_config *config;
  petra_dataset *sets[SPLITS]; /* the second one NULL: no evaluation split */
  const char **class_names;
  char source[512];
  petra_data_file *file;
  int target; /* PETRA_DATA_FILE_TRAIN or PETRA_DATA_FILE_EVAL */
} conversion;

static petra_status open_sets(conversion *c) {
  PETRA_TRY(petra_dataset_open(c->config, PETRA_SPLIT_TRAIN, &c->sets[PETRA_SPLIT_TRAIN]));
  bool has_eval;
  PETRA_TRY(petra_dataset_has_eval(c->config, &has_eval));
  if (!has_eval)
    return PETRA_OK;
  PETRA_TRY(petra_dataset_open(c->config, PETRA_SPLIT_EVAL, &c->sets[PETRA_SPLIT_EVAL]));
  const petra_dataset *train = c->sets[PETRA_SPLIT_TRAIN], *eval = c->sets[PETRA_SPLIT_EVAL];
  if (train->height != eval->height || train->width != eval->width || train->classes != eval->classes)
    return petra_fail(
        PETRA_DATA,
        "%s: training images of %d x %d in %d classes, evaluation images of %d x %d in %d; expected the same",
        c->config->data.path, train->width, train->height, train->classes, eval->width, eval->height, eval->classes);
  return PETRA_OK;
}

static petra_status create_file(conversion *c) {
  const petra_dataset *set = c->sets[PETRA_SPLIT_TRAIN];
  const char *name = petra_config_choice_name("data.set", (int)c->config->data.set);
  snprintf(c->source, sizeof c->source, "%s%s%s", name, c->config->data.set == PETRA_SET_SHAPES ? "" : ": ",
           c->config->data.set == PETRA_SET_SHAPES ? "" : c->config->data.path);
  if (set->ops->class_name) {
    PETRA_TRY(petra_allocate(&c->class_names, (size_t)set->classes, sizeof *c->class_names));
    for (int32_t i = 0; i < set->classes; i++)
      c->class_names[i] = set->ops->class_name(set, i);
  }
  petra_data_file_about about = {.height = set->height,
                                 .width = set->width,
                                 .classes = set->classes,
                                 .train = set->count,
                                 .eval = c->sets[PETRA_SPLIT_EVAL] ? c->sets[PETRA_SPLIT_EVAL]->count : 0,
                                 .source = c->source,
                                 .class_name = c->class_names};
  memcpy(about.mean, set->mean, sizeof about.mean);
  memcpy(about.deviation, set->deviation, sizeof about.deviation);
  return petra_data_file_create(c->arguments->output, &about, &c->file);
}

static petra_status put_records(void *context, const petra_data_records *records) {
  const conversion *c = context;
  for (int64_t i = 0; i < records->count; i++)
    PETRA_TRY(records->statuses[i]);
  return petra_data_file_put(c->file, c->target, records->first, records->count, records->pixels, records->labels);
}

static petra_status copy_split(conversion *c, petra_split split) {
  c->target = split == PETRA_SPLIT_TRAIN ? PETRA_DATA_FILE_TRAIN : PETRA_DATA_FILE_EVAL;
  return petra_data_each(c->sets[split], (int)c->config->data.workers, put_records, c);
}

static petra_status report(const conversion *c) {
  const petra_dataset *train = c->sets[PETRA_SPLIT_TRAIN], *eval = c->sets[PETRA_SPLIT_EVAL];
  long long eval_count = eval ? (long long)eval->count : 0;
  if (!c->arguments->json) {
    if (!c->arguments->quiet)
      petra_utf8_print(stdout, "%s: %lld training and %lld evaluation images of %d x %d in %d classes\n",
                       c->arguments->output, (long long)train->count, eval_count, train->width, train->height,
                       train->classes);
    return PETRA_OK;
  }
  return petra_json_print_new(json_pack("{s:o, s:I, s:I, s:i, s:i, s:i}", "output",
                                        petra_json_string(c->arguments->output), "train", (json_int_t)train->count,
                                        "eval", (json_int_t)eval_count, "height", (int)train->height, "width",
                                        (int)train->width, "classes", (int)train->classes));
}

petra_status petra_data_convert(const petra_arguments *arguments, const petra_config *config) {
  conversion c = {.arguments = arguments, .config = config};
  petra_status status;
  PETRA_TRY_GOTO(status, open_sets(&c), done);
  PETRA_TRY_GOTO(status, create_file(&c), done);
  PETRA_TRY_GOTO(status, copy_split(&c, PETRA_SPLIT_TRAIN), done);
  if (c.sets[PETRA_SPLIT_EVAL])
    PETRA_TRY_GOTO(status, copy_split(&c, PETRA_SPLIT_EVAL), done);
  petra_data_file *file = c.file;
  c.file = NULL;
  PETRA_TRY_GOTO(status, petra_data_file_close(file), done);
  status = report(&c);
done:
  petra_data_file_destroy(c.file);
  petra_free(c.class_names);
  petra_dataset_destroy(c.sets[PETRA_SPLIT_EVAL]);
  petra_dataset_destroy(c.sets[PETRA_SPLIT_TRAIN]);
  return status;
}
