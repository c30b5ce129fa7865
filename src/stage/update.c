/* SPDX-License-Identifier: Apache-2.0 */
/* U of a stage. */
#include "backend/backend.h"
#include "base/log.h"
#include "stage/stage_private.h"

#include <math.h>

bool petra_stage_sums(const petra_stage *stage) {
  return stage->options.rule.accumulate > 1 || stage->options.rule.split_backward;
}

/* Copies the version that a holder still reads before the step changes it. It copies the weights that F read, so that a
 * reader of an old version reads the same weights. The double buffer holds the version before the latest. */
static petra_status keep_version(petra_stage *stage) {
  bool buffered = stage->options.rule.forward_weights == PETRA_WEIGHTS_DOUBLE_BUFFER;
  if (buffered && stage->updates > 0)
    petra_versions_release(&stage->versions, stage->updates - 1, stage->updates);
  if (buffered)
    petra_versions_hold(&stage->versions, stage->updates, stage->updates);
  return petra_versions_keep(stage);
}

const petra_tensor_set *petra_stage_gradients(const petra_stage *stage, int b) {
  return petra_stage_sums(stage) ? &stage->sets[b].accumulated : &stage->sets[b].gradients;
}

/* *out = min(1, c / (|g| + 1e-6)), with |g| over all parameters of the stage (Pascanu et al. 2013; the addend is
 * PyTorch's). NaN if the norm is not a number. */
static petra_status clip_factor(const petra_stage *stage, double *out) {
  const double maximum = stage->options.optim.keys.clip;
  double squares = 0, square;
  for (int b = 0; b < stage->blocks && maximum > 0; b++)
    for (int i = 0; i < petra_stage_gradients(stage, b)->count; i++) {
      const petra_tensor *gradient = petra_stage_gradients(stage, b)->tensor[i];
      PETRA_TRY(petra_op_dot(stage->compute.backend, gradient, gradient, &square));
      squares += square;
    }
  const double factor = maximum / (sqrt(squares) + 1e-6);
  *out = maximum == 0 || factor > 1 ? 1 : factor;
  return PETRA_OK;
}

/* Does the step of block `b` with its gradients times `factor`. The gradients themselves stay, for the probe. Its
 * memory does not depend on the factor, so that memory can be counted without computing values. */
static petra_status step_scaled(petra_stage *stage, int b, double factor, double lr) {
  PETRA_FINISHED(petra_tensor_set_release) petra_tensor_set scaled = {0};
  const petra_tensor_set *gradients = petra_stage_gradients(stage, b);
  if (stage->options.optim.keys.clip == 0)
    return petra_stage_step(stage, b, gradients, lr);
  PETRA_TRY(petra_tensor_set_clone(&stage->compute, gradients, PETRA_MEMORY_WORKSPACE, &scaled));
  for (int i = 0; i < scaled.count; i++)
    PETRA_TRY(petra_op_scale(stage->compute.backend, factor, scaled.tensor[i]));
  return petra_stage_step(stage, b, &scaled, lr);
}

petra_status petra_stage_step_alone(petra_stage *stage, double lr) {
  double factor;
  PETRA_TRY(clip_factor(stage, &factor));
  for (int b = 0; b < stage->blocks; b++)
    PETRA_TRY(step_scaled(stage, b, factor, lr));
  return PETRA_OK;
}

petra_status petra_stage_age(petra_stage *stage) {
  PETRA_TRY(keep_version(stage));
  stage->updates = stage->options.mitigation.start + 1;
  return PETRA_OK;
}

petra_status petra_stage_update(petra_stage *stage, double lr) {
  if (!petra_stage_gradient_complete(stage))
    return petra_fail(PETRA_INTERNAL, "stage %d: update after %d backward passes; expected %d", stage->options.number,
                      stage->counted, stage->options.rule.accumulate);
  PETRA_TRY(keep_version(stage));
  PETRA_TRY(petra_stage_step_alone(stage, lr));
  stage->begun = stage->counted = 0;
  stage->updates++;
  return PETRA_OK;
}
