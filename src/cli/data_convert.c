/* SPDX-License-Identifier: Apache-2.0 */
/* petra data convert: writes a data set as an HDF5 file. */
#include "base/json.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/utf8.h"
#include "cli/data.h"
#include "io/data_file.h"

#include <jansson.h>
#include <stdio.h>
#include <string.h>

enum { SPLITS = 2, TOKENS_AT_ONCE = 65536 };

typedef struct conversion {
  bool tokens; /* else images */
  const petra_arguments *arguments;
  const petra_config *config;
  petra_dataset *sets[SPLITS]; /* the second one NULL: no evaluation split */
  const char **class_names;
  char source[512];
  petra_data_file *file;
  int64_t turned; /* number of images whose orientation is ignored */
  int target;     /* PETRA_DATA_FILE_TRAIN or PETRA_DATA_FILE_EVAL */
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

static petra_status put_records(void *context, const petra_data_records *records) {
  conversion *c = context;
  const petra_dataset *set = c->sets[c->target == PETRA_DATA_FILE_TRAIN ? PETRA_SPLIT_TRAIN : PETRA_SPLIT_EVAL];
  for (int64_t i = 0; i < records->count; i++) {
    petra_stored_image stored = {0};
    PETRA_TRY(records->statuses[i]);
    if (set->ops->stored)
      PETRA_TRY(set->ops->stored(set, records->first + i, &stored));
    c->turned += stored.turned;
  }
  return petra_data_file_put(c->file, c->target, records->first, records->count, records->pixels, records->labels);
}

static petra_status copy_tokens(conversion *c, petra_split split) {
  const petra_dataset *set = c->sets[split];
  int32_t *tokens = NULL;
  PETRA_TRY(petra_allocate_raw(&tokens, TOKENS_AT_ONCE, sizeof *tokens));
  petra_status status = PETRA_OK;
  for (int64_t first = 0; first < set->tokens && status == PETRA_OK; first += TOKENS_AT_ONCE) {
    const int64_t left = set->tokens - first, count = left < TOKENS_AT_ONCE ? left : TOKENS_AT_ONCE;
    status = set->ops->read_tokens(set, first, count, tokens);
    if (status == PETRA_OK)
      status = petra_data_file_put_tokens(c->file, c->target, first, count, tokens);
  }
  petra_free(tokens);
  return status;
}

static bool has_file(petra_data_set set) {
  return set != PETRA_SET_SHAPES && set != PETRA_SET_GRAMMAR;
}

static petra_status create_file(conversion *c, petra_data_file_about *about) {
  const petra_dataset *set = c->sets[PETRA_SPLIT_TRAIN];
  const bool named = has_file(c->config->data.set);
  const char *name = petra_config_choice_name("data.set", (int)c->config->data.set);
  snprintf(c->source, sizeof c->source, "%s%s%s", name, named ? ": " : "", named ? c->config->data.path : "");
  if (set->ops->class_name) {
    PETRA_TRY(petra_allocate(&c->class_names, (size_t)set->classes, sizeof *c->class_names));
    for (int32_t i = 0; i < set->classes; i++)
      c->class_names[i] = set->ops->class_name(set, i);
  }
  const petra_dataset *eval = c->sets[PETRA_SPLIT_EVAL];
  *about = (petra_data_file_about){.source = c->source, .class_name = c->class_names};
  about->train = c->tokens ? set->tokens : set->count;
  about->eval = !eval ? 0 : c->tokens ? eval->tokens : eval->count;
  if (c->tokens) {
    about->vocabulary = set->classes;
  } else {
    about->height = set->height;
    about->width = set->width;
    about->classes = set->classes;
    memcpy(about->mean, set->mean, sizeof about->mean);
    memcpy(about->deviation, set->deviation, sizeof about->deviation);
  }
  return petra_data_file_create(c->arguments->output, about, &c->file);
}

static petra_status copy_split(conversion *c, petra_split split) {
  c->target = split == PETRA_SPLIT_TRAIN ? PETRA_DATA_FILE_TRAIN : PETRA_DATA_FILE_EVAL;
  return c->tokens ? copy_tokens(c, split)
                   : petra_data_each(c->sets[split], (int)c->config->data.workers, put_records, c);
}

static petra_status print_json(const conversion *c, const petra_data_file_about *about) {
  json_t *object = json_pack("{s:o, s:I, s:I}", "output", petra_json_string(c->arguments->output), "train",
                             (json_int_t)about->train, "eval", (json_int_t)about->eval);
  if (c->tokens) {
    petra_json_set(&object, "vocabulary", json_integer(about->vocabulary));
  } else {
    petra_json_set(&object, "height", json_integer(about->height));
    petra_json_set(&object, "width", json_integer(about->width));
    petra_json_set(&object, "classes", json_integer(about->classes));
  }
  if (!c->tokens && c->sets[PETRA_SPLIT_TRAIN]->ops->stored)
    petra_json_set(&object, "exif_oriented", json_integer(c->turned));
  return petra_json_print_new(object);
}

static void print_text(const conversion *c, const petra_data_file_about *about) {
  petra_utf8_print(stdout, "%s: %lld training and %lld evaluation ", c->arguments->output, (long long)about->train,
                   (long long)about->eval);
  if (c->tokens)
    printf("tokens, vocabulary of %d\n", about->vocabulary);
  else
    printf("images of %d x %d in %d classes\n", about->width, about->height, about->classes);
  if (c->turned > 0)
    printf(PETRA_DATA_TURNED "\n", (long long)c->turned);
}

petra_status petra_data_convert(const petra_arguments *arguments, const petra_config *config) {
  conversion c = {
      .tokens = petra_sample_kind_of(config) == PETRA_SAMPLE_TOKENS, .arguments = arguments, .config = config};
  petra_data_file_about about;
  petra_status status;
  PETRA_TRY_GOTO(status, open_sets(&c), done);
  PETRA_TRY_GOTO(status, create_file(&c, &about), done);
  PETRA_TRY_GOTO(status, copy_split(&c, PETRA_SPLIT_TRAIN), done);
  if (c.sets[PETRA_SPLIT_EVAL])
    PETRA_TRY_GOTO(status, copy_split(&c, PETRA_SPLIT_EVAL), done);
  petra_data_file *file = c.file;
  c.file = NULL;
  PETRA_TRY_GOTO(status, petra_data_file_close(file), done);
  if (arguments->json)
    status = print_json(&c, &about);
  else if (!arguments->quiet)
    print_text(&c, &about);
done:
  petra_data_file_destroy(c.file);
  petra_free(c.class_names);
  petra_dataset_destroy(c.sets[PETRA_SPLIT_EVAL]);
  petra_dataset_destroy(c.sets[PETRA_SPLIT_TRAIN]);
  return status;
}
