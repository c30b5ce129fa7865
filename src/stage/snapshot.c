/* A stage's weights and statistics at one moment, and the evaluation with them. */
#include "base/mem.h"
#include "stage/stage_private.h"

petra_status petra_snapshot_create(const petra_stage *stage, petra_snapshot **out) {
  petra_snapshot *snapshot;
  petra_status status;
  PETRA_TRY(petra_allocate(&snapshot, 1, sizeof *snapshot));
  snapshot->blocks = stage->blocks;
  PETRA_TRY_GOTO(status, petra_allocate(&snapshot->parameters, (size_t)stage->blocks, sizeof *snapshot->parameters),
                 fail);
  PETRA_TRY_GOTO(status, petra_allocate(&snapshot->statistics, (size_t)stage->blocks, sizeof *snapshot->statistics),
                 fail);
  *out = snapshot;
  return PETRA_OK;
fail:
  petra_snapshot_destroy(snapshot);
  return status;
}

petra_status petra_stage_snapshot(petra_stage *stage, petra_snapshot **out) {
  petra_snapshot *snapshot;
  petra_status status;
  PETRA_TRY(petra_snapshot_create(stage, &snapshot));
  for (int b = 0; b < stage->blocks; b++) {
    PETRA_TRY_GOTO(status,
                   petra_tensor_set_clone(&stage->compute, &stage->sets[b].parameters, PETRA_MEMORY_WORKSPACE,
                                          &snapshot->parameters[b]),
                   fail);
    PETRA_TRY_GOTO(status,
                   petra_tensor_set_clone(&stage->compute, &stage->sets[b].statistics, PETRA_MEMORY_WORKSPACE,
                                          &snapshot->statistics[b]),
                   fail);
  }
  *out = snapshot;
  return PETRA_OK;
fail:
  petra_snapshot_destroy(snapshot);
  return status;
}

void petra_snapshot_destroy(petra_snapshot *snapshot) {
  if (!snapshot)
    return;
  for (int b = 0; b < snapshot->blocks; b++) {
    if (snapshot->parameters)
      petra_tensor_set_release(&snapshot->parameters[b]);
    if (snapshot->statistics)
      petra_tensor_set_release(&snapshot->statistics[b]);
  }
  petra_free(snapshot->parameters);
  petra_free(snapshot->statistics);
  petra_free(snapshot);
}

petra_status petra_stage_evaluate(petra_stage *stage, const petra_snapshot *snapshot, const petra_streams *in,
                                  const int32_t *labels, petra_streams *out, petra_loss *loss) {
  const petra_compute compute = {.backend = stage->compute.backend, .account = stage->compute.account};
  const petra_target target = {labels, loss};
  petra_streams streams = petra_streams_retain(in), next;
  petra_status status = PETRA_OK;
  for (int b = 0; b < stage->blocks; b++) {
    const petra_block *block = petra_stage_block(stage, b);
    petra_tensor *const *parameters = snapshot->parameters[b].tensor;
    PETRA_TRY_GOTO(
        status,
        petra_block_evaluate(&compute, block, parameters, snapshot->statistics[b].tensor, &streams, &target, &next),
        done);
    petra_streams_release(&streams);
    streams = next;
  }
  *out = streams;
  return PETRA_OK;
done:
  petra_streams_release(&streams);
  return status;
}
