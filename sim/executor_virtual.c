/* SPDX-License-Identifier: Apache-2.0 */
#include "sim/executor_virtual.h"

#include "base/log.h"
#include "base/mem.h"
#include "sim/executor_virtual_private.h"

#include <math.h>
#include <string.h>

static void mark_dirty(petra_executor_virtual *executor, int32_t device) {
  if (executor->device[device].dirty)
    return;
  executor->device[device].dirty = true;
  executor->dirty[executor->dirty_count++] = device;
}

/* Returns how much of a B's recomputation was done, or is not needed, before the B starts (rule.early). */
static int64_t done_early_ns(const petra_executor_virtual *executor, const petra_engine *engine,
                             const petra_action *action) {
  const petra_cost_rule *rule = &executor->settings.rule;
  if (!rule->early || !rule->recomputes || action->kind != PETRA_ACTION_BACKWARD ||
      petra_program_fused(executor->options, action->stage))
    return 0;
  int64_t recompute_ns = petra_executor_virtual_cost(&executor->settings, action->stage)->reconstruct_ns,
          idle_ns = executor->now_ns - engine->free_ns;
  bool kept = action->microbatch % executor->options->accumulate == 0;
  return kept || idle_ns > recompute_ns ? recompute_ns : idle_ns;
}

/* Locked programs: makes the engine wait for the round of its next action, if its order has more actions. */
static petra_status park(petra_executor_virtual *executor, int32_t device, int index) {
  petra_engine *engine = &executor->device[device].engines[index];
  const petra_event event = {.time_ns = engine->round, .stage = device, .detail = index};
  engine->parked = engine->waiting;
  return engine->waiting ? petra_event_queue_push(executor->parked, &event) : PETRA_OK;
}

/* Locked programs: the current round is finished, so the next round in which an engine has an action begins. */
static void begin_round(petra_executor_virtual *executor) {
  petra_event event;
  executor->round = petra_event_queue_time(executor->parked);
  while (petra_event_queue_time(executor->parked) == executor->round &&
         petra_event_queue_pop(executor->parked, &event)) {
    executor->device[event.stage].engines[event.detail].parked = false;
    executor->engines_left++;
    mark_dirty(executor, event.stage);
  }
}

/* Locked programs: records that an action has ended. */
static petra_status count_round(petra_executor_virtual *executor, int32_t device, int index) {
  const petra_engine *engine = &executor->device[device].engines[index];
  if (engine->waiting && engine->round == executor->round)
    return PETRA_OK;
  PETRA_TRY(park(executor, device, index));
  if (--executor->engines_left == 0)
    begin_round(executor);
  return PETRA_OK;
}

/* Gets the duration of an action that starts now, unless its worker measures it. */
static petra_status price(const petra_executor_virtual *executor, const petra_engine *engine,
                          const petra_action *action, int64_t *out) {
  const int64_t cost = executor->duration_ns[action->stage - 1][action->kind] - done_early_ns(executor, engine, action);
  if (executor->settings.jitter)
    return petra_jitter_duration(executor->settings.jitter, executor->quantiles, action->stage, (int)action->kind,
                                 action->microbatch, cost, out);
  *out = cost;
  return PETRA_OK;
}

/* Returns how long a step lasts; part_ns[] are the durations of its actions. The time that overlaps is subtracted from
 * the duration of the shorter part, so that the sum of the parts is the duration of the step. */
