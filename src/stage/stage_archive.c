/* SPDX-License-Identifier: Apache-2.0 */
#include "stage/stage_archive.h"

#include "base/mem.h"
#include "stage/stage_private.h"

#include <stdio.h>
#include <string.h>

/* --- the expected contents of a stage in a checkpoint ---
 * This file does not define them a second time: a stage with the same options on the dry backend shows which tensors
 * the rule keeps of a microbatch of one sample, and their shapes. */

/* The contents of a record of the stage. */
typedef struct record_forms {
  petra_tensor_form (*block)[PETRA_RECORD_TENSORS]; /* per block; owned */
  int32_t labels;                                   /* of one sample */
  bool holds;                                       /* the version that its F read */
} record_forms;

void petra_streams_forms(int streams, const petra_stream_shape *shape, petra_presence presence,
                         petra_tensor_form forms[2]) {
  for (int i = 0; i < 2; i++)
    forms[i] = (petra_tensor_form){
        i < streams ? presence : PETRA_ABSENT, shape->kind, {0, shape->extent[0], shape->extent[1], shape->extent[2]}};
}

/* The samples of a dry pass: a batch norm needs two values of each channel, and an image may have only one value. */
enum { DRY_SAMPLES = 2 };

/* Creates the streams of these samples as the dry tensors of a message. */
static petra_status make_streams(petra_backend *backend, int streams, const petra_stream_shape *shape,
                                 petra_streams *out) {
  int32_t full[4];
  petra_stream_tensor_shape(shape, DRY_SAMPLES, full);
  for (int i = 0; i < streams; i++)
    PETRA_TRY(petra_tensor_create(backend, shape->kind, full, NULL, PETRA_MEMORY_MESSAGES, &out->tensor[i]));
  return PETRA_OK;
}

/* Returns true if the stage ends in a head: the network's head, or its auxiliary head. */
static bool has_loss(const petra_stage *stage) {
  return petra_stage_block(stage, stage->blocks - 1)->is_loss;
}

/* Runs F of the samples and, if B of the expected records is done, also B. */
static petra_status pass(petra_stage *dry, bool backward, bool fused) {
  const petra_block *first = petra_stage_block(dry, 0), *last = petra_stage_block(dry, dry->blocks - 1);
  bool head = has_loss(dry);
  const int32_t count = head ? DRY_SAMPLES * petra_model_labels(dry->options.model) : 0;
  PETRA_FREED int32_t *labels = NULL;
  PETRA_FINISHED(petra_message_release) petra_message in = {0}, out = {0}, back = {0}, down = {0};
  petra_loss loss;
  PETRA_TRY(petra_allocate(&labels, (size_t)count, sizeof *labels));
  PETRA_TRY(make_streams(dry->options.backend, first->streams_in, &first->shape_in, &in.streams));
  if (fused)
    return petra_stage_loss(dry, 0, &in, labels, &out, &loss);
  PETRA_TRY(petra_stage_forward(dry, 0, &in, head ? labels : NULL, count, &out, &loss));
  if (!backward)
    return PETRA_OK;
  for (int i = 0; i < 2 && !head; i++)
    PETRA_TRY(make_streams(dry->options.backend, last->streams_out, &last->shape_out,
                           i == 0 ? &back.gradients : &back.streams));
  return petra_stage_backward(dry, 0, &back, &down);
}

/* Returns the form of a tensor without its number of samples, which is the first extent of all tensors except the
 * vectors of a graph. */
static petra_tensor_form form_of(const petra_tensor *tensor) {
  if (!tensor)
    return (petra_tensor_form){.presence = PETRA_ABSENT};
  petra_tensor_form form = petra_tensor_form_of(tensor);
  if (form.kind != PETRA_TENSOR_VECTOR)
    form.shape[0] = 0;
  return form;
}

