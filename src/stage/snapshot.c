/* SPDX-License-Identifier: Apache-2.0 */
/* A stage's weights and statistics at one moment, and evaluation with them. */
#include "backend/backend.h"
#include "base/mem.h"
#include "stage/stage_private.h"
#include "base/log.h"

petra_status petra_snapshot_create(const petra_stage *stage, petra_snapshot **out) {
  petra_snapshot *snapshot;
  PETRA_TRY(petra_allocate(&snapshot, 1, sizeof *snapshot + (size_t)stage->blocks * sizeof *snapshot->block));
  snapshot->blocks = stage->blocks;
  *out = snapshot;
  return PETRA_OK;
}

petra_status petra_stage_snapshot(petra_stage *stage, petra_snapshot **out) {
  const petra_compute *compute = &stage->compute;
  petra_snapshot *snapshot;
  petra_status status = PETRA_OK;
  PETRA_TRY(petra_snapshot_create(stage, &snapshot));
  for (int b = 0; b < stage->blocks; b++) {
    const petra_stage_sets *sets = &stage->sets[b];
    petra_snapshot_block *block = &snapshot->block[b];
    PETRA_TRY_GOTO(
        status, petra_tensor_set_clone(compute, &sets->parameters, PETRA_MEMORY_WORKSPACE, &block->parameters), fail);
    PETRA_TRY_GOTO(
        status, petra_tensor_set_clone(compute, &sets->statistics, PETRA_MEMORY_WORKSPACE, &block->statistics), fail);
  }
  *out = snapshot;
  return PETRA_OK;
fail:
  petra_snapshot_destroy(snapshot);
  return status;
}

void petra_snapshot_destroy(petra_snapshot *snapshot) {
  for (int b = 0; snapshot && b < snapshot->blocks; b++) {
    petra_tensor_set_release(&snapshot->block[b].parameters);
    petra_tensor_set_release(&snapshot->block[b].statistics);
  }
  petra_free(snapshot);
}

petra_tensor *petra_snapshot_tensor(const petra_stage *stage, const petra_snapshot *snapshot, int block,
                                    bool statistics, int index) {
  const petra_snapshot_block *sets = &snapshot->block[petra_stage_place(stage, block)];
  return statistics ? sets->statistics.tensor[index] : sets->parameters.tensor[index];
}

/* Computes the blocks of the network with the snapshot's weights. If `share` is not 0, estimates the statistics, to
 * which the batch contributes that share, and does not compute the head. */
static petra_status pass(petra_stage *stage, const petra_snapshot *snapshot, double share, const petra_streams *in,
                         const petra_target *target, petra_streams *out) {
  const petra_compute compute = {.backend = stage->compute.backend, .account = stage->compute.account};
  PETRA_FINISHED(petra_streams_release) petra_streams streams = petra_streams_retain(in);
  for (int b = 0; b < petra_stage_network_blocks(stage); b++) {
    const petra_block *block = petra_stage_block(stage, b);
    const petra_snapshot_block *sets = &snapshot->block[b];
    petra_streams next = {{NULL, NULL}};
    if (share == 0)
      PETRA_TRY(petra_block_evaluate(&compute, block, sets->parameters.tensor, sets->statistics.tensor, &streams,
                                     target, &next));
    else if (!block->ops->is_loss)
      PETRA_TRY(petra_block_estimate(&compute, block, sets->parameters.tensor, share, sets->statistics.tensor, &streams,
                                     &next));
    petra_streams_move(&next, &streams);
  }
  *out = petra_streams_retain(&streams);
  return PETRA_OK;
}

petra_status petra_stage_evaluate(petra_stage *stage, const petra_snapshot *snapshot, const petra_streams *in,
                                  const int32_t *labels, petra_streams *out, petra_loss *loss) {
  return pass(stage, snapshot, 0, in, &(const petra_target){labels, loss}, out);
}

petra_status petra_stage_estimate(petra_stage *stage, petra_snapshot *snapshot, int64_t number, const petra_streams *in,
                                  petra_streams *out) {
  for (int b = 0; b < petra_stage_network_blocks(stage) && number == 0; b++) /* they may be infinite before */
    for (int i = 0; i < snapshot->block[b].statistics.count; i++)
      PETRA_TRY(petra_op_fill(stage->compute.backend, snapshot->block[b].statistics.tensor[i], 0));
  return pass(stage, snapshot, 1 / (double)(number + 1), in, NULL, out);
}

/* --- for probes of gradient fidelity --- */

petra_status petra_stage_version_tensors(const petra_stage *stage, petra_weights_key key, int block,
                                         const petra_tensor_set **out) {
  if (petra_mitigation_predicts(&stage->options.mitigation) && !key.predicted) {
    if (key.version != stage->updates)
      return petra_fail(PETRA_INTERNAL, "stage %d: of the weights after %lld updates only the prediction is kept",
                        stage->options.number, (long long)key.version);
    *out = &stage->sets[block - stage->options.first].parameters;
    return PETRA_OK;
  }
  return petra_stage_weights(stage, PETRA_WEIGHTS_STASHED, key.version, block - stage->options.first, out);
}

const petra_tensor_set *petra_stage_mean_gradients(const petra_stage *stage, int block) {
  return petra_stage_gradients(stage, block - stage->options.first);
}

bool petra_stage_reconstructs(const petra_stage *stage) {
  const petra_stage_rule *rule = &stage->options.rule;
  return rule->invert && rule->keep == PETRA_KEEP_NOTHING && petra_stage_block(stage, 0)->reversible;
}
