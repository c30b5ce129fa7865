/* SPDX-License-Identifier: Apache-2.0 */
/* petra data: verifies, converts and generates data sets. */
#include "base/json.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/seal.h"
#include "base/text.h"
#include "base/utf8.h"
#include "cli/command.h"
#include "data/data_sets.h"
#include "io/data_file.h"
#include "setup/plan.h"

#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

/* --- reading: in portions, with several threads --- */

enum { SPLITS = 2, ROOM_MAX = 1024 };

static const int64_t room_bytes = 32000000;

/* The note about images whose petra_stored_image is turned. */
#define TURNED "images with an EXIF orientation, which petra ignores, as torchvision does: %lld"

/* A portion of the records of a set: pixels (count, 3, H, W), labels, and the status of each record, which its reader
 * has logged. */
typedef struct data_records {
  int64_t first, count;
  uint8_t *pixels;
  int32_t *labels;
  petra_status *statuses;
} data_records;

/* Reads all records of the set in order, on `threads` threads, and passes them to `take`, in portions of at most 32 MB
 * or of one record. A failure of `take`, PETRA_NO_MEMORY and PETRA_INTERNAL end the walk. */
static petra_status read_all(const petra_dataset *set, int threads,
                             petra_status (*take)(void *context, const data_records *records), void *context) {
  const int64_t size = (int64_t)3 * set->height * set->width, fit = room_bytes / size;
  const int64_t room = fit < 1 ? 1 : fit > ROOM_MAX ? ROOM_MAX : fit;
  data_records records = {0};
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

/* --- petra data verify: reads a whole data set and reports its problems --- */

/* Sums are whole numbers, so that they do not depend on the order of reading. */
typedef struct image_findings {
  int32_t height_min, height_max, width_min, width_max; /* sizes as stored; 0 without images */
  int64_t turned;                                       /* number of images that are stored turned */
  uint64_t sum[3], squares[3];                          /* sums of the pixels and of their squares */
} image_findings;

typedef struct token_findings {
  int32_t occurring;
  double entropy; /* entropy of single tokens, in nats */
} token_findings;

/* The findings about a split. */
typedef struct split_report {
  petra_dataset *set; /* NULL: it could not be opened */
  bool there;         /* the set has the split */
  int64_t problems;
  int64_t labels;       /* number of images, or tokens, that could be read */
  int64_t *class_count; /* number of records with each label, or occurrences of each token */
  image_findings image;
  token_findings token;
} split_report;

/* The differences between the kinds of samples. */
typedef struct kind_ops {
  /* Reads the whole open split; logs and counts each problem. */
  petra_status (*examine)(split_report *report, const petra_config *config);
  /* Prints the lines of an open split after its name. */
  void (*print)(const split_report *report);
  void (*add_json)(const split_report *report, json_t **object);
} kind_ops;

/* --- images: sizes, classes and the moments of the channels --- */

static void count_pixels(split_report *report, const uint8_t *pixels) {
  image_findings *found = &report->image;
  int64_t plane = (int64_t)report->set->height * report->set->width;
  for (int c = 0; c < 3; c++, pixels += plane) {
    uint64_t sum = 0, squares = 0;
    for (int64_t i = 0; i < plane; i++) {
      sum += pixels[i];
      squares += (uint64_t)pixels[i] * pixels[i];
    }
    found->sum[c] += sum;
    found->squares[c] += squares;
  }
}

static petra_status look_at_stored(split_report *report, int64_t index) {
  const petra_dataset *set = report->set;
  image_findings *found = &report->image;
  petra_stored_image stored = {set->height, set->width, false};
  if (set->ops->stored)
    PETRA_TRY(set->ops->stored(set, index, &stored));
  const int32_t height = stored.height, width = stored.width;
  found->turned += stored.turned;
  bool first = report->labels == 0;
  found->height_min = first || height < found->height_min ? height : found->height_min;
  found->height_max = height > found->height_max ? height : found->height_max;
  found->width_min = first || width < found->width_min ? width : found->width_min;
  found->width_max = width > found->width_max ? width : found->width_max;
  return PETRA_OK;
}

static petra_status count_record(split_report *report, const data_records *records, int64_t i) {
  const petra_dataset *set = report->set;
  petra_status status = records->statuses[i];
  if (status == PETRA_OK)
    status = look_at_stored(report, records->first + i);
  if (status != PETRA_OK)
    return petra_dataset_problem(&report->problems, status);
  report->labels++;
  report->class_count[records->labels[i]]++;
  count_pixels(report, records->pixels + i * 3 * set->height * set->width);
  return PETRA_OK;
}

static petra_status count_records(void *report, const data_records *records) {
  for (int64_t i = 0; i < records->count; i++)
    PETRA_TRY(count_record(report, records, i));
  return PETRA_OK;
}

static petra_status examine_images(split_report *report, const petra_config *config) {
  return read_all(report->set, (int)config->data.workers, count_records, report);
}

/* Computes the moments of pixel / 255; NaN without images. */
static void channel_moments(const split_report *report, int channel, double *mean, double *deviation) {
  const image_findings *found = &report->image;
  double pixels = (double)report->labels * report->set->height * report->set->width;
  *mean = (double)found->sum[channel] / pixels;
  *deviation = sqrt(fmax(0, (double)found->squares[channel] / pixels - *mean * *mean)) / 255;
  *mean /= 255;
}

static void class_range(const split_report *report, int64_t *least, int64_t *maximum, int32_t *empty) {
  *least = INT64_MAX, *maximum = 0, *empty = 0;
  for (int32_t c = 0; c < report->set->classes; c++) {
    int64_t count = report->class_count[c];
    *least = count < *least ? count : *least;
    *maximum = count > *maximum ? count : *maximum;
    *empty += count == 0;
  }
}

static void print_images(const split_report *report) {
  const image_findings *found = &report->image;
  int64_t least, maximum;
  int32_t empty;
  class_range(report, &least, &maximum, &empty);
  printf("%lld images as %d x %d, %d classes; stored: %d .. %d wide, %d .. %d high\n", (long long)report->labels,
         report->set->width, report->set->height, report->set->classes, found->width_min, found->width_max,
         found->height_min, found->height_max);
  printf("       images per class: %lld .. %lld; classes without images: %d\n", (long long)least, (long long)maximum,
         empty);
  if (found->turned > 0)
    printf("       " TURNED "\n", (long long)found->turned);
  if (report->labels > 0) {
    double mean[3], deviation[3];
    for (int c = 0; c < 3; c++)
      channel_moments(report, c, &mean[c], &deviation[c]);
    printf("       of pixel / 255, red green blue: mean %.4f %.4f %.4f, deviation %.4f %.4f %.4f\n", mean[0], mean[1],
           mean[2], deviation[0], deviation[1], deviation[2]);
  }
}

static void add_images_json(const split_report *report, json_t **object) {
  const image_findings *found = &report->image;
  const petra_dataset *set = report->set;
  json_t *means = json_array(), *deviations = json_array(), *counts = json_array(), *names = json_array();
  for (int c = 0; c < 3; c++) {
    double mean, deviation;
    channel_moments(report, c, &mean, &deviation);
    petra_json_append(&means, petra_json_real(mean));
    petra_json_append(&deviations, petra_json_real(deviation));
  }
  for (int32_t c = 0; c < set->classes; c++) {
    petra_json_append(&counts, json_integer(report->class_count[c]));
    if (set->ops->class_name)
      petra_json_append(&names, petra_json_string(set->ops->class_name(set, c)));
  }
  petra_json_set(object, "height", json_integer(set->height));
  petra_json_set(object, "width", json_integer(set->width));
  petra_json_set(object, "classes", json_integer(set->classes));
  petra_json_set(object, "stored",
                 json_pack("{s:i,s:i,s:i,s:i}", "width_min", found->width_min, "width_max", found->width_max,
                           "height_min", found->height_min, "height_max", found->height_max));
  if (set->ops->stored)
    petra_json_set(object, "exif_oriented", json_integer(found->turned));
  petra_json_set(object, "mean", means);
  petra_json_set(object, "deviation", deviations);
  petra_json_set(object, "class_counts", counts);
  if (set->ops->class_name)
    petra_json_set(object, "class_names", names);
  else
    json_decref(names);
}

static const kind_ops image_ops = {examine_images, print_images, add_images_json};

/* --- tokens: their numbers of occurrences and their entropy --- */

enum { AT_ONCE = 4096 }; /* tokens; a problem is reported once per chunk */

static void summarise(split_report *report) {
  token_findings *found = &report->token;
  for (int32_t c = 0; c < report->set->classes; c++) {
    const double share = (double)report->class_count[c] / (double)report->labels;
    if (report->class_count[c] == 0)
      continue;
    found->occurring++;
    found->entropy -= share * log(share);
  }
}

static petra_status examine_tokens(split_report *report, const petra_config *config) {
  const petra_dataset *set = report->set;
  int32_t tokens[AT_ONCE];
  (void)config;
  for (int64_t first = 0; first < set->tokens; first += AT_ONCE) {
    const int64_t left = set->tokens - first, count = left < AT_ONCE ? left : AT_ONCE;
    const petra_status status = set->ops->read_tokens(set, first, count, tokens);
    PETRA_TRY(petra_dataset_problem(&report->problems, status));
    for (int64_t i = 0; i < count && status == PETRA_OK; i++)
      report->class_count[tokens[i]]++;
    report->labels += status == PETRA_OK ? count : 0;
  }
  summarise(report);
  return PETRA_OK;
}

static void print_tokens(const split_report *report) {
  const petra_dataset *set = report->set;
  const token_findings *found = &report->token;
  printf("%lld tokens, %lld windows of %d per epoch\n", (long long)report->labels, (long long)set->count, set->context);
  printf("       vocabulary of %d, of which %d occur; entropy of single tokens: %.4f nats\n", set->classes,
         found->occurring, found->entropy);
}

static void add_tokens_json(const split_report *report, json_t **object) {
  const petra_dataset *set = report->set;
  const token_findings *found = &report->token;
  json_t *counts = json_array();
  for (int32_t c = 0; c < set->classes; c++)
    petra_json_append(&counts, json_integer(report->class_count[c]));
  petra_json_set(object, "windows", json_integer(set->count));
  petra_json_set(object, "context", json_integer(set->context));
  petra_json_set(object, "vocabulary", json_integer(set->classes));
  petra_json_set(object, "occurring", json_integer(found->occurring));
  petra_json_set(object, "entropy", petra_json_real(found->entropy));
  petra_json_set(object, "token_counts", counts);
}

static const kind_ops token_ops = {examine_tokens, print_tokens, add_tokens_json};

/* --- a data set --- */

/* The whole verification. */
typedef struct verification {
  const petra_config *config;
  const kind_ops *kind;
  const petra_sample_words *words;
  split_report reports[SPLITS];
  double best_loss; /* best_loss of petra_dataset_shape */
} verification;

/* Checks what `petra train` requires of an open split: the network takes samples like the samples of the training
 * split. */
static petra_status check_for_training(verification *v, petra_split split) {
  split_report *report = &v->reports[split];
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
  return report->problems > 0 /* there may be too few records without the wrong ones */
             ? PETRA_OK
             : petra_dataset_problem(&report->problems, petra_plan_check_batch(v->config, train));
}

/* Checks a split that the set does not have. A run that evaluates needs the split; opening the split reports that it is
 * missing. */
static petra_status check_absent(verification *v) {
  split_report *report = &v->reports[PETRA_SPLIT_EVAL];
  if (report->there || v->config->run.eval_every == 0 || !v->reports[PETRA_SPLIT_TRAIN].set)
    return PETRA_OK;
  return petra_dataset_problem(&report->problems, petra_dataset_open(v->config, PETRA_SPLIT_EVAL, &report->set));
}

/* Gets the error line that opening a split logs; "" if the split can be opened. */
static void take_line(const verification *v, petra_split split, petra_log_kept *kept) {
  petra_dataset *set = NULL;
  petra_log_keep(kept);
  if (petra_dataset_open(v->config, split, &set) == PETRA_OK)
    kept->line[0] = 0;
  petra_log_keep_end(kept);
  petra_dataset_destroy(set);
}

/* Returns true if the evaluation split cannot be opened for the same reason as the training split, as for two parts of
 * one file. */
static bool fails_alike(const verification *v) {
  petra_log_kept train, evaluation;
  if (v->reports[PETRA_SPLIT_TRAIN].set)
    return false;
  take_line(v, PETRA_SPLIT_TRAIN, &train);
  take_line(v, PETRA_SPLIT_EVAL, &evaluation);
  return evaluation.line[0] && strcmp(train.line, evaluation.line) == 0;
}

/* Examines a split. An invalid config is an error; a set that cannot be opened counts as a problem of the set. */
static petra_status examine(verification *v, petra_split split) {
  split_report *report = &v->reports[split];
  if (!report->there || (split == PETRA_SPLIT_EVAL && fails_alike(v)))
    return PETRA_OK;
  petra_status status = petra_dataset_open_counting(v->config, split, &report->problems, &report->set);
  if (status == PETRA_IO || status == PETRA_DATA)
    return petra_dataset_problem(&report->problems, status);
  PETRA_TRY(status);
  PETRA_TRY(check_for_training(v, split));
  PETRA_TRY(petra_allocate(&report->class_count, (size_t)report->set->classes, sizeof *report->class_count));
  return v->kind->examine(report, v->config);
}

static const char *split_name(petra_split split) {
  return split == PETRA_SPLIT_TRAIN ? "train" : "eval";
}

static void print_split(const verification *v, petra_split split) {
  const split_report *report = &v->reports[split];
  printf("%-6s ", split_name(split));
  if (!report->there || !report->set) {
    puts(report->there ? "cannot be opened" : "none");
    return;
  }
  v->kind->print(report);
  printf("       problems: %lld\n", (long long)report->problems);
}

static void print_findings(const verification *v) {
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
  const split_report *report = &v->reports[split];
  json_t *object = json_pack("{s:s, s:I, s:I}", "name", split_name(split), "problems", (json_int_t)report->problems,
                             v->words->labels, (json_int_t)report->labels);
  if (report->set)
    v->kind->add_json(report, &object);
  return object;
}

static petra_status print_findings_json(const verification *v) {
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

/* For an HDF5 file that petra wrote: also checks the digest of its records. */
static petra_status check_seal(const petra_config *config) {
  bool sealed = config->data.set == PETRA_SET_HDF5;
  if (config->data.set == PETRA_SET_TOKENS)
    PETRA_TRY(petra_token_set_in_hdf5(config, &sealed));
  return sealed ? petra_seal_check_parts(config->data.path) : PETRA_OK;
}

static petra_status examine_all(verification *v) {
  split_report *reports = v->reports;
  int64_t *problems = &reports[0].problems;
  reports[PETRA_SPLIT_TRAIN].there = reports[PETRA_SPLIT_EVAL].there = true;
  petra_status status = petra_dataset_has_eval(v->config, &reports[PETRA_SPLIT_EVAL].there);
  if (status == PETRA_IO || status == PETRA_DATA) /* the error line has been written already */
    return petra_dataset_problem(problems, status);
  PETRA_TRY(status);
  PETRA_TRY(petra_dataset_problem(problems, check_seal(v->config)));
  for (int i = 0; i < SPLITS; i++)
    PETRA_TRY(examine(v, (petra_split)i));
  return check_absent(v);
}

/* Reads every record of the splits and prints a report. Errors: PETRA_DATA if there is any problem; each problem is
 * logged in one line. */
static petra_status verify(const petra_arguments *arguments, const petra_config *config) {
  static const kind_ops *const kinds[] = {[PETRA_SAMPLE_IMAGE] = &image_ops, [PETRA_SAMPLE_TOKENS] = &token_ops};
  const petra_sample_kind samples = petra_sample_kind_of(config);
  verification v = {.config = config, .kind = kinds[samples], .words = petra_sample_words_of(samples)};
  petra_status status;
  PETRA_TRY_GOTO(status, examine_all(&v), done);
  if (config->data.set == PETRA_SET_GRAMMAR)
    v.best_loss = petra_grammar_best_loss(config->model.context);
  if (arguments->json)
    PETRA_TRY_GOTO(status, print_findings_json(&v), done);
  else if (!arguments->quiet)
    print_findings(&v);
  if (v.reports[0].problems + v.reports[1].problems > 0)
    status = PETRA_DATA; /* each problem has its line */
done:
  for (int i = 0; i < SPLITS; i++) {
    petra_free(v.reports[i].class_count);
    petra_dataset_destroy(v.reports[i].set);
  }
  return status;
}

/* --- petra data convert: writes a data set as an HDF5 file --- */

enum { TOKENS_AT_ONCE = 65536 };

typedef struct conversion {
  bool tokens; /* true: tokens; false: images */
  const petra_arguments *arguments;
  const petra_config *config;
  petra_dataset *sets[SPLITS]; /* the second set is NULL if there is no evaluation split */
  const char **class_names;
  char source[512];
  petra_data_file *file;
  int64_t turned;    /* number of images whose orientation is ignored */
  petra_split split; /* the current split; the file numbers splits in the same way */
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

static petra_status put_records(void *context, const data_records *records) {
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
  return c->tokens ? copy_tokens(c) : read_all(c->sets[split], (int)c->config->data.workers, put_records, c);
}

static petra_status print_conversion_json(const conversion *c, const petra_data_file_about *about) {
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

static void print_conversion(const conversion *c, const petra_data_file_about *about) {
  petra_utf8_print(stdout, "%s: %lld training and %lld evaluation ", c->arguments->output, (long long)about->train,
                   (long long)about->eval);
  if (c->tokens)
    printf("tokens, vocabulary of %d\n", about->vocabulary);
  else
    printf("images of %d x %d in %d classes\n", about->width, about->height, about->classes);
  if (c->turned > 0)
    printf(TURNED "\n", (long long)c->turned);
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
    status = print_conversion_json(&c, &about);
  else if (!arguments->quiet)
    print_conversion(&c, &about);
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
    {"verify", false, true, verify}, {"convert", true, true, convert}, {"generate", true, false, convert}};
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
  PETRA_DESTROYED(petra_config_destroy) petra_config *config = NULL;
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