/* Gets what a record holds after its F, or after its B if `backward`; `fused`: F and B are one action. */
static petra_status record_forms_of(petra_stage *stage, bool backward, bool fused, record_forms *out) {
  petra_stage_options options = stage->options;
  petra_stage *dry = NULL;
  petra_status status;
  PETRA_TRY(petra_backend_create_dry(PETRA_BACKEND_REF, PETRA_PRECISION_FP32, &options.backend));
  options.backend->element_bytes = stage->options.backend->element_bytes; /* which decide what is inner */
  options.rule.accumulate = 1 + (options.rule.accumulate > 1);            /* the same choice of summing or not */
  PETRA_TRY_GOTO(status, petra_stage_create(&options, &dry), done);
  PETRA_TRY_GOTO(status, pass(dry, backward, fused), done);
  PETRA_TRY_GOTO(status, petra_allocate(&out->block, (size_t)stage->blocks, sizeof *out->block), done);
  petra_record *record = dry->records.live[0];
  for (int b = 0; b < stage->blocks; b++) {
    petra_tensor **members[PETRA_RECORD_TENSORS];
    petra_record_members(record, b, members);
    for (int i = 0; i < PETRA_RECORD_TENSORS; i++)
      out->block[b][i] = form_of(*members[i]);
  }
  if (dry->graph_forms && !backward)
    memcpy(stage->graph_forms, dry->graph_forms, (size_t)stage->blocks * sizeof *stage->graph_forms);
  out->labels = record->label_count / DRY_SAMPLES;
  out->holds = record->holds;
done:
  petra_stage_destroy(dry);
  petra_backend_destroy(options.backend);
  return status;
}

/* Returns the number of holders of a version: records, F's copy, the double buffer. */
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

