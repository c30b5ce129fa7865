/* SPDX-License-Identifier: Apache-2.0 */
#include "exec/feed.h"

#include "backend/backend.h"
#include "base/log.h"
#include "base/mem.h"
#include "stage/stage_archive.h"

#include <stdio.h>
#include <string.h>

petra_status petra_batch_upload(petra_backend *backend, const petra_batch *batch, petra_account *account,
                                petra_memory_category category, petra_tensor **out) {
  static const petra_tensor_kind kinds[] = {
      [PETRA_SAMPLE_IMAGE] = PETRA_TENSOR_ACTIVATION, [PETRA_SAMPLE_TOKENS] = PETRA_TENSOR_SEQUENCE};
  const petra_images bytes = {batch->pixels, batch->choices, batch->mean, batch->deviation};
  petra_tensor *tensor;
  PETRA_TRY(petra_tensor_create(backend, kinds[batch->samples], batch->shape, account, category, &tensor));
  petra_status status = batch->pixels ? petra_op_upload_images(backend, &bytes, tensor)
                                      : petra_op_upload(backend, tensor, batch->values, PETRA_HOST_F64);
  if (status != PETRA_OK)
    petra_tensor_release(&tensor);
  else
    *out = tensor;
  return status;
}

void petra_feed_fini(petra_feed *feed) {
  for (int64_t i = 0; i < feed->waiting_count; i++)
    petra_free(feed->waiting[i].labels);
  petra_free(feed->waiting);
}

/* Returns true if the stage computes a loss. */
static bool needs_labels(const petra_feed *feed, int32_t stage) {
  return feed->local || stage == feed->stages.count;
}

static petra_label_row *find_labels(const petra_feed *feed, int32_t stage, int64_t microbatch) {
  for (int64_t i = 0; i < feed->waiting_count; i++)
    if (feed->waiting[i].stage == stage && feed->waiting[i].microbatch == microbatch)
      return &feed->waiting[i];
  return NULL;
}

/* Stores a copy of the labels. */
static petra_status put_labels(petra_feed *feed, int32_t stage, int64_t microbatch, const int32_t *labels,
                               int32_t count) {
  petra_label_row row = {stage, microbatch, count, NULL};
  PETRA_TRY(petra_array_reserve(&feed->waiting, &feed->waiting_capacity, feed->waiting_count + 1, sizeof row));
  PETRA_TRY(petra_allocate(&row.labels, (size_t)count, sizeof *row.labels));
  memcpy(row.labels, labels, (size_t)count * sizeof *labels);
  feed->waiting[feed->waiting_count++] = row;
  return PETRA_OK;
}

/* Reads the next batch, which must be the batch of `microbatch`, and stores its labels for the stages here that need
 * them. */
static petra_status next_batch(petra_feed *feed, int64_t microbatch, petra_batch **out) {
  petra_batch *batch;
  PETRA_TRY(petra_loader_next(feed->loader, &batch));
  petra_status status = batch->microbatch == microbatch
                            ? PETRA_OK
                            : petra_fail(PETRA_INTERNAL, "microbatch %lld was read where %lld was due",
                                         (long long)batch->microbatch, (long long)microbatch);
  for (int32_t j = 1; j <= feed->stages.count && status == PETRA_OK; j++)
    if (petra_stages_has(&feed->stages, j) && needs_labels(feed, j))
      status = put_labels(feed, j, microbatch, batch->labels, batch->label_count);
  if (status != PETRA_OK) {
    petra_loader_give_back(feed->loader, batch);
    return status;
  }
  feed->read++;
  *out = batch;
  return PETRA_OK;
}

petra_status petra_feed_input(petra_feed *feed, int64_t microbatch, petra_account *account, petra_tensor **input,
                              petra_batch **out) {
  petra_batch *batch;
  PETRA_TRY(next_batch(feed, microbatch, &batch));
  petra_status status = petra_batch_upload(feed->backend, batch, account, PETRA_MEMORY_MESSAGES, input);
  if (status != PETRA_OK)
    petra_loader_give_back(feed->loader, batch);
  else
    *out = batch;
  return status;
}

