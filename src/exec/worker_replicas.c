/* SPDX-License-Identifier: Apache-2.0 */
#include "exec/worker_replicas.h"

#include "base/log.h"
#include "base/mem.h"
#include "exec/transport.h"
#include "stage/stage.h"

#include <stdio.h>
#include <string.h>

/* The two messages of an exchange that each replica sends to each other replica. */
typedef enum step { STEP_PIECE, STEP_MEAN, STEPS } step;

/* The exchange of one stage. */
typedef struct exchange {
  petra_shared_size size;
  bool begun, summed; /* the pieces are sent; the mean of the own piece is computed and sent */
  /* The shared values of each replica that is here, one after the other. Without a progress thread exchanges do not
   * overlap, and the memory of the first exchange serves all. */
  unsigned char *copies;
  size_t room; /* bytes */
} exchange;

typedef struct one_replica {
  petra_worker *worker; /* NULL: in another process */
  petra_stages stages;
  petra_channel *in, *out; /* from and to it; NULL: it is here */
} one_replica;

typedef struct worker_replicas {
  petra_worker base;
  petra_progress_thread *progress;
  int replicas, first_here;     /* the first replica that is here */
  int32_t stages;               /* J */
  exchange *exchanges;          /* of each stage */
  const void **parts;           /* of each replica, during the sum */
  int open;                     /* exchanges that are begun and not summed */
  int32_t largest;              /* the stage, from 1, with the largest piece */
  int64_t charged;              /* size of the channels' buffers, in the account of that stage */
  petra_action_result *results; /* of a group: of one replica, then the durations that the executor expects */
  int64_t results_capacity;
  one_replica replica[];
} worker_replicas;

/* --- what a stage shares --- */

static petra_status add_size(void *context, petra_tensor *tensor) {
  petra_shared_size *size = context;
  const size_t bytes = petra_packed_bytes(tensor->backend, tensor->kind, 1);
  if (size->element_bytes != 0 && size->element_bytes != bytes)
    return petra_fail(PETRA_INTERNAL, "gradients of %zu and of %zu bytes an element in one stage", size->element_bytes,
                      bytes);
  size->element_bytes = bytes;
  size->elements += tensor->elements;
  return PETRA_OK;
}

static petra_status pack(void *context, petra_tensor *tensor) {
  unsigned char **at = context;
  PETRA_TRY(petra_pack(tensor, *at));
  *at += petra_packed_tensor_bytes(tensor);
  return PETRA_OK;
}

static petra_status unpack(void *context, petra_tensor *tensor) {
  const unsigned char **at = context;
  PETRA_TRY(petra_unpack(tensor, *at));
  *at += petra_packed_tensor_bytes(tensor);
  return PETRA_OK;
}

static void mean_of_floats(const float *const *parts, int replicas, int64_t elements, float *out) {
  for (int64_t e = 0; e < elements; e++) {
    float sum = parts[0][e];
    for (int i = 1; i < replicas; i++)
      sum += parts[i][e];
    out[e] = sum / (float)replicas;
  }
}

static void mean_of_doubles(const double *const *parts, int replicas, int64_t elements, double *out) {
  for (int64_t e = 0; e < elements; e++) {
    double sum = parts[0][e];
    for (int i = 1; i < replicas; i++)
      sum += parts[i][e];
    out[e] = sum / (double)replicas;
  }
}

void petra_replica_mean(const void *const *parts, int replicas, const petra_shared_size *size, void *out) {
  if (size->element_bytes == sizeof(float))
    mean_of_floats((const float *const *)parts, replicas, size->elements, out);
  else
    mean_of_doubles((const double *const *)parts, replicas, size->elements, out);
}

/* --- its copies and their pieces --- */

static petra_stage *stage_of(const worker_replicas *w, int replica, int32_t stage) {
  return petra_stages_get(&w->replica[replica].stages, stage);
}

static size_t bytes_of(const exchange *e) {
  return (size_t)e->size.elements * e->size.element_bytes;
}

static exchange *room_of(const worker_replicas *w, int32_t stage) {
  return &w->exchanges[w->progress ? stage - 1 : 0];
}

/* Returns the copy of a replica that is here. */
static unsigned char *copy_of(const worker_replicas *w, int32_t stage, int replica) {
  return room_of(w, stage)->copies + (size_t)(replica - w->first_here) * bytes_of(&w->exchanges[stage - 1]);
}

/* Returns the first element of the piece that a replica owns; for piece `replicas` the end. */
static int64_t first_of(const worker_replicas *w, int32_t stage, int piece) {
  const int64_t elements = w->exchanges[stage - 1].size.elements, pieces = w->progress ? w->replicas : 1;
  return elements / pieces * piece + elements % pieces * piece / pieces;
}

