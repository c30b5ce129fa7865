/* F of a stage. */
#include "base/log.h"
#include "base/mem.h"
#include "stage/stage_private.h"

/* Whether block `b` keeps its input for its backward. */
static bool keeps_input(const petra_stage *stage, const petra_block *block) {
  switch (stage->options.rule.keep) {
  case PETRA_KEEP_PRESET:
  case PETRA_KEEP_GRAPH:
    return false;
  case PETRA_KEEP_INPUT:
    return true;
  case PETRA_KEEP_NOTHING:
    return !block->reversible;
  }
  return true;
}

static bool stashes(const petra_stage_rule *rule) {
  return rule->backward_weights == PETRA_WEIGHTS_STASHED ||
         (rule->keep == PETRA_KEEP_NOTHING && rule->invert_weights == PETRA_WEIGHTS_STASHED);
}

/* A record of the microbatch, which holds the version that F reads where B will read it again. */
static petra_status begin(petra_stage *stage, int64_t microbatch, petra_record **out) {
  petra_record *record;
  int64_t version;
  PETRA_TRY(petra_stage_choose_forward(stage, microbatch, &version));
  PETRA_TRY(petra_records_add(&stage->records, stage->options.number, microbatch, &record));
  record->version = stage->version_read = stage->version_forward = version;
  if (stashes(&stage->options.rule)) {
    petra_versions_hold(&stage->versions, version, stage->updates);
    record->holds = true;
  }
  *out = record;
  return PETRA_OK;
}

/* One block with what the rule keeps of it. */
static petra_status forward_block(petra_stage *stage, petra_record *record, int b, const petra_streams *in,
                                  petra_streams *out, petra_loss *loss) {
  const petra_block *block = petra_stage_block(stage, b);
  petra_block_graph *graph = stage->options.rule.keep == PETRA_KEEP_GRAPH ? &record->graphs[b] : NULL;
  petra_tensor *const *parameters;
  PETRA_TRY(petra_stage_weights(stage, PETRA_WEIGHTS_STASHED, record->version, b, &parameters));
  if (keeps_input(stage, block)) {
    record->inputs[b] = petra_streams_retain(in);
    petra_streams_charge(&record->inputs[b], &stage->account, PETRA_MEMORY_INPUT_BUFFER);
  }
  const petra_target target = {record->labels, loss};
  return petra_block_forward(&stage->compute, block, parameters, in, &target, graph, out);
}

static petra_status forward(petra_stage *stage, petra_record *record, const petra_message *in, petra_streams *out,
                            petra_loss *loss) {
  petra_streams streams = petra_streams_retain(&in->streams);
  petra_status status = PETRA_OK;
  for (int b = 0; b < stage->blocks && status == PETRA_OK; b++) {
    petra_streams next = {{NULL, NULL}};
    status = forward_block(stage, record, b, &streams, &next, loss);
    petra_streams_release(&streams);
    streams = next;
  }
  *out = streams;
  return status;
}

petra_status petra_stage_forward(petra_stage *stage, int64_t microbatch, const petra_message *in, petra_message *out) {
  petra_record *record;
  petra_streams streams;
  PETRA_TRY(begin(stage, microbatch, &record));
  petra_status status = forward(stage, record, in, &streams, NULL);
  if (status != PETRA_OK) {
    petra_stage_drop(stage, record);
    return status;
  }
  *out = (petra_message){.streams = streams};
  return PETRA_OK;
}

petra_status petra_stage_forward_loss(petra_stage *stage, int64_t microbatch, const petra_message *in,
                                      const int32_t *labels, int32_t label_count, petra_loss *loss) {
  petra_record *record;
  petra_streams none;
  petra_status status;
  PETRA_TRY(begin(stage, microbatch, &record));
  PETRA_TRY_GOTO(status, petra_record_set_labels(record, labels, label_count), fail);
  PETRA_TRY_GOTO(status, forward(stage, record, in, &none, loss), fail);
  return PETRA_OK;
fail:
  petra_stage_drop(stage, record);
  return status;
}
