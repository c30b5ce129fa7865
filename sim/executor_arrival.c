/* Program `arrival`: a device takes whatever message came first, B winning ties; the source offers a microbatch
 * whenever the first stage's F engine is free, at most `credit` in flight; an update follows every k backward passes
 * of a stage. */
#include "base/mem.h"
#include "sim/executor_virtual_private.h"

#include <string.h>

typedef struct item {
  int64_t time_ns, microbatch;
} item;

/* Messages that wait, in the order of their arrival. */
typedef struct queue {
  item *items;
  int64_t head, count, capacity;
} queue;

typedef struct stage_state {
  queue forward, backward;
  int64_t backwards;           /* since the last update */
  int64_t update_microbatch;   /* an update is due: it covers up to this one; -1: none is */
  int64_t evaluate_microbatch; /* an evaluation is due, at the end of the epoch with this last one; -1: none is */
} stage_state;

struct petra_arrival {
  int32_t stages;
  int64_t offered;       /* microbatches that stage 1 has started */
  int64_t finished;      /* and that have come back to it */
  int64_t free_since_ns; /* stage 1's F engine */
  stage_state *state;
};

petra_status petra_arrival_create(petra_executor_virtual *executor) {
  petra_arrival *arrival;
  PETRA_TRY(petra_allocate(&arrival, 1, sizeof *arrival));
  arrival->stages = executor->options->stages;
  petra_status status = petra_allocate(&arrival->state, (size_t)arrival->stages, sizeof *arrival->state);
  if (status != PETRA_OK) {
    petra_free(arrival);
    return status;
  }
  for (int32_t s = 0; s < arrival->stages; s++)
    arrival->state[s].update_microbatch = arrival->state[s].evaluate_microbatch = -1;
  executor->arrival = arrival;
  return PETRA_OK;
}

void petra_arrival_destroy(petra_arrival *arrival) {
  if (!arrival)
    return;
  for (int32_t s = 0; s < arrival->stages; s++) {
    petra_free(arrival->state[s].forward.items);
    petra_free(arrival->state[s].backward.items);
  }
  petra_free(arrival->state);
  petra_free(arrival);
}

static petra_status put(queue *q, int64_t time_ns, int64_t microbatch) {
  if (q->count == q->capacity) {
    int64_t capacity = q->capacity ? 2 * q->capacity : 8;
    item *items;
    PETRA_TRY(petra_allocate(&items, (size_t)capacity, sizeof *items));
    for (int64_t i = 0; i < q->count; i++)
      items[i] = q->items[(q->head + i) % q->capacity];
    petra_free(q->items);
    q->items = items;
    q->head = 0;
    q->capacity = capacity;
  }
  q->items[(q->head + q->count++) % q->capacity] = (item){time_ns, microbatch};
  return PETRA_OK;
}

static int64_t take(queue *q) {
  int64_t microbatch = q->items[q->head].microbatch;
  q->head = (q->head + 1) % q->capacity;
  q->count--;
  return microbatch;
}

petra_status petra_arrival_message(petra_executor_virtual *executor, const petra_packet *packet) {
  stage_state *state = &executor->arrival->state[packet->stage - 1];
  return put(packet->backward ? &state->backward : &state->forward, executor->now_ns, packet->microbatch);
}

/* The source may offer one more. */
static bool source_offers(const petra_executor_virtual *executor) {
  const petra_arrival *arrival = executor->arrival;
  int64_t credit = executor->options->credit;
  return arrival->offered < executor->options->microbatches &&
         (credit == 0 || arrival->offered - arrival->finished < credit);
}

/* When the first message for the stage's F came; INT64_MAX: none waits. */
static int64_t forward_time(const petra_executor_virtual *executor, int32_t stage) {
  const petra_arrival *arrival = executor->arrival;
  if (stage == 1)
    return source_offers(executor) ? arrival->free_since_ns : INT64_MAX;
  const queue *q = &arrival->state[stage - 1].forward;
  return q->count ? q->items[q->head].time_ns : INT64_MAX;
}

static int64_t take_forward(petra_executor_virtual *executor, int32_t stage) {
  return stage == 1 ? executor->arrival->offered++ : take(&executor->arrival->state[stage - 1].forward);
}

bool petra_arrival_choose(petra_executor_virtual *executor, int32_t device, int engine, petra_action *out) {
  int32_t stage = device + 1;
  petra_arrival *arrival = executor->arrival;
  stage_state *state = &arrival->state[device];
  const petra_device *dev = &executor->device[device];
  bool fused = petra_fused(executor, stage);
  out->stage = stage;
  if (state->update_microbatch >= 0 || state->evaluate_microbatch >= 0) {
    /* U, then E, wait for what runs, and nothing starts before they have ended. */
    if (engine != petra_engine_of(executor, PETRA_ACTION_UPDATE) || dev->engines[0].busy || dev->engines[1].busy)
      return false;
    bool update = state->update_microbatch >= 0;
    out->kind = update ? PETRA_ACTION_UPDATE : PETRA_ACTION_EVALUATE;
    out->microbatch = update ? state->update_microbatch : state->evaluate_microbatch;
    return true;
  }
  if (dev->engines[0].busy && dev->engines[0].running.action.kind == PETRA_ACTION_UPDATE)
    return false;
  if (dev->engines[1].busy && dev->engines[1].running.action.kind == PETRA_ACTION_UPDATE)
    return false;
  /* A fused head's only pass counts as B. */
  bool may_forward = engine == petra_engine_of(executor, fused ? PETRA_ACTION_BACKWARD : PETRA_ACTION_FORWARD);
  bool may_backward = engine == petra_engine_of(executor, PETRA_ACTION_BACKWARD);
  int64_t forward_ns = may_forward ? forward_time(executor, stage) : INT64_MAX;
  int64_t backward_ns =
      may_backward && state->backward.count ? state->backward.items[state->backward.head].time_ns : INT64_MAX;
  if (forward_ns == INT64_MAX && backward_ns == INT64_MAX)
    return false;
  bool backward = backward_ns <= forward_ns;
  out->kind = backward || fused ? PETRA_ACTION_BACKWARD : PETRA_ACTION_FORWARD;
  out->microbatch = backward ? take(&state->backward) : take_forward(executor, stage);
  return true;
}

void petra_arrival_ended(petra_executor_virtual *executor, const petra_action *action) {
  petra_arrival *arrival = executor->arrival;
  stage_state *state = &arrival->state[action->stage - 1];
  if (action->kind == PETRA_ACTION_UPDATE) {
    state->update_microbatch = -1;
    state->backwards = 0;
  }
  if (action->kind == PETRA_ACTION_EVALUATE)
    state->evaluate_microbatch = -1;
  if (action->kind == PETRA_ACTION_BACKWARD) {
    if (++state->backwards == executor->options->accumulate)
      state->update_microbatch = action->microbatch;
    if (petra_program_evaluates(executor->options, action->microbatch))
      state->evaluate_microbatch = action->microbatch;
    if (action->stage == 1)
      arrival->finished++;
  }
  if (action->stage == 1 && !executor->device[0].engines[0].busy)
    arrival->free_since_ns = executor->now_ns;
}
