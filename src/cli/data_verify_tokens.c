/* SPDX-License-Identifier: Apache-2.0 */
/* petra data verify: of tokens which ones occur, and how evenly. */
#include "base/json.h"
#include "cli/data_verify.h"

#include <jansson.h>
#include <math.h>
#include <stdio.h>

enum { AT_ONCE = 4096 }; /* tokens; a problem is told once in so many */

typedef struct findings {
  int32_t occurring;
  double entropy; /* of single tokens, nats */
} findings;

static void summarise(petra_split_report *report) {
  findings *found = report->more;
  for (int32_t c = 0; c < report->set->classes; c++) {
    const double share = (double)report->class_count[c] / (double)report->labels;
    if (report->class_count[c] == 0)
      continue;
    found->occurring++;
    found->entropy -= share * log(share);
  }
}

static petra_status examine(petra_split_report *report, const petra_config *config) {
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

static void print(const petra_split_report *report) {
  const petra_dataset *set = report->set;
  const findings *found = report->more;
  printf("%lld tokens, %lld windows of %d per epoch\n", (long long)report->labels, (long long)set->count, set->context);
  printf("       vocabulary of %d, of which %d occur; entropy of single tokens: %.4f nats\n", set->classes,
         found->occurring, found->entropy);
}

static void add_json(const petra_split_report *report, json_t **object) {
  const petra_dataset *set = report->set;
  const findings *found = report->more;
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

const petra_verification petra_verification_tokens = {
    .more_bytes = sizeof(findings), .examine = examine, .print = print, .add_json = add_json};
