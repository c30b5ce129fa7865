/* SPDX-License-Identifier: Apache-2.0 */
/* Messages between the probes of the processes of a run: streams and gradients between neighbouring stages, the
 * gradients of other replicas, the results of a window. They have their own channels of the progress thread, and go
 * through the hosts even if training messages go from device to device. Their buffers count as messages in the probe's
 * account. */
#include "probe/probe_private.h"

#include "base/log.h"
#include "base/mem.h"
#include "exec/transport.h"

#include <string.h>

/* One end of a channel. */
typedef struct link_end {
  petra_channel *channel; /* NULL: this process is not at this end */
  int64_t count;          /* messages sent, or messages received and finished */
  int64_t charged;        /* size of the buffers in the account */
} link_end;

struct petra_probe_exchange {
  link_end *ends[PETRA_PROBE_MESSAGES]; /* by key */
};

/* The header of a message of streams: kind and shape of each tensor; zeros if the tensor is missing. */
typedef struct streams_head {
  int32_t kind[2], shape[2][4];
  int32_t labels;
} streams_head;

/* Every stage has a channel up and a channel down. All channels that carry gradients to replica 0 share one number, and
 * so do all channels to rank 0. */
static int channel_of(const petra_probe *probe, petra_probe_message kind, int key) {
  const int stages = probe->plan->partition.stages;
  return petra_channel_id(probe->stages, PETRA_CHANNEL_PROBES) +
         (kind <= PETRA_PROBE_DOWN ? (int)kind * stages + key : 2 * stages + (int)(kind - PETRA_PROBE_MEAN));
}

static void charge(petra_probe *probe, link_end *end) {
  const int64_t held = petra_channel_bytes(end->channel);
  petra_account_add(&probe->account, PETRA_MEMORY_MESSAGES, held - end->charged);
  end->charged = held;
}

/* --- messages --- */

/* Returns a buffer for the next message of a kind. On a channel up, a sender is at most two messages ahead of its
 * receiver. On the other channels, a sender waits only until one of its two buffers is free. */
static petra_status room(petra_probe *probe, petra_probe_message kind, int key, void **buffer) {
  link_end *end = &probe->exchange->ends[kind][key];
  PETRA_TRY(petra_channel_buffer(end->channel, kind == PETRA_PROBE_UP ? end->count - PETRA_TRANSPORT_AHEAD : 0,
                                 "room for a message of a probe", buffer));
  charge(probe, end);
  return PETRA_OK;
}

static petra_status send(petra_probe *probe, petra_probe_message kind, int key, size_t bytes) {
  link_end *end = &probe->exchange->ends[kind][key];
  return petra_channel_send(end->channel, end->count++, bytes);
}

/* Returns the next message of a kind, which stays valid until `done` is called. Without `wait`, *data is NULL if none
 * has arrived. */
static petra_status peek(petra_probe *probe, petra_probe_message kind, int key, bool wait, const void **data,
                         size_t *size) {
  link_end *end = &probe->exchange->ends[kind][key];
  int64_t number;
  PETRA_TRY(wait ? petra_channel_take(end->channel, end->count, "a message of a probe", data, size)
                 : petra_channel_poll(end->channel, &number, data, size));
  if (*data)
    charge(probe, end);
  return PETRA_OK;
}

static petra_status done(petra_probe *probe, petra_probe_message kind, int key) {
  link_end *end = &probe->exchange->ends[kind][key];
  return petra_channel_done(end->channel, end->count++);
}

/* --- tensors --- */

/* Sends one tensor as a message: its elements, in their order. */
static petra_status send_tensor(petra_probe *probe, petra_probe_message kind, int key, petra_tensor *tensor) {
  void *buffer;
  PETRA_TRY(room(probe, kind, key, &buffer));
  PETRA_TRY(petra_pack(tensor, buffer));
  return send(probe, kind, key, petra_packed_tensor_bytes(tensor));
}

/* Waits for the message, and overwrites the tensor. */
static petra_status take_tensor(petra_probe *probe, petra_probe_message kind, int key, petra_tensor *tensor) {
  const void *data;
  size_t size;
  PETRA_TRY(peek(probe, kind, key, true, &data, &size));
  if (size != petra_packed_tensor_bytes(tensor))
    return petra_fail(PETRA_INTERNAL, "a probe's message of %zu bytes; expected a tensor of %zu", size,
                      petra_packed_tensor_bytes(tensor));
  PETRA_TRY(petra_unpack(tensor, data));
  return done(probe, kind, key);
}

