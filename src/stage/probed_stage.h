/* SPDX-License-Identifier: Apache-2.0 */
/* What a probe of gradient fidelity needs of the stages: which weights they read, the gradient that an update
 * uses, and exact backpropagation through the whole network with given weights. Nothing here changes a stage.
 * Rules: docs/semantics/gradient-fidelity.md. */
#ifndef PETRA_STAGE_PROBED_STAGE_H
#define PETRA_STAGE_PROBED_STAGE_H

#include "stage/stage.h"

/* The network that the stage holds blocks of. */
const petra_model *petra_stage_model(const petra_stage *stage);

/* The version that the last F read (of a fused action: its forward part). */
int64_t petra_stage_version_forward(const petra_stage *stage);

/* Whether its F reads a prediction of its weights (stage/mitigation.h). */
bool petra_stage_predicts(const petra_stage *stage);

/* Which weights of a stage: those after so many updates; of a stage that predicts with `predicted` what its F reads in their place. */
typedef struct petra_weights_key {
  int64_t version;
  bool predicted; /* false where the stage does not predict */
} petra_weights_key;

static inline bool petra_weights_key_equal(petra_weights_key a, petra_weights_key b) {
  return a.version == b.version && a.predicted == b.predicted;
}

/* The parameters of block `block` (from 0, one of the stage's) in a version that the stage has: the latest,
 * or an older one that one of its passes will read. Owned by the stage and valid until its next action.
 * Of the weights themselves a stage that predicts has the latest version alone. PETRA_INTERNAL, logged, if the stage has it
 * no more. */
petra_status petra_stage_version_tensors(const petra_stage *stage, petra_weights_key key, int block,
                                         const petra_tensor_set **out);

/* The gradients of block `block` that an update at this moment would take: the mean over the k microbatches.
 */
const petra_tensor_set *petra_stage_mean_gradients(const petra_stage *stage, int block);

/* Whether the B, as an action of its own, of a stage that begins with this block reconstructs the input of its forward from
 * its output; of a stage that is here. */
bool petra_rule_reconstructs(const petra_stage_rule *rule, const petra_block *first);
bool petra_stage_reconstructs(const petra_stage *stage);

/* ||found - truth|| / ||truth|| over both streams. */
petra_status petra_probe_distance(const petra_compute *compute, const petra_streams *found, const petra_streams *truth,
                                  double *out);

enum { PETRA_PROBE_SUMS = 2 };

/* A block in an exact backpropagation. */
typedef struct petra_probe_block {
  petra_tensor *const *parameters;
  const petra_tensor_set *sums[PETRA_PROBE_SUMS]; /* factor times the gradient is added to each; NULL: not wanted */
} petra_probe_block;

/* Exact backpropagation of one microbatch. */
typedef struct petra_probe_pass {
  petra_compute compute;
  const petra_model *model;
  const petra_probe_block *blocks; /* all of the network's */
  petra_tensor *images;
  const int32_t *labels; /* one an image */
  double factor;
} petra_probe_pass;

/* Runs the pass; with batch statistics, as training does, and no running statistics touched. Blocks below the lowest
 * one whose gradient is wanted are not gone back to. PETRA_SHAPE, PETRA_DATA, PETRA_BACKEND, PETRA_NO_MEMORY. */
petra_status petra_probe_pass_run(const petra_probe_pass *pass);

#endif
