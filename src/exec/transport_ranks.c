#include "exec/transport_ranks.h"

#include "backend/ops.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/mem.h"

#include <stdio.h>
#include <string.h>

enum { AHEAD = 2, PARTS = 4 }; /* messages that a sender may be ahead of the schedule; tensors in a message */

/* In front of a message's tensors: the shape of each; zeros where there is none. */
typedef struct packed_shapes {
  int32_t shape[PARTS][4];
} packed_shapes;

/* One boundary, channel and direction that leaves or enters this rank. */
typedef struct boundary {
  petra_way *way;
  size_t capacity;     /* of its messages */
  int64_t sent, taken; /* out: messages sent, and taken by the schedule; evaluations: only the first */
  int64_t charged;     /* in: bytes of buffers in the account of the receiver */
} boundary;

typedef struct transport_ranks {
  petra_transport base;
  petra_transport_ranks_options options;
  boundary *at; /* by receiving stage (from 1) and channel */
  int64_t copying_ns, took_ns;
} transport_ranks;

static boundary *boundary_of(transport_ranks *t, int32_t stage, petra_channel channel) {
  return &t->at[(stage - 1) * PETRA_CHANNELS + (int)channel];
}

static void parts_of(petra_message *message, petra_tensor **parts[PARTS]) {
  parts[0] = &message->streams.tensor[0];
  parts[1] = &message->streams.tensor[1];
  parts[2] = &message->gradients.tensor[0];
  parts[3] = &message->gradients.tensor[1];
}

static size_t element_bytes(const transport_ranks *t) {
  return t->options.backend->element_bytes[PETRA_TENSOR_ACTIVATION] > sizeof(float) ? sizeof(double) : sizeof(float);
}

static petra_host_type host_type(const transport_ranks *t) {
  return element_bytes(t) == sizeof(double) ? PETRA_HOST_F64 : PETRA_HOST_F32;
}

static const char *describe(const petra_address *address, char text[96]) {
  static const char *const channels[] = {"forward message", "backward message", "evaluation's message"};
  snprintf(text, 96, "the %s %lld of stage %d", channels[address->channel], (long long)address->number, address->stage);
  return text;
}

/* Writes the message into the way's next buffer and sends it. */
static petra_status send_away(transport_ranks *t, const petra_address *to, petra_message *message) {
  boundary *b = boundary_of(t, to->stage, to->channel);
  packed_shapes shapes = {{{0}}};
  petra_tensor **parts[PARTS];
  char text[96], what[128];
  void *buffer;
  snprintf(what, sizeof what, "room for %s", describe(to, text));
  const int64_t done = (to->channel == PETRA_CHANNEL_EVALUATION ? b->sent : b->taken) - AHEAD;
  PETRA_TRY(petra_way_buffer(b->way, done, what, &buffer));
  const int64_t began_ns = petra_clock_ns();
  unsigned char *at = (unsigned char *)buffer + sizeof shapes, *end = (unsigned char *)buffer + b->capacity;
  parts_of(message, parts);
  for (int i = 0; i < PARTS; i++)
    if (*parts[i]) {
      memcpy(shapes.shape[i], (*parts[i])->shape, sizeof shapes.shape[i]);
      if ((size_t)(*parts[i])->elements * element_bytes(t) > (size_t)(end - at))
        return petra_fail(PETRA_INTERNAL, "%s is larger than its way", text);
      PETRA_TRY(petra_op_download(t->options.backend, *parts[i], at, host_type(t)));
      at += (size_t)(*parts[i])->elements * element_bytes(t);
    }
  memcpy(buffer, &shapes, sizeof shapes);
  t->copying_ns += petra_clock_ns() - began_ns;
  b->sent++;
  return petra_way_send(b->way, to->number, (size_t)(at - (unsigned char *)buffer));
}

static petra_status post(petra_transport *base, const petra_address *to, petra_message *message) {
  transport_ranks *t = (transport_ranks *)base;
  if (petra_stages_has(&t->options.stages, to->stage))
    return t->options.local->ops->post(t->options.local, to, message);
  if (t->options.peers)
    return petra_transport_peers_post(t->options.peers, to, message);
  petra_status status = send_away(t, to, message);
  petra_message_release(message);
  return status;
}

static petra_status unpack(const transport_ranks *t, petra_account *account, const unsigned char *data, size_t size,
                           petra_message *out) {
  packed_shapes shapes;
  petra_tensor **parts[PARTS];
  size_t at = sizeof shapes;
  if (size < sizeof shapes)
    return petra_fail(PETRA_INTERNAL, "a message of %zu bytes has no shapes", size);
  memcpy(&shapes, data, sizeof shapes);
  parts_of(out, parts);
  for (int i = 0; i < PARTS; i++) {
    if (shapes.shape[i][0] == 0)
      continue;
    PETRA_TRY(petra_tensor_create(t->options.backend, PETRA_TENSOR_ACTIVATION, shapes.shape[i], account,
                                  PETRA_MEMORY_MESSAGES, parts[i]));
    const size_t bytes = (size_t)(*parts[i])->elements * element_bytes(t);
    if (bytes > size - at)
      return petra_fail(PETRA_INTERNAL, "a message of %zu bytes is shorter than its tensors", size);
    PETRA_TRY(petra_op_upload(t->options.backend, *parts[i], data + at, host_type(t)));
    at += bytes;
  }
  return PETRA_OK;
}