static int64_t step_ns(const petra_executor_virtual *executor, const petra_action *actions, int count,
                       int64_t *part_ns) {
  int64_t sum_ns[2] = {0, 0}, whole_ns; /* of B and W; of F */
  if (count == 1)
    return part_ns[0];
  for (int i = 0; i < count; i++)
    if (__builtin_add_overflow(sum_ns[actions[i].kind == PETRA_ACTION_FORWARD], part_ns[i],
                               &sum_ns[actions[i].kind == PETRA_ACTION_FORWARD]))
      return INT64_MAX;
  const bool shorter = sum_ns[1] < sum_ns[0];
  int64_t hidden_ns = llround(executor->settings.overlap * (double)sum_ns[shorter]);
  if (__builtin_add_overflow(sum_ns[0], sum_ns[1] - hidden_ns, &whole_ns))
    return INT64_MAX;
  for (int i = 0; i < count && hidden_ns > 0; i++) {
    if ((actions[i].kind == PETRA_ACTION_FORWARD) != shorter)
      continue;
    const int64_t share_ns = llround((double)hidden_ns * (double)part_ns[i] / (double)sum_ns[shorter]);
    sum_ns[shorter] -= part_ns[i];
    part_ns[i] -= share_ns;
    hidden_ns -= share_ns;
  }
  return whole_ns;
}

/* Notifies the worker of the parts of a step. */
static void price_parts(petra_executor_virtual *executor, int first, int count) {
  int64_t part_ns[PETRA_STEP_ACTIONS];
  memcpy(part_ns, &executor->prices_ns[first], (size_t)count * sizeof *part_ns);
  step_ns(executor, &executor->group[first], count, part_ns);
  for (int i = 0; i < count; i++)
    executor->results[first + i].priced_ns = part_ns[i];
}

/* Starts a step of `count` actions, or one action, on its engine. */
static petra_status occupy(petra_executor_virtual *executor, const petra_action *actions,
                           const petra_action_result *results, const int64_t *prices_ns, int count) {
  int32_t device = petra_program_device(executor->options, actions->stage) - 1;
  int index = petra_engine_of(executor, actions->kind);
  petra_engine *engine = &executor->device[device].engines[index];
  int64_t part_ns[PETRA_STEP_ACTIONS], end_ns;
  for (int i = 0; i < count; i++)
    part_ns[i] = results[i].measured_ns > 0 ? results[i].measured_ns : prices_ns[i];
  const int64_t duration_ns = step_ns(executor, actions, count, part_ns);
  if (__builtin_add_overflow(executor->now_ns, duration_ns, &end_ns) || end_ns > PETRA_LATEST_NS - executor->skipped_ns)
    return petra_fail(PETRA_SCHEDULE, "the virtual clock would pass %lld s; expected cheaper or fewer actions",
                      (long long)(PETRA_LATEST_NS / 1000000000));
  for (int i = 0; i < count; i++)
    *(i == 0 ? &engine->running : &executor->device[device].joined[i - 1]) =
        (petra_trace_row){actions[i], executor->now_ns, end_ns, results[i], .shared_ns = duration_ns - part_ns[i]};
  executor->totals.counts[device].busy_ns += duration_ns;
  const petra_event event = {
      .time_ns = end_ns, .priority = 2, .kind = PETRA_EVENT_END, .stage = device, .detail = index};
  return petra_event_queue_push(executor->events, &event);
}

static void count_forward(petra_executor_virtual *executor, int32_t device, const petra_action *action) {
  petra_device *dev = &executor->device[device];
  bool fused = action->kind == PETRA_ACTION_BACKWARD && petra_program_fused(executor->options, action->stage);
  if (action->kind != PETRA_ACTION_FORWARD && !fused)
    return;
  if (++dev->in_flight > executor->totals.counts[device].in_flight_max)
    executor->totals.counts[device].in_flight_max = dev->in_flight;
  if (++dev->kept > executor->totals.counts[device].kept_max)
    executor->totals.counts[device].kept_max = dev->kept;
  /* A microbatch is in flight from its forward at stage 1 to its backward there. */
  int64_t maximum = 2 * (2 * (int64_t)executor->options->stages - 1);
  if (executor->program->arrival && action->stage == 1 && dev->in_flight > maximum && executor->totals.runaway < 0)
    executor->totals.runaway = action->microbatch + executor->totals.skipped_microbatches;
}

