/* SPDX-License-Identifier: Apache-2.0 */
/* Skips whole periods of a run. If every duration is constant, a pipeline soon repeats itself: the state of all its
 * parts at one moment is the state at an earlier moment, later by a number of microbatches. Skipped periods reduce the
 * number of microbatches that the run executes, and what they would have added is added to its totals and its clock.
 * Evaluations, and the end of the run, are not skipped. The result is exact (docs/semantics/time.md). */
#include "sim/executor_virtual_private.h"

#include "base/mem.h"

struct petra_cycle_search {
  petra_program_options options; /* the options of the run, without the skipped microbatches */
  petra_cycle cycle;
  int64_t looked, next_look; /* value of executor->returned at the last look, and at the next one */
  bool recorded;
  int64_t recorded_ns, recorded_microbatch;
  int64_t looks, looks_max; /* looks since the recorded moment; after looks_max looks the moment is replaced */
  int64_t failures;         /* looks since a moment was last like the recorded one */
  int64_t growth, front;    /* COMPARE: growth of the cursors' rounds, -1: not known yet; the largest round */
  int64_t evaluation;       /* COMPARE: the microbatch whose evaluation prevents skipping a period; -1: none */
  int64_t room;             /* the number of microbatches before an evaluation in which no period can be skipped */
  bool longer;              /* the next look is for a period of whole epochs between evaluations */
  bool no_longer;           /* such a look has failed */
};

petra_status petra_cycle_search_create(petra_executor_virtual *executor, const petra_worker *worker) {
  const petra_program_options *options = executor->options;
  const int64_t fill = options->accumulate > options->stages ? options->accumulate : options->stages;
  if (!executor->program->repeats || executor->settings.jitter || !worker->ops->state)
    return PETRA_OK;
  if (options->microbatches - options->warmup <= 4 * fill) /* too short to repeat itself often */
    return PETRA_OK;
  for (const petra_observer *o = executor->observers; o; o = o->next)
    if (!o->ops->state)
      return PETRA_OK;
  PETRA_TRY(petra_allocate(&executor->cycle_search, 1, sizeof *executor->cycle_search));
  executor->cycle_search->options = *executor->options;
  executor->options = &executor->cycle_search->options;
  return PETRA_OK;
}

void petra_cycle_search_destroy(petra_cycle_search *search) {
  if (search)
    petra_cycle_fini(&search->cycle);
  petra_free(search);
}

/* --- the state --- */

/* The rounds of all cursors grow by the same amount. */
static void give_round(petra_cycle_search *search, int64_t round) {
  const int64_t growth = petra_cycle_growth(&search->cycle, round);
  if (search->cycle.pass != PETRA_CYCLE_COMPARE)
    return;
  if (search->growth >= 0 && growth != search->growth)
    search->cycle.alike = false;
  search->growth = growth;
  if (round > search->front)
    search->front = round;
}

static void give_action(const petra_action *action, petra_cycle *cycle) {
  petra_cycle_value(cycle, PETRA_ACTION_KINDS * (int64_t)action->stage + (int64_t)action->kind);
  petra_cycle_microbatch(cycle, action->microbatch);
}

static void give_counters(const petra_counters *counters, const petra_device *device, petra_cycle *cycle) {
  petra_cycle_value(cycle, counters->order - device->done);
  petra_cycle_value(cycle, counters->round_start > device->done ? counters->round_start - device->done : 0);
  petra_cycle_value(cycle, counters->updates_before - device->updates);
  petra_cycle_value(cycle, counters->passes_before - device->passes);
}

/* An engine that waits for nothing is at the end of its order. */
void petra_engine_state(petra_executor_virtual *executor, const petra_engine *engine, int32_t device,
                        petra_cycle *cycle) {
  const petra_device *dev = &executor->device[device];
  petra_cycle_value(cycle, 4 * engine->waiting + 2 * engine->busy + engine->parked);
  petra_cycle_value(cycle, engine->waiting ? engine->next.count : 0);
  petra_cycle_value(cycle, engine->busy ? engine->running_count : 0);
  if (engine->waiting) {
    give_round(executor->cycle_search, engine->cursor.round);
    petra_cycle_value(cycle, 4 * (int64_t)engine->cursor.step + 2 * engine->cursor.warm + engine->cursor.joined);
    petra_cycle_value(cycle, engine->round - executor->device[0].engines[executor->settings.engines - 1].round);
    give_counters(&engine->reading, dev, cycle);
    give_counters(&engine->next.before, dev, cycle);
    for (int i = 0; i < engine->next.count; i++)
      give_action(&engine->next.action[i], cycle);
  }
  if (executor->settings.rule.early)
    petra_cycle_time(cycle, engine->free_ns);
  if (!engine->busy)
    return;
  petra_cycle_time(cycle, engine->running.end_ns);
  give_action(&engine->running.action, cycle);
  for (int i = 1; i < engine->running_count; i++)
    give_action(&dev->joined[i - 1].action, cycle);
}