static size_t piece_offset(const worker_replicas *w, int32_t stage, int piece) {
  return (size_t)first_of(w, stage, piece) * w->exchanges[stage - 1].size.element_bytes;
}

static size_t piece_bytes(const worker_replicas *w, int32_t stage, int piece) {
  return piece_offset(w, stage, piece + 1) - piece_offset(w, stage, piece);
}

static void charge(const worker_replicas *w, int32_t stage, int64_t bytes) {
  if (w->progress)
    petra_account_add(petra_stage_account(stage_of(w, w->first_here, stage)), PETRA_MEMORY_MESSAGES, bytes);
}

/* Reserves the memory for the copies, which is kept; without a progress thread it grows. */
static petra_status make_room(worker_replicas *w, int32_t stage) {
  exchange *r = room_of(w, stage);
  const size_t size = bytes_of(&w->exchanges[stage - 1]) * (w->progress ? 1 : (size_t)w->replicas);
  if (r->room >= size)
    return PETRA_OK;
  petra_free(r->copies);
  r->copies = NULL;
  r->room = 0;
  PETRA_TRY(petra_allocate_raw(&r->copies, size, 1));
  r->room = size;
  charge(w, stage, (int64_t)size);
  return PETRA_OK;
}

/* --- messages between the replicas --- */

/* Returns the number of a message on its channel: every update has one message of each step. All replicas of a stage
 * have done the same number of updates. */
static int64_t number_of(const worker_replicas *w, int32_t stage, step at) {
  return (petra_stage_version(stage_of(w, w->first_here, stage)) * w->stages + stage - 1) * STEPS + (int64_t)at;
}

static petra_status send_piece(worker_replicas *w, int32_t stage, int piece, int to, step at) {
  petra_channel *channel = w->replica[to].out;
  const size_t bytes = piece_bytes(w, stage, piece);
  void *buffer;
  PETRA_TRY(petra_channel_buffer(channel, 0, "room for gradients", &buffer));
  memcpy(buffer, copy_of(w, stage, w->first_here) + piece_offset(w, stage, piece), bytes);
  return petra_channel_send(channel, number_of(w, stage, at), bytes);
}

/* Returns the message of another replica with `piece`. Without `wait`, *data is NULL if it has not arrived. */
static petra_status take(worker_replicas *w, int32_t stage, int from, int piece, step at, bool wait,
                         const void **data) {
  petra_channel *channel = w->replica[from].in;
  const int64_t number = number_of(w, stage, at);
  char what[96];
  size_t size;
  snprintf(what, sizeof what, "the gradients of stage %d, update %lld, of replica %d", stage,
           (long long)petra_stage_version(stage_of(w, w->first_here, stage)), from);
  PETRA_TRY(wait ? petra_channel_take(channel, number, what, data, &size)
                 : petra_channel_take_until(channel, number, 0, what, data, &size));
  if (*data && size != piece_bytes(w, stage, piece))
    return petra_fail(PETRA_INTERNAL, "%s: %zu bytes; expected %zu", what, size, piece_bytes(w, stage, piece));
  return PETRA_OK;
}

/* Counts the present buffers of the channels. */
static void charge_buffers(worker_replicas *w) {
  int64_t bytes = 0;
  for (int i = 0; i < w->replicas; i++)
    if (w->replica[i].in)
      bytes += petra_channel_bytes(w->replica[i].in) + petra_channel_bytes(w->replica[i].out);
  charge(w, w->largest, bytes - w->charged);
  w->charged = bytes;
}

/* --- the exchange --- */

/* Begins the exchange when the gradients of the next update are complete. */
static petra_status begin(worker_replicas *w, int32_t stage) {
  exchange *e = &w->exchanges[stage - 1];
  e->size = (petra_shared_size){0};
  PETRA_TRY(petra_stage_visit_shared(stage_of(w, w->first_here, stage), add_size, &e->size));
  PETRA_TRY(make_room(w, stage));
  for (int i = 0; i < w->replicas; i++) {
    if (!w->replica[i].worker)
      continue;
    unsigned char *at = copy_of(w, stage, i);
    PETRA_TRY(petra_stage_visit_shared(stage_of(w, i, stage), pack, &at));
  }
  e->begun = true;
  w->open++;
  for (int next = 1; next < w->replicas; next++) {
    const int owner = (w->first_here + next) % w->replicas;
    if (w->replica[owner].out)
      PETRA_TRY(send_piece(w, stage, owner, owner, STEP_PIECE));
  }
  return PETRA_OK;
}

