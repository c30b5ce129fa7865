/* SPDX-License-Identifier: Apache-2.0 */
#include "stage/stage_private.h"

#include "base/mem.h"
#include "base/log.h"

#include <assert.h>
#include <string.h>

static void release_sets(const petra_versions *versions, petra_tensor_set *sets) {
  for (int b = 0; sets && b < versions->blocks; b++)
    petra_tensor_set_release(&sets[b]);
  petra_free(sets);
}

petra_version *petra_versions_find(const petra_versions *versions, int64_t number) {
  for (int i = 0; i < versions->count; i++)
    if (versions->old[i].number == number)
      return &versions->old[i];
  return NULL;
}

/* Returns the latest version of block `b` as a pass with this choice of weights reads it. LATEST: B reads the newest
 * weights. Others: B reads the weights of its F. */
static const petra_tensor_set *latest_set(const petra_stage *stage, petra_weights weights, int b) {
  const petra_stage_mitigation *mitigation = &stage->options.mitigation;
  const petra_stage_sets *sets = &stage->sets[b];
  if (stage->updates <= mitigation->start) /* no update yet to extrapolate from */
    return &sets->parameters;
  if (weights == PETRA_WEIGHTS_LATEST)
    return petra_mitigation_corrects(mitigation) ? &sets->corrected : &sets->parameters;
  return petra_mitigation_predicts(mitigation) ? &sets->predicted : &sets->parameters;
}

petra_status petra_stage_weights(const petra_stage *stage, petra_weights weights, int64_t version, int b,
                                 const petra_tensor_set **out) {
  const petra_version *old = petra_versions_find(&stage->versions, version);
  if (version != stage->updates && !old)
    return petra_fail(PETRA_INTERNAL, "stage %d: the weights after %lld updates are gone", stage->options.number,
                      (long long)version);
  *out = version == stage->updates ? latest_set(stage, weights, b) : &old->sets[b];
  return PETRA_OK;
}

void petra_versions_hold(petra_versions *versions, int64_t number, int64_t latest) {
  petra_version *version = petra_versions_find(versions, number);
  assert(number == latest || version);
  if (number == latest)
    versions->latest_holders++;
  else
    version->holders++;
}

void petra_versions_release(petra_versions *versions, int64_t number, int64_t latest) {
  petra_version *version = petra_versions_find(versions, number);
  assert(number == latest ? versions->latest_holders > 0 : version != NULL);
  if (number == latest) {
    versions->latest_holders--;
  } else if (--version->holders == 0) {
    release_sets(versions, version->sets);
    *version = versions->old[--versions->count];
  }
}

petra_status petra_versions_add(petra_versions *versions, int64_t number, int holders) {
  petra_version version = {.number = number, .holders = holders};
  PETRA_TRY(petra_array_reserve(&versions->old, &versions->capacity, (int64_t)versions->count + 1, sizeof version));
  PETRA_TRY(petra_allocate(&version.sets, (size_t)versions->blocks, sizeof *version.sets));
  versions->old[versions->count++] = version;
  return PETRA_OK;
}

petra_status petra_versions_keep(petra_stage *stage) {
  petra_versions *versions = &stage->versions;
  petra_status status = PETRA_OK;
  if (versions->latest_holders == 0)
    return PETRA_OK;
  PETRA_TRY(petra_versions_add(versions, stage->updates, versions->latest_holders));
  petra_tensor_set *copy = versions->old[versions->count - 1].sets;
  for (int b = 0; b < stage->blocks; b++)
    PETRA_TRY_GOTO(status,
                   petra_tensor_set_clone(&stage->compute, latest_set(stage, PETRA_WEIGHTS_STASHED, b),
                                          PETRA_MEMORY_WEIGHT_BUFFER, &copy[b]),
                   fail);
  versions->latest_holders = 0;
  if (versions->count > versions->count_max)
    versions->count_max = versions->count;
  return PETRA_OK;
fail:
  release_sets(versions, copy);
  versions->count--;
  return status;
}

/* --- records of microbatches --- */

static void destroy(const petra_records *records, petra_record *record) {
  for (int b = 0; b < records->blocks; b++) {
    petra_streams_release(&record->block[b].input);
    petra_block_graph_release(&record->block[b].graph);
  }
  PETRA_FREE_ALL(record->labels, record);
}

void petra_stage_empty(petra_stage *stage) {
  if (!stage)
    return;
  for (int i = 0; i < stage->records.count; i++)
    destroy(&stage->records, stage->records.live[i]);
  for (int i = 0; i < stage->versions.count; i++)
    release_sets(&stage->versions, stage->versions.old[i].sets);
  PETRA_FREE_ALL(stage->records.live, stage->versions.old);
  stage->records = (petra_records){0};
  stage->versions = (petra_versions){0};
}

petra_record *petra_records_at(const petra_records *records, int64_t microbatch) {
  for (int i = 0; i < records->count; i++)
    if (records->live[i]->microbatch == microbatch)
      return records->live[i];
  return NULL;
}

petra_status petra_records_add(petra_records *records, int stage, int64_t microbatch, petra_record **out) {
  petra_record *record;
  if (petra_records_at(records, microbatch))
    return petra_fail(PETRA_INTERNAL,
                      "stage %d: forward of microbatch %lld, which was forwarded and is still in flight", stage,
                      (long long)microbatch);
  PETRA_TRY(
      petra_array_reserve(&records->live, &records->capacity, (int64_t)records->count + 1, sizeof *records->live));
  PETRA_TRY(petra_allocate(&record, 1, sizeof *record + (size_t)records->blocks * sizeof *record->block));
  record->microbatch = microbatch;
  records->live[records->count++] = record;
  if (records->count > records->count_max)
    records->count_max = records->count;
  *out = record;
  return PETRA_OK;
}

petra_status petra_records_find(const petra_records *records, int stage, int64_t microbatch, petra_record **out) {
  petra_record *record = petra_records_at(records, microbatch);
  if (!record)
    return petra_fail(PETRA_INTERNAL, "stage %d: backward of microbatch %lld, which is not in flight there", stage,
                      (long long)microbatch);
  *out = record;
  return PETRA_OK;
}

void petra_stage_drop(petra_stage *stage, petra_record *record) {
  petra_records *records = &stage->records;
  int i = 0;
  if (record->holds)
    petra_versions_release(&stage->versions, record->version, stage->updates);
  while (records->live[i] != record)
    i++;
  destroy(records, record);
  records->count--;
  memmove(&records->live[i], &records->live[i + 1], (size_t)(records->count - i) * sizeof(petra_record *));
}

void petra_record_members(petra_record *record, int b, petra_tensor **members[PETRA_RECORD_TENSORS]) {
  members[0] = &record->block[b].input.tensor[0];
  members[1] = &record->block[b].input.tensor[1];
  petra_block_graph_tensors(&record->block[b].graph, members + 2);
}
