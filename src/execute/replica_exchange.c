/* SPDX-License-Identifier: Apache-2.0 */
#include "execute/replica_exchange.h"

#include "base/log.h"
#include "base/mem.h"
#include "exec/replica_mean.h"

#include <stdio.h>
#include <string.h>

/* The two messages of a stage's exchange that each replica sends each other one. */
typedef enum step { STEP_PIECE, STEP_MEAN, STEPS } step;

/* The exchange of one stage. */
typedef struct exchange {
  petra_shared_size size;
  unsigned char *shared; /* own, then the mean piece by piece; made when it is needed first */
  bool begun, summed;    /* own pieces are sent; the piece that this replica owns is the mean, and sent */
} exchange;

typedef struct replica_exchange {
  petra_worker base;
  petra_replica_exchange_options options;
  petra_carrier *carrier;
  int replicas, own;
  petra_way **in, **out; /* from and to each replica; NULL: this one */
  const void **pieces;   /* of each replica, while they are summed */
  int open;              /* exchanges that are begun and not summed */
  int32_t largest;       /* the stage, from 1, with the largest piece */
  int64_t charged;       /* bytes of the ways' buffers, in its account */
  exchange of_stage[];   /* from 0 */
} replica_exchange;

static petra_stage *stage_of(const replica_exchange *x, int32_t stage) {
  return petra_stages_get(&x->options.stages, stage);
}

/* The first element of a piece; of piece `replicas` the end. */
static int64_t first_of(const replica_exchange *x, const exchange *e, int piece) {
  return e->size.elements / x->replicas * piece + e->size.elements % x->replicas * piece / x->replicas;
}

static unsigned char *piece_at(const replica_exchange *x, const exchange *e, int piece) {
  return e->shared + (size_t)first_of(x, e, piece) * e->size.element_bytes;
}

static size_t piece_bytes(const replica_exchange *x, const exchange *e, int piece) {
  return (size_t)(first_of(x, e, piece + 1) - first_of(x, e, piece)) * e->size.element_bytes;
}

/* Of all messages of a way: every update has one of each step. All replicas of a stage have made as many updates. */
static int64_t number_of(const replica_exchange *x, int32_t stage, step at) {
  return (petra_stage_version(stage_of(x, stage)) * x->options.stages.count + stage - 1) * STEPS + (int64_t)at;
}

static const char *describe(const replica_exchange *x, int32_t stage, int replica, char text[96]) {
  snprintf(text, 96, "the gradients of stage %d, update %lld, of replica %d", stage,
           (long long)petra_stage_version(stage_of(x, stage)), replica);
  return text;
}

static petra_status send_piece(replica_exchange *x, int32_t stage, int piece, int to, step at) {
  const exchange *e = &x->of_stage[stage - 1];
  void *buffer;
  PETRA_TRY(petra_way_buffer(x->out[to], 0, "room for gradients", &buffer));
  memcpy(buffer, piece_at(x, e, piece), piece_bytes(x, e, piece));
  return petra_way_send(x->out[to], number_of(x, stage, at), piece_bytes(x, e, piece));
}

/* The room for what a stage shares; it stays. */
static petra_status make_room(replica_exchange *x, int32_t stage) {
  exchange *e = &x->of_stage[stage - 1];
  if (e->shared)
    return PETRA_OK;
  PETRA_TRY(petra_allocate_raw(&e->shared, petra_shared_bytes(&e->size), 1));
  petra_account_add(petra_stage_account(stage_of(x, stage)), PETRA_MEMORY_MESSAGES,
                    (int64_t)petra_shared_bytes(&e->size));
  return PETRA_OK;
}

static void release_room(replica_exchange *x, int32_t stage) {
  exchange *e = &x->of_stage[stage - 1];
  if (e->shared)
    petra_account_add(petra_stage_account(stage_of(x, stage)), PETRA_MEMORY_MESSAGES,
                      -(int64_t)petra_shared_bytes(&e->size));
  petra_free(e->shared);
}

/* Counts the buffers that the ways have by now. */
static void charge(replica_exchange *x) {
  int64_t held = 0;
  for (int i = 0; i < x->replicas; i++)
    if (i != x->own)
      held += petra_way_bytes(x->in[i]) + petra_way_bytes(x->out[i]);
  petra_account_add(petra_stage_account(stage_of(x, x->largest)), PETRA_MEMORY_MESSAGES, held - x->charged);
  x->charged = held;
}

