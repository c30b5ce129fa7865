/* SPDX-License-Identifier: Apache-2.0 */
/* What a stage keeps of the microbatches between their forward and the end of their backward, by microbatch number. */
#ifndef PETRA_STAGE_RECORD_H
#define PETRA_STAGE_RECORD_H

#include "nn/graph.h"

typedef struct petra_record_block {
  petra_streams input; /* empty where nothing is kept */
  petra_block_graph graph;
} petra_record_block;

typedef struct petra_record {
  int64_t microbatch;
  int64_t version; /* of the weights that its forward read */
  bool holds;      /* it holds this version (versions.h) */
  bool backward;   /* its B was done, its W is due */
  int32_t *labels; /* a split head's, `label_count` of them */
  int32_t label_count;
  petra_record_block block[];
} petra_record;

typedef struct petra_records {
  int blocks;
  petra_record **live; /* oldest first */
  int count, count_max;
  int64_t capacity;
} petra_records; /* zeros but for `blocks`: none */

void petra_records_fini(petra_records *records);

/* An empty record, there until it is dropped. PETRA_INTERNAL if one of this microbatch is there already; `stage` is
 * for the line only. */
petra_status petra_records_add(petra_records *records, int stage, int64_t microbatch, petra_record **out);

/* The record of `microbatch`; NULL, or PETRA_INTERNAL, logged with the stage's number, if there is none. */
petra_record *petra_records_at(const petra_records *records, int64_t microbatch);
petra_status petra_records_find(const petra_records *records, int stage, int64_t microbatch, petra_record **out);

/* Takes the record out, with all that it keeps. */
void petra_records_drop(petra_records *records, petra_record *record);

/* Copies of a microbatch's labels, once. */
petra_status petra_record_set_labels(petra_record *record, const int32_t *labels, int32_t count);

#endif