/* Reads labels when they are needed, if stage 1 is elsewhere. */
static petra_status read_up_to(petra_feed *feed, int64_t microbatches) {
  while (!feed->input && feed->read < microbatches) {
    petra_batch *batch;
    PETRA_TRY(next_batch(feed, feed->read, &batch));
    petra_loader_give_back(feed->loader, batch);
  }
  return PETRA_OK;
}

petra_status petra_feed_labels(petra_feed *feed, int32_t stage, int64_t microbatch, const petra_label_row **out) {
  PETRA_TRY(read_up_to(feed, microbatch + 1));
  *out = find_labels(feed, stage, microbatch);
  return *out ? PETRA_OK
              : petra_fail(PETRA_INTERNAL, "the labels of microbatch %lld are not there", (long long)microbatch);
}

void petra_feed_drop_labels(petra_feed *feed, int32_t stage, int64_t microbatch) {
  petra_label_row *row = find_labels(feed, stage, microbatch);
  petra_free(row->labels);
  *row = feed->waiting[--feed->waiting_count];
}

/* Reads or writes row number `i` of a stage. */
static petra_status archive_row(petra_feed *feed, const petra_tensor_archive *tensors, int64_t i,
                                petra_label_row *row) {
  petra_archive *archive = tensors->archive;
  int64_t about[2] = {row->microbatch, row->count};
  char name[48];
  snprintf(name, sizeof name, "labels/%lld-microbatch", (long long)i);
  PETRA_TRY(petra_archive_integers(archive, name, about, 2));
  PETRA_TRY(petra_archive_within(archive, name, "microbatch", about[0], 0, feed->read - 1));
  PETRA_TRY(petra_archive_within(archive, name, "labels", about[1], 1, INT32_MAX));
  if (archive->reading && tensors->images && about[1] != (int64_t)tensors->images * petra_loader_labels(feed->loader))
    return petra_archive_refuse(archive, name, "%lld labels of %d samples with %d each", (long long)about[1],
                                tensors->images, petra_loader_labels(feed->loader));
  if (archive->reading && find_labels(feed, row->stage, about[0]))
    return petra_archive_refuse(archive, name, "microbatch %lld is there twice", (long long)about[0]);
  row->microbatch = about[0];
  row->count = (int32_t)about[1];
  snprintf(name, sizeof name, "labels/%lld", (long long)i);
  return petra_labels_archive(archive, name, feed->classes, about[1], &row->labels);
}

petra_status petra_feed_archive(petra_feed *feed, int32_t stage, const petra_tensor_archive *tensors) {
  petra_archive *archive = tensors->archive;
  int64_t count = 0, next = 0;
  if (!needs_labels(feed, stage))
    return PETRA_OK;
  if (!archive->reading)
    PETRA_TRY(read_up_to(feed, tensors->read)); /* as far as stage 1 has */
  for (int64_t i = 0; i < feed->waiting_count; i++)
    count += feed->waiting[i].stage == stage;
  PETRA_TRY(petra_archive_integer(archive, "labels/count", "microbatches", &count, 0, feed->read));
  for (int64_t i = 0; i < count; i++) {
    petra_label_row row = {.stage = stage};
    if (!archive->reading) {
      while (feed->waiting[next].stage != stage)
        next++;
      PETRA_TRY(archive_row(feed, tensors, i, &feed->waiting[next++]));
      continue;
    }
    PETRA_TRY(petra_array_reserve(&feed->waiting, &feed->waiting_capacity, feed->waiting_count + 1, sizeof row));
    petra_status status = archive_row(feed, tensors, i, &row);
    feed->waiting[feed->waiting_count] = row;
    feed->waiting_count += row.labels != NULL;
    PETRA_TRY(status);
  }
  return PETRA_OK;
}
