/* B of a stage: for every block from the last to the first, get its graph (kept, computed again, or built while the input
 * is reconstructed), then gradients; and the fused action of the stage that has the head. */
#include "backend/ops.h"
#include "base/log.h"
#include "stage/stage_private.h"

/* Counts the gradients of the last microbatch towards the next update: accumulated += gradients / k. */
static petra_status accumulate(petra_stage *stage, int b) {
  petra_stage_sets *sets = &stage->sets[b];
  double weight = 1.0 / stage->options.accumulate;
  for (int i = 0; i < sets->accumulated.count; i++) {
    if (stage->counted == 0)
      PETRA_TRY(petra_op_fill(stage->compute.backend, sets->accumulated.tensor[i], 0));
    PETRA_TRY(petra_op_axpy(stage->compute.backend, weight, sets->gradients.tensor[i], sets->accumulated.tensor[i]));
  }
  return PETRA_OK;
}

/* Backward of block `b` from its graph; *gradients becomes those of its input. */
static petra_status block_backward(petra_stage *stage, int b, petra_block_graph *graph, petra_streams *gradients) {
  const petra_block *block = petra_stage_block(stage, b);
  petra_stage_sets *sets = &stage->sets[b];
  petra_streams din;
  PETRA_TRY(petra_block_update_statistics(&stage->compute, block, graph, sets->statistics.tensor));
  PETRA_TRY(petra_block_backward(&stage->compute, block, sets->parameters.tensor, graph, gradients, sets->gradients.tensor, &din));
  petra_streams_release(gradients);
  *gradients = din;
  return accumulate(stage, b);
}

/* The graph of block `b` where it was not kept; *streams, the block's output where it is known, becomes its input. */
static petra_status rebuild_graph(petra_stage *stage, int b, petra_record *record, petra_streams *streams,
                                  petra_block_graph *graph) {
  const petra_block *block = petra_stage_block(stage, b);
  petra_tensor *const *parameters = stage->sets[b].parameters.tensor;
  petra_streams in = {{NULL, NULL}};
  if (record->inputs[b].tensor[0]) {
    petra_streams again = {{NULL, NULL}};
    PETRA_TRY(petra_block_forward(&stage->compute, block, parameters, &record->inputs[b], graph, &again));
    petra_streams_release(&again);
    in = petra_streams_retain(&record->inputs[b]);
  } else {
    if (!streams->tensor[0])
      return petra_fail(PETRA_INTERNAL, "stage %d: block %s has nothing to invert", stage->options.number, block->name);
    PETRA_TRY(petra_block_invert(&stage->compute, block, parameters, streams, graph, &in));
  }
  petra_streams_release(streams);
  *streams = in;
  return PETRA_OK;
}

/* What goes to the stage below: gradients and, where the method inverts, the streams. Takes both over. */
static void send_down(const petra_stage *stage, petra_streams *streams, petra_streams *gradients, petra_message *out) {
  *out = (petra_message){{{NULL, NULL}}, {{NULL, NULL}}};
  out->gradients = *gradients;
  if (stage->options.invert && stage->options.number > 1)
    out->streams = *streams;
  else
    petra_streams_release(streams);
}

petra_status petra_stage_backward(petra_stage *stage, int64_t microbatch, const petra_message *in, petra_message *out) {
  petra_record *record;
  PETRA_TRY(petra_record_oldest(&stage->records, stage->options.number, microbatch, &record));
  petra_streams streams = petra_streams_retain(&in->streams), gradients = petra_streams_retain(&in->gradients);
  petra_status status = PETRA_OK;
  for (int b = stage->blocks - 1; b >= 0; b--) {
    petra_block_graph rebuilt = {0};
    bool kept = stage->options.keep == PETRA_KEEP_GRAPH;
    if (!kept)
      PETRA_TRY_GOTO(status, rebuild_graph(stage, b, record, &streams, &rebuilt), fail);
    status = block_backward(stage, b, kept ? &record->graphs[b] : &rebuilt, &gradients);
    petra_block_graph_release(&rebuilt);
    petra_block_graph_release(&record->graphs[b]);
    petra_streams_release(&record->inputs[b]);
    if (status != PETRA_OK)
      goto fail;
  }
  petra_record_drop_oldest(&stage->records);
  stage->counted++;
  send_down(stage, &streams, &gradients, out);
  return PETRA_OK;
fail:
  petra_streams_release(&streams);
  petra_streams_release(&gradients);
  return status;
}

petra_status petra_stage_loss(petra_stage *stage, int64_t microbatch, const petra_message *in, const int32_t *labels,
                              petra_message *out, petra_loss *loss) {
  petra_record *record;
  PETRA_TRY(petra_record_push(&stage->records, microbatch, &record));
  petra_streams streams = petra_streams_retain(&in->streams), gradients = {{NULL, NULL}};
  petra_status status = PETRA_OK;
  int head = stage->blocks - 1;
  for (int b = 0; b < head; b++) {
    petra_streams next;
    PETRA_TRY_GOTO(status, petra_block_forward(&stage->compute, petra_stage_block(stage, b), stage->sets[b].parameters.tensor,
                                               &streams, &record->graphs[b], &next), done);
    petra_streams_release(&streams);
    streams = next;
  }
  PETRA_TRY_GOTO(status, petra_head_forward(&stage->compute, petra_stage_block(stage, head), stage->sets[head].parameters.tensor,
                                            &streams, labels, &record->graphs[head], loss), done);
  for (int b = head; b >= 0; b--) {
    PETRA_TRY_GOTO(status, block_backward(stage, b, &record->graphs[b], &gradients), done);
    petra_block_graph_release(&record->graphs[b]);
  }
  stage->counted++;
  petra_streams_release(&streams);
  streams = petra_streams_retain(&in->streams);
  send_down(stage, &streams, &gradients, out);
done:
  if (status != PETRA_OK) {
    petra_streams_release(&streams);
    petra_streams_release(&gradients);
  }
  petra_record_drop_newest(&stage->records);
  return status;
}
