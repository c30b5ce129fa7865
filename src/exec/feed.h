/* SPDX-License-Identifier: Apache-2.0 */
/* The training data of a worker: input for stage 1, labels for the last stage, from one loader. If only one of the two
 * stages is here, the loader is read for that one alone. Loaders of one configuration yield the same batches in every
 * process. */
#pragma once

#include "backend/tensor_archive.h"
#include "data/loader.h"

/* Creates a tensor with the batch's samples, of the batch's shape: an activation of images, a sequence of tokens. A
 * batch of bytes needs a backend that takes images. `account` may be NULL. Errors are those of the backend. */
petra_status petra_batch_upload(petra_backend *backend, const petra_batch *batch, petra_account *account,
                                petra_memory_category category, petra_tensor **out);

/* The labels of a microbatch. */
typedef struct petra_label_row {
  int64_t microbatch;
  int32_t count;
  int32_t *labels;
} petra_label_row;

typedef struct petra_feed {
  petra_backend *backend;
  petra_loader *loader;     /* borrowed; at microbatch `read` */
  bool input, labels;       /* stage 1 is here; the last stage is here */
  int64_t read;             /* microbatches read so far */
  int32_t classes;          /* labels are 0 .. classes - 1 */
  petra_label_row *waiting; /* labels of microbatches that were read and have no loss yet, in no order */
  int64_t waiting_count, waiting_capacity;
} petra_feed;

void petra_feed_fini(petra_feed *feed);

/* Reads microbatch `microbatch`, which must be the next one: its samples become a new tensor that counts as a message
 * of `account`. The caller owns *batch until petra_loader_give_back(feed->loader, ...). */
petra_status petra_feed_input(petra_feed *feed, int64_t microbatch, petra_account *account, petra_tensor **input,
                              petra_batch **batch);

/* Returns the labels of a microbatch, which stay until they are dropped; reads them if stage 1 is elsewhere.
 * PETRA_INTERNAL, logged, if they are not there. */
petra_status petra_feed_labels(petra_feed *feed, int64_t microbatch, const petra_label_row **out);
void petra_feed_drop_labels(petra_feed *feed, int64_t microbatch);

/* Reads or writes the labels that wait, in a checkpoint; tensors->read says how far stage 1 has read. */
petra_status petra_feed_archive(petra_feed *feed, const petra_tensor_archive *tensors);
