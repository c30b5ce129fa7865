/* SPDX-License-Identifier: Apache-2.0 */
#include "probe/probe_link.h"

#include "base/log.h"
#include "base/mem.h"
#include "exec/tensor_bytes.h"

#include <string.h>

static const size_t MESSAGE_MAX = INT32_MAX - 4096; /* bytes; MPI counts to 2^31 - 1 */

enum { AHEAD = 2 };

/* One end of a channel. */
typedef struct link_end {
  petra_channel *channel; /* NULL: this process is not at this end */
  int64_t count;          /* messages sent, or received and done with */
  int64_t charged;        /* size of the buffers in the account */
} link_end;

struct petra_probe_link {
  petra_probe_link_options options;
  link_end *ends[PETRA_PROBE_MESSAGES]; /* by key */
};

/* Precedes streams: kind and shape of each tensor, zeros if it is missing. */
typedef struct streams_head {
  int32_t kind[2], shape[2][4];
  int32_t labels;
} streams_head;

static int keys_of(const petra_probe_link_options *options, petra_probe_message kind) {
  switch (kind) {
  case PETRA_PROBE_UP:
  case PETRA_PROBE_DOWN:
    return options->partition->stages;
  case PETRA_PROBE_MEAN:
    return options->replicas;
  case PETRA_PROBE_FOUND:
    return options->replicas * options->ranks.places;
  case PETRA_PROBE_MESSAGES:
    break;
  }
  return 0;
}

/* Every stage has a channel up and one down. The processes at one place share one number, and so do all that send to
 * rank 0. */
static int channel_of(const petra_probe_link_options *options, petra_probe_message kind, int key) {
  const int stages = options->partition->stages;
  static const int behind[] = {[PETRA_PROBE_MEAN] = 0, [PETRA_PROBE_FOUND] = 1};
  return options->ranks.first_channel +
         (kind <= PETRA_PROBE_DOWN ? (int)kind * stages + key : 2 * stages + behind[kind]);
}

static void charge(petra_probe_link *link, link_end *end) {
  const int64_t held = petra_channel_bytes(end->channel);
  petra_account_add(link->options.account, PETRA_MEMORY_MESSAGES, held - end->charged);
  end->charged = held;
}

/* --- messages --- */

petra_status petra_probe_link_room(petra_probe_link *link, petra_probe_message kind, int key, void **buffer) {
  link_end *end = &link->ends[kind][key];
  PETRA_TRY(petra_channel_buffer(end->channel, kind == PETRA_PROBE_UP ? end->count - AHEAD : 0,
                                 "room for a message of a probe", buffer));
  charge(link, end);
  return PETRA_OK;
}

petra_status petra_probe_link_send(petra_probe_link *link, petra_probe_message kind, int key, size_t bytes) {
  link_end *end = &link->ends[kind][key];
  return petra_channel_send(end->channel, end->count++, bytes);
}

petra_status petra_probe_link_peek(petra_probe_link *link, petra_probe_message kind, int key, bool wait,
                                   const void **data, size_t *size) {
  link_end *end = &link->ends[kind][key];
  int64_t number;
  PETRA_TRY(wait ? petra_channel_take(end->channel, end->count, "a message of a probe", data, size)
                 : petra_channel_poll(end->channel, &number, data, size));
  if (*data)
    charge(link, end);
  return PETRA_OK;
}

petra_status petra_probe_link_done(petra_probe_link *link, petra_probe_message kind, int key) {
  link_end *end = &link->ends[kind][key];
  return petra_channel_done(end->channel, end->count++);
}

/* --- tensors --- */

static size_t bytes_of(const petra_tensor *tensor) {
  return petra_packed_bytes(tensor->backend, tensor->kind, tensor->elements);
}

petra_status petra_probe_link_send_tensor(petra_probe_link *link, petra_probe_message kind, int key,
                                          const petra_tensor *tensor) {
  void *buffer;
  PETRA_TRY(petra_probe_link_room(link, kind, key, &buffer));
  PETRA_TRY(petra_pack(tensor, buffer));
  return petra_probe_link_send(link, kind, key, bytes_of(tensor));
}

