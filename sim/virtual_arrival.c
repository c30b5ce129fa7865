/* SPDX-License-Identifier: Apache-2.0 */
/* The program `arrival`: a device takes the message that came first, and B wins ties. The source offers a microbatch
 * whenever the first stage's F engine is free, with a maximum of `credit` in flight. An update follows every k backward
 * passes of a stage. */
#include "base/mem.h"
#include "schedule/arrival.h"
#include "sim/executor_virtual_private.h"

typedef struct stage_state {
  petra_event_queue *forward, *backward; /* waiting messages, in the order of their arrival */
  petra_arrival_stage due;
} stage_state;

struct petra_arrival {
  int32_t stages;
  petra_arrival_source source;
  int64_t free_since_ns; /* since when the F engine of stage 1 is free */
  stage_state state[];
};

petra_status petra_arrival_create(petra_executor_virtual *executor) {
  const int32_t stages = executor->options->stages;
  petra_arrival *arrival;
  PETRA_TRY(petra_allocate(&arrival, 1, sizeof *arrival + (size_t)stages * sizeof *arrival->state));
  arrival->stages = stages;
  executor->arrival = arrival;
  for (int32_t s = 0; s < stages; s++) {
    arrival->state[s].due = petra_arrival_stage_new();
    PETRA_TRY(petra_event_queue_create(&arrival->state[s].forward));
    PETRA_TRY(petra_event_queue_create(&arrival->state[s].backward));
  }
  return PETRA_OK;
}

void petra_arrival_destroy(petra_arrival *arrival) {
  for (int32_t s = 0; arrival && s < arrival->stages; s++) {
    petra_event_queue_destroy(arrival->state[s].forward);
    petra_event_queue_destroy(arrival->state[s].backward);
  }
  petra_free(arrival);
}

static int64_t take(petra_event_queue *queue) {
  petra_event event = {0};
  petra_event_queue_pop(queue, &event);
  return event.microbatch;
}

petra_status petra_arrival_message(petra_executor_virtual *executor, const petra_packet *packet) {
  const stage_state *state = &executor->arrival->state[packet->stage - 1];
  const petra_event event = {.time_ns = executor->now_ns, .microbatch = packet->microbatch};
  return petra_event_queue_push(packet->backward ? state->backward : state->forward, &event);
}

/* Returns when the first message for the stage's F came; INT64_MAX: none waits. */
static int64_t forward_time(const petra_executor_virtual *executor, int32_t stage) {
  const petra_arrival *arrival = executor->arrival;
  if (stage == 1)
    return petra_arrival_offers(&arrival->source, executor->options) ? arrival->free_since_ns : INT64_MAX;
  return petra_event_queue_time(arrival->state[stage - 1].forward);
}

static int64_t take_forward(petra_executor_virtual *executor, int32_t stage) {
  return stage == 1 ? executor->arrival->source.offered++ : take(executor->arrival->state[stage - 1].forward);
}

bool petra_arrival_choose(petra_executor_virtual *executor, int32_t device, int engine, petra_action *out) {
  int32_t stage = device + 1;
  petra_arrival *arrival = executor->arrival;
  stage_state *state = &arrival->state[device];
  const petra_device *dev = &executor->device[device];
  bool fused = petra_program_fused(executor->options, stage);
  out->stage = stage;
  if (petra_arrival_due(&state->due, out)) {
    /* U, and then E, wait for running actions, and nothing starts before they have ended. */
    return engine == petra_engine_of(executor, PETRA_ACTION_UPDATE) && !dev->engines[0].busy && !dev->engines[1].busy;
  }
  if (dev->engines[0].busy && dev->engines[0].running.action.kind == PETRA_ACTION_UPDATE)
    return false;
  if (dev->engines[1].busy && dev->engines[1].running.action.kind == PETRA_ACTION_UPDATE)
    return false;
  /* The only pass of a fused head counts as B. */
  bool may_forward = engine == petra_engine_of(executor, fused ? PETRA_ACTION_BACKWARD : PETRA_ACTION_FORWARD);
  bool may_backward = engine == petra_engine_of(executor, PETRA_ACTION_BACKWARD);
  int64_t forward_ns = may_forward ? forward_time(executor, stage) : INT64_MAX;
  int64_t backward_ns = may_backward ? petra_event_queue_time(state->backward) : INT64_MAX;
  if (forward_ns == INT64_MAX && backward_ns == INT64_MAX)
    return false;
  bool backward = backward_ns <= forward_ns;
  out->kind = backward || fused ? PETRA_ACTION_BACKWARD : PETRA_ACTION_FORWARD;
  out->microbatch = backward ? take(state->backward) : take_forward(executor, stage);
  return true;
}

void petra_arrival_ended(petra_executor_virtual *executor, const petra_action *action) {
  petra_arrival *arrival = executor->arrival;
  petra_arrival_count(&arrival->state[action->stage - 1].due, executor->options, action);
  if (action->kind == PETRA_ACTION_BACKWARD && action->stage == 1)
    arrival->source.finished++;
  if (action->stage == 1 && !executor->device[0].engines[0].busy)
    arrival->free_since_ns = executor->now_ns;
}

static void give_message(petra_cycle *cycle, const void *context, const petra_event *event) {
  (void)context;
  petra_cycle_time(cycle, event->time_ns);
  petra_cycle_microbatch(cycle, event->microbatch);
}

void petra_arrival_state(const petra_executor_virtual *executor, petra_cycle *cycle) {
  const petra_arrival *arrival = executor->arrival;
  petra_cycle_limit(cycle, arrival->source.offered, executor->options->microbatches);
  petra_cycle_microbatch(cycle, arrival->source.offered);
  petra_cycle_microbatch(cycle, arrival->source.finished);
  petra_cycle_time(cycle, arrival->free_since_ns);
  for (int32_t s = 0; s < arrival->stages; s++) {
    const petra_arrival_stage *due = &arrival->state[s].due;
    petra_cycle_value(cycle, due->backwards);
    petra_cycle_value(cycle, due->update < 0 ? INT64_MAX : due->update - cycle->microbatch);
    petra_cycle_value(cycle, due->evaluate < 0 ? INT64_MAX : due->evaluate - cycle->microbatch);
    petra_cycle_queue(cycle, arrival->state[s].forward, give_message, NULL);
    petra_cycle_queue(cycle, arrival->state[s].backward, give_message, NULL);
  }
}

int64_t petra_arrival_offered(const petra_executor_virtual *executor) {
  return executor->arrival->source.offered;
}
