/* SPDX-License-Identifier: Apache-2.0 */
#include "distributed/peers_wire.h"

#include "base/log.h"
#include "base/mem.h"

/* A tensor on its way, with a reference. */
typedef struct parcel {
  petra_tensor *tensor;
  bool sends;
  int request;
} parcel;

struct petra_peers_wire {
  petra_progress_thread *progress;
  petra_backend *backend;
  int id;
  parcel *parcels;
  int64_t count, capacity;
};

static void drop(petra_peers_wire *p, int64_t i) {
  petra_tensor_release(&p->parcels[i].tensor);
  p->parcels[i] = p->parcels[--p->count];
}

/* Releases tensors that have been sent. */
static void drop_sent(petra_peers_wire *p) {
  for (int64_t i = p->count - 1; i >= 0; i--)
    if (p->parcels[i].sends && petra_progress_thread_over(p->progress, &p->parcels[i].request))
      drop(p, i);
}

static petra_status begin(petra_peers_wire *p, int connection, petra_tensor *tensor) {
  const bool sends = connection % 2;
  PETRA_TRY(p->backend->ops->settle(p->backend, tensor, !sends));
  PETRA_TRY(petra_array_reserve(&p->parcels, &p->capacity, p->count + 1, sizeof *p->parcels));
  parcel *out = &p->parcels[p->count];
  *out = (parcel){.sends = sends, .request = PETRA_WIRE_NONE};
  PETRA_TRY(petra_progress_thread_begin(p->progress, connection / 2, p->id, sends, tensor->data, tensor->bytes,
                                        &out->request));
  out->tensor = petra_tensor_retain(tensor);
  p->count++;
  return PETRA_OK;
}

/* Begins to receive first: a receive waits for no work that this group sends. */
static petra_status exchange(void *context, const petra_peer_operation *operations, int count) {
  petra_peers_wire *p = context;
  drop_sent(p);
  for (int sends = 0; sends < 2; sends++)
    for (int i = 0; i < count; i++)
      if (operations[i].lane % 2 == sends)
        PETRA_TRY(begin(p, operations[i].lane, operations[i].tensor));
  return PETRA_OK;
}

static petra_status await(void *context, petra_tensor *tensor, const char *what) {
  petra_peers_wire *p = context;
  for (int64_t i = 0; i < p->count; i++)
    if (p->parcels[i].tensor == tensor && !p->parcels[i].sends) {
      PETRA_TRY(petra_progress_thread_await(p->progress, &p->parcels[i].request, what));
      drop(p, i);
      return PETRA_OK;
    }
  return PETRA_OK; /* it arrived before */
}

static petra_status drain(void *context) {
  return petra_peers_wire_close(context);
}

petra_peer_link petra_peers_wire_peers(petra_peers_wire *peers) {
  return (petra_peer_link){.exchange = exchange, .await = await, .drain = drain, .context = peers};
}

/* Also waits for receives of messages that the run ended without taking. */
petra_status petra_peers_wire_close(petra_peers_wire *p) {
  while (p->count > 0) {
    PETRA_TRY(
        petra_progress_thread_await(p->progress, &p->parcels[p->count - 1].request, "messages at the end of the run"));
    drop(p, p->count - 1);
  }
  return PETRA_OK;
}

void petra_peers_wire_destroy(petra_peers_wire *p) {
  if (!p)
    return;
  while (p->count > 0) {
    parcel *last = &p->parcels[p->count - 1];
    if (!last->sends)
      petra_progress_thread_cancel(p->progress, &last->request);
    drop(p, p->count - 1);
  }
  petra_free(p->parcels);
  petra_free(p);
}

petra_status petra_peers_wire_create(petra_progress_thread *progress, petra_backend *backend, int id,
                                     petra_peers_wire **out) {
  petra_peers_wire *p;
  if (id >= petra_progress_thread_channels(progress))
    return petra_fail(PETRA_UNSUPPORTED, "channel %d between ranks, but this MPI library has tags for %d", id,
                      petra_progress_thread_channels(progress));
  PETRA_TRY(petra_allocate(&p, 1, sizeof *p));
  *p = (petra_peers_wire){.progress = progress, .backend = backend, .id = id};
  *out = p;
  return PETRA_OK;
}
