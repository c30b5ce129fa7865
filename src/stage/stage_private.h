/* SPDX-License-Identifier: Apache-2.0 */
/* The internals of a stage, shared by the files of src/stage. */
#pragma once

#include "backend/tensor_archive.h"
#include "schedule/method.h"
#include "stage/stage.h"

/* --- stash.c --- */

/* Records of microbatches, by microbatch number. A record has the data that a stage keeps of a microbatch between its
 * forward and the end of its backward. */

typedef struct petra_record_block {
  petra_streams input; /* empty if nothing is kept; may be quantised */
  petra_block_graph graph;
} petra_record_block;

typedef struct petra_record {
  int64_t microbatch;
  int64_t version; /* of the weights that its forward read */
  bool holds;      /* it counts as a holder of this version (petra_versions_hold) */
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

/* Adds an empty record, which exists until it is dropped. Errors: PETRA_INTERNAL if the microbatch has a record
 * already; `stage` is used only in the error line. */
petra_status petra_records_add(petra_records *records, int stage, int64_t microbatch, petra_record **out);

/* Find the record of `microbatch`. If there is none, petra_records_at returns NULL and petra_records_find
 * PETRA_INTERNAL, logged with the stage's number. */
petra_record *petra_records_at(const petra_records *records, int64_t microbatch);
petra_status petra_records_find(const petra_records *records, int stage, int64_t microbatch, petra_record **out);

/* Gets pointers to the members of a record that hold tensors of block `b`: two input streams and the graph. */
enum { PETRA_RECORD_TENSORS = PETRA_GRAPH_TENSORS + 2 };
void petra_record_members(petra_record *record, int b, petra_tensor **members[PETRA_RECORD_TENSORS]);

/* Older versions of a stage's weights, kept as long as they have holders: microbatches in flight whose backward will
 * read the weights of their forward, the double buffer, F's own copy. Version v is the weights after v updates. The
 * latest version lives in the stage itself; it is copied when an update is about to change it and it has a holder. */

typedef struct petra_version {
  int64_t number;
  int holders;
  petra_tensor_set *sets; /* per block */
} petra_version;

typedef struct petra_versions {
  int blocks;
  int latest_holders; /* of the latest version */
  petra_version *old; /* in no order */
  int count;
  int count_max; /* maximum number of old versions at once */
  int64_t capacity;
} petra_versions; /* all zeros except `blocks`: none */

/* Add, or remove, a holder of version `number`, which is `latest` or an old version that has holders. */
void petra_versions_hold(petra_versions *versions, int64_t number, int64_t latest);
void petra_versions_release(petra_versions *versions, int64_t number, int64_t latest);

/* Call this before an update changes the latest version. If that version has a holder, copies the weights that F
 * reads. */
petra_status petra_versions_keep(petra_stage *stage);

/* Adds an old version with empty sets at the end of the list, for a checkpoint to fill. */
petra_status petra_versions_add(petra_versions *versions, int64_t number, int holders);

/* Returns an old version; NULL if it is not kept. */
petra_version *petra_versions_find(const petra_versions *versions, int64_t number);

/* --- the stage --- */

/* The tensors of one block. */
typedef struct petra_stage_sets {
  petra_tensor_set parameters, statistics;
  petra_tensor_set states[PETRA_OPTIMISER_STATES]; /* of the optimiser (nn/optim.h); 0: the velocity of sgd */
  petra_tensor_set gradients;                      /* for the last microbatch */
  petra_tensor_set accumulated; /* mean over the microbatches counted since the last update; k > 1 or split backward */
  /* Tensors of mitigations (delay_mitigation.h) that are on; they are meaningful from the first update on. */
  petra_tensor_set predicted; /* what F reads */
  petra_tensor_set trend;     /* average of updates */
  petra_tensor_set corrected; /* what B reads */
  petra_tensor_set *past;     /* the last petra_mitigation_feedback steps: number t, from 0, at t modulo their count */
} petra_stage_sets;

struct petra_stage {
  petra_stage_options options;
  petra_compute compute;
  petra_account account;
  int blocks;
  petra_records records;
  /* Per block: the forms that its quantised tensors had before quantisation, at the last F (quantisation.c). */
  petra_tensor_form (*graph_forms)[PETRA_GRAPH_TENSORS];
  petra_versions versions;
  int begun;               /* number of B since the last update */
  int counted;             /* number of these B whose gradients are complete */
  int64_t updates;         /* the latest version of the weights */
  int64_t version_read;    /* by the last F or B */
  int64_t version_forward; /* by the last F, also within a fused action */
  int64_t copy;            /* the version of F's copy, with a sync period */
  petra_stage_sets sets[]; /* per block */
};

typedef struct petra_snapshot_block {
  petra_tensor_set parameters, statistics;
} petra_snapshot_block;

struct petra_snapshot {
  int blocks;
  petra_snapshot_block block[];
};

/* Creates a snapshot with empty sets. */
petra_status petra_snapshot_create(const petra_stage *stage, petra_snapshot **out);

/* Returns true if gradients are summed before an update. */
bool petra_stage_sums(const petra_stage *stage);

/* Returns the gradients of block `b` that an update would use now. */
const petra_tensor_set *petra_stage_gradients(const petra_stage *stage, int b);

/* Returns the rule that decides which version a pass reads. */
static inline petra_version_rule petra_stage_version_rule(const petra_stage *stage) {
  const petra_stage_rule *rule = &stage->options.rule;
  return (petra_version_rule){rule->forward_weights, rule->backward_weights, rule->accumulate, rule->sync_period};
}

/* Gets the parameters of block `b` in a version: with PETRA_WEIGHTS_LATEST as B reads them, with other choices as F
 * read them (the two differ only with a mitigation; F itself uses STASHED). Errors: PETRA_INTERNAL, logged, if the
 * stage no longer has the version. */
petra_status petra_stage_weights(const petra_stage *stage, petra_weights weights, int64_t version, int b,
                                 const petra_tensor_set **out);

/* Moves the parameters of block `b`, and the weights that F and B read instead, by one step with these gradients; `lr`
 * is the rate before any mitigation. */
petra_status petra_stage_step(petra_stage *stage, int b, const petra_tensor_set *gradients, double lr);

/* Does F from the first block to the last. Gets the record that F creates, and the output of the last block (nothing
 * after a loss). `fused`: B follows in the same action, so F keeps the graphs and nothing else, whatever the rule. */
petra_status petra_stage_run(petra_stage *stage, int64_t microbatch, bool fused, const petra_message *in,
                             const petra_target *target, petra_record **out, petra_streams *streams);

/* Removes the record with everything that it keeps, and releases its version. */
void petra_stage_drop(petra_stage *stage, petra_record *record);

/* Returns block `b` (from 0) of the stage; an auxiliary head is the last. */
const petra_block *petra_stage_block(const petra_stage *stage, int b);

/* Returns the index in the stage of block `block` of the model. */
static inline int petra_stage_place(const petra_stage *stage, int block) {
  return block >= stage->options.end ? stage->blocks - 1 : block - stage->options.first;
}

/* Returns the number of the stage's blocks without an auxiliary head. */
static inline int petra_stage_network_blocks(const petra_stage *stage) {
  return stage->options.end - stage->options.first;
}

/* --- quantisation.c --- */

/* The first function stores the input of block `b` in the record, the second reads it back. `before` is the input of
 * the block before block `b`, or empty: a quantised stream that passes unchanged through the block before is stored
 * once. */
petra_status petra_stage_keep_input(petra_stage *stage, petra_record *record, int b, const petra_streams *before,
                                    const petra_streams *in);
petra_status petra_stage_kept_input(petra_stage *stage, const petra_record *record, int b, petra_streams *out);

/* The first function quantises the graphs that F has stored in the record, if their format is not native. The second
 * reads back the graph of block `b`. */
petra_status petra_stage_keep_graphs(petra_stage *stage, petra_record *record);
petra_status petra_stage_kept_graph(petra_stage *stage, petra_record *record, int b);