petra_status petra_probe_link_take_tensor(petra_probe_link *link, petra_probe_message kind, int key,
                                          petra_tensor *tensor) {
  const void *data;
  size_t size;
  PETRA_TRY(petra_probe_link_peek(link, kind, key, true, &data, &size));
  if (size != bytes_of(tensor))
    return petra_fail(PETRA_INTERNAL, "a probe's message of %zu bytes; expected a tensor of %zu", size,
                      bytes_of(tensor));
  PETRA_TRY(petra_unpack(tensor, data));
  return petra_probe_link_done(link, kind, key);
}

petra_status petra_probe_link_send_streams(petra_probe_link *link, petra_probe_message kind, int key,
                                           const petra_streams *streams, const int32_t *labels, int32_t count) {
  streams_head head = {.labels = count};
  void *buffer;
  PETRA_TRY(petra_probe_link_room(link, kind, key, &buffer));
  unsigned char *at = (unsigned char *)buffer + sizeof head;
  for (int i = 0; i < 2; i++)
    if (streams->tensor[i]) {
      head.kind[i] = (int32_t)streams->tensor[i]->kind;
      memcpy(head.shape[i], streams->tensor[i]->shape, sizeof head.shape[i]);
      PETRA_TRY(petra_pack(streams->tensor[i], at));
      at += bytes_of(streams->tensor[i]);
    }
  if (count > 0)
    memcpy(at, labels, (size_t)count * sizeof *labels);
  memcpy(buffer, &head, sizeof head);
  return petra_probe_link_send(link, kind, key,
                               (size_t)(at - (unsigned char *)buffer) + (size_t)count * sizeof *labels);
}

static petra_status unpack(const petra_compute *compute, const streams_head *head, const unsigned char *at,
                           petra_streams *out, int32_t **labels) {
  for (int i = 0; i < 2; i++)
    if (head->shape[i][0] > 0) {
      PETRA_TRY(petra_compute_tensor(compute, (petra_tensor_kind)head->kind[i], head->shape[i], PETRA_MEMORY_WORKSPACE,
                                     &out->tensor[i]));
      PETRA_TRY(petra_unpack(out->tensor[i], at));
      at += bytes_of(out->tensor[i]);
    }
  if (!labels || head->labels == 0)
    return PETRA_OK;
  PETRA_TRY(petra_allocate(labels, (size_t)head->labels, sizeof **labels));
  memcpy(*labels, at, (size_t)head->labels * sizeof **labels);
  return PETRA_OK;
}

petra_status petra_probe_link_take_streams(petra_probe_link *link, petra_probe_message kind, int key, bool wait,
                                           const petra_compute *compute, bool *came, petra_streams *out,
                                           int32_t **labels, int32_t *count) {
  petra_streams streams = {{NULL, NULL}};
  streams_head head;
  const void *data;
  size_t size;
  PETRA_TRY(petra_probe_link_peek(link, kind, key, wait, &data, &size));
  *came = data != NULL;
  if (!data)
    return PETRA_OK;
  memcpy(&head, data, sizeof head);
  petra_status status = unpack(compute, &head, (const unsigned char *)data + sizeof head, &streams, labels);
  if (status == PETRA_OK)
    status = petra_probe_link_done(link, kind, key);
  if (status != PETRA_OK) {
    petra_streams_release(&streams);
    return status;
  }
  *out = streams;
  if (count)
    *count = head.labels;
  return PETRA_OK;
}

/* --- creation --- */

static petra_status open_channel(petra_probe_link *link, petra_probe_message kind, int key, int from, int to,
                                 size_t capacity) {
  const petra_probe_link_options *options = &link->options;
  link_end *end = &link->ends[kind][key];
  const int channel = channel_of(options, kind, key), rank = options->ranks.rank;
  petra_progress_thread *progress = options->ranks.progress;
  if (from == to || (rank != from && rank != to))
    return PETRA_OK;
  if (capacity > MESSAGE_MAX)
    return petra_config_fail(options->config, "probe.per_epoch",
                             "a message of a probe has %zu bytes; expected at most %zu with run.mode: execute, a "
                             "smaller batch or shorter windows",
                             capacity, MESSAGE_MAX);
  return rank == from ? petra_channel_open_out(progress, to, channel, capacity, &end->channel)
                      : petra_channel_open_in(progress, from, channel, capacity, &end->channel);
}