/* Computes the mean of the piece that this process owns, once all replicas have sent theirs, and sends it to all
 * others. */
static petra_status sum(worker_replicas *w, int32_t stage, bool wait) {
  exchange *e = &w->exchanges[stage - 1];
  const size_t offset = piece_offset(w, stage, w->first_here);
  for (int i = 0; i < w->replicas; i++) {
    if (w->replica[i].in)
      PETRA_TRY(take(w, stage, i, w->first_here, STEP_PIECE, wait, &w->parts[i]));
    else
      w->parts[i] = copy_of(w, stage, i) + offset;
    if (!w->parts[i])
      return PETRA_OK;
  }
  const petra_shared_size size = {first_of(w, stage, w->first_here + 1) - first_of(w, stage, w->first_here),
                                  e->size.element_bytes};
  petra_replica_mean(w->parts, w->replicas, &size, copy_of(w, stage, w->first_here) + offset);
  e->summed = true;
  w->open--;
  for (int next = 1; next < w->replicas; next++) {
    const int other = (w->first_here + next) % w->replicas;
    if (!w->replica[other].in)
      continue;
    PETRA_TRY(petra_channel_done(w->replica[other].in, number_of(w, stage, STEP_PIECE)));
    PETRA_TRY(send_piece(w, stage, w->first_here, other, STEP_MEAN));
  }
  return PETRA_OK;
}

/* Gives each stage that is here the mean before its update. A resumed run may begin with this function. */
static petra_status end(worker_replicas *w, int32_t stage) {
  exchange *e = &w->exchanges[stage - 1];
  if (!e->begun)
    PETRA_TRY(begin(w, stage));
  if (!e->summed)
    PETRA_TRY(sum(w, stage, true));
  for (int i = 0; i < w->replicas; i++) {
    const void *mean;
    if (!w->replica[i].in)
      continue;
    PETRA_TRY(take(w, stage, i, i, STEP_MEAN, true, &mean));
    memcpy(copy_of(w, stage, w->first_here) + piece_offset(w, stage, i), mean, piece_bytes(w, stage, i));
    PETRA_TRY(petra_channel_done(w->replica[i].in, number_of(w, stage, STEP_MEAN)));
  }
  charge_buffers(w);
  e->begun = e->summed = false;
  for (int i = 0; i < w->replicas; i++) {
    const unsigned char *at = copy_of(w, stage, w->first_here);
    if (w->replica[i].worker)
      PETRA_TRY(petra_stage_visit_shared(stage_of(w, i, stage), unpack, &at));
  }
  return PETRA_OK;
}

/* Begins the exchanges whose gradients the group has completed, and continues the exchanges in progress with the pieces
 * that have arrived. */
static petra_status go_on(worker_replicas *w, const petra_action *actions, int count) {
  for (int i = 0; i < count; i++) {
    const bool gradients = actions[i].kind == PETRA_ACTION_BACKWARD || actions[i].kind == PETRA_ACTION_WEIGHT_GRADIENT;
    if (gradients && petra_stage_gradient_complete(stage_of(w, w->first_here, actions[i].stage)))
      PETRA_TRY(begin(w, actions[i].stage));
  }
  for (int32_t stage = 1; stage <= w->stages && w->open > 0; stage++)
    if (w->exchanges[stage - 1].begun && !w->exchanges[stage - 1].summed)
      PETRA_TRY(sum(w, stage, false));
  return PETRA_OK;
}

/* --- the worker --- */

/* Takes the results of one replica; the duration of an action is the duration at the slowest replica that is here. */
static void merge(const worker_replicas *w, int replica, petra_action_result *results, int count) {
  for (int i = 0; i < count; i++)
    if (replica == w->first_here)
      results[i] = w->results[i];
    else if (w->results[i].measured_ns > results[i].measured_ns)
      results[i].measured_ns = w->results[i].measured_ns;
}

/* A U first waits for the gradients that it needs: no action of its stage in the group computes any of them. */
static petra_status perform(petra_worker *base, int64_t virtual_ns, const petra_action *actions, int count,
                            petra_action_result *results) {
  worker_replicas *w = (worker_replicas *)base;
  PETRA_TRY(petra_array_reserve(&w->results, &w->results_capacity, 2 * (int64_t)count, sizeof *w->results));
  petra_action_result *requested = w->results + count;
  memcpy(requested, results, (size_t)count * sizeof *requested);
  for (int i = 0; i < count; i++)
    if (actions[i].kind == PETRA_ACTION_UPDATE)
      PETRA_TRY(end(w, actions[i].stage));
  for (int r = 0; r < w->replicas; r++) {
    petra_worker *worker = w->replica[r].worker;
    if (!worker)
      continue;
    memcpy(w->results, requested, (size_t)count * sizeof *requested);
    PETRA_TRY(worker->ops->perform(worker, virtual_ns, actions, count, w->results));
    if (!w->progress) /* a device keeps few results of losses that are not reported yet */
      PETRA_TRY(petra_worker_finish(worker));
    merge(w, r, results, count);
  }
  return w->progress ? go_on(w, actions, count) : PETRA_OK;
}