/* Starts everything that can start now on the devices at which something happened. */
static petra_status start_ready(petra_executor_virtual *executor, petra_worker *worker) {
  int count = 0;
  for (int32_t i = 0; i < executor->dirty_count; i++) {
    int32_t device = executor->dirty[i];
    petra_device *dev = &executor->device[device];
    dev->dirty = false;
    for (int e = 0; e < executor->settings.engines; e++) {
      petra_engine *engine = &dev->engines[e];
      petra_action *action = &executor->group[count];
      int actions = 1;
      if (engine->busy || engine->parked)
        continue;
      if (executor->arrival) {
        if (!petra_arrival_choose(executor, device, e, action))
          continue;
        engine->running.action = *action;
      } else {
        if (!engine->waiting || !petra_device_ready(executor, dev, &engine->next))
          continue;
        if (executor->hosts && !petra_host_may_start(executor, device, e))
          continue;
        actions = engine->next.count;
        memcpy(action, engine->next.action, (size_t)actions * sizeof *action);
        petra_device_read(executor, device, e, engine);
        if (executor->hosts)
          petra_host_started(executor, device, e, action->kind);
      }
      engine->busy = true;
      engine->running_count = actions;
      for (; actions > 0; actions--, count++) {
        count_forward(executor, device, &executor->group[count]);
        PETRA_TRY(price(executor, engine, &executor->group[count], &executor->prices_ns[count]));
        executor->results[count] = (petra_action_result){-1, -1, .priced_ns = executor->prices_ns[count]};
      }
      if (engine->running_count > 1)
        price_parts(executor, count - engine->running_count, engine->running_count);
    }
  }
  executor->dirty_count = 0;
  if (executor->hosts)
    PETRA_TRY(petra_hosts_serve(executor));
  if (count == 0)
    return PETRA_OK;
  PETRA_NOTIFY(petra_observer, executor->observers, starting, observer, executor->now_ns, executor->group, count);
  PETRA_TRY(worker->ops->perform(worker, executor->now_ns, executor->group, count, executor->results));
  PETRA_NOTIFY(petra_observer, executor->observers, started, observer, executor->now_ns, executor->group,
               executor->results, count);
  for (int i = 0, actions; i < count; i += actions) {
    const petra_action *first = &executor->group[i];
    const petra_device *dev = &executor->device[petra_program_device(executor->options, first->stage) - 1];
    actions = dev->engines[petra_engine_of(executor, first->kind)].running_count;
    PETRA_TRY(occupy(executor, first, &executor->results[i], &executor->prices_ns[i], actions));
  }
  return PETRA_OK;
}

static petra_status deliver(petra_executor_virtual *executor, const petra_packet *packet) {
  mark_dirty(executor, petra_program_device(executor->options, packet->stage) - 1);
  if (packet->exchange) {
    executor->exchanges[packet->stage - 1].done = true;
    return PETRA_OK;
  }
  if (executor->arrival)
    return petra_arrival_message(executor, packet);
  petra_microbatch_set *arrived = &(packet->backward ? executor->backward : executor->forward)[packet->stage - 1];
  if (petra_microbatch_set_has(arrived, packet->microbatch))
    return petra_fail(PETRA_SCHEDULE, "a message of microbatch %lld arrives twice", (long long)packet->microbatch);
  return petra_microbatch_set_put(arrived, packet->microbatch);
}

static petra_status send(petra_executor_virtual *executor, const petra_action *action, int32_t to, int64_t bytes) {
  const petra_packet packet = {.stage = to, .backward = to < action->stage, .microbatch = action->microbatch};
  int32_t source = petra_program_device(executor->options, action->stage) - 1;
  int32_t target = petra_program_device(executor->options, to) - 1;
  bool arrived;
  PETRA_TRY(petra_fabric_send(executor->fabric, executor->now_ns, source, target, bytes, &packet, &arrived));
  if (arrived)
    return deliver(executor, &packet);
  PETRA_NOTIFY(petra_observer, executor->observers, sent, observer, action->stage, &packet, executor->now_ns);
  return PETRA_OK;
}

