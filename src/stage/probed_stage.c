/* SPDX-License-Identifier: Apache-2.0 */
#include "stage/probed_stage.h"

#include "backend/backend.h"
#include "base/log.h"
#include "base/mem.h"
#include "stage/stage_private.h"

#include <math.h>

const petra_model *petra_stage_model(const petra_stage *stage) {
  return stage->options.model;
}

bool petra_stage_predicts(const petra_stage *stage) {
  return petra_mitigation_predicts(&stage->options.mitigation);
}

petra_status petra_stage_version_tensors(const petra_stage *stage, petra_weights_key key, int block,
                                         const petra_tensor_set **out) {
  if (petra_stage_predicts(stage) && !key.predicted) {
    if (key.version != stage->updates)
      return petra_fail(PETRA_INTERNAL, "stage %d: of the weights after %lld updates only the prediction is kept",
                        stage->options.number, (long long)key.version);
    *out = &stage->sets[block - stage->options.first].parameters;
    return PETRA_OK;
  }
  return petra_stage_weights(stage, PETRA_WEIGHTS_STASHED, key.version, block - stage->options.first, out);
}

const petra_tensor_set *petra_stage_mean_gradients(const petra_stage *stage, int block) {
  const petra_stage_sets *sets = &stage->sets[block - stage->options.first];
  return petra_stage_sums(stage) ? &sets->accumulated : &sets->gradients;
}

bool petra_stage_reconstructs(const petra_stage *stage) {
  const petra_stage_rule *rule = &stage->options.rule;
  return rule->invert && rule->keep == PETRA_KEEP_NOTHING && petra_stage_block(stage, 0)->reversible;
}

/* Adds the squares of `found - truth` and of `truth`. */
static petra_status add_squares(const petra_compute *compute, const petra_tensor *found, const petra_tensor *truth,
                                double *difference, double *whole) {
  petra_backend *backend = compute->backend;
  petra_tensor *apart;
  double square = 0, of_truth = 0;
  petra_status status;
  PETRA_TRY(petra_tensor_create(backend, truth->kind, truth->shape, compute->account, PETRA_MEMORY_WORKSPACE, &apart));
  PETRA_TRY_GOTO(status, petra_op_copy(backend, found, apart), done);
  PETRA_TRY_GOTO(status, petra_op_axpy(backend, -1, truth, apart), done);
  PETRA_TRY_GOTO(status, petra_op_dot(backend, apart, apart, &square), done);
  PETRA_TRY_GOTO(status, petra_op_dot(backend, truth, truth, &of_truth), done);
  *difference += square;
  *whole += of_truth;
done:
  petra_tensor_release(&apart);
  return status;
}

petra_status petra_probe_distance(const petra_compute *compute, const petra_streams *found, const petra_streams *truth,
                                  double *out) {
  double difference = 0, whole = 0;
  for (int i = 0; i < 2; i++)
    if (truth->tensor[i])
      PETRA_TRY(add_squares(compute, found->tensor[i], truth->tensor[i], &difference, &whole));
  *out = sqrt(difference / whole);
  return PETRA_OK;
}
