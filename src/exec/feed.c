/* SPDX-License-Identifier: Apache-2.0 */
#include "exec/feed.h"

#include "backend/ops.h"
#include "base/log.h"
#include "base/mem.h"
#include "stage/archive.h"

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

static petra_label_row *find_labels(const petra_feed *feed, int64_t microbatch) {
  for (int64_t i = 0; i < feed->waiting_count; i++)
    if (feed->waiting[i].microbatch == microbatch)
      return &feed->waiting[i];
  return NULL;
}

/* Stores a copy of the labels. */
static petra_status put_labels(petra_feed *feed, int64_t microbatch, const int32_t *labels, int32_t count) {
  petra_label_row row = {microbatch, count, NULL};
  PETRA_TRY(petra_array_reserve(&feed->waiting, &feed->waiting_capacity, feed->waiting_count + 1, sizeof row));
  PETRA_TRY(petra_allocate(&row.labels, (size_t)count, sizeof *row.labels));
  memcpy(row.labels, labels, (size_t)count * sizeof *labels);
  feed->waiting[feed->waiting_count++] = row;
  return PETRA_OK;
}

/* Reads the next batch, which must be that of `microbatch`, and stores its labels if the last stage is here. */
static petra_status next_batch(petra_feed *feed, int64_t microbatch, petra_batch **out) {
  petra_batch *batch;
  PETRA_TRY(petra_loader_next(feed->loader, &batch));
  petra_status status = batch->microbatch == microbatch
                            ? PETRA_OK
                            : petra_fail(PETRA_INTERNAL, "microbatch %lld was read where %lld was due",
                                         (long long)batch->microbatch, (long long)microbatch);
  if (status == PETRA_OK && feed->labels)
    status = put_labels(feed, microbatch, batch->labels, batch->label_count);
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

petra_status petra_feed_labels(petra_feed *feed, int64_t microbatch, const petra_label_row **out) {
  PETRA_TRY(read_up_to(feed, microbatch + 1));
  *out = find_labels(feed, microbatch);
  return *out ? PETRA_OK
              : petra_fail(PETRA_INTERNAL, "the labels of microbatch %lld are not there", (long long)microbatch);
}

void petra_feed_drop_labels(petra_feed *feed, int64_t microbatch) {
  petra_label_row *row = find_labels(feed, microbatch);
  petra_free(row->labels);
  *row = feed->waiting[--feed->waiting_count];
}

petra_status petra_feed_archive(petra_feed *feed, const petra_tensor_archive *tensors) {
  petra_archive *archive = tensors->archive;
  if (!archive->reading)
    PETRA_TRY(read_up_to(feed, tensors->read)); /* as far as stage 1 has */
  int64_t count = feed->waiting_count;
  PETRA_TRY(petra_archive_integer(archive, "labels/count", "microbatches", &count, 0, feed->read));
  for (int64_t i = 0; i < count; i++) {
    PETRA_TRY(petra_array_reserve(&feed->waiting, &feed->waiting_capacity, i + 1, sizeof *feed->waiting));
    petra_label_row *row = &feed->waiting[i];
    int64_t about[2] = {row->microbatch, row->count};
    char name[48];
    snprintf(name, sizeof name, "labels/%lld-microbatch", (long long)i);
    PETRA_TRY(petra_archive_integers(archive, name, about, 2));
    PETRA_TRY(petra_archive_within(archive, name, "microbatch", about[0], 0, feed->read - 1));
    PETRA_TRY(petra_archive_within(archive, name, "labels", about[1], 1, INT32_MAX));
    if (archive->reading && tensors->images && about[1] != (int64_t)tensors->images * petra_loader_labels(feed->loader))
      return petra_archive_refuse(archive, name, "%lld labels of %d samples with %d each", (long long)about[1],
                                  tensors->images, petra_loader_labels(feed->loader));
    if (archive->reading && find_labels(feed, about[0]))
      return petra_archive_refuse(archive, name, "microbatch %lld is there twice", (long long)about[0]);
    *row = (petra_label_row){about[0], (int32_t)about[1], row->labels};
    feed->waiting_count = archive->reading ? i + 1 : count;
    snprintf(name, sizeof name, "labels/%lld", (long long)i);
    PETRA_TRY(petra_labels_archive(archive, name, feed->classes, about[1], &row->labels));
  }
  return PETRA_OK;
}
