/* SPDX-License-Identifier: Apache-2.0 */
/* The training data of a worker: one loader provides the input of stage 1 and the labels of the stages with a loss (the
 * last stage; in a local program all stages). If only some of these stages are here, the loader is read only for them.
 * Loaders of one configuration yield the same batches in every process. */
#include "exec/worker_stage_private.h"

#include "backend/backend.h"
#include "base/log.h"
#include "base/mem.h"
#include "stage/stage_archive.h"

#include <stdio.h>
#include <string.h>

petra_loader_options petra_network_loader(const petra_network *network, int64_t first, int64_t end) {
  const petra_config *config = network->plan->config;
  return (petra_loader_options){.batch = (int32_t)config->data.batch,
                                .parts = (int32_t)config->cluster.replicas,
                                .part = network->replica,
                                .bytes = petra_backend_takes_images(network->backend),
                                .shuffle = config->data.shuffle,
                                .augment = config->data.augment,
                                .drop_last = true,
                                .threads = (int)config->data.workers,
                                .seed = (uint64_t)config->run.seed,
                                .first = first,
                                .end = end};
}

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

void petra_feed_fini(petra_worker_stage *worker) {
  for (int64_t i = 0; i < worker->waiting_count; i++)
    petra_free(worker->waiting[i].labels);
  petra_free(worker->waiting);
}

/* Returns true if the stage computes a loss. */
static bool needs_labels(const petra_worker_stage *worker, int32_t stage) {
  return worker->plan->program.local || stage == worker->stages.count;
}

static petra_label_row *find_labels(const petra_worker_stage *worker, int32_t stage, int64_t microbatch) {
  for (int64_t i = 0; i < worker->waiting_count; i++)
    if (worker->waiting[i].stage == stage && worker->waiting[i].microbatch == microbatch)
      return &worker->waiting[i];
  return NULL;
}

/* Stores a copy of the labels. */
static petra_status put_labels(petra_worker_stage *worker, int32_t stage, int64_t microbatch, const int32_t *labels,
                               int32_t count) {
  petra_label_row row = {stage, microbatch, count, NULL};
  PETRA_TRY(petra_array_reserve(&worker->waiting, &worker->waiting_capacity, worker->waiting_count + 1, sizeof row));
  PETRA_TRY(petra_allocate(&row.labels, (size_t)count, sizeof *row.labels));
  memcpy(row.labels, labels, (size_t)count * sizeof *labels);
  worker->waiting[worker->waiting_count++] = row;
  return PETRA_OK;
}

/* Reads the next batch, which must be the batch of `microbatch`, and stores its labels for the stages here that need
 * them. */
static petra_status next_batch(petra_worker_stage *worker, int64_t microbatch, petra_batch **out) {
  petra_batch *batch;
  PETRA_TRY(petra_loader_next(worker->pipeline->loader, &batch));
  petra_status status = batch->microbatch == microbatch
                            ? PETRA_OK
                            : petra_fail(PETRA_INTERNAL, "microbatch %lld was read where %lld was due",
                                         (long long)batch->microbatch, (long long)microbatch);
  for (int32_t j = 1; j <= worker->stages.count && status == PETRA_OK; j++)
    if (petra_stages_has(&worker->stages, j) && needs_labels(worker, j))
      status = put_labels(worker, j, microbatch, batch->labels, batch->label_count);
  if (status != PETRA_OK) {
    petra_loader_give_back(worker->pipeline->loader, batch);
    return status;
  }
  worker->read++;
  *out = batch;
  return PETRA_OK;
}

static petra_status report_read(const petra_worker_stage *worker, const petra_tensor *input, const petra_batch *batch) {
  PETRA_NOTIFY(petra_stage_observer, worker->options.observers, read, observer, batch->microbatch, input, batch->labels,
               batch->label_count);
  return PETRA_OK;
}

petra_status petra_feed_input(petra_worker_stage *worker, int64_t microbatch, petra_tensor **input) {
  petra_account *account = petra_stage_account(petra_stages_get(&worker->stages, 1));
  petra_batch *batch;
  PETRA_TRY(next_batch(worker, microbatch, &batch));
  petra_status status = petra_batch_upload(worker->backend, batch, account, PETRA_MEMORY_MESSAGES, input);
  if (status == PETRA_OK)
    status = report_read(worker, *input, batch);
  petra_loader_give_back(worker->pipeline->loader, batch);
  return status;
}

