/* SPDX-License-Identifier: Apache-2.0 */
#include "distributed/execution_private.h"

#include "base/clock.h"
#include "base/log.h"
#include "base/mem.h"
#include "exec/transport.h"
#include "stage/stage_archive.h"

#include <stdio.h>
#include <string.h>

enum { AHEAD = PETRA_TRANSPORT_AHEAD, PARTS = PETRA_MESSAGE_PARTS };

/* One boundary, kind of message and direction that leaves or enters this rank. If there is an order of all actions, an
 * evaluation's messages use the channel of the forward ones, with its buffers: all on it is then in that order. */
typedef struct boundary {
  petra_channel *channel;
  size_t capacity;     /* of its messages */
  int64_t posted;      /* messages that were really sent */
  int64_t sent, taken; /* by the schedule */
  int64_t before;      /* of those sent: not on the channel, but in the checkpoint that the run resumes from */
  int64_t charged;     /* bytes of the channel's buffers in the account of the stage that is here */
} boundary;

typedef struct transport_ranks {
  petra_transport base;
  petra_execution *execution;
  bool direct;     /* from device to device; else by channels of the progress thread */
  bool by_arrival; /* no order of the actions is known beforehand */
  boundary *at;    /* by receiving stage (from 1) and kind of message */
} transport_ranks;

static boundary *boundary_of(transport_ranks *t, int32_t stage, petra_message_kind kind) {
  return &t->at[(stage - 1) * PETRA_MESSAGE_KINDS + (int)kind];
}

static bool shares(const transport_ranks *t, petra_message_kind kind) {
  return kind == PETRA_MESSAGE_EVALUATION && !t->by_arrival;
}

/* Returns the boundary whose channel is used for messages of this kind, which have their numbers on it. */
static boundary *channel_boundary(transport_ranks *t, const petra_address *address) {
  return boundary_of(t, address->stage, shares(t, address->kind) ? PETRA_MESSAGE_FORWARD : address->kind);
}

static int64_t number_of(const transport_ranks *t, const petra_address *address) {
  return shares(t, address->kind) ? -1 - address->number : address->number;
}

static int32_t sender_of(const petra_address *address) {
  return address->kind == PETRA_MESSAGE_BACKWARD ? address->stage + 1 : address->stage - 1;
}

static size_t bytes_of(const petra_tensor *tensor) {
  return petra_packed_bytes(tensor->backend, tensor->kind, tensor->elements);
}

/* Returns how many messages the receiver must have finished with before the next one is sent. By the order, all
 * messages of an evaluation that were sent so far have been taken, because the ranks evaluate at one position of it. */
static int64_t awaited(transport_ranks *t, int32_t stage, petra_message_kind kind) {
  const boundary *b = boundary_of(t, stage, kind);
  if (t->by_arrival)
    return kind == PETRA_MESSAGE_BACKWARD ? 0 : b->posted - AHEAD;
  if (kind == PETRA_MESSAGE_BACKWARD)
    return b->taken - b->before - AHEAD;
  const boundary *forward = boundary_of(t, stage, PETRA_MESSAGE_FORWARD);
  return forward->taken - forward->before + boundary_of(t, stage, PETRA_MESSAGE_EVALUATION)->posted - AHEAD;
}

/* Counts the buffers of a channel as messages of the stage that is here. */
static void charge(transport_ranks *t, boundary *b, int32_t stage) {
  const int64_t bytes = petra_channel_bytes(b->channel);
  petra_account_add(petra_stage_account(petra_stages_get(&t->execution->stages, stage)), PETRA_MEMORY_MESSAGES,
                    bytes - b->charged);
  b->charged = bytes;
}