/* Sends the messages that follow from the end of an action. */
static petra_status send_results(petra_executor_virtual *executor, const petra_action *action) {
  int32_t stage = action->stage;
  if (action->kind == PETRA_ACTION_FORWARD && stage < executor->options->stages)
    PETRA_TRY(
        send(executor, action, stage + 1, petra_executor_virtual_cost(&executor->settings, stage)->forward_bytes));
  if (action->kind == PETRA_ACTION_BACKWARD && petra_program_sends_down(executor->options, stage))
    return send(executor, action, stage - 1, petra_executor_virtual_cost(&executor->settings, stage)->backward_bytes);
  /* The B of a split head, or of a stage with a head of its own, waits for its own loss. */
  if (action->kind == PETRA_ACTION_FORWARD && petra_program_has_loss(executor->options, stage)) {
    const petra_packet own = {.stage = stage, .backward = true, .microbatch = action->microbatch};
    return deliver(executor, &own);
  }
  return PETRA_OK;
}

static petra_status end_action(petra_executor_virtual *executor, int32_t device, const petra_trace_row *row) {
  petra_device *dev = &executor->device[device];
  dev->done++;
  executor->totals.actions++;
  executor->totals.counts[device].actions++;
  if (row->action.kind == PETRA_ACTION_UPDATE)
    dev->updates++;
  else if (row->action.kind != PETRA_ACTION_EVALUATE)
    dev->passes++;
  if (row->action.kind == PETRA_ACTION_BACKWARD) {
    dev->in_flight--;
    executor->returned += row->action.stage == 1;
  }
  dev->kept -= row->action.kind ==
               (executor->settings.rule.split_backward ? PETRA_ACTION_WEIGHT_GRADIENT : PETRA_ACTION_BACKWARD);
  if (executor->arrival)
    petra_arrival_ended(executor, &row->action);
  PETRA_TRY(send_results(executor, &row->action));
  if (executor->exchanges)
    PETRA_TRY(petra_exchange_count(executor, &row->action));
  PETRA_NOTIFY(petra_observer, executor->observers, ended, observer, row);
  return PETRA_OK;
}

static petra_status end_step(petra_executor_virtual *executor, const petra_event *event) {
  petra_engine *engine = &executor->device[event->stage].engines[event->detail];
  engine->busy = false;
  engine->free_ns = executor->last_end_ns = executor->now_ns;
  mark_dirty(executor, event->stage);
  if (executor->parked)
    PETRA_TRY(count_round(executor, event->stage, event->detail));
  PETRA_TRY(end_action(executor, event->stage, &engine->running));
  for (int i = 1; i < engine->running_count; i++)
    PETRA_TRY(end_action(executor, event->stage, &executor->device[event->stage].joined[i - 1]));
  return PETRA_OK;
}

/* Called when nothing runs any more. This is fine if every order is at its end; otherwise the error names the first
 * action that waits. */
static petra_status check_finished(const petra_executor_virtual *executor) {
  for (int32_t d = 0; d < executor->devices; d++)
    for (int e = 0; e < executor->settings.engines; e++) {
      const petra_engine *engine = &executor->device[d].engines[e];
      const petra_action *action = &engine->next.action[0];
      if (engine->waiting && action->kind == PETRA_ACTION_UPDATE && !petra_exchange_done(executor, action->stage))
        return petra_fail(PETRA_SCHEDULE,
                          "stage %d: an update after %lld gradients; expected %lld (method.accumulate) with "
                          "cluster.replicas",
                          action->stage, (long long)executor->exchanges[action->stage - 1].gradients,
                          (long long)executor->options->accumulate);
      if (engine->waiting) {
        char text[40];
        petra_action_print(action, text, sizeof text);
        return petra_fail(PETRA_SCHEDULE, "program %s: deadlock: %s waits for something that never happens",
                          executor->program->name, text);
      }
    }
  return PETRA_OK;
}

