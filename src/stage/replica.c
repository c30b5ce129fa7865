/* SPDX-License-Identifier: Apache-2.0 */
#include "stage/replica.h"

#include "stage/stage_private.h"

bool petra_stage_gradient_complete(const petra_stage *stage) {
  const int accumulate = stage->options.rule.accumulate;
  return stage->begun == accumulate && stage->counted == accumulate;
}

static petra_status visit_set(const petra_tensor_set *set, petra_status (*visit)(void *context, petra_tensor *tensor),
                              void *context) {
  for (int i = 0; i < set->count; i++)
    PETRA_TRY(visit(context, set->tensor[i]));
  return PETRA_OK;
}

petra_status petra_stage_visit_shared(petra_stage *stage, petra_status (*visit)(void *context, petra_tensor *tensor),
                                      void *context) {
  for (int b = 0; b < stage->blocks; b++) {
    const petra_stage_sets *sets = &stage->sets[b];
    PETRA_TRY(visit_set(petra_stage_sums(stage) ? &sets->accumulated : &sets->gradients, visit, context));
    PETRA_TRY(visit_set(&sets->statistics, visit, context));
  }
  return PETRA_OK;
}
