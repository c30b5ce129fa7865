/* SPDX-License-Identifier: Apache-2.0 */
#include "distributed/execution_private.h"

#include "base/clock.h"
#include "base/log.h"
#include "base/mem.h"
#include "exec/transport.h"
#include "stage/stage_archive.h"

#include <stddef.h>
#include <stdio.h>
#include <string.h>

enum { AHEAD = PETRA_TRANSPORT_AHEAD, PARTS = PETRA_MESSAGE_PARTS };

/* The messages of one kind and direction that cross one boundary from or to this rank. If there is an order of all
 * actions, the messages of an evaluation use the channel of the forward messages, with its buffers: all messages on
 * that channel are then in that order. */
struct petra_boundary {
  petra_channel *channel;
  size_t capacity;     /* of its messages */
  int64_t posted;      /* messages that were really sent */
  int64_t sent, taken; /* by the schedule */
  int64_t before;      /* sent messages that are not on the channel, but in the resumed checkpoint */
  int64_t charged;     /* bytes of the channel's buffers in the account of the stage that is here */
};

static petra_execution *execution_of(petra_transport *base) {
  return (petra_execution *)((char *)base - offsetof(petra_execution, transport));
}

static struct petra_boundary *boundary_of(petra_execution *e, int32_t stage, petra_message_kind kind) {
  return &e->boundaries[(stage - 1) * PETRA_MESSAGE_KINDS + (int)kind];
}

static bool shares(const petra_execution *e, petra_message_kind kind) {
  return kind == PETRA_MESSAGE_EVALUATION && !e->plan->method.program->arrival;
}

/* Returns the boundary whose channel is used for messages of this kind; number_of returns their numbers there. */
static struct petra_boundary *channel_boundary(petra_execution *e, const petra_address *address) {
  return boundary_of(e, address->stage, shares(e, address->kind) ? PETRA_MESSAGE_FORWARD : address->kind);
}

static int64_t number_of(const petra_execution *e, const petra_address *address) {
  return shares(e, address->kind) ? -1 - address->number : address->number;
}

static int32_t sender_of(const petra_address *address) {
  return address->kind == PETRA_MESSAGE_BACKWARD ? address->stage + 1 : address->stage - 1;
}

/* Returns how many messages the receiver must have finished with before the next one is sent. If there is an order, all
 * messages of an evaluation that were sent so far have been taken, because the ranks evaluate at one position of the
 * order. */
static int64_t awaited(petra_execution *e, int32_t stage, petra_message_kind kind) {
  const struct petra_boundary *b = boundary_of(e, stage, kind);
  if (e->plan->method.program->arrival)
    return kind == PETRA_MESSAGE_BACKWARD ? 0 : b->posted - AHEAD;
  if (kind == PETRA_MESSAGE_BACKWARD)
    return b->taken - b->before - AHEAD;
  const struct petra_boundary *forward = boundary_of(e, stage, PETRA_MESSAGE_FORWARD);
  return forward->taken - forward->before + boundary_of(e, stage, PETRA_MESSAGE_EVALUATION)->posted - AHEAD;
}

/* Counts the buffers of a channel as messages of the stage that is here. */
static void charge(petra_execution *e, struct petra_boundary *b, int32_t stage) {
  const int64_t bytes = petra_channel_bytes(b->channel);
  petra_account_add(petra_stage_account(petra_stages_get(&e->stages, stage)), PETRA_MEMORY_MESSAGES,
                    bytes - b->charged);
  b->charged = bytes;
}

/* Writes the message into the channel's next buffer and sends it. */
static petra_status send_away(petra_execution *e, const petra_address *to, petra_message *message) {
  struct petra_boundary *b = channel_boundary(e, to);
  petra_message_shapes shapes = {{{0}}};
  petra_tensor **parts[PARTS];
  char text[PETRA_ADDRESS_TEXT], what[128];
  void *buffer;
  snprintf(what, sizeof what, "room for %s", petra_address_describe(to, text));
  PETRA_TRY(petra_channel_buffer(b->channel, awaited(e, to->stage, to->kind), what, &buffer));
  charge(e, b, sender_of(to));
  const int64_t began_ns = petra_clock_ns();
  unsigned char *at = (unsigned char *)buffer + sizeof shapes, *end = (unsigned char *)buffer + b->capacity;
  petra_message_parts(message, parts);
  for (int i = 0; i < PARTS; i++)
    if (*parts[i]) {
      memcpy(shapes.shape[i], (*parts[i])->shape, sizeof shapes.shape[i]);
      if (petra_packed_tensor_bytes(*parts[i]) > (size_t)(end - at))
        return petra_fail(PETRA_INTERNAL, "%s is larger than its channel allows", text);
      PETRA_TRY(petra_pack(*parts[i], at));
      at += petra_packed_tensor_bytes(*parts[i]);
    }
  memcpy(buffer, &shapes, sizeof shapes);
  e->took.copying_ns += petra_clock_ns() - began_ns;
  boundary_of(e, to->stage, to->kind)->posted++;
  return petra_channel_send(b->channel, number_of(e, to), (size_t)(at - (unsigned char *)buffer));
}

