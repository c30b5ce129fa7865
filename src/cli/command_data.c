/* SPDX-License-Identifier: Apache-2.0 */
/* petra data: verifies, converts and generates data sets. */
#include "cli/data.h"

#include "base/json.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/text.h"
#include "base/utf8.h"
#include "io/data_file.h"

#include <jansson.h>
#include <stdio.h>
#include <string.h>

/* --- reading: in portions, with several threads --- */

enum { ROOM_MAX = 1024 };

static const int64_t room_bytes = 32000000;

petra_status petra_data_each(const petra_dataset *set, int threads,
                             petra_status (*take)(void *context, const petra_data_records *records), void *context) {
  const int64_t size = (int64_t)3 * set->height * set->width, fit = room_bytes / size;
  const int64_t room = fit < 1 ? 1 : fit > ROOM_MAX ? ROOM_MAX : fit;
  petra_data_records records = {0};
  petra_status status;
  PETRA_TRY_GOTO(status, petra_allocate_raw(&records.pixels, (size_t)room, (size_t)size), done);
  PETRA_TRY_GOTO(status, petra_allocate_raw(&records.labels, (size_t)room, sizeof *records.labels), done);
  PETRA_TRY_GOTO(status, petra_allocate_raw(&records.statuses, (size_t)room, sizeof *records.statuses), done);
  for (; records.first < set->count; records.first += records.count) {
    const int64_t left = set->count - records.first;
    records.count = left < room ? left : room;
#pragma omp parallel for num_threads(threads) schedule(dynamic)
    for (int64_t i = 0; i < records.count; i++)
      records.statuses[i] = set->ops->read(set, records.first + i, records.pixels + i * size, &records.labels[i]);
    for (int64_t i = 0; i < records.count; i++)
      if (records.statuses[i] == PETRA_NO_MEMORY || records.statuses[i] == PETRA_INTERNAL)
        PETRA_TRY_GOTO(status, records.statuses[i], done);
    PETRA_TRY_GOTO(status, take(context, &records), done);
  }
done:
  PETRA_FREE_ALL(records.pixels, records.labels, records.statuses);
  return status;
}

/* --- petra data convert: writes a data set as an HDF5 file --- */

enum { SPLITS = 2, TOKENS_AT_ONCE = 65536 };

typedef struct conversion {
  bool tokens; /* else images */
  const petra_arguments *arguments;
  const petra_config *config;
  petra_dataset *sets[SPLITS]; /* the second one NULL: no evaluation split */
  const char **class_names;
  char source[512];
  petra_data_file *file;
  int64_t turned;    /* number of images whose orientation is ignored */
  petra_split split; /* the current one; the file numbers them in the same way */
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
  const petra_dataset *set = c->sets[c->split];
  for (int64_t i = 0; i < records->count; i++) {
    petra_stored_image stored = {0};
    PETRA_TRY(records->statuses[i]);
    if (set->ops->stored)
      PETRA_TRY(set->ops->stored(set, records->first + i, &stored));
    c->turned += stored.turned;
  }
  return petra_data_file_put(c->file, (int)c->split, records->first, records->count, records->pixels, records->labels);
}

static petra_status copy_tokens(conversion *c) {
  const petra_dataset *set = c->sets[c->split];
  PETRA_FREED int32_t *tokens = NULL;
  PETRA_TRY(petra_allocate_raw(&tokens, TOKENS_AT_ONCE, sizeof *tokens));
  for (int64_t first = 0; first < set->tokens; first += TOKENS_AT_ONCE) {
    const int64_t left = set->tokens - first, count = left < TOKENS_AT_ONCE ? left : TOKENS_AT_ONCE;
    PETRA_TRY(set->ops->read_tokens(set, first, count, tokens));
    PETRA_TRY(petra_data_file_put_tokens(c->file, (int)c->split, first, count, tokens));
  }
  return PETRA_OK;
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
  c->split = split;
  return c->tokens ? copy_tokens(c) : petra_data_each(c->sets[split], (int)c->config->data.workers, put_records, c);
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

static petra_status convert(const petra_arguments *arguments, const petra_config *config) {
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

/* --- the command --- */

typedef struct data_action {
  const char *name;
  bool writes;       /* needs --output */
  bool needs_config; /* otherwise the defaults suffice */
  petra_status (*run)(const petra_arguments *arguments, const petra_config *config);
} data_action;

static const data_action actions[] = {
    {"verify", false, true, petra_data_verify}, {"convert", true, true, convert}, {"generate", true, false, convert}};
enum { ACTIONS = sizeof actions / sizeof *actions };

static petra_status check(const data_action *action, const petra_arguments *arguments) {
  if (action->writes && !arguments->output)
    return petra_fail(PETRA_USAGE, "petra data %s needs --output FILE; see petra data --help", action->name);
  if (!action->writes && arguments->output)
    return petra_fail(PETRA_USAGE, "petra data %s writes no file and takes no --output; see petra data --help",
                      action->name);
  if (action->needs_config && !arguments->input)
    return petra_fail(PETRA_USAGE, "petra data %s needs a config file ('-' for standard input); see petra data --help",
                      action->name);
  return PETRA_OK;
}

static petra_status run(const petra_arguments *arguments) {
  const data_action *action = NULL;
  const char *names[ACTIONS + 1] = {NULL};
  char near[PETRA_NEAREST_LONGEST + 1];
  PETRA_CONFIG_DESTROYED petra_config *config = NULL;
  for (int i = 0; i < ACTIONS; i++) {
    names[i] = actions[i].name;
    if (strcmp(arguments->action, names[i]) == 0)
      action = &actions[i];
  }
  if (!action)
    return petra_fail(PETRA_USAGE, "petra data: no action '%s'; expected verify, convert or generate%s",
                      arguments->action, petra_nearest_hint(near, sizeof near, "", arguments->action, names));
  PETRA_TRY(check(action, arguments));
  PETRA_TRY(petra_config_load(arguments->input, arguments->sets, arguments->set_count, &config));
  if (!action->needs_config)
    config->data.set = PETRA_SET_SHAPES;
  return action->run(arguments, config);
}

const petra_command petra_command_data = {
    .name = "data",
    .summary = "verifies, converts or generates data sets",
    .arguments = "verify CONFIG.yaml | convert CONFIG.yaml --output FILE | generate [CONFIG.yaml] --output FILE",
    .help = "verify    Reads the whole data set of the config (data.*). For images, prints their number, their sizes,\n"
            "          the means and deviations of the channels, and the images per class. For tokens, prints their\n"
            "          number, the number of different tokens, their entropy and, if it is known, the lowest possible\n"
            "          loss. Every error in the data, and everything that petra train would refuse, is one line on\n"
            "          standard error; the exit status is then 1.\n"
            "convert   Writes the data set of the config as an HDF5 file for data.set: hdf5, or tokens. Images of an\n"
            "          image folder are written as an evaluation sees them: resized to data.resize, then cropped to\n"
            "          the centre of data.image_size.\n"
            "generate  Writes generated images (data.set: shapes) in the same way, whatever the data set of the\n"
            "          config is.\n"
            "data.limit and data.eval_limit apply to all three actions. data.workers is the number of threads.",
    .takes_config = true,
    .actions = "verify, convert or generate",
    .options =
        (const petra_option[]){
            PETRA_OPTION("output", "FILE", output, "the file to write; an existing file is replaced"), {0}},
    .run = run};