petra_status petra_probe_send_streams(petra_probe *probe, petra_probe_message kind, int32_t key,
                                      const petra_streams *streams, const int32_t *labels, int32_t count) {
  streams_head head = {.labels = count};
  void *buffer;
  PETRA_TRY(room(probe, kind, key, &buffer));
  unsigned char *at = (unsigned char *)buffer + sizeof head;
  for (int i = 0; i < 2; i++)
    if (streams->tensor[i]) {
      head.kind[i] = (int32_t)streams->tensor[i]->kind;
      memcpy(head.shape[i], streams->tensor[i]->shape, sizeof head.shape[i]);
      PETRA_TRY(petra_pack(streams->tensor[i], at));
      at += petra_packed_tensor_bytes(streams->tensor[i]);
    }
  if (count > 0)
    memcpy(at, labels, (size_t)count * sizeof *labels);
  memcpy(buffer, &head, sizeof head);
  return send(probe, kind, key, (size_t)(at - (unsigned char *)buffer) + (size_t)count * sizeof *labels);
}

static petra_status unpack(const petra_compute *compute, const streams_head *head, const unsigned char *at,
                           petra_streams *out, int32_t **labels) {
  for (int i = 0; i < 2; i++)
    if (head->shape[i][0] > 0) {
      PETRA_TRY(petra_compute_tensor(compute, (petra_tensor_kind)head->kind[i], head->shape[i], PETRA_MEMORY_WORKSPACE,
                                     &out->tensor[i]));
      PETRA_TRY(petra_unpack(out->tensor[i], at));
      at += petra_packed_tensor_bytes(out->tensor[i]);
    }
  if (!labels || head->labels == 0)
    return PETRA_OK;
  PETRA_TRY(petra_allocate(labels, (size_t)head->labels, sizeof **labels));
  memcpy(*labels, at, (size_t)head->labels * sizeof **labels);
  return PETRA_OK;
}

petra_status petra_probe_take_streams(petra_probe *probe, petra_probe_message kind, int32_t key, bool wait, bool *came,
                                      petra_streams *out, int32_t **labels, int32_t *count) {
  PETRA_FINISHED(petra_streams_release) petra_streams streams = {{NULL, NULL}};
  streams_head head;
  const void *data;
  size_t size;
  PETRA_TRY(peek(probe, kind, key, wait, &data, &size));
  *came = data != NULL;
  if (!data)
    return PETRA_OK;
  memcpy(&head, data, sizeof head);
  PETRA_TRY(unpack(&probe->compute, &head, (const unsigned char *)data + sizeof head, &streams, labels));
  PETRA_TRY(done(probe, kind, key));
  petra_streams_move(&streams, out);
  if (labels)
    *count = head.labels;
  return PETRA_OK;
}

/* Returns the maximum number of reconstruction errors of a replica. */
static size_t errors_of(const petra_probe *probe) {
  return (size_t)probe->stages * (size_t)probe->accumulate;
}

/* Returns the size of the message with the results of a window. */
static size_t found_bytes(const petra_probe *probe) {
  return (petra_probe_numbers(probe) + errors_of(probe)) * sizeof(double) + (size_t)probe->stages * sizeof(int64_t);
}

/* --- creation --- */

