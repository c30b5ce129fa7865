/* SPDX-License-Identifier: Apache-2.0 */
/* petra data verify: of images their sizes, classes and the moments of their channels. */
#include "base/json.h"
#include "cli/data_verify.h"

#include <jansson.h>
#include <math.h>
#include <stdio.h>

/* Sums are of whole numbers, so that they do not depend on the order of reading. */
typedef struct findings {
  int32_t height_min, height_max, width_min, width_max; /* as stored; 0 without images */
  int64_t turned;                                       /* how many are stored turned */
  uint64_t sum[3], squares[3];                          /* of the pixels */
} findings;

static void count_pixels(petra_split_report *report, const uint8_t *pixels) {
  findings *found = report->more;
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

static petra_status look_at_stored(petra_split_report *report, int64_t index) {
  const petra_dataset *set = report->set;
  findings *found = report->more;
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

static petra_status count_record(petra_split_report *report, const petra_data_records *records, int64_t i) {
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

static petra_status count_records(void *report, const petra_data_records *records) {
  for (int64_t i = 0; i < records->count; i++)
    PETRA_TRY(count_record(report, records, i));
  return PETRA_OK;
}

static petra_status examine(petra_split_report *report, const petra_config *config) {
  return petra_data_each(report->set, (int)config->data.workers, count_records, report);
}

/* Of pixel / 255; not a number without images. */
static void channel_moments(const petra_split_report *report, int channel, double *mean, double *deviation) {
  const findings *found = report->more;
  double pixels = (double)report->labels * report->set->height * report->set->width;
  *mean = (double)found->sum[channel] / pixels;
  *deviation = sqrt(fmax(0, (double)found->squares[channel] / pixels - *mean * *mean)) / 255;
  *mean /= 255;
}

static void class_range(const petra_split_report *report, int64_t *least, int64_t *most, int32_t *empty) {
  *least = INT64_MAX, *most = 0, *empty = 0;
  for (int32_t c = 0; c < report->set->classes; c++) {
    int64_t count = report->class_count[c];
    *least = count < *least ? count : *least;
    *most = count > *most ? count : *most;
    *empty += count == 0;
  }
}

static void print(const petra_split_report *report) {
  const findings *found = report->more;
  int64_t least, most;
  int32_t empty;
  class_range(report, &least, &most, &empty);
  printf("%lld images as %d x %d, %d classes; stored: %d .. %d wide, %d .. %d high\n", (long long)report->labels,
         report->set->width, report->set->height, report->set->classes, found->width_min, found->width_max,
         found->height_min, found->height_max);
  printf("       images per class: %lld .. %lld; classes without images: %d\n", (long long)least, (long long)most,
         empty);
  if (found->turned > 0)
    printf("       " PETRA_DATA_TURNED "\n", (long long)found->turned);
  if (report->labels > 0) {
    double mean[3], deviation[3];
    for (int c = 0; c < 3; c++)
      channel_moments(report, c, &mean[c], &deviation[c]);
    printf("       of pixel / 255, red green blue: mean %.4f %.4f %.4f, deviation %.4f %.4f %.4f\n", mean[0], mean[1],
           mean[2], deviation[0], deviation[1], deviation[2]);
  }
}

static void add_json(const petra_split_report *report, json_t **object) {
  const findings *found = report->more;
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

const petra_verification petra_verification_images = {
    .more_bytes = sizeof(findings), .examine = examine, .print = print, .add_json = add_json};
