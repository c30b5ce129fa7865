/* SPDX-License-Identifier: Apache-2.0 */
/* petra data verify: reads all of a data set. */
#include "base/json.h"
#include "base/mem.h"
#include "base/seal.h"
#include "cli/data.h"

#include <jansson.h>
#include <math.h>
#include <stdio.h>

enum { SPLITS = 2, LINE_BYTES = 8192 };

/* What is found of a split. Sums are of whole numbers, so that they do not depend on the order of reading. */
typedef struct split_report {
  petra_dataset *set; /* NULL: it could not be opened */
  bool there;         /* the set has the split */
  int64_t problems, images;
  int32_t height_min, height_max, width_min, width_max; /* as stored; 0 without images */
  uint64_t sum[3], squares[3];                          /* of the pixels */
  int64_t *class_count;
} split_report;

static void count_pixels(split_report *report, const uint8_t *pixels) {
  int64_t plane = (int64_t)report->set->height * report->set->width;
  for (int c = 0; c < 3; c++, pixels += plane) {
    uint64_t sum = 0, squares = 0;
    for (int64_t i = 0; i < plane; i++) {
      sum += pixels[i];
      squares += (uint64_t)pixels[i] * pixels[i];
    }
    report->sum[c] += sum;
    report->squares[c] += squares;
  }
}

static petra_status count_size(split_report *report, int64_t index) {
  const petra_dataset *set = report->set;
  int32_t height = set->height, width = set->width;
  if (set->ops->stored_size)
    PETRA_TRY(set->ops->stored_size(set, index, &height, &width));
  bool first = report->images == 0;
  report->height_min = first || height < report->height_min ? height : report->height_min;
  report->height_max = height > report->height_max ? height : report->height_max;
  report->width_min = first || width < report->width_min ? width : report->width_min;
  report->width_max = width > report->width_max ? width : report->width_max;
  return PETRA_OK;
}

static petra_status count_record(split_report *report, const petra_data_records *records, int64_t i) {
  const petra_dataset *set = report->set;
  petra_status status = records->statuses[i];
  if (status == PETRA_OK)
    status = count_size(report, records->first + i);
  if (status != PETRA_OK)
    return petra_dataset_problem(&report->problems, status);
  report->images++;
  report->class_count[records->labels[i]]++;
  count_pixels(report, records->pixels + i * 3 * set->height * set->width);
  return PETRA_OK;
}

static petra_status count_records(void *report, const petra_data_records *records) {
  for (int64_t i = 0; i < records->count; i++)
    PETRA_TRY(count_record(report, records, i));
  return PETRA_OK;
}

/* A config that cannot be is an error; a set that cannot be opened is a problem of it. */
static petra_status examine(split_report *report, const petra_config *config, petra_split split) {
  if (!report->there)
    return PETRA_OK;
  petra_status status = petra_dataset_open_counting(config, split, &report->problems, &report->set);
  if (status == PETRA_IO || status == PETRA_DATA)
    return petra_dataset_problem(&report->problems, status);
  PETRA_TRY(status);
  PETRA_TRY(petra_allocate(&report->class_count, (size_t)report->set->classes, sizeof *report->class_count));
  return petra_data_each(report->set, (int)config->data.workers, count_records, report);
}

/* Of pixel / 255; not a number without images. */
static void channel_moments(const split_report *report, int channel, double *mean, double *deviation) {
  double pixels = (double)report->images * report->set->height * report->set->width;
  *mean = (double)report->sum[channel] / pixels;
  *deviation = sqrt(fmax(0, (double)report->squares[channel] / pixels - *mean * *mean)) / 255;
  *mean /= 255;
}

static void class_range(const split_report *report, int64_t *least, int64_t *most, int32_t *empty) {
  *least = INT64_MAX, *most = 0, *empty = 0;
  for (int32_t c = 0; c < report->set->classes; c++) {
    int64_t count = report->class_count[c];
    *least = count < *least ? count : *least;
    *most = count > *most ? count : *most;
    *empty += count == 0;
  }
}

static const char *split_name(petra_split split) {
  return split == PETRA_SPLIT_TRAIN ? "train" : "eval";
}

