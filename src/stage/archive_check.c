/* SPDX-License-Identifier: Apache-2.0 */
/* What a stage that is read from a checkpoint may hold. What the rule keeps of a microbatch, and in which shapes, is not
 * written down again: a stage of the same options on the dry backend keeps one of a sample. */
#include "stage/archive_private.h"

#include "base/log.h"
#include "base/mem.h"

#include <string.h>

void petra_streams_forms(int streams, const petra_stream_shape *shape, petra_presence presence,
                         petra_tensor_form forms[2]) {
  for (int i = 0; i < 2; i++)
    forms[i] = (petra_tensor_form){
        i < streams ? presence : PETRA_ABSENT, shape->kind, {0, shape->extent[0], shape->extent[1], shape->extent[2]}};
}

/* One sample's streams as the dry tensors of a message. */
static petra_status make_streams(petra_backend *backend, int streams, const petra_stream_shape *shape,
                                 petra_streams *out) {
  int32_t full[4];
  petra_stream_tensor_shape(shape, 1, full);
  for (int i = 0; i < streams; i++)
    PETRA_TRY(petra_tensor_create(backend, shape->kind, full, NULL, PETRA_MEMORY_MESSAGES, &out->tensor[i]));
  return PETRA_OK;
}

/* F of one sample, and B where the records to come had theirs. */
static petra_status pass(petra_stage *dry, bool backward, bool fused) {
  const petra_block *first = petra_stage_block(dry, 0), *last = petra_stage_block(dry, dry->blocks - 1);
  bool head = petra_stage_has_loss(dry);
  const int32_t count = head ? petra_model_labels(dry->options.model) : 0;
  int32_t *labels = NULL;
  petra_message in = {0}, out = {0}, back = {0}, down = {0};
  petra_loss loss;
  petra_status status;
  PETRA_TRY_GOTO(status, petra_allocate(&labels, (size_t)count, sizeof *labels), done);
  PETRA_TRY_GOTO(status, make_streams(dry->options.backend, first->streams_in, &first->shape_in, &in.streams), done);
  if (fused)
    status = petra_stage_loss(dry, 0, &in, labels, &out, &loss);
  else
    status =
        head ? petra_stage_forward_loss(dry, 0, &in, labels, count, &loss) : petra_stage_forward(dry, 0, &in, &out);
  if (status != PETRA_OK || fused || !backward)
    goto done;
  for (int i = 0; i < 2 && !head; i++)
    PETRA_TRY_GOTO(status,
                   make_streams(dry->options.backend, last->streams_out, &last->shape_out,
                                i == 0 ? &back.gradients : &back.streams),
                   done);
  status = petra_stage_backward(dry, 0, &back, &down);
done:
  petra_message_release(&in);
  petra_message_release(&out);
  petra_message_release(&back);
  petra_message_release(&down);
  petra_free(labels);
  return status;
}

/* A sample is the first extent of all but the vectors of a graph. */
static petra_tensor_form form_of(const petra_tensor *tensor) {
  if (!tensor)
    return (petra_tensor_form){.presence = PETRA_ABSENT};
  petra_tensor_form form = petra_tensor_form_of(tensor);
  if (form.kind != PETRA_TENSOR_VECTOR)
    form.shape[0] = 0;
  return form;
}

void petra_record_places(petra_record *record, int b, petra_tensor **places[PETRA_RECORD_TENSORS]) {
  places[0] = &record->block[b].input.tensor[0];
  places[1] = &record->block[b].input.tensor[1];
  petra_block_graph_places(&record->block[b].graph, places + 2);
}

petra_status petra_stage_forms(const petra_stage *stage, bool backward, bool fused, petra_record_forms *out) {
  petra_stage_options options = stage->options;
  petra_stage *dry = NULL;
  petra_status status;
  PETRA_TRY(petra_backend_create_dry(PETRA_BACKEND_REF, PETRA_PRECISION_FP32, &options.backend));
  options.backend->element_bytes = stage->options.backend->element_bytes; /* which decide what is inner */
  options.rule.accumulate = 1 + (options.rule.accumulate > 1);            /* as many as it takes to sum or not */
  PETRA_TRY_GOTO(status, petra_stage_create(&options, &dry), done);
  PETRA_TRY_GOTO(status, pass(dry, backward, fused), done);
  PETRA_TRY_GOTO(status, petra_allocate(&out->block, (size_t)stage->blocks, sizeof *out->block), done);
  petra_record *record = dry->records.live[0];
  for (int b = 0; b < stage->blocks; b++) {
    petra_tensor **places[PETRA_RECORD_TENSORS];
    petra_record_places(record, b, places);
    for (int i = 0; i < PETRA_RECORD_TENSORS; i++)
      out->block[b][i] = form_of(*places[i]);
  }
  out->labels = record->label_count;
  out->holds = record->holds;
done:
  petra_stage_destroy(dry);
  petra_backend_destroy(options.backend);
  return status;
}

/* How many hold a version: records, F's copy, the double buffer. */
static int64_t holders(const petra_stage *stage, int64_t version) {
  const petra_stage_rule *rule = &stage->options.rule;
  int64_t count = rule->sync_period > 0 && stage->copy == version;
  count += rule->forward_weights == PETRA_WEIGHTS_DOUBLE_BUFFER && version == stage->updates - 1;
  for (int i = 0; i < stage->records.count; i++)
    count += stage->records.live[i]->holds && stage->records.live[i]->version == version;
  return count;
}

static petra_status check_holders(const petra_archive *archive, int64_t version, int64_t found, int64_t expected) {
  if (found == expected)
    return PETRA_OK;
  return petra_archive_refuse(archive, "versions", "version %lld has %lld holders, and %lld hold it",
                              (long long)version, (long long)found, (long long)expected);
}

static bool has_version(const petra_stage *stage, int64_t version) {
  return version == stage->updates || petra_versions_find(&stage->versions, version) != NULL;
}

petra_status petra_stage_check_held(const petra_stage *stage, const petra_archive *archive) {
  const petra_versions *versions = &stage->versions;
  const petra_stage_rule *rule = &stage->options.rule;
  int64_t buffered =
      rule->forward_weights == PETRA_WEIGHTS_DOUBLE_BUFFER && stage->updates > 0 ? stage->updates - 1 : stage->updates;
  PETRA_TRY(check_holders(archive, stage->updates, versions->latest_holders, holders(stage, stage->updates)));
  for (int v = 0; v < versions->count; v++)
    PETRA_TRY(check_holders(archive, versions->old[v].number, versions->old[v].holders,
                            holders(stage, versions->old[v].number)));
  for (int i = 0; i < stage->records.count; i++)
    if (stage->records.live[i]->holds && !has_version(stage, stage->records.live[i]->version))
      return petra_archive_refuse(archive, "versions", "version %lld is missing, which microbatch %lld read",
                                  (long long)stage->records.live[i]->version,
                                  (long long)stage->records.live[i]->microbatch);
  if (!has_version(stage, buffered) || (rule->sync_period > 0 && !has_version(stage, stage->copy)))
    return petra_archive_refuse(archive, "versions", "the version that F reads is missing");
  return PETRA_OK;
}