static petra_status run_events(petra_executor_virtual *executor, petra_worker *worker) {
  petra_event event;
  for (int32_t d = 0; d < executor->devices; d++)
    mark_dirty(executor, d);
  PETRA_TRY(start_ready(executor, worker));
  while (petra_event_queue_pop(executor->events, &event)) {
    executor->now_ns = event.time_ns;
    if (event.kind == PETRA_EVENT_END) {
      PETRA_TRY(end_step(executor, &event));
    } else if (event.kind == PETRA_EVENT_HOST) {
      mark_dirty(executor, event.stage / executor->settings.engines);
      PETRA_TRY(petra_host_issued(executor, event.stage));
    } else {
      petra_packet packet;
      bool arrived;
      PETRA_TRY(petra_fabric_event(executor->fabric, &event, &packet, &arrived));
      if (arrived) {
        PETRA_NOTIFY(petra_observer, executor->observers, arrived, observer, &packet, executor->now_ns);
        PETRA_TRY(deliver(executor, &packet));
      }
    }
    if (petra_event_queue_time(executor->events) > executor->now_ns) {
      PETRA_TRY(start_ready(executor, worker));
      if (executor->cycle_search)
        PETRA_TRY(petra_cycle_search_look(executor, worker));
    }
  }
  PETRA_TRY(petra_worker_finish(worker));
  executor->now_ns = executor->last_end_ns; /* messages for which nothing waits may have arrived later */
  return check_finished(executor);
}

static petra_status begin_run(petra_executor_virtual *executor) {
  size_t stages = (size_t)executor->options->stages, devices = (size_t)executor->devices;
  petra_fabric_options fabric = executor->settings.fabric;
  if (executor->settings.cost_count != 1 && executor->settings.cost_count != executor->options->stages)
    return petra_fail(PETRA_SCHEDULE, "costs of %d stages for a program of %d", executor->settings.cost_count,
                      executor->options->stages);
  petra_free(executor->totals.counts);
  executor->totals = (petra_virtual_totals){.runaway = -1};
  fabric.devices = executor->devices;
  fabric.device_of = executor->options->device_of;
  fabric.stages = executor->options->stages;
  fabric.event_kind = PETRA_EVENT_NETWORK;
  fabric.replicas = executor->settings.replicas > 1;
  executor->now_ns = executor->last_end_ns = executor->skipped_ns = executor->returned = 0;
  PETRA_TRY(petra_event_queue_create(&executor->events));
  PETRA_TRY(petra_fabric_create(&fabric, executor->events, &executor->fabric));
  PETRA_TRY(petra_allocate(&executor->totals.counts, devices, sizeof *executor->totals.counts));
  PETRA_TRY(petra_allocate(&executor->device, devices, sizeof *executor->device));
  PETRA_TRY(petra_allocate(&executor->forward, stages, sizeof *executor->forward));
  PETRA_TRY(petra_allocate(&executor->backward, stages, sizeof *executor->backward));
  if (fabric.replicas)
    PETRA_TRY(petra_allocate(&executor->exchanges, stages, sizeof *executor->exchanges));
  PETRA_TRY(petra_allocate(&executor->dirty, devices, sizeof *executor->dirty));
  PETRA_TRY(petra_allocate(&executor->group, PETRA_STEP_ACTIONS * devices, sizeof *executor->group));
  PETRA_TRY(petra_allocate(&executor->results, PETRA_STEP_ACTIONS * devices, sizeof *executor->results));
  PETRA_TRY(petra_allocate(&executor->prices_ns, PETRA_STEP_ACTIONS * devices, sizeof *executor->prices_ns));
  PETRA_TRY(petra_cost_all_durations(executor->costs, executor->settings.cost_count, &executor->settings.rule,
                                     executor->options->stages, &executor->duration_ns));
  if (executor->settings.jitter)
    PETRA_TRY(petra_jitter_quantiles_create(executor->settings.jitter, &executor->quantiles));
  if (executor->program->arrival)
    return petra_arrival_create(executor);
  if (executor->program->locked)
    PETRA_TRY(petra_event_queue_create(&executor->parked));
  for (int32_t d = 0; d < executor->devices; d++)
    for (int e = 0; e < executor->settings.engines; e++) {
      petra_device_read(executor, d, e, &executor->device[d].engines[e]);
      if (executor->parked)
        PETRA_TRY(park(executor, d, e));
    }
  if (executor->parked)
    begin_round(executor);
  return executor->settings.host.devices > 0 ? petra_hosts_create(executor) : PETRA_OK;
}