/* Checks that the versions and their holders are consistent. */
static petra_status check_versions(const petra_stage *stage, const petra_archive *archive) {
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

/* --- reading and writing --- */

petra_status petra_archive_integer(petra_archive *archive, const char *name, const char *what, int64_t *value,
                                   int64_t low, int64_t high) {
  PETRA_TRY(petra_archive_integers(archive, name, value, 1));
  return petra_archive_within(archive, name, what, *value, low, high);
}

petra_status petra_labels_archive(petra_archive *archive, const char *name, int32_t classes, int64_t count,
                                  int32_t **labels) {
  PETRA_FREED int64_t *values = NULL;
  PETRA_TRY(petra_archive_require(archive, name, PETRA_ARCHIVE_I64, count));
  PETRA_TRY(petra_allocate(&values, (size_t)count, sizeof *values));
  for (int64_t i = 0; i < count && !archive->reading; i++)
    values[i] = (*labels)[i];
  PETRA_TRY(petra_archive_integers(archive, name, values, count));
  if (archive->reading)
    PETRA_TRY(petra_allocate(labels, (size_t)count, sizeof **labels));
  for (int64_t i = 0; i < count; i++) {
    PETRA_TRY(petra_archive_within(archive, name, "a label", values[i], 0, classes - 1));
    (*labels)[i] = (int32_t)values[i];
  }
  return PETRA_OK;
}

petra_status petra_account_archive(petra_archive *archive, petra_account *account) {
  int64_t peaks[PETRA_MEMORY_CATEGORIES + 1];
  memcpy(peaks, account->peak_bytes, sizeof account->peak_bytes);
  peaks[PETRA_MEMORY_CATEGORIES] = account->total_peak_bytes;
  PETRA_TRY(petra_archive_integers(archive, "peak_bytes", peaks, PETRA_MEMORY_CATEGORIES + 1));
  for (int c = 0; c <= PETRA_MEMORY_CATEGORIES; c++)
    PETRA_TRY(petra_archive_within(archive, "peak_bytes", "a peak", peaks[c], 0, INT64_MAX));
  memcpy(account->peak_bytes, peaks, sizeof account->peak_bytes);
  account->total_peak_bytes = peaks[PETRA_MEMORY_CATEGORIES];
  return PETRA_OK;
}

/* Reads or writes the contents of the tensors of a set. The tensors exist before they are read. */
static petra_status archive_set(const petra_stage *stage, petra_tensor_archive *tensors, int b, const char *prefix,
                                bool statistics, petra_tensor_set *set) {
  const petra_block *block = petra_stage_block(stage, b);
  for (int i = 0; i < set->count; i++) {
    petra_tensor_spec spec;
    char name[128];
    if (!set->tensor[i]) /* the optimiser keeps none */
      continue;
    if (statistics)
      petra_block_statistic(block, i, &spec);
    else
      petra_block_parameter(stage->options.model, block, i, &spec);
    snprintf(name, sizeof name, "%s%02d/%s", prefix, block->number, spec.name);
    PETRA_TRY(petra_tensor_archive_content(tensors, name, set->tensor[i], spec.rank, set->tensor[i]->shape));
  }
  return PETRA_OK;
}

static petra_status archive_weights(petra_stage *stage, petra_tensor_archive *tensors) {
  for (int b = 0; b < stage->blocks; b++) {
    PETRA_TRY(archive_set(stage, tensors, b, "", false, &stage->sets[b].parameters));
    PETRA_TRY(archive_set(stage, tensors, b, "", true, &stage->sets[b].statistics));
  }
  return PETRA_OK;
}

/* Reads or writes the steps that error feedback will subtract. */
static petra_status archive_past(petra_stage *stage, petra_tensor_archive *tensors, int b) {
  const int count = petra_mitigation_feedback(&stage->options.mitigation);
  for (int t = 0; t < count; t++) {
    char prefix[32];
    snprintf(prefix, sizeof prefix, "step-%02d/", t);
    PETRA_TRY(archive_set(stage, tensors, b, prefix, false, &stage->sets[b].past[t]));
  }
  return PETRA_OK;
}

/* Reads or writes the optimiser's state, and the gradients that the next update will use. */
static petra_status archive_gradients(petra_stage *stage, petra_tensor_archive *tensors) {
  static const char *const states[PETRA_OPTIMISER_STATES] = {"momentum/",          "square/",    "row_covariance/",
                                                             "column_covariance/", "row_basis/", "column_basis/"};
  for (int b = 0; b < stage->blocks; b++) {
    petra_stage_sets *sets = &stage->sets[b];
    for (int s = 0; s < PETRA_OPTIMISER_STATES; s++)
      PETRA_TRY(archive_set(stage, tensors, b, states[s], false, &sets->states[s]));
    PETRA_TRY(archive_set(stage, tensors, b, "predicted/", false, &sets->predicted)); /* empty without a mitigation */
    PETRA_TRY(archive_set(stage, tensors, b, "trend/", false, &sets->trend));
    PETRA_TRY(archive_set(stage, tensors, b, "corrected/", false, &sets->corrected));
    PETRA_TRY(archive_past(stage, tensors, b));
    if (stage->begun > 0 && petra_stage_sums(stage))
      PETRA_TRY(archive_set(stage, tensors, b, "accumulated/", false, &sets->accumulated));
    if (stage->begun > 0 && !petra_stage_sums(stage))
      PETRA_TRY(archive_set(stage, tensors, b, "gradients/", false, &sets->gradients));
  }
  return PETRA_OK;
}

/* Reads or writes the references of a set whose tensors have these forms. */
static petra_status archive_of_forms(petra_tensor_archive *tensors, const char *name, const petra_tensor_form *forms,
                                     int count, petra_tensor_set *set) {
  petra_tensor **members[PETRA_BLOCK_TENSORS];
  set->count = count;
  for (int i = 0; i < count; i++)
    members[i] = &set->tensor[i];
  PETRA_TRY(petra_tensor_archive_references(tensors, name, members, count));
  return petra_tensor_archive_check(tensors, name, members, forms, count);
}

/* Reads or writes the references of a set, which is empty before it is read. The set `like`, which is not empty,
 * determines the number and the forms of its tensors. */
static petra_status archive_set_like(petra_tensor_archive *tensors, const char *name, const petra_tensor_set *like,
                                     petra_tensor_set *set) {
  petra_tensor_form forms[PETRA_BLOCK_TENSORS];
  for (int i = 0; i < like->count; i++)
    forms[i] = petra_tensor_form_of(like->tensor[i]);
  return archive_of_forms(tensors, name, forms, like->count, set);
}

petra_status petra_block_set_archive(petra_tensor_archive *tensors, const char *name, const petra_model *model,
                                     const petra_block *block, petra_tensor_set *set) {
  const int count = petra_block_parameter_count(block);
  petra_tensor_form forms[PETRA_BLOCK_TENSORS];
  for (int i = 0; i < count; i++) {
    petra_tensor_spec spec;
    petra_block_parameter(model, block, i, &spec);
    forms[i] = (petra_tensor_form){PETRA_PRESENT, spec.kind, {0}};
    memcpy(forms[i].shape, spec.shape, sizeof forms[i].shape);
  }
  return archive_of_forms(tensors, name, forms, count, set);
}

static petra_status archive_versions(petra_stage *stage, petra_tensor_archive *tensors) {
  petra_versions *versions = &stage->versions;
  bool reading = tensors->archive->reading;
  int64_t counts[3] = {versions->count, versions->count_max, versions->latest_holders};
  petra_archive *archive = tensors->archive;
  PETRA_TRY(petra_archive_integers(archive, "versions", counts, 3));
  PETRA_TRY(petra_archive_within(archive, "versions", "old versions", counts[0], 0, stage->updates));
  PETRA_TRY(petra_archive_within(archive, "versions", "most old versions", counts[1], counts[0], INT32_MAX));
  for (int64_t v = 0; v < counts[0]; v++) {
    char name[64];
    int64_t about[2] = {reading ? 0 : versions->old[v].number, reading ? 0 : versions->old[v].holders};
    snprintf(name, sizeof name, "version-%lld", (long long)v);
    PETRA_TRY(petra_archive_integers(archive, name, about, 2));
    PETRA_TRY(petra_archive_within(archive, name, "version", about[0], 0, stage->updates - 1));
    PETRA_TRY(petra_archive_within(archive, name, "holders", about[1], 1, INT32_MAX));
    if (reading && petra_versions_find(versions, about[0]))
      return petra_archive_refuse(archive, name, "version %lld is there twice", (long long)about[0]);
    if (reading)
      PETRA_TRY(petra_versions_add(versions, about[0], (int)about[1]));
    for (int b = 0; b < stage->blocks; b++) {
      snprintf(name, sizeof name, "version-%lld-weights-%02d", (long long)v, b + 1);
      PETRA_TRY(archive_set_like(tensors, name, &stage->sets[b].parameters, &versions->old[v].sets[b]));
    }
  }
  versions->count_max = (int)counts[1];
  versions->latest_holders = (int)counts[2]; /* check_versions checks them */
  return PETRA_OK;
}

/* Reads or writes a record. When reading, also checks that the record has exactly the tensors that its rule keeps.
 * `forms` has the forms before B and the forms after B. */
static petra_status archive_record(const petra_stage *stage, petra_tensor_archive *tensors, petra_record *record,
                                   const record_forms forms[2]) {
  int64_t about[5] = {record->microbatch, record->version, record->holds, record->backward, record->label_count};
  petra_archive *archive = tensors->archive;
  PETRA_TRY(petra_archive_integers(archive, "about", about, 5));
  PETRA_TRY(petra_archive_within(archive, "about", "microbatch", about[0], 0, tensors->read - 1));
  PETRA_TRY(petra_archive_within(archive, "about", "version", about[1], 0, stage->updates));
  PETRA_TRY(petra_archive_within(archive, "about", "whether it holds a version", about[2], 0, 1));
  PETRA_TRY(petra_archive_within(archive, "about", "whether its B was done", about[3], 0, 1));
  PETRA_TRY(petra_archive_within(archive, "about", "labels", about[4], 0, INT32_MAX));
  if (archive->reading && petra_records_at(&stage->records, about[0]))
    return petra_archive_refuse(archive, "about", "microbatch %lld is in flight twice", (long long)about[0]);
  record->microbatch = about[0];
  record->version = about[1];
  record->holds = about[2] != 0;
  record->backward = about[3] != 0;
  record->label_count = (int32_t)about[4];
  if (record->label_count > 0)
    PETRA_TRY(
        petra_labels_archive(archive, "labels", stage->options.model->classes, record->label_count, &record->labels));
  const record_forms *form = &forms[record->backward];
  if (archive->reading && !form->block)
    return petra_archive_refuse(archive, "about", "its B was %sdone", record->backward ? "" : "not ");
  for (int b = 0; b < stage->blocks; b++) {
    petra_tensor **members[PETRA_RECORD_TENSORS];
    char name[32];
    snprintf(name, sizeof name, "block-%02d", b + 1);
    petra_record_members(record, b, members);
    PETRA_TRY(petra_tensor_archive_references(tensors, name, members, PETRA_RECORD_TENSORS));
    if (archive->reading)
      PETRA_TRY(petra_tensor_archive_check(tensors, name, members, form->block[b], PETRA_RECORD_TENSORS));
    record->block[b].graph.defer = record->backward;
  }
  if (!archive->reading)
    return PETRA_OK;
  if (record->holds != form->holds)
    return petra_archive_refuse(archive, "about", "it holds %s version", record->holds ? "a" : "no");
  const int64_t labels = form->labels * (int64_t)tensors->images;
  return petra_archive_within(archive, "about", "labels", record->label_count, labels, labels);
}

/* Gets the forms of records before and after their B. B of the last stage is usually one action with F, so a record
 * before B does not occur there. If B is split, the record exists until W. */
static petra_status make_forms(petra_stage *stage, bool fused_head, record_forms forms[2]) {
  bool fused = fused_head && has_loss(stage) && stage->options.auxiliary == 0;
  if (!fused)
    PETRA_TRY(record_forms_of(stage, false, false, &forms[0]));
  return stage->options.rule.split_backward ? record_forms_of(stage, true, fused, &forms[1]) : PETRA_OK;
}

static petra_status archive_records(petra_stage *stage, petra_tensor_archive *tensors) {
  petra_records *records = &stage->records;
  petra_archive *archive = tensors->archive;
  int64_t counts[2] = {records->count, records->count_max};
  record_forms forms[2] = {{0}};
  petra_status status = PETRA_OK;
  PETRA_TRY(petra_archive_integers(archive, "in_flight", counts, 2));
  PETRA_TRY(petra_archive_within(archive, "in_flight", "microbatches", counts[0], 0, tensors->read));
  PETRA_TRY(petra_archive_within(archive, "in_flight", "most microbatches", counts[1], counts[0], INT32_MAX));
  if (archive->reading && counts[0] > 0)
    PETRA_TRY_GOTO(status, make_forms(stage, tensors->fused, forms), done);
  for (int64_t r = 0; r < counts[0]; r++) {
    petra_record *record;
    if (archive->reading) /* a placeholder until the number in the file is known */
      PETRA_TRY_GOTO(status, petra_records_add(records, stage->options.number, -1 - r, &record), done);
    else
      record = records->live[r];
    PETRA_TRY_GOTO(status, petra_archive_enter(archive, "microbatch-%lld", (long long)r), done);
    PETRA_TRY_GOTO(status, petra_archive_leave(archive, archive_record(stage, tensors, record, forms)), done);
  }
  records->count_max = (int)counts[1];
  if (archive->reading)
    status = check_versions(stage, archive);
done:
  PETRA_FREE_ALL(forms[0].block, forms[1].block);
  return status;
}

static petra_status archive_state(petra_stage *stage, petra_tensor_archive *tensors) {
  petra_archive *archive = tensors->archive;
  int64_t counts[6] = {stage->updates,      stage->begun, stage->counted,
                       stage->version_read, stage->copy,  stage->version_forward};
  PETRA_TRY(petra_archive_integers(archive, "counts", counts, 6));
  PETRA_TRY(petra_archive_within(archive, "counts", "updates", counts[0], 0, tensors->read));
  PETRA_TRY(petra_archive_within(archive, "counts", "backwards since", counts[1], 0, stage->options.rule.accumulate));
  PETRA_TRY(petra_archive_within(archive, "counts", "gradients since", counts[2], 0, counts[1]));
  for (int i = 3; i < 6; i++)
    PETRA_TRY(petra_archive_within(archive, "counts", "version", counts[i], 0, counts[0]));
  stage->updates = counts[0];
  stage->begun = (int)counts[1];
  stage->counted = (int)counts[2];
  stage->version_read = counts[3];
  stage->copy = counts[4];
  stage->version_forward = counts[5];
  PETRA_TRY(archive_gradients(stage, tensors));
  PETRA_TRY(archive_versions(stage, tensors));
  PETRA_TRY(archive_records(stage, tensors));
  return petra_account_archive(archive, &stage->account);
}

petra_status petra_stage_archive(petra_stage *stage, petra_tensor_archive *tensors) {
  PETRA_TRY(petra_archive_enter(tensors->archive, "parameters"));
  PETRA_TRY(petra_archive_leave(tensors->archive, archive_weights(stage, tensors)));
  PETRA_TRY(petra_archive_enter(tensors->archive, "stage-%02d", stage->options.number));
  return petra_archive_leave(tensors->archive, archive_state(stage, tensors));
}

petra_status petra_message_archive(const petra_stage *stage, petra_tensor_archive *tensors, const char *name,
                                   bool forward, petra_message *message) {
  petra_tensor_form forms[PETRA_MESSAGE_PARTS];
  petra_tensor **members[PETRA_MESSAGE_PARTS];
  petra_message_parts(message, members);
  petra_message_forms(stage, forward, false, forms);
  PETRA_TRY(petra_tensor_archive_references(tensors, name, members, PETRA_MESSAGE_PARTS));
  return petra_tensor_archive_check(tensors, name, members, forms, PETRA_MESSAGE_PARTS);
}

petra_status petra_snapshot_archive(petra_stage *stage, petra_tensor_archive *tensors, const char *name,
                                    petra_snapshot **snapshot) {
  int64_t there = *snapshot != NULL;
  char item[96];
  PETRA_TRY(petra_archive_integer(tensors->archive, name, "whether it is there", &there, 0, 1));
  if (!there)
    return PETRA_OK;
  if (tensors->archive->reading)
    PETRA_TRY(petra_snapshot_create(stage, snapshot));
  for (int b = 0; b < stage->blocks; b++) {
    snprintf(item, sizeof item, "%s-parameters-%02d", name, b + 1);
    PETRA_TRY(archive_set_like(tensors, item, &stage->sets[b].parameters, &(*snapshot)->block[b].parameters));
  }
  for (int b = 0; b < stage->blocks; b++) {
    snprintf(item, sizeof item, "%s-statistics-%02d", name, b + 1);
    PETRA_TRY(archive_set_like(tensors, item, &stage->sets[b].statistics, &(*snapshot)->block[b].statistics));
  }
  return PETRA_OK;
}