static petra_status open_channel(petra_probe *probe, petra_probe_message kind, int key, int from, int to,
                                 size_t capacity) {
  link_end *end = &probe->exchange->ends[kind][key];
  const int channel = channel_of(probe, kind, key), rank = probe->rank;
  petra_progress_thread *progress = probe->network->placement->ranks->progress;
  if (from == to || (rank != from && rank != to))
    return PETRA_OK;
  if ((int64_t)capacity > PETRA_MESSAGE_BYTES_MAX)
    return petra_config_fail(probe->plan->config, "probe.per_epoch",
                             "a message of a probe has %zu bytes; expected at most %zu with run.mode: execute, a "
                             "smaller batch or shorter windows",
                             capacity, (size_t)PETRA_MESSAGE_BYTES_MAX);
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
static petra_status open_boundaries(petra_probe *probe) {
  const size_t batch = (size_t)probe->plan->config->data.batch, element = element_bytes(probe->compute.backend);
  for (int j = 1; j < probe->plan->partition.stages; j++) {
    const petra_block *block = &probe->model->blocks[probe->plan->partition.first[j]];
    const int below = probe->network->placement->rank_of[j - 1], above = probe->network->placement->rank_of[j];
    const size_t streams = sizeof(streams_head) + batch * (size_t)petra_block_input_elements(block) * element;
    const size_t labels = batch * (size_t)petra_model_labels(probe->model) * sizeof(int32_t);
    PETRA_TRY(open_channel(probe, PETRA_PROBE_UP, j, below, above, streams + labels));
    PETRA_TRY(open_channel(probe, PETRA_PROBE_DOWN, j - 1, above, below, streams));
  }
  return PETRA_OK;
}

/* Returns the size of the largest parameter. */
static size_t largest_parameter(const petra_probe *probe) {
  size_t maximum = 0;
  for (int b = 0; b < probe->model->block_count; b++)
    for (int i = 0; i < petra_block_parameter_count(&probe->model->blocks[b]); i++) {
      petra_tensor_spec spec;
      petra_block_parameter(probe->model, &probe->model->blocks[b], i, &spec);
      const int64_t elements = (int64_t)spec.shape[0] * spec.shape[1] * spec.shape[2] * spec.shape[3];
      maximum = larger(maximum, (size_t)elements * element_bytes(probe->compute.backend));
    }
  return maximum;
}

/* Opens the channels to replica 0, and to rank 0. */
static petra_status open_others(petra_probe *probe) {
  const int ranks = probe->network->placement->replica_ranks, own = probe->rank % ranks;
  const size_t tensor = largest_parameter(probe);
  for (int r = 1; r < probe->replicas; r++)
    PETRA_TRY(open_channel(probe, PETRA_PROBE_MEAN, r, r * ranks + own, own, tensor));
  for (int rank = 1; rank < probe->replicas * ranks; rank++)
    PETRA_TRY(open_channel(probe, PETRA_PROBE_FOUND, rank, rank, 0, larger(tensor, found_bytes(probe))));
  return PETRA_OK;
}

petra_status petra_probe_exchange_open(petra_probe *probe) {
  const int stages = probe->stages, ranks = probe->replicas * probe->network->placement->replica_ranks;
  const int keys[] = {[PETRA_PROBE_UP] = stages,
                      [PETRA_PROBE_DOWN] = stages,
                      [PETRA_PROBE_MEAN] = probe->replicas,
                      [PETRA_PROBE_FOUND] = ranks};
  PETRA_TRY(petra_allocate(&probe->exchange, 1, sizeof *probe->exchange));
  for (int c = 0; c < PETRA_PROBE_MESSAGES; c++)
    PETRA_TRY(petra_allocate(&probe->exchange->ends[c], (size_t)keys[c], sizeof *probe->exchange->ends[c]));
  PETRA_TRY(open_boundaries(probe));
  return open_others(probe);
}

void petra_probe_exchange_close(petra_probe *probe) {
  for (int c = 0; probe->exchange && c < PETRA_PROBE_MESSAGES; c++)
    petra_free(probe->exchange->ends[c]);
  petra_free(probe->exchange);
}

/* --- waves --- */

petra_status petra_probe_send_to_replica_0(petra_probe *probe, petra_tensor *gradient) {
  return send_tensor(probe, PETRA_PROBE_MEAN, probe->first, gradient);
}

/* Adds the gradients of one stage of the present replica. Its first message has arrived, and the others follow without
 * waiting. */
static petra_status add_stage(petra_probe *probe, petra_probe_wave *wave, int32_t j) {
  for (int b = petra_probe_end(probe, j) - 1; b >= petra_probe_first(probe, j); b--) {
    PETRA_FINISHED(petra_tensor_set_release) petra_tensor_set found = {0};
    PETRA_TRY(petra_tensor_set_create(&probe->compute, probe->model, &probe->model->blocks[b], false,
                                      PETRA_MEMORY_WORKSPACE, &found));
    for (int i = 0; i < found.count; i++) {
      PETRA_TRY(take_tensor(probe, PETRA_PROBE_MEAN, wave->replica, found.tensor[i]));
      PETRA_TRY(petra_probe_wave_add(probe, wave, j, b, i, found.tensor[i]));
    }
  }
  return PETRA_OK;
}

petra_status petra_probe_add_replicas(petra_probe *probe, petra_probe_wave *wave, bool wait) {
  for (; wave->replica < probe->replicas; wave->replica++, wave->added = probe->stages)
    for (int32_t j = petra_probe_wave_next(probe, wave, wave->added); j >= 0;
         j = petra_probe_wave_next(probe, wave, j)) {
      const void *data;
      size_t size;
      if (petra_probe_wave_wants(wave, j)) {
        PETRA_TRY(peek(probe, PETRA_PROBE_MEAN, wave->replica, wait, &data, &size));
        if (!data)
          return PETRA_OK;
        PETRA_TRY(add_stage(probe, wave, j));
      }
      wave->added = j;
    }
  return PETRA_OK;
}

/* --- results ---
 * A message contains the figures of all stages, of which only the figures of the sender's stages are used, and the
 * reconstruction errors of the sender's replica. If gradients were requested, the gradients of the sender's parameters
 * follow as separate messages. */

/* Visits the gradients of a stage's parameters, in the order of a row. */
static petra_status each_gradient(petra_probe *probe, petra_probe_window *window, int rank, int32_t j,
                                  petra_status (*each)(petra_probe *probe, petra_probe_message kind, int key,
                                                       petra_tensor *tensor)) {
  for (int g = 0; g < PETRA_GRADIENTS; g++)
    for (int b = petra_probe_first(probe, j); b < petra_probe_end(probe, j); b++)
      for (int i = 0; i < window->sums[g][b].count; i++)
        PETRA_TRY(each(probe, PETRA_PROBE_FOUND, rank, window->sums[g][b].tensor[i]));
  return PETRA_OK;
}

petra_status petra_probe_send_found(petra_probe *probe, petra_probe_window *window) {
  const size_t errors = errors_of(probe), own = (size_t)probe->first, stages = (size_t)probe->stages;
  void *buffer;
  PETRA_TRY(room(probe, PETRA_PROBE_FOUND, probe->rank, &buffer));
  double *numbers = buffer, *to = numbers + petra_probe_numbers(probe);
  memcpy(numbers, window->stage, petra_probe_numbers(probe) * sizeof *numbers);
  memcpy(to, window->errors + own * errors, errors * sizeof *to);
  memcpy(to + errors, window->error_count + own * stages, stages * sizeof *window->error_count);
  PETRA_TRY(send(probe, PETRA_PROBE_FOUND, probe->rank, found_bytes(probe)));
  for (int32_t j = 0; j < probe->stages && probe->plan->config->probe.gradients; j++)
    if (petra_probe_has(probe, j) && petra_probe_compares(probe))
      PETRA_TRY(each_gradient(probe, window, probe->rank, j, send_tensor));
  return PETRA_OK;
}

/* Copies the figures of a stage. */
static void take_stage(const petra_probe *probe, petra_probe_window *window, const double *from, int32_t j) {
  const int measures = PETRA_MEASURES * PETRA_PAIRS, stages = probe->stages;
  const int first = probe->offset[petra_probe_first(probe, j)], end = probe->offset[petra_probe_end(probe, j)];
  const double *parameters = from + (window->parameter - window->stage);
  for (int m = 0; m < measures + PETRA_PAIRS; m++) /* the concatenated figures follow the measures */
    window->stage[m * stages + j] = from[m * stages + j];
  for (int m = 0; m < measures; m++)
    memcpy(window->parameter + (size_t)m * (size_t)probe->parameters + first,
           parameters + (size_t)m * (size_t)probe->parameters + first, (size_t)(end - first) * sizeof *from);
}

static petra_status take_gradients(petra_probe *probe, petra_probe_window *window, int rank, int32_t j) {
  for (int g = 0; g < PETRA_GRADIENTS; g++)
    for (int b = petra_probe_first(probe, j); b < petra_probe_end(probe, j); b++)
      PETRA_TRY(petra_tensor_set_create(&probe->compute, probe->model, &probe->model->blocks[b], false,
                                        PETRA_MEMORY_GRADIENTS, &window->sums[g][b]));
  return each_gradient(probe, window, rank, j, take_tensor);
}

static petra_status take_found(petra_probe *probe, petra_probe_window *window, int rank) {
  const petra_placement *placement = probe->network->placement;
  const size_t errors = errors_of(probe), stages = (size_t)probe->stages,
               replica = (size_t)(rank / placement->replica_ranks);
  const void *data;
  size_t size;
  PETRA_TRY(peek(probe, PETRA_PROBE_FOUND, rank, true, &data, &size));
  if (size != found_bytes(probe))
    return petra_fail(PETRA_INTERNAL, "what rank %d found in a probe has %zu bytes; expected %zu", rank, size,
                      found_bytes(probe));
  const double *numbers = data, *from = numbers + petra_probe_numbers(probe);
  const int64_t *counts = (const int64_t *)(const void *)(from + errors);
  for (int32_t j = 0; j < probe->stages; j++) {
    const size_t at = replica * stages + (size_t)j, k = (size_t)probe->accumulate;
    if (placement->rank_of[j] != rank % placement->replica_ranks)
      continue;
    if (replica == 0)
      take_stage(probe, window, numbers, j);
    memcpy(window->errors + at * k, from + (size_t)j * k, k * sizeof *from);
    window->error_count[at] = counts[j];
  }
  PETRA_TRY(done(probe, PETRA_PROBE_FOUND, rank));
  for (int32_t j = 0; j < probe->stages && replica == 0 && probe->plan->config->probe.gradients; j++)
    if (placement->rank_of[j] == rank)
      PETRA_TRY(take_gradients(probe, window, rank, j));
  return PETRA_OK;
}

petra_status petra_probe_gather(petra_probe *probe, bool wait, bool *came) {
  const int ranks = probe->exchange ? probe->replicas * probe->network->placement->replica_ranks : 1;
  *came = true;
  for (int rank = 1; rank < ranks && *came; rank++) {
    const void *data;
    size_t size;
    PETRA_TRY(peek(probe, PETRA_PROBE_FOUND, rank, wait, &data, &size));
    *came = data != NULL;
  }
  for (int rank = 1; rank < ranks && *came; rank++)
    PETRA_TRY(take_found(probe, probe->windows, rank));
  return PETRA_OK;
}
