/* SPDX-License-Identifier: Apache-2.0 */
/* The training data of a worker: input for stage 1, labels for the stages with a loss (the last one; in a local program
 * all), from one loader. If only some of these stages are here, the loader is read for them alone. Loaders of one
 * configuration yield the same batches in every process. */
#pragma once

#include "backend/tensor_archive.h"
#include "data/loader.h"
#include "exec/stages.h"

/* Creates a tensor with the batch's samples, of the batch's shape: an activation of images, a sequence of tokens. A
 * batch of bytes needs a backend that takes images. `account` may be NULL. Fails as the backend does. */
petra_status petra_batch_upload(petra_backend *backend, const petra_batch *batch, petra_account *account,
                                petra_memory_category category, petra_tensor **out);

/* The labels of a microbatch, for one stage. */
typedef struct petra_label_row {
  int32_t stage;
  int64_t microbatch;
  int32_t count;
  int32_t *labels;
} petra_label_row;

typedef struct petra_feed {
  petra_backend *backend;
  petra_loader *loader;     /* borrowed; at microbatch `read` */
  bool input;               /* stage 1 is here */
  petra_stages stages;      /* the stages of the worker */
  bool local;               /* every stage needs labels; else the last one */
  int64_t read;             /* microbatches read so far */
  int32_t classes;          /* labels are 0 .. classes - 1 */
  petra_label_row *waiting; /* labels of microbatches that were read and have no loss of the stage yet, in no order */
  int64_t waiting_count, waiting_capacity;
} petra_feed;

void petra_feed_fini(petra_feed *feed);

/* Reads microbatch `microbatch`, which must be the next one: its samples become a new tensor that counts as a message
 * of `account`. The caller owns *batch until petra_loader_give_back(feed->loader, ...). */
petra_status petra_feed_input(petra_feed *feed, int64_t microbatch, petra_account *account, petra_tensor **input,
                              petra_batch **batch);

/* Returns the labels of a microbatch for a stage with a loss, which stay until they are dropped; reads them if stage 1
 * is elsewhere. PETRA_INTERNAL, logged, if they are not there. */
petra_status petra_feed_labels(petra_feed *feed, int32_t stage, int64_t microbatch, const petra_label_row **out);
void petra_feed_drop_labels(petra_feed *feed, int32_t stage, int64_t microbatch);

/* Reads or writes the labels that wait for a stage, in a checkpoint; does nothing for a stage without a loss.
 * tensors->read says how far stage 1 has read. */
petra_status petra_feed_archive(petra_feed *feed, int32_t stage, const petra_tensor_archive *tensors);
