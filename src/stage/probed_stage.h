/* SPDX-License-Identifier: Apache-2.0 */
/* What a probe of gradient fidelity needs of the stages: which weights they read, and the gradient that an update uses.
 * Nothing here changes a stage. Rules: docs/semantics/gradient-fidelity.md. */
#ifndef PETRA_STAGE_PROBED_STAGE_H
#define PETRA_STAGE_PROBED_STAGE_H

#include "stage/stage.h"

/* The network that the stage holds blocks of. */
const petra_model *petra_stage_model(const petra_stage *stage);

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

/* Whether the B of a stage, as an action of its own, reconstructs the input of its forward from its output. */
bool petra_stage_reconstructs(const petra_stage *stage);

/* ||found - truth|| / ||truth|| over both streams. */
petra_status petra_probe_distance(const petra_compute *compute, const petra_streams *found, const petra_streams *truth,
                                  double *out);

#endif
