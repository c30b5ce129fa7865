/* SPDX-License-Identifier: Apache-2.0 */
/* B of a stage. For every block, from the last to the first, B gets the graph (kept, recomputed, or built during the
 * reconstruction of the input), then computes gradients. This file also has W, and the fused action of the stage that
 * has the head. */
#include "backend/backend.h"
#include "base/log.h"
#include "stage/stage_private.h"

/* Computes accumulated += gradients / k, for tensor `i` of block `b`; `first`: nothing has been counted since the last
 * update. */
static petra_status accumulate(petra_stage *stage, int b, int i, bool first) {
  petra_backend *backend = stage->compute.backend;
  const petra_tensor *gradient = stage->sets[b].gradients.tensor[i];
  petra_tensor *sum = stage->sets[b].accumulated.tensor[i];
  int k = stage->options.rule.accumulate;
  if (k == 1)
    return petra_op_copy(backend, gradient, sum);
  if (first)
    PETRA_TRY(petra_op_fill(backend, sum, 0));
  return petra_op_axpy(backend, 1.0 / k, gradient, sum);
}

/* Returns true if W computes the gradient of tensor `i` of block `b` when it is split from B. */
static bool is_deferred(const petra_stage *stage, int b, int i) {
  petra_tensor_spec spec;
  petra_block_parameter(stage->options.model, petra_stage_block(stage, b), i, &spec);
  return spec.deferred;
}

/* Adds the gradients of block `b` that B computed to the sums. */
static petra_status count_block(petra_stage *stage, int b) {
  for (int i = 0; i < stage->sets[b].accumulated.count; i++)
    if (!stage->options.rule.split_backward || !is_deferred(stage, b, i))
      PETRA_TRY(accumulate(stage, b, i, stage->begun == 0));
  return PETRA_OK;
}

/* Returns the version that a choice of weights selects for the backward of a record. */
static int64_t choose_version(const petra_stage *stage, petra_weights weights, const petra_record *record) {
  const petra_version_rule rule = petra_stage_version_rule(stage);
  return petra_backward_version(&rule, weights, record->microbatch, stage->updates, record->version);
}

/* Computes the backward of block `b` from its graph with the weights of `version`; *gradients becomes the gradient of
 * its input. */
static petra_status block_backward(petra_stage *stage, int b, int64_t version, petra_block_graph *graph,
                                   petra_streams *gradients) {
  const petra_block *block = petra_stage_block(stage, b);
  petra_stage_sets *sets = &stage->sets[b];
  const petra_tensor_set *parameters;
  petra_streams din;
  PETRA_TRY(petra_stage_weights(stage, stage->options.rule.backward_weights, version, b, &parameters));
  PETRA_TRY(petra_block_update_statistics(&stage->compute, block, graph, sets->statistics.tensor));
  graph->defer = stage->options.rule.split_backward;
  PETRA_TRY(
      petra_block_backward(&stage->compute, block, parameters->tensor, graph, gradients, sets->gradients.tensor, &din));
  petra_streams_move(&din, gradients);
  return count_block(stage, b);
}

/* Computes the input of block `b` from its output. */
static petra_status invert(petra_stage *stage, int b, const petra_record *record, const petra_streams *streams,
                           petra_block_graph *graph, petra_streams *in) {
  const petra_stage_rule *rule = &stage->options.rule;
  const petra_block *block = petra_stage_block(stage, b);
  int64_t inverting = choose_version(stage, rule->invert_weights, record);
  int64_t differentiated = choose_version(stage, rule->backward_weights, record);
  const petra_tensor_set *parameters, *other;
  PETRA_TRY(petra_stage_weights(stage, rule->invert_weights, inverting, b, &parameters));
  PETRA_TRY(petra_stage_weights(stage, rule->backward_weights, differentiated, b, &other));
  if (parameters == other)
    return petra_block_invert(&stage->compute, block, parameters->tensor, streams, graph, in);
  /* The graph is computed with other weights than the input. */
  PETRA_TRY(petra_block_invert(&stage->compute, block, parameters->tensor, streams, NULL, in));
  return petra_block_forward(&stage->compute, block, other->tensor, in, NULL, graph, NULL);
}

/* Recomputes the graph of a block from the input that it kept. */
static petra_status recompute(petra_stage *stage, int b, const petra_record *record, petra_streams *in,
                              petra_block_graph *graph) {
  const petra_block *block = petra_stage_block(stage, b);
  const petra_tensor_set *parameters;
  int64_t version = choose_version(stage, stage->options.rule.backward_weights, record);
  PETRA_TRY(petra_stage_kept_input(stage, record, b, in));
  PETRA_TRY(petra_stage_weights(stage, stage->options.rule.backward_weights, version, b, &parameters));
  const petra_target target = {record->labels, NULL};
  return petra_block_forward(&stage->compute, block, parameters->tensor, in, &target, graph, NULL);
}

/* Rebuilds the graph of block `b`, which was not kept. *streams, the block's output if it is known, becomes its
 * input. */
