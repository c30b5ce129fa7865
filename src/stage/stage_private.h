/* SPDX-License-Identifier: Apache-2.0 */
/* The inside of a stage, shared by the files of src/stage. */
#ifndef PETRA_STAGE_STAGE_PRIVATE_H
#define PETRA_STAGE_STAGE_PRIVATE_H

#include "stage/record.h"
#include "stage/stage.h"
#include "stage/weight_stash.h"

/* The tensors of one block. */
typedef struct petra_stage_sets {
  petra_tensor_set parameters, statistics;
  petra_tensor_set states[PETRA_OPTIMISER_STATES]; /* the optimiser's (nn/optim.h); 0: the velocity of sgd */
  petra_tensor_set gradients;                      /* of the last microbatch */
  petra_tensor_set accumulated; /* mean over the microbatches counted since the last update; k > 1 or split backward */
  /* Of mitigations (mitigation.h), where they are on; they mean something from the first update on. */
  petra_tensor_set predicted; /* what F reads */
  petra_tensor_set trend;     /* average of updates */
  petra_tensor_set corrected; /* what B reads */
  petra_tensor_set *past;     /* petra_mitigation_feedback last steps: number t, from 0, at t modulo their count */
} petra_stage_sets;

struct petra_stage {
  petra_stage_options options;
  petra_compute compute;
  petra_account account;
  int blocks;
  const petra_tensor_set **present; /* per block: what U copies where an older version is still read */
  petra_records records;
  petra_versions versions;
  int begun;               /* B's since the last update */
  int counted;             /* of these, those whose gradients are complete */
  int64_t updates;         /* the latest version of the weights */
  int64_t version_read;    /* by the last F or B */
  int64_t version_forward; /* by the last F, also that within a fused action */
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

/* A snapshot with empty sets. */
petra_status petra_snapshot_create(const petra_stage *stage, petra_snapshot **out);

/* Whether gradients are summed before an update. */
bool petra_stage_sums(const petra_stage *stage);

/* The version that F of a microbatch reads; moves F's copy where it is due. */
petra_status petra_stage_choose_forward(petra_stage *stage, int64_t microbatch, int64_t *version);

/* The version that a choice of weights means for the backward of a record. */
int64_t petra_stage_choose(const petra_stage *stage, petra_weights weights, const petra_record *record);

/* The parameters of block `b` in a version, as a choice of weights means it: PETRA_WEIGHTS_LATEST as B reads them,
 * others as F read them (they differ with a mitigation only; F itself asks for STASHED). PETRA_INTERNAL, logged, if
 * the stage has the version no more. */
petra_status petra_stage_weights(const petra_stage *stage, petra_weights weights, int64_t version, int b,
                                 const petra_tensor_set **out);

/* Moves the parameters of block `b` by one step with these gradients and `lr` before any mitigation, and what F and
 * B read with them. */
petra_status petra_stage_step(petra_stage *stage, int b, const petra_tensor_set *gradients, double lr);

/* F from the first block to the last: the record that it leaves, and what the last block gives (nothing after a loss).
 * `fused`: B follows in the same action, with the graphs kept for it whatever the rule, and nothing else. */
petra_status petra_stage_run(petra_stage *stage, int64_t microbatch, bool fused, const petra_message *in,
                             const petra_target *target, petra_record **out, petra_streams *streams);

/* Takes the record out and lets go what it holds. */
void petra_stage_drop(petra_stage *stage, petra_record *record);

/* Block `b` (from 0) of the stage. */
const petra_block *petra_stage_block(const petra_stage *stage, int b);

#endif