/* The gradients of the next update are complete. */
static petra_status begin(replica_exchange *x, int32_t stage) {
  exchange *e = &x->of_stage[stage - 1];
  PETRA_TRY(make_room(x, stage));
  PETRA_TRY(petra_shared_pack(stage_of(x, stage), e->shared));
  e->begun = true;
  x->open++;
  for (int next = 1; next < x->replicas; next++) {
    const int owner = (x->own + next) % x->replicas;
    PETRA_TRY(send_piece(x, stage, owner, owner, STEP_PIECE));
  }
  return PETRA_OK;
}

/* A message of the step from another replica, which has `piece`; where `wait` is false *data is NULL if it has not come. */
static petra_status take(replica_exchange *x, int32_t stage, int from, int piece, step at, bool wait,
                         const void **data) {
  const size_t expected = piece_bytes(x, &x->of_stage[stage - 1], piece);
  const int64_t number = number_of(x, stage, at);
  char what[96];
  size_t size;
  int64_t came_ns;
  describe(x, stage, from, what);
  PETRA_TRY(wait ? petra_way_take(x->in[from], number, what, data, &size)
                 : petra_way_take_until(x->in[from], number, 0, what, data, &size, &came_ns));
  if (*data && size != expected)
    return petra_fail(PETRA_INTERNAL, "%s: %zu bytes; expected %zu", what, size, expected);
  return PETRA_OK;
}

/* Once the pieces that this replica owns have come from all: their mean, to all others. */
static petra_status sum(replica_exchange *x, int32_t stage, bool wait) {
  exchange *e = &x->of_stage[stage - 1];
  unsigned char *own = piece_at(x, e, x->own);
  for (int i = 0; i < x->replicas; i++) {
    x->pieces[i] = own;
    if (i == x->own)
      continue;
    PETRA_TRY(take(x, stage, i, x->own, STEP_PIECE, wait, &x->pieces[i]));
    if (!x->pieces[i])
      return PETRA_OK;
  }
  const petra_shared_size size = {first_of(x, e, x->own + 1) - first_of(x, e, x->own), e->size.element_bytes};
  petra_replica_mean(x->pieces, x->replicas, &size, own);
  e->summed = true;
  x->open--;
  for (int next = 1; next < x->replicas; next++) {
    const int other = (x->own + next) % x->replicas;
    PETRA_TRY(petra_way_done(x->in[other], number_of(x, stage, STEP_PIECE)));
    PETRA_TRY(send_piece(x, stage, x->own, other, STEP_MEAN));
  }
  return PETRA_OK;
}

/* Before the update: the stage gets the mean. A run that goes on from a checkpoint may have to begin here. */
static petra_status end(replica_exchange *x, int32_t stage) {
  exchange *e = &x->of_stage[stage - 1];
  if (!e->begun)
    PETRA_TRY(begin(x, stage));
  if (!e->summed)
    PETRA_TRY(sum(x, stage, true));
  for (int i = 0; i < x->replicas; i++) {
    const void *mean;
    if (i == x->own)
      continue;
    PETRA_TRY(take(x, stage, i, i, STEP_MEAN, true, &mean));
    memcpy(piece_at(x, e, i), mean, piece_bytes(x, e, i));
    PETRA_TRY(petra_way_done(x->in[i], number_of(x, stage, STEP_MEAN)));
  }
  charge(x);
  e->begun = e->summed = false;
  return petra_shared_unpack(stage_of(x, stage), e->shared);
}

/* Sums what has come of exchanges that are under way. */
static petra_status go_on(replica_exchange *x) {
  for (int32_t stage = 1; stage <= x->options.stages.count && x->open > 0; stage++)
    if (x->of_stage[stage - 1].begun && !x->of_stage[stage - 1].summed)
      PETRA_TRY(sum(x, stage, false));
  return PETRA_OK;
}