/* Writes the message into the channel's next buffer and sends it. */
static petra_status send_away(transport_ranks *t, const petra_address *to, petra_message *message) {
  boundary *b = channel_boundary(t, to);
  petra_message_shapes shapes = {{{0}}};
  petra_tensor **parts[PARTS];
  char text[PETRA_ADDRESS_TEXT], what[128];
  void *buffer;
  snprintf(what, sizeof what, "room for %s", petra_address_describe(to, text));
  PETRA_TRY(petra_channel_buffer(b->channel, awaited(t, to->stage, to->kind), what, &buffer));
  charge(t, b, sender_of(to));
  const int64_t began_ns = petra_clock_ns();
  unsigned char *at = (unsigned char *)buffer + sizeof shapes, *end = (unsigned char *)buffer + b->capacity;
  petra_message_parts(message, parts);
  for (int i = 0; i < PARTS; i++)
    if (*parts[i]) {
      memcpy(shapes.shape[i], (*parts[i])->shape, sizeof shapes.shape[i]);
      if (bytes_of(*parts[i]) > (size_t)(end - at))
        return petra_fail(PETRA_INTERNAL, "%s is larger than its channel allows", text);
      PETRA_TRY(petra_pack(*parts[i], at));
      at += bytes_of(*parts[i]);
    }
  memcpy(buffer, &shapes, sizeof shapes);
  t->execution->took.copying_ns += petra_clock_ns() - began_ns;
  boundary_of(t, to->stage, to->kind)->posted++;
  return petra_channel_send(b->channel, number_of(t, to), (size_t)(at - (unsigned char *)buffer));
}

static petra_status post(petra_transport *base, const petra_address *to, petra_message *message) {
  transport_ranks *t = (transport_ranks *)base;
  if (petra_stages_has(&t->execution->stages, to->stage))
    return t->execution->local->ops->post(t->execution->local, to, message);
  if (t->direct)
    return petra_transport_peers_post(t->execution, to, message);
  petra_status status = send_away(t, to, message);
  petra_message_release(message);
  return status;
}

static petra_status unpack(const transport_ranks *t, const petra_address *from, const unsigned char *data, size_t size,
                           petra_message *out) {
  petra_stage *stage = petra_stages_get(&t->execution->stages, from->stage);
  petra_tensor_form forms[PARTS];
  petra_message_shapes shapes;
  petra_tensor **parts[PARTS];
  size_t at = sizeof shapes;
  if (size < sizeof shapes)
    return petra_fail(PETRA_INTERNAL, "a message of %zu bytes has no shapes", size);
  memcpy(&shapes, data, sizeof shapes);
  petra_message_parts(out, parts);
  petra_message_forms(stage, from->kind != PETRA_MESSAGE_BACKWARD, from->kind == PETRA_MESSAGE_EVALUATION, forms);
  for (int i = 0; i < PARTS; i++) {
    if (shapes.shape[i][0] == 0)
      continue;
    PETRA_TRY(petra_tensor_create(t->execution->backend, forms[i].kind, shapes.shape[i], petra_stage_account(stage),
                                  PETRA_MEMORY_MESSAGES, parts[i]));
    const size_t bytes = bytes_of(*parts[i]);
    if (bytes > size - at)
      return petra_fail(PETRA_INTERNAL, "a message of %zu bytes is shorter than its tensors", size);
    PETRA_TRY(petra_unpack(*parts[i], data + at));
    at += bytes;
  }
  return PETRA_OK;
}

/* Unpacks a message into its tensors. */
static petra_status receive(transport_ranks *t, const petra_address *from, const void *data, size_t size,
                            petra_message *out) {
  boundary *b = channel_boundary(t, from);
  petra_message message = {{{NULL, NULL}}, {{NULL, NULL}}};
  charge(t, b, from->stage);
  const int64_t began_ns = t->execution->message_ns = petra_clock_ns();
  petra_status status = unpack(t, from, data, size, &message);
  t->execution->took.copying_ns += petra_clock_ns() - began_ns;
  if (status == PETRA_OK)
    status = petra_channel_done(b->channel, number_of(t, from));
  if (status != PETRA_OK)
    petra_message_release(&message);
  else
    *out = message;
  return status;
}

