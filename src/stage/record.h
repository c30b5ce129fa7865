/* SPDX-License-Identifier: Apache-2.0 */
/* Records of microbatches: what a stage keeps of each between its forward and the end of its backward, by microbatch
 * number. */
#pragma once

#include "nn/graph.h"

typedef struct petra_record_block {
  petra_streams input; /* empty if nothing is kept */
  petra_block_graph graph;
} petra_record_block;

typedef struct petra_record {
  int64_t microbatch;
  int64_t version; /* of the weights that its forward read */
  bool holds;      /* it counts as a holder of this version (versions.h) */
  bool backward;   /* its B is done, its W is due */
  int32_t *labels; /* `label_count` labels of a split head */
  int32_t label_count;
  petra_record_block block[];
} petra_record;

typedef struct petra_records {
  int blocks;
  petra_record **live; /* oldest first */
  int count, count_max;
  int64_t capacity;
} petra_records; /* all zeros except `blocks`: none */

void petra_records_fini(petra_records *records);

/* Adds an empty record, which exists until it is dropped. Errors: PETRA_INTERNAL if there is one of this microbatch
 * already; `stage` is used only for the line. */
petra_status petra_records_add(petra_records *records, int stage, int64_t microbatch, petra_record **out);

/* Find the record of `microbatch`. If there is none, petra_records_at returns NULL and petra_records_find
 * PETRA_INTERNAL, logged with the stage's number. */
petra_record *petra_records_at(const petra_records *records, int64_t microbatch);
petra_status petra_records_find(const petra_records *records, int stage, int64_t microbatch, petra_record **out);

/* Removes the record with everything that it keeps. */
void petra_records_drop(petra_records *records, petra_record *record);

/* Copies the labels of a microbatch, once. */
petra_status petra_record_set_labels(petra_record *record, const int32_t *labels, int32_t count);
