#include "sim/executor_virtual.h"

#include "base/log.h"
#include "base/mem.h"
#include "sim/engine.h"

#include <stddef.h>

enum { ENGINES = 2 };

/* An action of a stage's order with what came before it there. */
typedef struct step {
  petra_action action;
  int64_t order;                      /* its place in the stage's order */
  int64_t before[PETRA_ACTION_KINDS]; /* actions of each kind earlier in the order */
  int64_t round_start;                /* place of the first action of its round */
} step;

/* One engine of a device: a reader of the stage's order that stops at the actions of its engine. */
typedef struct engine {
  petra_cursor cursor;
  int64_t round; /* of the action read last */
  step next;     /* the action that waits to start */
  step reading;  /* counters of the reader */
  bool waiting;  /* `next` holds an action */
  bool finished; /* the order has no more for this engine */
  bool busy;
  petra_trace_row running;
} engine;

typedef struct device {
  engine engines[ENGINES];
  int64_t done[PETRA_ACTION_KINDS]; /* actions ended */
  int64_t done_total;
  int64_t forward_arrived, backward_arrived; /* microbatches 0 .. n - 1 have come from below / above */
} device;

typedef struct executor_virtual {
  petra_executor base;
  petra_executor_virtual_options settings;
  int64_t now_ns;
  /* Below: of the run in progress. */
  const petra_program_ops *program;
  const petra_program_options *options;
  device *devices;
  petra_event_queue *events;
  petra_action *group;
  petra_action_result *results;
  engine **started;
} executor_virtual;

/* Virtual duration of an action. The last stage does F, loss and B in one; evaluations take no time. */
static int64_t duration_ns(const executor_virtual *executor, const petra_action *action) {
  const petra_cost *cost = &executor->settings.cost;
  switch (action->kind) {
  case PETRA_ACTION_FORWARD:
    return cost->forward_ns;
  case PETRA_ACTION_BACKWARD:
    if (action->stage == executor->options->stages)
      return cost->forward_ns + cost->backward_ns;
    return cost->backward_ns + (executor->settings.recomputes ? cost->reconstruct_ns : 0);
  case PETRA_ACTION_UPDATE:
    return cost->update_ns;
  case PETRA_ACTION_EVALUATE:
  case PETRA_ACTION_KINDS:
    break;
  }
  return 0;
}

static int engine_of(const executor_virtual *executor, const petra_action *action) {
  return executor->settings.engines == 2 && action->kind != PETRA_ACTION_FORWARD;
}

/* Reads the stage's order up to the next action of this engine. */
static void read_next(const executor_virtual *executor, int32_t stage, int index, engine *reader) {
  reader->waiting = false;
  for (;;) {
    petra_action action;
    int64_t round;
    if (!executor->program->next(executor->options, stage, &reader->cursor, &action, &round)) {
      reader->finished = true;
      return;
    }
    if (round != reader->round) {
      reader->round = round;
      reader->reading.round_start = reader->reading.order;
    }
    step current = reader->reading;
    current.action = action;
    reader->reading.order++;
    reader->reading.before[action.kind]++;
    if (engine_of(executor, &action) == index) {
      reader->next = current;
      reader->waiting = true;
      return;
    }
  }
}

/* Its messages have come. */
static bool fed(const executor_virtual *executor, const device *dev, const petra_action *action) {
  bool fused = action->stage == executor->options->stages;
  if (action->kind == PETRA_ACTION_FORWARD || (action->kind == PETRA_ACTION_BACKWARD && fused))
    return action->stage == 1 || action->microbatch < dev->forward_arrived;
  if (action->kind == PETRA_ACTION_BACKWARD)
    return action->microbatch < dev->backward_arrived;
  return true;
}

/* The rules of schedule/program.h. */
static bool ready(const executor_virtual *executor, const device *dev, const step *s) {
  const int64_t *done = dev->done;
  if (dev->done_total < s->round_start || !fed(executor, dev, &s->action))
    return false;
  switch (s->action.kind) {
  case PETRA_ACTION_FORWARD:
  case PETRA_ACTION_BACKWARD:
    return done[PETRA_ACTION_UPDATE] >= s->before[PETRA_ACTION_UPDATE];
  case PETRA_ACTION_UPDATE:
    return done[PETRA_ACTION_FORWARD] >= s->before[PETRA_ACTION_FORWARD] &&
           done[PETRA_ACTION_BACKWARD] >= s->before[PETRA_ACTION_BACKWARD];
  case PETRA_ACTION_EVALUATE:
    return dev->done_total >= s->order;
  case PETRA_ACTION_KINDS:
    break;
  }
  return false;
}

/* Starts everything that can start now and hands it to the worker as one group. */
static petra_status start_ready(executor_virtual *executor, petra_worker *worker) {
  int count = 0;
  for (int32_t stage = 1; stage <= executor->options->stages; stage++) {
    device *dev = &executor->devices[stage - 1];
    for (int e = 0; e < executor->settings.engines; e++) {
      engine *unit = &dev->engines[e];
      if (unit->busy || !unit->waiting || !ready(executor, dev, &unit->next))
        continue;
      executor->group[count] = unit->next.action;
      executor->started[count++] = unit;
    }
  }
  if (count == 0)
    return PETRA_OK;
  PETRA_TRY(worker->ops->perform(worker, executor->now_ns, executor->group, count, executor->results));
  for (int i = 0; i < count; i++) {
    engine *unit = executor->started[i];
    const petra_action *action = &executor->group[i];
    int64_t end_ns;
    if (__builtin_add_overflow(executor->now_ns, duration_ns(executor, action), &end_ns))
      return petra_fail(PETRA_SCHEDULE, "the virtual clock runs over after %g years: the costs are too large for a run of this length",
                        (double)executor->now_ns / 1e9 / 3600 / 24 / 365);
    unit->running = (petra_trace_row){*action, executor->now_ns, end_ns, executor->results[i]};
    unit->busy = true;
    read_next(executor, action->stage, engine_of(executor, action), unit);
    const petra_event event = {.time_ns = end_ns, .stage = action->stage,
                               .detail = engine_of(executor, action)};
    PETRA_TRY(petra_event_queue_push(executor->events, &event));
  }
  return PETRA_OK;
}