static void give_device(petra_executor_virtual *executor, int32_t d, petra_cycle *cycle) {
  petra_device_counts *counts = &executor->totals.counts[d];
  for (int e = 0; e < executor->settings.engines; e++)
    petra_engine_state(executor, &executor->device[d].engines[e], d, cycle);
  petra_cycle_value(cycle, executor->device[d].in_flight);
  petra_cycle_value(cycle, executor->device[d].kept);
  petra_cycle_total(cycle, counts->busy_ns, &counts->busy_ns);
  petra_cycle_total(cycle, counts->actions, &counts->actions);
}

static void give_event(petra_cycle *cycle, const void *context, const petra_event *event) {
  const petra_executor_virtual *executor = context;
  if (event->kind == PETRA_EVENT_NETWORK && !petra_fabric_event_state(executor->fabric, event, cycle))
    return;
  petra_cycle_time(cycle, event->time_ns);
  petra_cycle_value(cycle, PETRA_EVENT_PRIORITIES * (int64_t)event->kind + event->priority);
  petra_cycle_value(cycle, event->stage);
  petra_cycle_value(cycle, event->detail);
}

static void give_parked(petra_cycle *cycle, const void *context, const petra_event *event) {
  petra_cycle_value(cycle, event->time_ns - ((const petra_executor_virtual *)context)->round);
  petra_cycle_value(cycle, PETRA_ENGINES * (int64_t)event->stage + event->detail);
}

/* A comparison usually fails at an engine, and always ends there. */
static void give_state(petra_executor_virtual *executor, petra_worker *worker, petra_cycle *cycle) {
  for (int32_t d = 0; d < executor->devices && cycle->alike; d++)
    give_device(executor, d, cycle);
  if (!cycle->alike)
    return;
  petra_cycle_total(cycle, executor->totals.actions, &executor->totals.actions);
  for (int32_t j = 0; j < executor->options->stages && cycle->alike; j++) {
    petra_microbatch_set_state(&executor->forward[j], cycle);
    petra_microbatch_set_state(&executor->backward[j], cycle);
    if (executor->exchanges)
      petra_cycle_value(cycle, 2 * executor->exchanges[j].gradients + executor->exchanges[j].done);
  }
  if (executor->arrival)
    petra_arrival_state(executor, cycle);
  if (executor->hosts)
    petra_hosts_state(executor, cycle);
  if (executor->parked) {
    petra_cycle_value(cycle, executor->engines_left);
    petra_cycle_value(cycle, executor->round - executor->device[0].engines[executor->settings.engines - 1].round);
    petra_cycle_queue(cycle, executor->parked, give_parked, executor);
  }
  petra_cycle_queue(cycle, executor->events, give_event, executor);
  petra_fabric_state(executor->fabric, cycle);
  worker->ops->state(worker, cycle);
  for (petra_observer *o = executor->observers; o; o = o->next)
    o->ops->state(o, cycle);
}

/* --- looks --- */

static petra_status record(petra_executor_virtual *executor, petra_worker *worker) {
  petra_cycle_search *search = executor->cycle_search;
  petra_cycle_begin(&search->cycle, PETRA_CYCLE_RECORD, executor->now_ns, executor->returned);
  give_state(executor, worker, &search->cycle);
  search->recorded = true;
  search->recorded_ns = executor->now_ns;
  search->recorded_microbatch = executor->returned;
  search->looks = 0;
  return search->cycle.status;
}

/* Gets the number of microbatches between evaluations; returns false if there are none. */
static bool evaluation_interval(const petra_program_options *options, int64_t *every) {
  return options->eval_every > 0 && !__builtin_mul_overflow(options->eval_every, options->batches, every);
}

/* Returns the number of the first microbatch, from the oldest in flight on, that ends an epoch with an evaluation. */
static int64_t next_evaluation(const petra_cycle_search *search, int64_t every) {
  const int64_t oldest = search->recorded_microbatch - 1 + search->options.skipped;
  return (oldest / every + 1) * every - 1 - search->options.skipped;
}

/* Bounds the number of periods by the end of the run and the next evaluation: no device may have read an action of the
 * last period before them. */