static petra_status post(petra_transport *base, const petra_address *to, petra_message *message) {
  petra_execution *e = execution_of(base);
  if (petra_stages_has(&e->stages, to->stage))
    return e->local->ops->post(e->local, to, message);
  if (e->direct)
    return petra_transport_peers_post(e, to, message);
  petra_status status = send_away(e, to, message);
  petra_message_release(message);
  return status;
}

static petra_status unpack(const petra_execution *e, const petra_address *from, const unsigned char *data, size_t size,
                           petra_message *out) {
  petra_stage *stage = petra_stages_get(&e->stages, from->stage);
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
    PETRA_TRY(petra_tensor_create(e->backend, forms[i].kind, shapes.shape[i], petra_stage_account(stage),
                                  PETRA_MEMORY_MESSAGES, parts[i]));
    const size_t bytes = petra_packed_tensor_bytes(*parts[i]);
    if (bytes > size - at)
      return petra_fail(PETRA_INTERNAL, "a message of %zu bytes is shorter than its tensors", size);
    PETRA_TRY(petra_unpack(*parts[i], data + at));
    at += bytes;
  }
  return PETRA_OK;
}

/* Unpacks a message into its tensors. */
static petra_status receive(petra_execution *e, const petra_address *from, const void *data, size_t size,
                            petra_message *out) {
  struct petra_boundary *b = channel_boundary(e, from);
  charge(e, b, from->stage);
  const int64_t began_ns = e->message_ns = petra_clock_ns();
  const petra_status status = unpack(e, from, data, size, out);
  e->took.copying_ns += petra_clock_ns() - began_ns;
  return status == PETRA_OK ? petra_channel_done(b->channel, number_of(e, from)) : status;
}

static petra_status take(petra_transport *base, const petra_address *from, petra_message *out) {
  petra_execution *e = execution_of(base);
  petra_channel *channel = channel_boundary(e, from)->channel;
  char what[PETRA_ADDRESS_TEXT];
  const void *data;
  size_t size;
  if (e->direct && !petra_stages_has(&e->stages, sender_of(from)))
    return petra_transport_peers_take(e, from, out);
  if (!channel || petra_transport_local_has(e->local, from))
    return e->local->ops->take(e->local, from, out);
  PETRA_TRY(petra_channel_take(channel, number_of(e, from), petra_address_describe(from, what), &data, &size));
  return receive(e, from, data, size, out);
}

/* Receives all messages that, by the schedule, were sent to a stage, and puts them into its mailbox. */
static petra_status gather(petra_execution *e, int32_t stage, petra_message_kind kind) {
  const struct petra_boundary *b = boundary_of(e, stage, kind);
  while (b->channel && petra_transport_local_count(e->local, stage, kind) < b->sent - b->taken) {
    petra_address address = {.stage = stage, .kind = kind};
    PETRA_FINISHED(petra_message_release) petra_message message = {0};
    const void *data;
    size_t size;
    PETRA_TRY(petra_channel_next(b->channel, "a message for a checkpoint", &address.number, &data, &size));
    PETRA_TRY(receive(e, &address, data, size, &message));
    PETRA_TRY(e->local->ops->post(e->local, &address, &message));
  }
  return PETRA_OK;
}

static petra_status archive(petra_transport *base, int32_t stage, petra_tensor_archive *tensors) {
  petra_execution *e = execution_of(base);
  if (!tensors->archive->reading) { /* all tensors named so far arrive in the mailboxes */
    PETRA_TRY(petra_transport_peers_flush(e));
    PETRA_TRY(petra_rank_links_drain(e));
    for (int c = 0; c <= PETRA_MESSAGE_BACKWARD; c++)
      PETRA_TRY(gather(e, stage, (petra_message_kind)c));
  }
  return e->local->ops->archive(e->local, stage, tensors);
}

static void destroy(petra_transport *base) {
  petra_execution *e = execution_of(base);
  petra_rank_links_fini(e); /* before tensors on their way are released */
  for (int32_t j = 1; e->boundaries && j <= e->stages.count; j++)
    for (int c = 0; c < PETRA_MESSAGE_KINDS; c++) {
      const petra_address to = {.stage = j, .kind = (petra_message_kind)c};
      const int32_t here = petra_stages_has(&e->stages, j) ? j : sender_of(&to);
      const struct petra_boundary *b = boundary_of(e, j, to.kind);
      if (b->charged)
        petra_account_add(petra_stage_account(petra_stages_get(&e->stages, here)), PETRA_MEMORY_MESSAGES, -b->charged);
    }
  petra_transport_peers_fini(e);
  petra_transport_destroy(e->local);
  petra_free(e->boundaries);
}