static size_t larger(size_t a, size_t b) {
  return a > b ? a : b;
}

/* Returns the maximum size of an element in a message. */
static size_t element_bytes(const petra_backend *backend) {
  size_t bytes = 0;
  for (int kind = 0; kind < PETRA_TENSOR_KINDS; kind++)
    bytes = larger(bytes, petra_packed_bytes(backend, (petra_tensor_kind)kind, 1));
  return bytes;
}

/* Opens the channels between neighbouring stages. */
static petra_status open_boundaries(petra_probe_link *link) {
  const petra_probe_link_options *options = &link->options;
  const size_t batch = (size_t)options->config->data.batch, element = element_bytes(options->backend);
  for (int j = 1; j < options->partition->stages; j++) {
    const petra_block *block = &options->model->blocks[options->partition->first[j]];
    const int below = options->ranks.rank_of[j - 1], above = options->ranks.rank_of[j];
    const size_t streams = sizeof(streams_head) + batch * (size_t)petra_block_input_elements(block) * element;
    const size_t labels = batch * (size_t)petra_model_labels(options->model) * sizeof(int32_t);
    PETRA_TRY(open_channel(link, PETRA_PROBE_UP, j, below, above, streams + labels));
    PETRA_TRY(open_channel(link, PETRA_PROBE_DOWN, j - 1, above, below, streams));
  }
  return PETRA_OK;
}

/* Returns the size of the largest parameter. */
static size_t largest_parameter(const petra_probe_link_options *options) {
  size_t maximum = 0;
  for (int b = 0; b < options->model->block_count; b++)
    for (int i = 0; i < petra_block_parameter_count(&options->model->blocks[b]); i++) {
      petra_tensor_spec spec;
      size_t elements = 1;
      petra_block_parameter(options->model, &options->model->blocks[b], i, &spec);
      for (int d = 0; d < 4; d++)
        elements *= (size_t)spec.shape[d];
      maximum = larger(maximum, elements * element_bytes(options->backend));
    }
  return maximum;
}

/* Opens the channels to replica 0, and to rank 0. */
static petra_status open_others(petra_probe_link *link) {
  const petra_probe_link_options *options = &link->options;
  const int places = options->ranks.places, place = options->ranks.rank % places;
  const size_t tensor = largest_parameter(options);
  for (int r = 1; r < options->replicas; r++)
    PETRA_TRY(open_channel(link, PETRA_PROBE_MEAN, r, r * places + place, place, tensor));
  for (int rank = 1; rank < options->replicas * places; rank++)
    PETRA_TRY(open_channel(link, PETRA_PROBE_FOUND, rank, rank, 0, larger(tensor, options->found_bytes)));
  return PETRA_OK;
}

petra_status petra_probe_link_create(const petra_probe_link_options *options, petra_probe_link **out) {
  petra_probe_link *link;
  petra_status status = PETRA_OK;
  PETRA_TRY(petra_allocate(&link, 1, sizeof *link));
  link->options = *options;
  for (int c = 0; c < PETRA_PROBE_MESSAGES && status == PETRA_OK; c++)
    status = petra_allocate(&link->ends[c], (size_t)keys_of(options, (petra_probe_message)c), sizeof *link->ends[c]);
  if (status == PETRA_OK)
    status = open_boundaries(link);
  if (status == PETRA_OK)
    status = open_others(link);
  if (status != PETRA_OK)
    petra_probe_link_destroy(link);
  else
    *out = link;
  return status;
}

void petra_probe_link_destroy(petra_probe_link *link) {
  for (int c = 0; link && c < PETRA_PROBE_MESSAGES; c++)
    petra_free(link->ends[c]);
  petra_free(link);
}
