/* SPDX-License-Identifier: Apache-2.0 */
#include "distributed/execution_private.h"

#include "base/log.h"
#include "base/mem.h"
#include "exec/evaluation.h"
#include "stage/stage_archive.h"

enum { PARTS = PETRA_MESSAGE_PARTS, RECEIVING = 6 }; /* RECEIVING: a kind of action that no program has (backend.h) */
_Static_assert(RECEIVING + 1 < PETRA_BACKEND_ACTIONS, "forward and backward messages have a kind each");

struct petra_transport_peers {
  petra_execution *execution;
  petra_transport *local;           /* receives what arrives */
  petra_peer_operation *operations; /* named, not passed to the device yet */
  int64_t count, capacity;
  petra_message *leaving; /* messages of operations that send */
  int64_t leaving_count, leaving_capacity;
};

static petra_status name(petra_transport_peers *p, int connection, petra_message *message) {
  petra_tensor **parts[PARTS];
  petra_message_parts(message, parts);
  PETRA_TRY(petra_array_reserve(&p->operations, &p->capacity, p->count + PARTS, sizeof *p->operations));
  for (int i = 0; i < PARTS; i++)
    if (*parts[i])
      p->operations[p->count++] = (petra_peer_operation){connection, *parts[i]};
  return PETRA_OK;
}

petra_status petra_transport_peers_flush(petra_transport_peers *p) {
  petra_status status = PETRA_OK;
  if (p->count > 0)
    status = petra_rank_links_exchange(p->execution, p->operations, (int)p->count);
  p->count = 0;
  while (p->leaving_count > 0)
    petra_message_release(&p->leaving[--p->leaving_count]);
  return status;
}

static petra_status add_leaving(petra_transport_peers *p, int connection, petra_message *message) {
  PETRA_TRY(petra_array_reserve(&p->leaving, &p->leaving_capacity, p->leaving_count + 1, sizeof *p->leaving));
  const int64_t before = p->count;
  PETRA_TRY(name(p, connection, message));
  for (int64_t i = before; i < p->count; i++)
    p->execution->direct_bytes += (int64_t)p->operations[i].tensor->bytes;
  p->execution->direct_messages++;
  p->leaving[p->leaving_count++] = *message;
  *message = (petra_message){0};
  return PETRA_OK;
}

petra_status petra_transport_peers_post(petra_transport_peers *p, const petra_address *to, petra_message *message) {
  petra_status status =
      add_leaving(p, p->execution->links.connection_out[p->execution->placement->rank_of[to->stage - 1]], message);
  petra_message_release(message);
  if (status == PETRA_OK && to->kind == PETRA_MESSAGE_EVALUATION)
    status = petra_transport_peers_flush(p);
  return status;
}

static petra_status create_parts(const petra_transport_peers *p, const petra_address *to, int32_t images,
                                 petra_message *out) {
  petra_stage *stage = petra_stages_get(&p->execution->stages, to->stage);
  petra_tensor **parts[PARTS];
  petra_tensor_form forms[PARTS];
  petra_message_parts(out, parts);
  petra_message_forms(stage, to->kind != PETRA_MESSAGE_BACKWARD, to->kind == PETRA_MESSAGE_EVALUATION, forms);
  for (int i = 0; i < PARTS; i++) {
    if (forms[i].presence != PETRA_PRESENT)
      continue;
    const int32_t shape[4] = {images, forms[i].shape[1], forms[i].shape[2], forms[i].shape[3]};
    PETRA_TRY(petra_tensor_create(p->execution->backend, forms[i].kind, shape, petra_stage_account(stage),
                                  PETRA_MEMORY_MESSAGES, parts[i]));
  }
  return PETRA_OK;
}

/* Creates the tensors of a message to receive, and names them. */
static petra_status receive(petra_transport_peers *p, const petra_address *to, int32_t images, petra_message *out) {
  const int32_t sender = to->kind == PETRA_MESSAGE_BACKWARD ? to->stage + 1 : to->stage - 1;
  *out = (petra_message){0};
  petra_status status = create_parts(p, to, images, out);
  if (status == PETRA_OK)
    status = name(p, p->execution->links.connection_in[p->execution->placement->rank_of[sender - 1]], out);
  if (status != PETRA_OK)
    petra_message_release(out);
  return status;
}

/* Makes it a separate action, so that storage and launches repeat in the order of microbatches. */
petra_status petra_transport_peers_coming(petra_transport_peers *p, const petra_address *to) {
  petra_backend *backend = p->execution->backend;
  petra_message message;
  PETRA_TRY(petra_backend_begin(backend, to->stage, RECEIVING + (int32_t)to->kind));
  petra_status status = receive(p, to, (int32_t)p->execution->plan->config->data.batch, &message);
  petra_status end = petra_backend_end(backend);
  PETRA_TRY(status);
  status = p->local->ops->post(p->local, to, &message); /* which owns it, also on failure */
  return status != PETRA_OK ? status : end;
}

/* Takes the message's tensors, some of which may still be on their way. */
static petra_status take_tensors(petra_transport_peers *p, const petra_address *at, petra_message *out) {
  PETRA_TRY(petra_transport_peers_flush(p)); /* in case they arrive in the same group */
  if (at->kind != PETRA_MESSAGE_EVALUATION)
    return p->local->ops->take(p->local, at, out);
  const petra_config *config = p->execution->plan->config;
  const int64_t images =
      petra_evaluation_batch(p->execution->evaluation_images, config->data.batch, config->data.recalibrate, at->number);
  PETRA_TRY(receive(p, at, (int32_t)images, out));
  petra_status status = petra_transport_peers_flush(p);
  if (status != PETRA_OK)
    petra_message_release(out);
  return status;
}

static petra_status await(const petra_transport_peers *p, const petra_address *at, petra_message *message) {
  petra_tensor **parts[PARTS];
  char what[PETRA_ADDRESS_TEXT];
  petra_message_parts(message, parts);
  petra_address_describe(at, what);
  for (int i = 0; i < PARTS; i++)
    if (*parts[i])
      PETRA_TRY(petra_rank_links_await(p->execution, *parts[i], what));
  return PETRA_OK;
}

petra_status petra_transport_peers_take(petra_transport_peers *p, const petra_address *at, petra_message *out) {
  petra_message message;
  PETRA_TRY(take_tensors(p, at, &message));
  petra_status status = await(p, at, &message);
  if (status != PETRA_OK)
    petra_message_release(&message);
  else
    *out = message;
  return status;
}

petra_status petra_transport_peers_drain(petra_transport_peers *p) {
  PETRA_TRY(petra_transport_peers_flush(p));
  return petra_rank_links_drain(p->execution);
}

petra_status petra_transport_peers_create(petra_execution *e, petra_transport *local, petra_transport_peers **out) {
  petra_transport_peers *p;
  PETRA_TRY(petra_allocate(&p, 1, sizeof *p));
  *p = (petra_transport_peers){.execution = e, .local = local};
  *out = p;
  return PETRA_OK;
}

void petra_transport_peers_destroy(petra_transport_peers *p) {
  if (!p)
    return;
  while (p->leaving_count > 0)
    petra_message_release(&p->leaving[--p->leaving_count]);
  petra_free(p->leaving);
  petra_free(p->operations);
  petra_free(p);
}