/* Counts the next message that a stage sends to stage `to` by the schedule. */
static petra_status count_sent(petra_execution *e, int32_t from, int32_t to, petra_message_kind kind, int64_t number,
                               bool before) {
  struct petra_boundary *b = boundary_of(e, to, kind);
  const petra_address address = {to, kind, number};
  b->sent++;
  b->before += before;
  if (before || !e->direct || petra_stages_has(&e->stages, from) || !petra_stages_has(&e->stages, to))
    return PETRA_OK;
  return petra_transport_peers_coming(e, &address);
}

petra_status petra_transport_ranks_count(petra_execution *e, const petra_action *action, bool before) {
  const petra_program_options *program = &e->plan->program;
  const int32_t stage = action->stage, last = program->stages;
  const bool backward = action->kind == PETRA_ACTION_BACKWARD;
  const bool forward = action->kind == PETRA_ACTION_FORWARD || (backward && petra_program_fused(program, stage));
  if (forward && stage > 1)
    boundary_of(e, stage, PETRA_MESSAGE_FORWARD)->taken++;
  if (forward && stage < last)
    PETRA_TRY(count_sent(e, stage, stage + 1, PETRA_MESSAGE_FORWARD, action->microbatch, before));
  if (backward && !petra_program_has_loss(program, stage))
    boundary_of(e, stage, PETRA_MESSAGE_BACKWARD)->taken++;
  if (backward && petra_program_sends_down(program, stage))
    PETRA_TRY(count_sent(e, stage, stage - 1, PETRA_MESSAGE_BACKWARD, action->microbatch, before));
  return PETRA_OK;
}

bool petra_transport_ranks_first(petra_execution *e, int32_t stage, petra_message_kind kind, int64_t *number,
                                 int64_t *came_ns) {
  return petra_channel_first(boundary_of(e, stage, kind)->channel, number, came_ns);
}

bool petra_transport_ranks_room(petra_execution *e, int32_t stage, petra_message_kind kind) {
  return petra_channel_has_room(boundary_of(e, stage, kind)->channel, awaited(e, stage, kind));
}

/* Opens the channel of messages from one stage to a neighbour, if exactly one of the two stages is here. */
static petra_status open_channel(petra_execution *e, int32_t from, int32_t to, petra_message_kind kind, int64_t bytes) {
  struct petra_boundary *b = boundary_of(e, to, kind);
  const int id = (int)(b - e->boundaries);
  const size_t capacity = b->capacity = sizeof(petra_message_shapes) + (size_t)bytes;
  const bool out = petra_stages_has(&e->stages, from);
  if (out == petra_stages_has(&e->stages, to) || e->direct)
    return PETRA_OK;
  return out ? petra_channel_open_out(e->ranks->progress, e->placement->rank_of[to - 1], id, capacity, &b->channel)
             : petra_channel_open_in(e->ranks->progress, e->placement->rank_of[from - 1], id, capacity, &b->channel);
}

petra_status petra_execution_transport(petra_execution *e, const petra_network *network,
                                       const petra_dataset *evaluation, petra_transport **out) {
  static const petra_transport_ops ops = {.post = post, .take = take, .archive = archive, .destroy = destroy};
  const bool evaluates = e->plan->program.eval_every > 0 && e->placement->replica == 0;
  const int32_t stages = network->plan->stages;
  petra_status status;
  e->transport.ops = &ops;
  e->direct = e->links.kind != PETRA_LINKS_HOSTS;
  e->stages = petra_network_stages(network);
  e->evaluation_images = evaluation ? evaluation->count : 0;
  PETRA_TRY(petra_ranks_clock_origin(e->ranks, &e->origin_ns));
  PETRA_TRY_GOTO(status, petra_transport_local_create(&e->stages, &e->local), fail);
  PETRA_TRY_GOTO(status, petra_allocate(&e->boundaries, (size_t)stages * PETRA_MESSAGE_KINDS, sizeof *e->boundaries),
                 fail);
  for (int32_t j = 1; j < stages; j++) {
    petra_stage_summary below, above;
    petra_plan_stage_summary(e->plan, j - 1, &below);
    petra_plan_stage_summary(e->plan, j, &above);
    const int64_t up = below.forward_capacity, down = above.backward_bytes;
    PETRA_TRY_GOTO(status, open_channel(e, j, j + 1, PETRA_MESSAGE_FORWARD, up), fail);
    if (evaluates && e->plan->method.program->arrival)
      PETRA_TRY_GOTO(status, open_channel(e, j, j + 1, PETRA_MESSAGE_EVALUATION, up), fail);
    PETRA_TRY_GOTO(status, open_channel(e, j + 1, j, PETRA_MESSAGE_BACKWARD, down), fail);
  }
  *out = &e->transport;
  return PETRA_OK;
fail:
  destroy(&e->transport);
  return status;
}