static void restrict_by_order(petra_executor_virtual *executor, int64_t growth) {
  petra_cycle_search *search = executor->cycle_search;
  const petra_program_options *options = &search->options;
  const int64_t unit = executor->arrival || search->growth == growth ? 1 : options->accumulate;
  const int64_t front =
      executor->arrival ? petra_arrival_offered(executor) : options->warmup + (search->front + 1) * unit;
  int64_t every;
  petra_cycle_restrict(&search->cycle, growth, options->microbatches - front - growth - unit);
  if (!evaluation_interval(options, &every) || growth % every == 0)
    return;
  const int64_t evaluation = next_evaluation(search, every);
  petra_cycle_restrict(&search->cycle, growth, evaluation - front - growth - unit);
  search->room = front + 2 * growth + unit - executor->returned;
  if (evaluation - front - growth - unit < growth)
    search->evaluation = evaluation;
}

static void skip(petra_executor_virtual *executor, petra_worker *worker, int64_t growth, int64_t growth_ns) {
  petra_cycle_search *search = executor->cycle_search;
  petra_cycle *cycle = &search->cycle;
  cycle->skipped_ns = cycle->periods * growth_ns;
  cycle->skipped_microbatches = cycle->periods * growth;
  petra_cycle_begin(cycle, PETRA_CYCLE_SKIP, executor->now_ns, executor->returned);
  give_state(executor, worker, cycle);
  executor->skipped_ns += cycle->skipped_ns;
  executor->totals.skipped_microbatches += cycle->skipped_microbatches;
  search->options.microbatches -= cycle->skipped_microbatches;
  search->options.skipped += cycle->skipped_microbatches;
}

/* Compares the state with the recorded moment. *alike: the state is the same. */
static petra_status compare(petra_executor_virtual *executor, petra_worker *worker, bool *alike) {
  petra_cycle_search *search = executor->cycle_search;
  petra_cycle *cycle = &search->cycle;
  const int64_t growth = executor->returned - search->recorded_microbatch;
  const int64_t growth_ns = executor->now_ns - search->recorded_ns;
  search->growth = search->front = search->evaluation = -1;
  petra_cycle_begin(cycle, PETRA_CYCLE_COMPARE, executor->now_ns, executor->returned);
  give_state(executor, worker, cycle);
  *alike = cycle->alike && cycle->place == cycle->state.count;
  if (!executor->arrival && search->growth != growth && search->growth * search->options.accumulate != growth)
    *alike = false;
  if (cycle->status != PETRA_OK || !*alike)
    return cycle->status;
  restrict_by_order(executor, growth);
  petra_cycle_restrict(cycle, growth_ns, PETRA_LATEST_NS - growth_ns - executor->now_ns - executor->skipped_ns);
  if (cycle->periods > 0)
    skip(executor, worker, growth, growth_ns);
  return PETRA_OK;
}

static int64_t common_divisor(int64_t a, int64_t b) {
  while (b != 0) {
    const int64_t rest = a % b;
    a = b;
    b = rest;
  }
  return a;
}

/* Chooses the next look if an evaluation prevents skipping a period. The least common multiple of the period and the
 * interval between evaluations is a longer period, which contains the same evaluations each time. If simulating this
 * period pays, the recorded moment is kept for it. Otherwise the search restarts after the evaluation. */
static void pass_evaluation(petra_executor_virtual *executor) {
  petra_cycle_search *search = executor->cycle_search;
  const int64_t growth = executor->returned - search->recorded_microbatch;
  const int64_t left = search->options.microbatches - executor->returned;
  int64_t every = 1, period;
  evaluation_interval(&search->options, &every);
  const int64_t performed = left / every * (search->room < every ? search->room : every); /* without such a period */
  search->longer = !search->no_longer &&
                   !__builtin_mul_overflow(growth / common_divisor(growth, every), every, &period) &&
                   period < performed / 4;
  search->recorded = search->longer;
  search->next_look = search->longer ? search->recorded_microbatch + period : search->evaluation + 2;
}

petra_status petra_cycle_search_look(petra_executor_virtual *executor, petra_worker *worker) {
  petra_cycle_search *search = executor->cycle_search;
  bool alike = false;
  if (executor->returned == search->looked || executor->returned < search->next_look ||
      executor->returned % search->options.accumulate != 0 || executor->returned < search->options.warmup)
    return PETRA_OK;
  search->looked = executor->returned;
  if (search->recorded)
    PETRA_TRY(compare(executor, worker, &alike));
  search->no_longer |= search->longer && !alike;
  search->longer = false;
  search->failures = alike ? 0 : search->failures + 1;
  /* Looks become rarer, so that they cost a small part of a run that never repeats itself. */
  search->next_look = executor->returned + 1 + search->failures / 128 * search->options.accumulate;
  if (alike && search->evaluation >= 0) {
    pass_evaluation(executor);
    return PETRA_OK;
  }
  if (search->recorded && !alike && ++search->looks < search->looks_max)
    return PETRA_OK;
  search->looks_max = alike ? 1 : search->looks_max + search->looks_max / 4 + 1;
  return record(executor, worker);
}
