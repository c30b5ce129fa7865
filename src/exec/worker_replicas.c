/* SPDX-License-Identifier: Apache-2.0 */
#include "exec/worker_replicas.h"

#include "base/mem.h"
#include "exec/replica_mean.h"

#include <string.h>

typedef struct one_replica {
  petra_worker *worker;
  petra_stages stages;
} one_replica;

typedef struct worker_replicas {
  petra_worker base;
  int replicas;
  unsigned char *room; /* what all replicas share of the largest stage so far */
  size_t room_bytes;
  const void **parts;       /* in it, of each */
  petra_action_result *own; /* of a group: what a replica says, and behind it what the executor asks with */
  int64_t own_capacity;
  one_replica replica[];
} worker_replicas;

/* `bytes` for each replica. */
static petra_status make_room(worker_replicas *w, size_t bytes) {
  if (w->room_bytes < bytes) {
    petra_free(w->room);
    w->room = NULL;
    w->room_bytes = 0;
    PETRA_TRY(petra_allocate_raw(&w->room, (size_t)w->replicas, bytes));
    w->room_bytes = bytes;
  }
  for (int i = 0; i < w->replicas; i++)
    w->parts[i] = w->room + (size_t)i * bytes;
  return PETRA_OK;
}

static petra_status average(worker_replicas *w, int32_t stage) {
  petra_shared_size size;
  PETRA_TRY(petra_shared_size_of(petra_stages_get(&w->replica[0].stages, stage), &size));
  PETRA_TRY(make_room(w, petra_shared_bytes(&size)));
  for (int i = 0; i < w->replicas; i++)
    PETRA_TRY(petra_shared_pack(petra_stages_get(&w->replica[i].stages, stage),
                                w->room + (size_t)i * petra_shared_bytes(&size)));
  petra_replica_mean(w->parts, w->replicas, &size, w->room);
  for (int i = 0; i < w->replicas; i++)
    PETRA_TRY(petra_shared_unpack(petra_stages_get(&w->replica[i].stages, stage), w->room));
  return PETRA_OK;
}

/* What one replica says of the group; the longest of all replicas is what an action took. */
static void merge(const worker_replicas *w, int replica, petra_action_result *results, int count) {
  for (int i = 0; i < count; i++)
    if (replica == 0)
      results[i] = w->own[i];
    else if (w->own[i].measured_ns > results[i].measured_ns)
      results[i].measured_ns = w->own[i].measured_ns;
}

/* A U waits for the gradients that it needs: none of its stage is computed in its group. */
static petra_status perform(petra_worker *base, int64_t virtual_ns, const petra_action *actions, int count,
                            petra_action_result *results) {
  worker_replicas *w = (worker_replicas *)base;
  PETRA_TRY(petra_array_reserve(&w->own, &w->own_capacity, 2 * (int64_t)count, sizeof *w->own));
  petra_action_result *requested = w->own + count;
  memcpy(requested, results, (size_t)count * sizeof *requested);
  for (int i = 0; i < count; i++)
    if (actions[i].kind == PETRA_ACTION_UPDATE)
      PETRA_TRY(average(w, actions[i].stage));
  for (int r = 0; r < w->replicas; r++) {
    petra_worker *worker = w->replica[r].worker;
    memcpy(w->own, requested, (size_t)count * sizeof *requested);
    PETRA_TRY(worker->ops->perform(worker, virtual_ns, actions, count, w->own));
    PETRA_TRY(petra_worker_finish(worker)); /* a device keeps few results of losses that are not told */
    merge(w, r, results, count);
  }
  return PETRA_OK;
}

static petra_status finish(petra_worker *base) {
  worker_replicas *w = (worker_replicas *)base;
  for (int i = 0; i < w->replicas; i++)
    PETRA_TRY(petra_worker_finish(w->replica[i].worker));
  return PETRA_OK;
}

petra_status petra_worker_replicas_create(const petra_worker_replicas_options *options, petra_worker **out) {
  static const petra_worker_ops ops = {.perform = perform, .finish = finish};
  const size_t replicas = (size_t)options->replicas;
  worker_replicas *w;
  PETRA_TRY(petra_allocate(&w, 1, sizeof *w + replicas * sizeof *w->replica));
  petra_status status = petra_allocate(&w->parts, replicas, sizeof *w->parts);
  if (status != PETRA_OK) {
    petra_free(w);
    return status;
  }
  w->base.ops = &ops;
  w->replicas = options->replicas;
  for (int i = 0; i < w->replicas; i++)
    w->replica[i] = (one_replica){options->worker[i], options->stages[i]};
  *out = &w->base;
  return PETRA_OK;
}

void petra_worker_replicas_destroy(petra_worker *base) {
  worker_replicas *w = (worker_replicas *)base;
  if (!w)
    return;
  petra_free(w->room);
  petra_free(w->parts);
  petra_free(w->own);
  petra_free(w);
}
