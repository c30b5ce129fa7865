/* SPDX-License-Identifier: Apache-2.0 */
/* The part of the stages that a probe of gradient fidelity uses: the weights that they read, and the gradient that an
 * update uses. Nothing here changes a stage. Rules: docs/semantics/gradient-fidelity.md. */
#pragma once

#include "stage/stage.h"

/* Returns the network to which the blocks of the stage belong. */
const petra_model *petra_stage_model(const petra_stage *stage);

/* Returns true if F reads a prediction of the weights (stage/mitigation.h). */
bool petra_stage_predicts(const petra_stage *stage);

/* Selects weights of a stage: those after `version` updates or, if the stage predicts and `predicted` is set, what its
 * F reads instead. */
typedef struct petra_weights_key {
  int64_t version;
  bool predicted; /* false if the stage does not predict */
} petra_weights_key;

static inline bool petra_weights_key_equal(petra_weights_key a, petra_weights_key b) {
  return a.version == b.version && a.predicted == b.predicted;
}

/* Gets the parameters of block `block` (from 0, within the stage) in a version that the stage has: the latest, or an
 * older one that one of its passes will read. The stage owns them; they are valid until its next action. A stage that
 * predicts has only the latest version of the weights themselves. Errors: PETRA_INTERNAL, logged, if the stage no
 * longer has the version. */
petra_status petra_stage_version_tensors(const petra_stage *stage, petra_weights_key key, int block,
                                         const petra_tensor_set **out);

/* Gets the gradients of block `block` that an update would use now: the mean over the k microbatches. */
const petra_tensor_set *petra_stage_mean_gradients(const petra_stage *stage, int block);

/* Returns true if the B of the stage (as an action of its own) reconstructs the input of its forward from its
 * output. */
bool petra_stage_reconstructs(const petra_stage *stage);

/* Computes ||found - truth|| / ||truth|| over both streams. */
petra_status petra_probe_distance(const petra_compute *compute, const petra_streams *found, const petra_streams *truth,
                                  double *out);