static void print_split(const split_report *report, petra_split split) {
  const char *name = split_name(split);
  if (!report->there) {
    printf("%-6s none\n", name);
    return;
  }
  if (!report->set) {
    printf("%-6s cannot be opened\n", name);
    return;
  }
  int64_t least, most;
  int32_t empty;
  class_range(report, &least, &most, &empty);
  printf("%-6s %lld images as %d x %d, %d classes; stored: %d .. %d wide, %d .. %d high\n", name,
         (long long)report->images, report->set->width, report->set->height, report->set->classes, report->width_min,
         report->width_max, report->height_min, report->height_max);
  printf("       images per class: %lld .. %lld; classes without images: %d\n", (long long)least, (long long)most,
         empty);
  if (report->images > 0) {
    double mean[3], deviation[3];
    for (int c = 0; c < 3; c++)
      channel_moments(report, c, &mean[c], &deviation[c]);
    printf("       of pixel / 255, red green blue: mean %.4f %.4f %.4f, deviation %.4f %.4f %.4f\n", mean[0], mean[1],
           mean[2], deviation[0], deviation[1], deviation[2]);
  }
  printf("       problems: %lld\n", (long long)report->problems);
}

static json_t *split_json(const split_report *report, petra_split split) {
  const petra_dataset *set = report->set;
  json_t *object = json_pack("{s:s, s:I, s:I}", "name", split_name(split), "problems", (json_int_t)report->problems,
                             "images", (json_int_t)report->images);
  if (!set)
    return object;
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
  petra_json_set(&object, "height", json_integer(set->height));
  petra_json_set(&object, "width", json_integer(set->width));
  petra_json_set(&object, "classes", json_integer(set->classes));
  petra_json_set(&object, "stored",
                 json_pack("{s:i,s:i,s:i,s:i}", "width_min", report->width_min, "width_max", report->width_max,
                           "height_min", report->height_min, "height_max", report->height_max));
  petra_json_set(&object, "mean", means);
  petra_json_set(&object, "deviation", deviations);
  petra_json_set(&object, "class_counts", counts);
  if (set->ops->class_name)
    petra_json_set(&object, "class_names", names);
  else
    json_decref(names);
  return object;
}

static petra_status print_json(const petra_config *config, const split_report *reports) {
  json_t *splits = json_array();
  for (int i = 0; i < SPLITS; i++)
    if (reports[i].there)
      petra_json_append(&splits, split_json(&reports[i], (petra_split)i));
  return petra_json_print_new(json_pack("{s:s, s:I, s:o}", "set",
                                        petra_config_choice_name("data.set", (int)config->data.set), "problems",
                                        (json_int_t)(reports[0].problems + reports[1].problems), "splits", splits));
}

static petra_status examine_all(split_report reports[SPLITS], const petra_config *config) {
  int64_t *problems = &reports[0].problems;
  reports[PETRA_SPLIT_TRAIN].there = reports[PETRA_SPLIT_EVAL].there = true;
  petra_status status = petra_dataset_has_eval(config, &reports[PETRA_SPLIT_EVAL].there);
  if (status == PETRA_IO || status == PETRA_DATA) /* the line is there */
    return petra_dataset_problem(problems, status);
  PETRA_TRY(status);
  if (config->data.set == PETRA_SET_HDF5)
    PETRA_TRY(petra_dataset_problem(problems, petra_seal_check_parts(config->data.path)));
  for (int i = 0; i < SPLITS; i++)
    PETRA_TRY(examine(&reports[i], config, (petra_split)i));
  return PETRA_OK;
}

petra_status petra_data_verify(const petra_arguments *arguments, const petra_config *config) {
  split_report reports[SPLITS] = {{0}};
  petra_status status;
  PETRA_TRY_GOTO(status, examine_all(reports, config), done);
  if (arguments->json)
    PETRA_TRY_GOTO(status, print_json(config, reports), done);
  for (int i = 0; i < SPLITS && !arguments->json && !arguments->quiet; i++)
    print_split(&reports[i], (petra_split)i);
  if (reports[0].problems + reports[1].problems > 0)
    status = PETRA_DATA; /* each has its line */
done:
  for (int i = 0; i < SPLITS; i++) {
    petra_free(reports[i].class_count);
    petra_dataset_destroy(reports[i].set);
  }
  return status;
}