static petra_status take(petra_transport *base, const petra_address *from, petra_message *out) {
  transport_ranks *t = (transport_ranks *)base;
  petra_channel *channel = channel_boundary(t, from)->channel;
  char what[PETRA_ADDRESS_TEXT];
  const void *data;
  size_t size;
  if (t->direct && !petra_stages_has(&t->execution->stages, sender_of(from)))
    return petra_transport_peers_take(t->execution, from, out);
  if (!channel || petra_transport_local_has(t->execution->local, from))
    return t->execution->local->ops->take(t->execution->local, from, out);
  PETRA_TRY(petra_channel_take(channel, number_of(t, from), petra_address_describe(from, what), &data, &size));
  return receive(t, from, data, size, out);
}

/* Receives all messages that were sent to a stage by the schedule into its mailbox. */
static petra_status gather(transport_ranks *t, int32_t stage, petra_message_kind kind) {
  const boundary *b = boundary_of(t, stage, kind);
  while (b->channel && petra_transport_local_count(t->execution->local, stage, kind) < b->sent - b->taken) {
    petra_address address = {.stage = stage, .kind = kind};
    petra_message message;
    const void *data;
    size_t size;
    PETRA_TRY(petra_channel_next(b->channel, "a message for a checkpoint", &address.number, &data, &size));
    PETRA_TRY(receive(t, &address, data, size, &message));
    PETRA_TRY(t->execution->local->ops->post(t->execution->local, &address, &message));
  }
  return PETRA_OK;
}

static petra_status archive(petra_transport *base, int32_t stage, petra_tensor_archive *tensors) {
  transport_ranks *t = (transport_ranks *)base;
  if (t->direct && !tensors->archive->reading)
    PETRA_TRY(petra_transport_peers_drain(t->execution));
  for (int c = 0; c <= PETRA_MESSAGE_BACKWARD && !tensors->archive->reading; c++)
    PETRA_TRY(gather(t, stage, (petra_message_kind)c));
  return t->execution->local->ops->archive(t->execution->local, stage, tensors);
}

static void destroy(petra_transport *base) {
  transport_ranks *t = (transport_ranks *)base;
  petra_rank_links_fini(t->execution); /* before tensors on their way are released */
  for (int32_t j = 1; t->at && j <= t->execution->stages.count; j++)
    for (int c = 0; c < PETRA_MESSAGE_KINDS; c++) {
      const petra_address to = {.stage = j, .kind = (petra_message_kind)c};
      const int32_t here = petra_stages_has(&t->execution->stages, j) ? j : sender_of(&to);
      const boundary *b = boundary_of(t, j, to.kind);
      if (b->charged)
        petra_account_add(petra_stage_account(petra_stages_get(&t->execution->stages, here)), PETRA_MEMORY_MESSAGES,
                          -b->charged);
    }
  petra_transport_peers_fini(t->execution);
  petra_transport_destroy(t->execution->local);
  petra_free(t->at);
  petra_free(t);
}

/* Counts the next message that a stage sends to stage `to` by the schedule. */
static petra_status count_sent(transport_ranks *t, int32_t from, int32_t to, petra_message_kind kind, int64_t number,
                               bool before) {
  boundary *b = boundary_of(t, to, kind);
  const petra_address address = {to, kind, number};
  b->sent++;
  b->before += before;
  if (before || !t->direct || petra_stages_has(&t->execution->stages, from) ||
      !petra_stages_has(&t->execution->stages, to))
    return PETRA_OK;
  return petra_transport_peers_coming(t->execution, &address);
}

petra_status petra_transport_ranks_count(petra_transport *base, const petra_program_options *program,
                                         const petra_action *action, bool before) {
  transport_ranks *t = (transport_ranks *)base;
  const int32_t stage = action->stage, last = program->stages;
  const bool backward = action->kind == PETRA_ACTION_BACKWARD;
  const bool forward = action->kind == PETRA_ACTION_FORWARD || (backward && petra_program_fused(program, stage));
  if (forward && stage > 1)
    boundary_of(t, stage, PETRA_MESSAGE_FORWARD)->taken++;
  if (forward && stage < last)
    PETRA_TRY(count_sent(t, stage, stage + 1, PETRA_MESSAGE_FORWARD, action->microbatch, before));
  if (backward && !petra_program_has_loss(program, stage))
    boundary_of(t, stage, PETRA_MESSAGE_BACKWARD)->taken++;
  if (backward && petra_program_sends_down(program, stage))
    PETRA_TRY(count_sent(t, stage, stage - 1, PETRA_MESSAGE_BACKWARD, action->microbatch, before));
  return PETRA_OK;
}

