#include "exec/feed.h"

#include "base/log.h"
#include "base/mem.h"
#include "exec/batch.h"

#include <stdio.h>

void petra_feed_fini(petra_feed *feed) {
  petra_labels_fini(&feed->waiting);
}

/* The next batch, which has to be that of `microbatch`; its labels wait where the last stage is here. */
static petra_status next_batch(petra_feed *feed, int64_t microbatch, petra_batch **out) {
  petra_batch *batch;
  PETRA_TRY(petra_loader_next(feed->loader, &batch));
  petra_status status = batch->microbatch == microbatch
                            ? PETRA_OK
                            : petra_fail(PETRA_INTERNAL, "microbatch %lld was read where %lld was due",
                                         (long long)batch->microbatch, (long long)microbatch);
  if (status == PETRA_OK && feed->labels)
    status = petra_labels_put(&feed->waiting, microbatch, batch->labels, batch->label_count);
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
  if (status != PETRA_OK) {
    petra_loader_give_back(feed->loader, batch);
    return status;
  }
  *out = batch;
  return PETRA_OK;
}

petra_status petra_feed_labels(petra_feed *feed, int64_t microbatch, const petra_label_row **out) {
  while (!feed->input && feed->read <= microbatch) {
    petra_batch *batch;
    PETRA_TRY(next_batch(feed, feed->read, &batch));
    petra_loader_give_back(feed->loader, batch);
  }
  return petra_labels_find(&feed->waiting, microbatch, out);
}

void petra_feed_drop_labels(petra_feed *feed, int64_t microbatch) {
  petra_labels_drop(&feed->waiting, microbatch);
}

static petra_status archive_label_row(petra_archive *archive, petra_labels *labels, const char *name, int32_t classes,
                                      const petra_label_row *row, int64_t about[2]) {
  int64_t *wide;
  int32_t *narrow = NULL;
  petra_status status = PETRA_OK;
  PETRA_TRY(petra_archive_require(archive, name, PETRA_ARCHIVE_I64, about[1]));
  PETRA_TRY(petra_allocate(&wide, (size_t)about[1], sizeof *wide));
  PETRA_TRY_GOTO(status, petra_allocate(&narrow, (size_t)about[1], sizeof *narrow), done);
  for (int64_t i = 0; row && i < about[1]; i++)
    wide[i] = row->labels[i];
  PETRA_TRY_GOTO(status, petra_archive_integers(archive, name, wide, about[1]), done);
  for (int64_t i = 0; i < about[1]; i++) {
    PETRA_TRY_GOTO(status, petra_archive_within(archive, name, "a label", wide[i], 0, classes - 1), done);
    narrow[i] = (int32_t)wide[i];
  }
  if (archive->reading)
    status = petra_labels_put(labels, about[0], narrow, (int32_t)about[1]);
done:
  petra_free(narrow);
  petra_free(wide);
  return status;
}

petra_status petra_feed_archive(petra_feed *feed, const petra_tensor_archive *tensors) {
  petra_archive *archive = tensors->archive;
  petra_labels *labels = &feed->waiting;
  int64_t count = 0, row = 0;
  for (int i = 0; i < labels->capacity; i++)
    count += labels->rows[i].microbatch >= 0;
  PETRA_TRY(petra_archive_integers(archive, "labels/count", &count, 1));
  PETRA_TRY(petra_archive_within(archive, "labels/count", "microbatches", count, 0, feed->read));
  for (int64_t i = 0; i < count; i++) {
    const petra_label_row *one = NULL;
    int64_t about[2] = {0, 0};
    char name[48];
    while (!archive->reading && labels->rows[row].microbatch < 0)
      row++;
    if (!archive->reading) {
      one = &labels->rows[row++];
      about[0] = one->microbatch;
      about[1] = one->count;
    }
    snprintf(name, sizeof name, "labels/%lld-microbatch", (long long)i);
    PETRA_TRY(petra_archive_integers(archive, name, about, 2));
    PETRA_TRY(petra_archive_within(archive, name, "microbatch", about[0], 0, feed->read - 1));
    PETRA_TRY(petra_archive_within(archive, name, "labels", about[1], 1, INT32_MAX));
    if (archive->reading && tensors->images && about[1] != tensors->images)
      return petra_archive_refuse(archive, name, "%lld labels of %d images", (long long)about[1], tensors->images);
    if (archive->reading && petra_labels_have(labels, about[0]))
      return petra_archive_refuse(archive, name, "microbatch %lld is there twice", (long long)about[0]);
    snprintf(name, sizeof name, "labels/%lld", (long long)i);
    PETRA_TRY(archive_label_row(archive, labels, name, feed->classes, one, about));
  }
  return PETRA_OK;
}