/* Reads labels when they are needed, if stage 1 is elsewhere. */
static petra_status read_up_to(petra_worker_stage *worker, int64_t microbatches) {
  while (!petra_stages_has(&worker->stages, 1) && worker->read < microbatches) {
    petra_batch *batch;
    PETRA_TRY(next_batch(worker, worker->read, &batch));
    petra_loader_give_back(worker->pipeline->loader, batch);
  }
  return PETRA_OK;
}

petra_status petra_feed_labels(petra_worker_stage *worker, int32_t stage, int64_t microbatch,
                               const petra_label_row **out) {
  PETRA_TRY(read_up_to(worker, microbatch + 1));
  *out = find_labels(worker, stage, microbatch);
  return *out ? PETRA_OK
              : petra_fail(PETRA_INTERNAL, "the labels of microbatch %lld are not there", (long long)microbatch);
}

void petra_feed_drop_labels(petra_worker_stage *worker, int32_t stage, int64_t microbatch) {
  petra_label_row *row = find_labels(worker, stage, microbatch);
  petra_free(row->labels);
  *row = worker->waiting[--worker->waiting_count];
}

/* Reads or writes row number `i` of a stage. */
static petra_status archive_row(petra_worker_stage *worker, const petra_tensor_archive *tensors, int64_t i,
                                petra_label_row *row) {
  petra_archive *archive = tensors->archive;
  int64_t about[2] = {row->microbatch, row->count};
  char name[48];
  snprintf(name, sizeof name, "labels/%lld-microbatch", (long long)i);
  PETRA_TRY(petra_archive_integers(archive, name, about, 2));
  PETRA_TRY(petra_archive_within(archive, name, "microbatch", about[0], 0, worker->read - 1));
  PETRA_TRY(petra_archive_within(archive, name, "labels", about[1], 1, INT32_MAX));
  if (archive->reading && tensors->images &&
      about[1] != (int64_t)tensors->images * petra_loader_labels(worker->pipeline->loader))
    return petra_archive_refuse(archive, name, "%lld labels of %d samples with %d each", (long long)about[1],
                                tensors->images, petra_loader_labels(worker->pipeline->loader));
  if (archive->reading && find_labels(worker, row->stage, about[0]))
    return petra_archive_refuse(archive, name, "microbatch %lld is there twice", (long long)about[0]);
  row->microbatch = about[0];
  row->count = (int32_t)about[1];
  snprintf(name, sizeof name, "labels/%lld", (long long)i);
  return petra_labels_archive(archive, name, worker->plan->model.classes, about[1], &row->labels);
}

petra_status petra_feed_archive(petra_worker_stage *worker, int32_t stage, const petra_tensor_archive *tensors) {
  petra_archive *archive = tensors->archive;
  int64_t count = 0, next = 0;
  if (!needs_labels(worker, stage))
    return PETRA_OK;
  if (!archive->reading)
    PETRA_TRY(read_up_to(worker, tensors->read)); /* as far as stage 1 has read */
  for (int64_t i = 0; i < worker->waiting_count; i++)
    count += worker->waiting[i].stage == stage;
  PETRA_TRY(petra_archive_integer(archive, "labels/count", "microbatches", &count, 0, worker->read));
  for (int64_t i = 0; i < count; i++) {
    petra_label_row row = {.stage = stage};
    if (!archive->reading) {
      while (worker->waiting[next].stage != stage)
        next++;
      PETRA_TRY(archive_row(worker, tensors, i, &worker->waiting[next++]));
      continue;
    }
    PETRA_TRY(petra_array_reserve(&worker->waiting, &worker->waiting_capacity, worker->waiting_count + 1, sizeof row));
    petra_status status = archive_row(worker, tensors, i, &row);
    worker->waiting[worker->waiting_count] = row;
    worker->waiting_count += row.labels != NULL;
    PETRA_TRY(status);
  }
  return PETRA_OK;
}