bool petra_transport_ranks_first(petra_transport *base, int32_t stage, petra_message_kind kind, int64_t *number,
                                 int64_t *came_ns) {
  return petra_channel_first(boundary_of((transport_ranks *)base, stage, kind)->channel, number, came_ns);
}

bool petra_transport_ranks_room(petra_transport *base, int32_t stage, petra_message_kind kind) {
  transport_ranks *t = (transport_ranks *)base;
  return petra_channel_has_room(boundary_of(t, stage, kind)->channel, awaited(t, stage, kind));
}

petra_status petra_transport_ranks_step(petra_transport *base) {
  const transport_ranks *t = (transport_ranks *)base;
  return t->direct ? petra_transport_peers_flush(t->execution) : PETRA_OK;
}

/* Opens the channel of messages from one stage to a neighbour, if exactly one of them is here. */
static petra_status open_channel(transport_ranks *t, int32_t from, int32_t to, petra_message_kind kind, int64_t bytes) {
  const petra_execution *e = t->execution;
  boundary *b = boundary_of(t, to, kind);
  const int id = (int)(b - t->at);
  const size_t capacity = b->capacity = sizeof(petra_message_shapes) + (size_t)bytes;
  const bool out = petra_stages_has(&e->stages, from);
  if (out == petra_stages_has(&e->stages, to) || t->direct)
    return PETRA_OK;
  return out ? petra_channel_open_out(e->ranks->progress, e->placement->rank_of[to - 1], id, capacity, &b->channel)
             : petra_channel_open_in(e->ranks->progress, e->placement->rank_of[from - 1], id, capacity, &b->channel);
}

petra_status petra_execution_transport(petra_execution *e, const petra_network *network,
                                       const petra_dataset *evaluation, petra_transport **out) {
  static const petra_transport_ops ops = {.post = post, .take = take, .archive = archive, .destroy = destroy};
  const bool evaluates = e->plan->program.eval_every > 0 && e->placement->replica == 0;
  const int32_t stages = network->plan->stages;
  transport_ranks *t;
  petra_status status;
  e->stages = petra_network_stages(network);
  e->evaluation_images = evaluation ? evaluation->count : 0;
  PETRA_TRY(petra_ranks_clock_origin(e->ranks, &e->origin_ns));
  PETRA_TRY(petra_allocate(&t, 1, sizeof *t));
  *t = (transport_ranks){.base.ops = &ops,
                         .execution = e,
                         .direct = e->links.kind != PETRA_LINKS_HOSTS,
                         .by_arrival = e->plan->method.program->arrival};
  PETRA_TRY_GOTO(status, petra_transport_local_create(&e->stages, &e->local), fail);
  PETRA_TRY_GOTO(status, petra_allocate(&t->at, (size_t)stages * PETRA_MESSAGE_KINDS, sizeof *t->at), fail);
  for (int32_t j = 1; j < stages; j++) {
    petra_stage_summary below, above;
    petra_plan_stage_summary(e->plan, j - 1, &below);
    petra_plan_stage_summary(e->plan, j, &above);
    const int64_t up = below.forward_capacity, down = above.backward_bytes;
    PETRA_TRY_GOTO(status, open_channel(t, j, j + 1, PETRA_MESSAGE_FORWARD, up), fail);
    if (evaluates && t->by_arrival)
      PETRA_TRY_GOTO(status, open_channel(t, j, j + 1, PETRA_MESSAGE_EVALUATION, up), fail);
    PETRA_TRY_GOTO(status, open_channel(t, j + 1, j, PETRA_MESSAGE_BACKWARD, down), fail);
  }
  *out = e->transport = &t->base;
  return PETRA_OK;
fail:
  destroy(&t->base);
  return status;
}
