/* SPDX-License-Identifier: Apache-2.0 */
#include "distributed/execution_private.h"

#include "base/mem.h"
#include "exec/evaluation.h"
#include "stage/stage_archive.h"

enum { PARTS = PETRA_MESSAGE_PARTS, RECEIVING = 6 }; /* RECEIVING: a kind of action that no program has (backend.h) */
_Static_assert(RECEIVING + 1 < PETRA_BACKEND_ACTIONS, "forward and backward messages have a kind each");

static petra_status name(petra_execution *e, int connection, petra_message *message) {
  petra_tensor **parts[PARTS];
  petra_message_parts(message, parts);
  PETRA_TRY(
      petra_array_reserve(&e->operations, &e->operation_capacity, e->operation_count + PARTS, sizeof *e->operations));
  for (int i = 0; i < PARTS; i++)
    if (*parts[i])
      e->operations[e->operation_count++] = (petra_peer_operation){connection, *parts[i]};
  return PETRA_OK;
}

petra_status petra_transport_peers_flush(petra_execution *e) {
  petra_status status = PETRA_OK;
  if (e->operation_count > 0)
    status = petra_rank_links_exchange(e, e->operations, (int)e->operation_count);
  e->operation_count = 0;
  while (e->leaving_count > 0)
    petra_message_release(&e->leaving[--e->leaving_count]);
  return status;
}

static petra_status add_leaving(petra_execution *e, int connection, petra_message *message) {
  PETRA_TRY(petra_array_reserve(&e->leaving, &e->leaving_capacity, e->leaving_count + 1, sizeof *e->leaving));
  const int64_t before = e->operation_count;
  PETRA_TRY(name(e, connection, message));
  for (int64_t i = before; i < e->operation_count; i++)
    e->direct_bytes += (int64_t)e->operations[i].tensor->bytes;
  e->direct_messages++;
  e->leaving[e->leaving_count++] = *message;
  *message = (petra_message){0};
  return PETRA_OK;
}

petra_status petra_transport_peers_post(petra_execution *e, const petra_address *to, petra_message *message) {
  petra_status status = add_leaving(e, e->links.connections[true][e->placement->rank_of[to->stage - 1]], message);
  petra_message_release(message);
  if (status == PETRA_OK && to->kind == PETRA_MESSAGE_EVALUATION)
    status = petra_transport_peers_flush(e);
  return status;
}

static petra_status create_parts(const petra_execution *e, const petra_address *to, int32_t images,
                                 petra_message *out) {
  petra_stage *stage = petra_stages_get(&e->stages, to->stage);
  petra_tensor **parts[PARTS];
  petra_tensor_form forms[PARTS];
  petra_message_parts(out, parts);
  petra_message_forms(stage, to->kind != PETRA_MESSAGE_BACKWARD, to->kind == PETRA_MESSAGE_EVALUATION, forms);
  for (int i = 0; i < PARTS; i++) {
    if (forms[i].presence != PETRA_PRESENT)
      continue;
    const int32_t shape[4] = {images, forms[i].shape[1], forms[i].shape[2], forms[i].shape[3]};
    PETRA_TRY(petra_tensor_create(e->backend, forms[i].kind, shape, petra_stage_account(stage), PETRA_MEMORY_MESSAGES,
                                  parts[i]));
  }
  return PETRA_OK;
}

/* Creates the tensors of a message to receive, and names them. */
static petra_status receive(petra_execution *e, const petra_address *to, int32_t images, petra_message *out) {
  const int32_t sender = to->kind == PETRA_MESSAGE_BACKWARD ? to->stage + 1 : to->stage - 1;
  PETRA_TRY(create_parts(e, to, images, out));
  return name(e, e->links.connections[false][e->placement->rank_of[sender - 1]], out);
}

/* Makes the receive a separate action of the backend, so that storage and launches repeat in the order of
 * microbatches. */
petra_status petra_transport_peers_coming(petra_execution *e, const petra_address *to) {
  PETRA_FINISHED(petra_message_release) petra_message message = {0};
  PETRA_TRY(petra_backend_begin(e->backend, to->stage, RECEIVING + (int32_t)to->kind));
  petra_status status = receive(e, to, (int32_t)e->plan->config->data.batch, &message);
  petra_status end = petra_backend_end(e->backend);
  if (status == PETRA_OK)
    status = e->local->ops->post(e->local, to, &message);
  return status != PETRA_OK ? status : end;
}

/* Takes the message's tensors, some of which may still be on their way. */
static petra_status take_tensors(petra_execution *e, const petra_address *at, petra_message *out) {
  PETRA_TRY(petra_transport_peers_flush(e)); /* in case the tensors arrive in the same group */
  if (at->kind != PETRA_MESSAGE_EVALUATION)
    return e->local->ops->take(e->local, at, out);
  const petra_config *config = e->plan->config;
  const int64_t images =
      petra_evaluation_batch(e->evaluation_images, config->data.batch, config->data.recalibrate, at->number);
  PETRA_TRY(receive(e, at, (int32_t)images, out));
  return petra_transport_peers_flush(e);
}

static petra_status await(petra_execution *e, const petra_address *at, petra_message *message) {
  petra_tensor **parts[PARTS];
  char what[PETRA_ADDRESS_TEXT];
  petra_message_parts(message, parts);
  petra_address_describe(at, what);
  for (int i = 0; i < PARTS; i++)
    if (*parts[i])
      PETRA_TRY(petra_rank_links_await(e, *parts[i], what));
  return PETRA_OK;
}

petra_status petra_transport_peers_take(petra_execution *e, const petra_address *at, petra_message *out) {
  PETRA_TRY(take_tensors(e, at, out));
  return await(e, at, out);
}

void petra_transport_peers_fini(petra_execution *e) {
  while (e->leaving_count > 0)
    petra_message_release(&e->leaving[--e->leaving_count]);
  PETRA_FREE_ALL(e->leaving, e->operations);
}