static petra_status take(petra_transport *base, const petra_address *from, petra_message *out) {
  transport_ranks *t = (transport_ranks *)base;
  const int32_t sender = from->channel == PETRA_CHANNEL_BACKWARD ? from->stage + 1 : from->stage - 1;
  if (petra_stages_has(&t->options.stages, sender))
    return t->options.local->ops->take(t->options.local, from, out);
  if (t->options.peers)
    return petra_transport_peers_take(t->options.peers, from, out);
  boundary *b = boundary_of(t, from->stage, from->channel);
  petra_account *account = petra_stage_account(petra_stages_get(&t->options.stages, from->stage));
  petra_message message = {{{NULL, NULL}}, {{NULL, NULL}}};
  char what[96];
  const void *data;
  size_t size;
  PETRA_TRY(petra_way_take(b->way, from->number, describe(from, what), &data, &size));
  const int64_t held = petra_way_bytes(b->way);
  petra_account_add(account, PETRA_MEMORY_MESSAGES, held - b->charged);
  b->charged = held;
  const int64_t began_ns = t->took_ns = petra_clock_ns();
  petra_status status = unpack(t, account, data, size, &message);
  t->copying_ns += petra_clock_ns() - began_ns;
  if (status == PETRA_OK)
    status = petra_way_done(b->way, from->number);
  if (status != PETRA_OK)
    petra_message_release(&message);
  else
    *out = message;
  return status;
}

static petra_status archive(petra_transport *base, petra_tensor_archive *tensors) {
  (void)base;
  (void)tensors;
  return petra_fail(PETRA_UNSUPPORTED, "a run with run.mode: execute writes no checkpoints");
}

static void destroy(petra_transport *base) {
  transport_ranks *t = (transport_ranks *)base;
  for (int32_t j = 1; t->at && j <= t->options.stages.count; j++)
    for (int c = 0; c < PETRA_CHANNELS; c++)
      if (boundary_of(t, j, (petra_channel)c)->charged)
        petra_account_add(petra_stage_account(petra_stages_get(&t->options.stages, j)), PETRA_MEMORY_MESSAGES,
                          -boundary_of(t, j, (petra_channel)c)->charged);
  petra_transport_peers_destroy(t->options.peers);
  petra_transport_destroy(t->options.local);
  petra_free(t->at);
  petra_free(t);
}

int64_t petra_transport_ranks_took_ns(const petra_transport *base) {
  return ((const transport_ranks *)base)->took_ns;
}

int64_t petra_transport_ranks_copying_ns(const petra_transport *base) {
  return ((const transport_ranks *)base)->copying_ns;
}

void petra_transport_ranks_count_direct(const petra_transport *base, int64_t *messages, int64_t *bytes) {
  const transport_ranks *t = (const transport_ranks *)base;
  int64_t direct = 0, direct_bytes = 0;
  if (t->options.peers)
    petra_transport_peers_count(t->options.peers, &direct, &direct_bytes);
  *messages += direct;
  *bytes += direct_bytes;
}

void petra_transport_ranks_taken(petra_transport *base, int32_t stage, petra_channel channel) {
  boundary_of((transport_ranks *)base, stage, channel)->taken++;
}

petra_status petra_transport_ranks_sent(petra_transport *base, const petra_address *to) {
  const transport_ranks *t = (transport_ranks *)base;
  if (!t->options.peers || !petra_stages_has(&t->options.stages, to->stage))
    return PETRA_OK;
  return petra_transport_peers_coming(t->options.peers, to);
}

petra_status petra_transport_ranks_step(petra_transport *base) {
  const transport_ranks *t = (transport_ranks *)base;
  return t->options.peers ? petra_transport_peers_flush(t->options.peers) : PETRA_OK;
}

/* The way of messages from one stage to a neighbour, if exactly one of them is here. */
static petra_status open_way(transport_ranks *t, int32_t from, int32_t to, petra_channel channel, int64_t bytes) {
  const petra_transport_ranks_options *options = &t->options;
  boundary *b = boundary_of(t, to, channel);
  const int id = (int)(b - t->at);
  const size_t capacity = b->capacity = sizeof(packed_shapes) + (size_t)bytes;
  const bool out = petra_stages_has(&options->stages, from);
  if (out == petra_stages_has(&options->stages, to) || options->peers)
    return PETRA_OK;
  return out ? petra_carrier_way_out(options->carrier, options->rank_of[to - 1], id, capacity, &b->way)
             : petra_carrier_way_in(options->carrier, options->rank_of[from - 1], id, capacity, &b->way);
}

petra_status petra_transport_ranks_create(const petra_transport_ranks_options *options, petra_transport **out) {
  static const petra_transport_ops ops = {.post = post, .take = take, .archive = archive, .destroy = destroy};
  transport_ranks *t;
  petra_status status = petra_allocate(&t, 1, sizeof *t);
  if (status != PETRA_OK) {
    petra_transport_peers_destroy(options->peers);
    petra_transport_destroy(options->local);
    return status;
  }
  t->base.ops = &ops;
  t->options = *options;
  const int32_t stages = options->stages.count;
  PETRA_TRY_GOTO(status, petra_allocate(&t->at, (size_t)stages * PETRA_CHANNELS, sizeof *t->at), fail);
  for (int32_t j = 1; j < stages; j++) {
    const int64_t up = options->forward_bytes[j - 1], down = options->backward_bytes[j];
    PETRA_TRY_GOTO(status, open_way(t, j, j + 1, PETRA_CHANNEL_FORWARD, up), fail);
    if (options->evaluates)
      PETRA_TRY_GOTO(status, open_way(t, j, j + 1, PETRA_CHANNEL_EVALUATION, up), fail);
    PETRA_TRY_GOTO(status, open_way(t, j + 1, j, PETRA_CHANNEL_BACKWARD, down), fail);
  }
  *out = &t->base;
  return PETRA_OK;
fail:
  destroy(&t->base);
  return status;
}