static petra_status perform(petra_worker *base, int64_t virtual_ns, const petra_action *actions, int count,
                            petra_action_result *results) {
  replica_exchange *x = (replica_exchange *)base;
  petra_worker *worker = x->options.worker;
  for (int i = 0; i < count; i++) {
    const petra_action *action = &actions[i];
    if (action->kind == PETRA_ACTION_UPDATE)
      PETRA_TRY(end(x, action->stage));
    PETRA_TRY(worker->ops->perform(worker, virtual_ns, action, 1, &results[i]));
    const bool gradients = action->kind == PETRA_ACTION_BACKWARD || action->kind == PETRA_ACTION_WEIGHT_GRADIENT;
    if (gradients && petra_stage_gradient_complete(stage_of(x, action->stage)))
      PETRA_TRY(begin(x, action->stage));
    PETRA_TRY(go_on(x));
  }
  return PETRA_OK;
}

static petra_status finish(petra_worker *base) {
  return petra_worker_finish(((replica_exchange *)base)->options.worker);
}

/* Sizes of the stages that are here; *most: bytes of the largest piece. */
static petra_status set_sizes(replica_exchange *x, size_t *most) {
  *most = 0;
  for (int32_t stage = 1; stage <= x->options.stages.count; stage++) {
    exchange *e = &x->of_stage[stage - 1];
    if (!petra_stages_has(&x->options.stages, stage))
      continue;
    PETRA_TRY(petra_shared_size_of(stage_of(x, stage), &e->size));
    for (int i = 0; i < x->replicas; i++)
      if (piece_bytes(x, e, i) > *most) {
        *most = piece_bytes(x, e, i);
        x->largest = stage;
      }
  }
  return PETRA_OK;
}

static petra_status open_ways(replica_exchange *x, size_t capacity) {
  const petra_placement *placement = x->options.placement;
  for (int i = 0; i < x->replicas; i++) {
    const int rank = placement->ranks->rank + (i - x->own) * placement->places;
    if (i == x->own)
      continue;
    PETRA_TRY(petra_carrier_way_out(x->carrier, rank, x->options.way, capacity, &x->out[i]));
    PETRA_TRY(petra_carrier_way_in(x->carrier, rank, x->options.way, capacity, &x->in[i]));
  }
  return PETRA_OK;
}

petra_status petra_replica_exchange_create(const petra_replica_exchange_options *options, petra_worker **out) {
  static const petra_worker_ops ops = {.perform = perform, .finish = finish};
  const petra_placement *placement = options->placement;
  const size_t replicas = (size_t)placement->replicas;
  replica_exchange *x;
  petra_status status;
  size_t most;
  PETRA_TRY(petra_allocate(&x, 1, sizeof *x + (size_t)options->stages.count * sizeof *x->of_stage));
  x->base.ops = &ops;
  x->options = *options;
  x->carrier = placement->ranks->carrier;
  x->replicas = placement->replicas;
  x->own = placement->replica;
  PETRA_TRY_GOTO(status, petra_allocate(&x->in, replicas, sizeof(petra_way *)), fail);
  PETRA_TRY_GOTO(status, petra_allocate(&x->out, replicas, sizeof(petra_way *)), fail);
  PETRA_TRY_GOTO(status, petra_allocate(&x->pieces, replicas, sizeof *x->pieces), fail);
  PETRA_TRY_GOTO(status, set_sizes(x, &most), fail);
  PETRA_TRY_GOTO(status, open_ways(x, most), fail);
  *out = &x->base;
  return PETRA_OK;
fail:
  petra_replica_exchange_destroy(&x->base);
  return status;
}

void petra_replica_exchange_destroy(petra_worker *base) {
  replica_exchange *x = (replica_exchange *)base;
  if (!x)
    return;
  for (int32_t stage = 1; stage <= x->options.stages.count; stage++)
    release_room(x, stage);
  if (x->charged > 0)
    petra_account_add(petra_stage_account(stage_of(x, x->largest)), PETRA_MEMORY_MESSAGES, -x->charged);
  petra_free(x->pieces);
  petra_free(x->in);
  petra_free(x->out);
  petra_free(x);
}

int64_t petra_replica_exchange_bytes(int replicas, int stages, int64_t shared_bytes) {
  const int64_t widest = replicas * (int64_t)sizeof(double); /* of one element for each replica */
  const size_t piece = (size_t)((shared_bytes + widest - 1) / widest) * sizeof(double);
  return (replicas - 1) * (petra_way_bytes_out(piece) + petra_way_bytes_in(piece, STEPS * stages));
}