static void end_run(petra_executor_virtual *executor) {
  for (int32_t s = 0; s < executor->options->stages; s++) {
    if (executor->forward)
      petra_microbatch_set_fini(&executor->forward[s]);
    if (executor->backward)
      petra_microbatch_set_fini(&executor->backward[s]);
  }
  petra_cycle_search_destroy(executor->cycle_search);
  petra_arrival_destroy(executor->arrival);
  petra_hosts_destroy(executor->hosts);
  PETRA_FREE_ALL(executor->quantiles, executor->duration_ns, executor->prices_ns, executor->results, executor->group,
                 executor->dirty, executor->exchanges, executor->backward, executor->forward, executor->device);
  petra_event_queue_destroy(executor->parked);
  petra_fabric_destroy(executor->fabric);
  petra_event_queue_destroy(executor->events);
  /* Keeps the values that can be queried after a run. */
  *executor = (petra_executor_virtual){.base = executor->base,
                                       .settings = executor->settings,
                                       .now_ns = executor->now_ns,
                                       .skipped_ns = executor->skipped_ns,
                                       .totals = executor->totals};
}

static petra_status run(petra_executor *base, const petra_program_ops *program, const petra_program_options *options,
                        petra_worker *worker, petra_observer *observers) {
  petra_executor_virtual *executor = (petra_executor_virtual *)base;
  executor->observers = observers;
  executor->program = program;
  executor->options = options;
  executor->devices = petra_program_devices(options);
  petra_status status = begin_run(executor);
  if (status == PETRA_OK)
    status = petra_cycle_search_create(executor, worker);
  if (status == PETRA_OK)
    status = run_events(executor, worker);
  executor->totals.host_ns = executor->hosts ? petra_hosts_busy_ns(executor->hosts) : 0;
  end_run(executor);
  return status;
}

static int64_t now_ns(const petra_executor *base) {
  const petra_executor_virtual *executor = (const petra_executor_virtual *)base;
  return executor->now_ns + executor->skipped_ns;
}

static void destroy(petra_executor *base) {
  petra_executor_virtual *executor = (petra_executor_virtual *)base;
  PETRA_FREE_ALL(executor->totals.counts, executor);
}

petra_status petra_executor_virtual_create(const petra_executor_virtual_options *options, petra_executor **out) {
  static const petra_executor_ops ops = {.run = run, .now_ns = now_ns, .destroy = destroy};
  petra_executor_virtual *executor;
  const size_t bytes = (size_t)options->cost_count * sizeof *executor->costs;
  PETRA_TRY(petra_allocate(&executor, 1, sizeof *executor + bytes));
  executor->base.ops = &ops;
  executor->settings = *options;
  executor->settings.costs = executor->costs;
  memcpy(executor->costs, options->costs, bytes);
  *out = &executor->base;
  return PETRA_OK;
}

const petra_virtual_totals *petra_executor_virtual_totals(const petra_executor *executor) {
  return &((const petra_executor_virtual *)executor)->totals;
}
