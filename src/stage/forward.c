/* SPDX-License-Identifier: Apache-2.0 */
/* F of a stage. */
#include "base/mem.h"
#include "stage/stage_private.h"

#include <string.h>

/* Returns true if a block keeps its input for its backward. */
static bool keeps_input(const petra_stage *stage, const petra_block *block) {
  petra_keep keep = stage->options.rule.keep;
  return keep == PETRA_KEEP_INPUT || (keep == PETRA_KEEP_NOTHING && !block->reversible);
}

static bool stashes(const petra_stage_rule *rule) {
  return rule->backward_weights == PETRA_WEIGHTS_STASHED ||
         (rule->keep == PETRA_KEEP_NOTHING && rule->invert_weights == PETRA_WEIGHTS_STASHED);
}

/* Returns the version that F of a microbatch reads, and refreshes F's copy when a refresh is due. */
static petra_status choose_version(petra_stage *stage, int64_t microbatch, int64_t *version) {
  const petra_version_rule rule = petra_stage_version_rule(stage);
  int64_t copy = stage->copy;
  PETRA_TRY(petra_forward_version(&rule, stage->options.number, microbatch, stage->updates, &copy, version));
  if (copy != stage->copy) {
    petra_versions_hold(&stage->versions, copy, stage->updates);
    petra_versions_release(&stage->versions, stage->copy, stage->updates);
    stage->copy = copy;
  }
  return PETRA_OK;
}

/* Creates a record of the microbatch. If B will read the same version as F, the record becomes a holder of that
 * version. */
static petra_status begin(petra_stage *stage, int64_t microbatch, bool fused, petra_record **out) {
  petra_record *record;
  int64_t version;
  PETRA_TRY(choose_version(stage, microbatch, &version));
  PETRA_TRY(petra_records_add(&stage->records, stage->options.number, microbatch, &record));
  record->version = stage->version_read = stage->version_forward = version;
  if (!fused && stashes(&stage->options.rule)) {
    petra_versions_hold(&stage->versions, version, stage->updates);
    record->holds = true;
  }
  *out = record;
  return PETRA_OK;
}

/* Computes one block, and keeps what the rule requires. `before`: as in petra_stage_keep_input. */
static petra_status forward_block(petra_stage *stage, petra_record *record, int b, bool fused,
                                  const petra_streams *before, const petra_streams *in, const petra_target *target,
                                  petra_streams *out) {
  const petra_block *block = petra_stage_block(stage, b);
  bool keeps_graph = fused || stage->options.rule.keep == PETRA_KEEP_GRAPH;
  const petra_tensor_set *parameters;
  PETRA_TRY(petra_stage_weights(stage, PETRA_WEIGHTS_STASHED, record->version, b, &parameters));
  if (!fused && keeps_input(stage, block))
    PETRA_TRY(petra_stage_keep_input(stage, record, b, before, in));
  return petra_block_forward(&stage->compute, block, parameters->tensor, in, target,
                             keeps_graph ? &record->block[b].graph : NULL, out);
}

petra_status petra_stage_run(petra_stage *stage, int64_t microbatch, bool fused, const petra_message *in,
                             const petra_target *target, petra_record **out, petra_streams *streams) {
  PETRA_FINISHED(petra_streams_release) petra_streams before = {{NULL, NULL}};
  petra_record *record;
  petra_status status = PETRA_OK;
  PETRA_TRY(begin(stage, microbatch, fused, &record));
  *streams = petra_streams_retain(&in->streams);
  for (int b = 0; b < stage->blocks && status == PETRA_OK; b++) {
    petra_streams next = {{NULL, NULL}};
    status = forward_block(stage, record, b, fused, &before, streams, target, &next);
    if (stage->options.formats.keep != PETRA_FORMAT_NATIVE && stage->options.rule.keep != PETRA_KEEP_GRAPH)
      petra_streams_move(streams, &before);
    petra_streams_move(&next, streams);
  }
  petra_streams_release(&before);
  if (status == PETRA_OK && !fused && stage->options.formats.keep != PETRA_FORMAT_NATIVE)
    status = petra_stage_keep_graphs(stage, record);
  if (status != PETRA_OK)
    petra_stage_drop(stage, record);
  else
    *out = record;
  return status;
}

/* Copies the labels of a microbatch. */
static petra_status set_labels(petra_record *record, const int32_t *labels, int32_t count) {
  PETRA_TRY(petra_allocate(&record->labels, (size_t)count, sizeof *record->labels));
  memcpy(record->labels, labels, (size_t)count * sizeof *labels);
  record->label_count = count;
  return PETRA_OK;
}

petra_status petra_stage_forward(petra_stage *stage, int64_t microbatch, const petra_message *in, const int32_t *labels,
                                 int32_t label_count, petra_message *out, petra_loss *loss) {
  const petra_target target = {labels, loss};
  petra_record *record;
  petra_streams streams;
  PETRA_TRY(petra_stage_run(stage, microbatch, false, in, labels ? &target : NULL, &record, &streams));
  petra_status status = labels ? set_labels(record, labels, label_count) : PETRA_OK;
  if (status != PETRA_OK) {
    petra_streams_release(&streams);
    petra_stage_drop(stage, record);
    return status;
  }
  *out = (petra_message){.streams = streams};
  return PETRA_OK;
}