static petra_status rebuild_graph(petra_stage *stage, int b, const petra_record *record, petra_streams *streams,
                                  petra_block_graph *graph) {
  PETRA_FINISHED(petra_streams_release) petra_streams in = {{NULL, NULL}};
  if (record->block[b].input.tensor[0])
    PETRA_TRY(recompute(stage, b, record, &in, graph));
  else if (streams->tensor[0])
    PETRA_TRY(invert(stage, b, record, streams, graph, &in));
  else
    return petra_fail(PETRA_INTERNAL, "stage %d: block %s has nothing to invert", stage->options.number,
                      petra_stage_block(stage, b)->name);
  petra_streams_move(&in, streams);
  return PETRA_OK;
}

/* Ends B. A split B keeps the record, because W needs its graphs. */
static void finish(petra_stage *stage, petra_record *record) {
  stage->begun++;
  if (stage->options.rule.split_backward) {
    record->backward = true;
  } else {
    stage->counted++;
    petra_stage_drop(stage, record);
  }
}

static petra_status check_begun(const petra_stage *stage, const petra_record *record) {
  int k = stage->options.rule.accumulate;
  if (record->backward)
    return petra_fail(PETRA_INTERNAL, "stage %d: a second backward of microbatch %lld", stage->options.number,
                      (long long)record->microbatch);
  if (stage->begun == k && petra_stage_sums(stage))
    return petra_fail(PETRA_INTERNAL,
                      "stage %d: backward of microbatch %lld before the update that %d backward passes were due for",
                      stage->options.number, (long long)record->microbatch, k);
  return PETRA_OK;
}

/* Performs B of a record; `rebuild`: its graphs were not kept. The message to the stage below has the gradients and, if
 * the method inverts, the streams. */
static petra_status backward(petra_stage *stage, petra_record *record, bool rebuild, const petra_message *in,
                             petra_message *out) {
  PETRA_TRY(check_begun(stage, record));
  int64_t version = choose_version(stage, stage->options.rule.backward_weights, record);
  PETRA_FINISHED(petra_streams_release) petra_streams streams = petra_streams_retain(&in->streams);
  PETRA_FINISHED(petra_streams_release) petra_streams gradients = petra_streams_retain(&in->gradients);
  for (int b = stage->blocks - 1; b >= 0; b--) {
    petra_block_graph *graph = &record->block[b].graph;
    PETRA_TRY(rebuild ? rebuild_graph(stage, b, record, &streams, graph) : petra_stage_kept_graph(stage, record, b));
    PETRA_TRY(block_backward(stage, b, version, graph, &gradients));
    if (stage->options.rule.split_backward)
      petra_block_graph_keep_deferred(graph);
    else
      petra_block_graph_release(graph);
    petra_streams_release(&record->block[b].input);
  }
  stage->version_read = version;
  finish(stage, record);
  *out = (petra_message){0};
  petra_streams_move(&gradients, &out->gradients);
  if (stage->options.rule.invert && stage->options.number > 1)
    petra_streams_move(&streams, &out->streams);
  return PETRA_OK;
}

petra_status petra_stage_backward(petra_stage *stage, int64_t microbatch, const petra_message *in, petra_message *out) {
  petra_record *record;
  PETRA_TRY(petra_records_find(&stage->records, stage->options.number, microbatch, &record));
  return backward(stage, record, stage->options.rule.keep != PETRA_KEEP_GRAPH, in, out);
}

petra_status petra_stage_weight_gradient(petra_stage *stage, int64_t microbatch) {
  petra_record *record;
  PETRA_TRY(petra_records_find(&stage->records, stage->options.number, microbatch, &record));
  if (!record->backward)
    return petra_fail(PETRA_INTERNAL, "stage %d: weight gradient of microbatch %lld before its backward",
                      stage->options.number, (long long)microbatch);
  for (int b = 0; b < stage->blocks; b++) {
    const petra_block *block = petra_stage_block(stage, b);
    petra_stage_sets *sets = &stage->sets[b];
    PETRA_TRY(petra_block_weight_gradients(&stage->compute, block, &record->block[b].graph, sets->gradients.tensor));
    for (int i = 0; i < sets->gradients.count; i++)
      if (is_deferred(stage, b, i))
        PETRA_TRY(accumulate(stage, b, i, stage->counted == 0));
  }
  stage->counted++;
  petra_stage_drop(stage, record);
  return PETRA_OK;
}

petra_status petra_stage_loss(petra_stage *stage, int64_t microbatch, const petra_message *in, const int32_t *labels,
                              petra_message *out, petra_loss *loss) {
  const petra_target target = {labels, loss};
  petra_record *record;
  petra_streams none;
  PETRA_TRY(petra_stage_run(stage, microbatch, true, in, &target, &record, &none));
  petra_status status = backward(stage, record, false, in, out);
  if (status != PETRA_OK)
    petra_stage_drop(stage, record);
  return status;
}