/* A message reaches the device of `stage`: they come in the order of microbatches. */
static petra_status arrive(executor_virtual *executor, int32_t stage, const petra_action *sent) {
  device *dev = &executor->devices[stage - 1];
  int64_t *arrived = sent->stage < stage ? &dev->forward_arrived : &dev->backward_arrived;
  if (sent->microbatch != *arrived) {
    char text[40];
    petra_action_print(sent, text, sizeof text);
    return petra_fail(PETRA_SCHEDULE, "%s comes out of order: stage %d expects microbatch %lld next", text, stage,
                      (long long)*arrived);
  }
  ++*arrived;
  return PETRA_OK;
}

static petra_status end_action(executor_virtual *executor, const petra_event *event, petra_trace_sink sink, void *context) {
  device *dev = &executor->devices[event->stage - 1];
  engine *unit = &dev->engines[event->detail];
  const petra_trace_row row = unit->running;
  unit->busy = false;
  dev->done[row.action.kind]++;
  dev->done_total++;
  if (row.action.kind == PETRA_ACTION_FORWARD)
    PETRA_TRY(arrive(executor, row.action.stage + 1, &row.action));
  if (row.action.kind == PETRA_ACTION_BACKWARD && row.action.stage > 1)
    PETRA_TRY(arrive(executor, row.action.stage - 1, &row.action));
  return sink ? sink(context, &row) : PETRA_OK;
}

/* Nothing runs any more: fine if every order is at its end, else the first that waits is named. */
static petra_status check_finished(const executor_virtual *executor) {
  for (int32_t stage = 1; stage <= executor->options->stages; stage++)
    for (int e = 0; e < executor->settings.engines; e++) {
      const engine *unit = &executor->devices[stage - 1].engines[e];
      if (unit->waiting) {
        char text[40];
        petra_action_print(&unit->next.action, text, sizeof text);
        return petra_fail(PETRA_SCHEDULE, "program %s: deadlock: %s waits for what never comes", executor->program->name, text);
      }
    }
  return PETRA_OK;
}

static petra_status run_events(executor_virtual *executor, petra_worker *worker, petra_trace_sink sink, void *context) {
  petra_event event;
  PETRA_TRY(start_ready(executor, worker));
  while (petra_event_queue_pop(executor->events, &event)) {
    executor->now_ns = event.time_ns;
    PETRA_TRY(end_action(executor, &event, sink, context));
    if (petra_event_queue_time(executor->events) > executor->now_ns)
      PETRA_TRY(start_ready(executor, worker));
  }
  return check_finished(executor);
}

static petra_status run(petra_executor *base, const petra_program_ops *program, const petra_program_options *options,
                        petra_worker *worker, petra_trace_sink sink, void *context) {
  executor_virtual *executor = (executor_virtual *)base;
  petra_status status;
  size_t stages = (size_t)options->stages;
  executor->program = program;
  executor->options = options;
  executor->now_ns = 0;
  PETRA_TRY_GOTO(status, petra_allocate(&executor->devices, stages, sizeof *executor->devices), done);
  PETRA_TRY_GOTO(status, petra_allocate(&executor->group, ENGINES * stages, sizeof *executor->group), done);
  PETRA_TRY_GOTO(status, petra_allocate(&executor->results, ENGINES * stages, sizeof *executor->results), done);
  PETRA_TRY_GOTO(status, petra_allocate(&executor->started, ENGINES * stages, sizeof *executor->started), done);
  PETRA_TRY_GOTO(status, petra_event_queue_create(&executor->events), done);
  for (int32_t stage = 1; stage <= options->stages; stage++)
    for (int e = 0; e < executor->settings.engines; e++)
      read_next(executor, stage, e, &executor->devices[stage - 1].engines[e]);
  status = run_events(executor, worker, sink, context);
done:
  petra_event_queue_destroy(executor->events);
  petra_free(executor->started);
  petra_free(executor->results);
  petra_free(executor->group);
  petra_free(executor->devices);
  executor->events = NULL;
  executor->started = NULL;
  executor->results = NULL;
  executor->group = NULL;
  executor->devices = NULL;
  return status;
}

static int64_t now_ns(const petra_executor *base) {
  return ((const executor_virtual *)base)->now_ns;
}

static void destroy(petra_executor *base) {
  petra_free(base);
}

petra_status petra_executor_virtual_create(const petra_executor_virtual_options *options, petra_executor **out) {
  static const petra_executor_ops ops = {.run = run, .now_ns = now_ns, .destroy = destroy};
  executor_virtual *executor;
  PETRA_TRY(petra_allocate(&executor, 1, sizeof *executor));
  executor->base.ops = &ops;
  executor->settings = *options;
  *out = &executor->base;
  return PETRA_OK;
}