static petra_status finish(petra_worker *base) {
  worker_replicas *w = (worker_replicas *)base;
  for (int i = 0; i < w->replicas; i++)
    if (w->replica[i].worker)
      PETRA_TRY(petra_worker_finish(w->replica[i].worker));
  return PETRA_OK;
}

/* --- creation --- */

/* Sets *largest to the size of the largest piece of the stages that are here. */
static petra_status find_largest(worker_replicas *w, size_t *largest) {
  *largest = 0;
  for (int32_t stage = 1; stage <= w->stages; stage++) {
    if (!petra_stages_has(&w->replica[w->first_here].stages, stage))
      continue;
    PETRA_TRY(petra_stage_visit_shared(stage_of(w, w->first_here, stage), add_size, &w->exchanges[stage - 1].size));
    for (int i = 0; i < w->replicas; i++)
      if (piece_bytes(w, stage, i) > *largest) {
        *largest = piece_bytes(w, stage, i);
        w->largest = stage;
      }
  }
  return PETRA_OK;
}

static petra_status open_channels(worker_replicas *w, const petra_placement *placement) {
  const int first_rank = placement->ranks->rank - placement->replica * placement->stride;
  const int channel = petra_channel_id(w->stages, PETRA_CHANNEL_REPLICAS);
  size_t capacity;
  PETRA_TRY(find_largest(w, &capacity));
  for (int i = 0; i < w->replicas; i++) {
    const int other = first_rank + i * placement->replica_ranks;
    if (i == w->first_here)
      continue;
    PETRA_TRY(petra_channel_open_out(w->progress, other, channel, capacity, &w->replica[i].out));
    PETRA_TRY(petra_channel_open_in(w->progress, other, channel, capacity, &w->replica[i].in));
  }
  return PETRA_OK;
}

petra_status petra_worker_replicas_create(petra_pipeline *const *pipelines, const petra_placement *placement,
                                          petra_worker **out) {
  static const petra_worker_ops ops = {.perform = perform, .finish = finish};
  const size_t replicas = (size_t)placement->replicas;
  worker_replicas *w;
  petra_status status;
  PETRA_TRY(petra_allocate(&w, 1, sizeof *w + replicas * sizeof *w->replica));
  w->base.ops = &ops;
  w->progress = placement->ranks->progress;
  w->replicas = placement->replicas;
  w->first_here = placement->replica; /* 0 if all are here */
  for (int i = 0; i < w->replicas; i++)
    if (pipelines[i])
      w->replica[i] = (one_replica){pipelines[i]->worker, petra_network_stages(&pipelines[i]->network), NULL, NULL};
  w->stages = w->replica[w->first_here].stages.count;
  PETRA_TRY_GOTO(status, petra_allocate(&w->parts, replicas, sizeof *w->parts), fail);
  PETRA_TRY_GOTO(status, petra_allocate(&w->exchanges, (size_t)w->stages, sizeof *w->exchanges), fail);
  if (w->progress)
    PETRA_TRY_GOTO(status, open_channels(w, placement), fail);
  *out = &w->base;
  return PETRA_OK;
fail:
  petra_worker_replicas_destroy(&w->base);
  return status;
}

void petra_worker_replicas_destroy(petra_worker *base) {
  worker_replicas *w = (worker_replicas *)base;
  if (!w)
    return;
  for (int32_t stage = 1; stage <= w->stages && w->exchanges; stage++) {
    if (w->exchanges[stage - 1].copies)
      charge(w, stage, -(int64_t)w->exchanges[stage - 1].room);
    petra_free(w->exchanges[stage - 1].copies);
  }
  if (w->charged > 0)
    charge(w, w->largest, -w->charged);
  PETRA_FREE_ALL(w->results, w->exchanges, w->parts, w);
}

int64_t petra_worker_replicas_bytes(int replicas, int stages, int64_t shared_bytes) {
  const int64_t widest = replicas * (int64_t)sizeof(double); /* of one element for each replica */
  const size_t piece = (size_t)((shared_bytes + widest - 1) / widest) * sizeof(double);
  return (replicas - 1) * (petra_channel_bytes_out(piece) + petra_channel_bytes_in(piece, STEPS * stages));
}
