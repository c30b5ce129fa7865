/* SPDX-License-Identifier: Apache-2.0 */
#include "fuzz_run.h"
#include "fuzz.h"
#include "sink.h"

#include "sim/executor_virtual.h"
#include "sim/worker_cost.h"

#include <stdlib.h>
#include <string.h>

/* A microbatch between its F and its B (or W). */
typedef struct flight {
  int32_t stage;
  int64_t microbatch, version;
} flight;

/* Does what worker_cost does, and counts beside it in the plainest way. */
typedef struct double_entry {
  petra_worker base;
  petra_worker *inner;
  const petra_schedule *schedule;
  flight *flights;
  int64_t flight_count;
  petra_stage_counts *counts; /* per stage, from 0 */
} double_entry;

typedef struct rows {
  petra_trace_row *row;
  int64_t count, maximum;
} rows;

static uint64_t hash(const uint8_t *data, size_t size, uint64_t h) { /* FNV-1a */
  for (size_t i = 0; i < size; i++)
    h = (h ^ data[i]) * UINT64_C(0x100000001b3);
  return h;
}

static void *zeros(int64_t count, size_t size) {
  void *memory = calloc((size_t)count + 1, size);
  if (!memory)
    petra_fuzz_fail("no memory");
  return memory;
}

static int64_t find(const double_entry *d, int32_t stage, int64_t microbatch) {
  int64_t i = 0;
  while (i < d->flight_count && (d->flights[i].stage != stage || d->flights[i].microbatch != microbatch))
    i++;
  if (i == d->flight_count)
    petra_fuzz_fail("a checked schedule takes a microbatch back that is not in flight");
  return i;
}

/* Versions older than the stage's present one that microbatches in flight were forwarded with. */
static int64_t old_versions(const double_entry *d, int32_t stage) {
  int64_t found = 0;
  for (int64_t i = 0; i < d->flight_count; i++) {
    const flight *f = &d->flights[i];
    bool first = f->stage == stage && f->version < d->counts[stage - 1].updates;
    for (int64_t j = 0; j < i && first; j++)
      first = d->flights[j].stage != stage || d->flights[j].version != f->version;
    found += first;
  }
  return found;
}

static void give_up(double_entry *d, int64_t at) {
  d->counts[d->flights[at].stage - 1].kept--;
  d->flights[at] = d->flights[--d->flight_count];
}

static void count(double_entry *d, const petra_action *a) {
  petra_stage_counts *c = &d->counts[a->stage - 1];
  const bool fused = petra_head_is_fused(a->stage, d->schedule->stages, d->schedule->split_head);
  if (a->kind == PETRA_ACTION_FORWARD || (a->kind == PETRA_ACTION_BACKWARD && fused)) {
    d->flights[d->flight_count++] = (flight){a->stage, a->microbatch, c->updates};
    c->forwards++;
    c->kept++;
    c->kept_max = c->kept > c->kept_max ? c->kept : c->kept_max;
    c->in_flight++;
    c->in_flight_max = c->in_flight > c->in_flight_max ? c->in_flight : c->in_flight_max;
  }
  if (a->kind == PETRA_ACTION_BACKWARD) {
    int64_t at = find(d, a->stage, a->microbatch), lag = c->updates - d->flights[at].version;
    c->backwards++;
    c->in_flight--;
    c->lag_sum += lag;
    c->lag_max = lag > c->lag_max ? lag : c->lag_max;
    if (fused || !d->schedule->split_backward)
      give_up(d, at);
  }
  if (a->kind == PETRA_ACTION_WEIGHT_GRADIENT && !fused)
    give_up(d, find(d, a->stage, a->microbatch));
  c->updates += a->kind == PETRA_ACTION_UPDATE;
  c->stash = old_versions(d, a->stage);
  c->stash_max = c->stash > c->stash_max ? c->stash : c->stash_max;
}

static petra_status perform(petra_worker *base, int64_t virtual_ns, const petra_action *actions, int group,
                            petra_action_result *results) {
  double_entry *d = (double_entry *)base;
  for (int i = 0; i < group; i++)
    count(d, &actions[i]);
  return d->inner->ops->perform(d->inner, virtual_ns, actions, group, results);
}

/* E takes no time; the others some, drawn for every action. */
static petra_status draw(void *context, const petra_action *action, int64_t *duration_ns) {
  const uint64_t *seed = context;
  uint8_t key[13];
  memcpy(key, &action->stage, 4);
  memcpy(key + 4, &action->microbatch, 8);
  key[12] = (uint8_t)action->kind;
  *duration_ns = action->kind == PETRA_ACTION_EVALUATE ? 0 : 1 + (int64_t)(hash(key, sizeof key, *seed) >> 32) % 16;
  return PETRA_OK;
}

static petra_status keep(void *context, const petra_trace_row *row) {
  rows *kept = context;
  if (kept->count == kept->maximum)
    petra_fuzz_fail("more actions ran than the schedule has");
  kept->row[kept->count++] = *row;
  return PETRA_OK;
}

static const petra_trace_row *row_of(const rows *all, const petra_action *a) {
  for (int64_t i = 0; i < all->count; i++)
    if (memcmp(&all->row[i].action, a, sizeof *a) == 0)
      return &all->row[i];
  return NULL;
}

static bool is_pass(petra_action_kind kind) {
  return kind != PETRA_ACTION_UPDATE && kind != PETRA_ACTION_EVALUATE;
}

/* `row` must not start before the action (stage, kind) of its microbatch has ended. */
static void check_input(const rows *all, const petra_trace_row *row, int32_t stage, petra_action_kind kind) {
  const petra_action input = {stage, kind, row->action.microbatch};
  const petra_trace_row *before = row_of(all, &input);
  if (!before || row->start_ns < before->end_ns)
    petra_fuzz_fail("an action started before its input was there");
}

static void check_inputs(const petra_schedule *s, const rows *all, const petra_trace_row *row) {
  const petra_action *a = &row->action;
  const bool fused = a->stage == s->stages && !s->split_head;
  if (a->stage > 1 && (a->kind == PETRA_ACTION_FORWARD || (a->kind == PETRA_ACTION_BACKWARD && fused)))
    check_input(all, row, a->stage - 1, PETRA_ACTION_FORWARD);
  if (a->kind == PETRA_ACTION_BACKWARD && a->stage < s->stages)
    check_input(all, row, a->stage + 1, PETRA_ACTION_BACKWARD);
  if (a->kind == PETRA_ACTION_BACKWARD && !fused)
    check_input(all, row, a->stage, PETRA_ACTION_FORWARD);
  if (a->kind == PETRA_ACTION_WEIGHT_GRADIENT)
    check_input(all, row, a->stage, PETRA_ACTION_BACKWARD);
}

/* Two actions of a device, `a` before `b` in its list. */
static void check_pair(const petra_schedule_entry *a, const petra_schedule_entry *b, const petra_trace_row *x,
                       const petra_trace_row *y, int engines) {
  const petra_action_kind first = a->action.kind, second = b->action.kind;
  bool one_engine = engines == 1 || (first == PETRA_ACTION_FORWARD) == (second == PETRA_ACTION_FORWARD);
  bool waits = one_engine || a->round != b->round || second == PETRA_ACTION_EVALUATE ||
               (first == PETRA_ACTION_UPDATE && is_pass(second)) || (is_pass(first) && second == PETRA_ACTION_UPDATE);
  if (waits && y->start_ns < x->end_ns)
    petra_fuzz_fail("an action did not wait for the one before it");
}

static void check_trace(const petra_schedule *s, const rows *all, int engines, int64_t makespan) {
  const petra_trace_row **row = zeros(s->first[s->devices], sizeof *row); /* by entry */
  int64_t last = 0;
  for (int64_t i = 0; i < s->first[s->devices]; i++) {
    row[i] = row_of(all, &s->entries[i].action);
    if (!row[i])
      petra_fuzz_fail("an action did not run");
    last = row[i]->end_ns > last ? row[i]->end_ns : last;
    check_inputs(s, all, row[i]);
  }
  if (all->count != s->first[s->devices] || makespan != last)
    petra_fuzz_fail("the number of actions or the makespan is wrong");
  for (int32_t d = 0; d < s->devices; d++)
    for (int64_t i = s->first[d]; i < s->first[d + 1]; i++)
      for (int64_t j = i + 1; j < s->first[d + 1]; j++)
        check_pair(&s->entries[i], &s->entries[j], row[i], row[j], engines);
  for (int64_t i = 0; s->locked && i < s->first[s->devices]; i++)
    for (int64_t j = 0; j < s->first[s->devices]; j++)
      if (s->entries[i].round < s->entries[j].round && row[j]->start_ns < row[i]->end_ns)
        petra_fuzz_fail("an action did not wait for the end of a round of the network");
  free(row);
}

/* The same E or U twice in a list would be one row for two entries: the rules above could not be tried. */
static bool repeats(const petra_schedule *s) {
  for (int64_t i = 0; i < s->first[s->devices]; i++)
    for (int64_t j = 0; j < i; j++)
      if (memcmp(&s->entries[i].action, &s->entries[j].action, sizeof s->entries[i].action) == 0)
        return true;
  return false;
}

static void run(const petra_schedule *s, uint64_t seed, int engines) {
  static const double bandwidths[] = {0, 1e9, 3e8, 7e9};
  const petra_program_options options = petra_schedule_options(s);
  const petra_stage_cost cost = {.forward_bytes = 5, .backward_bytes = 11};
  int32_t *node = zeros(s->devices, sizeof *node);
  for (int32_t d = 0; d < s->devices; d++)
    node[d] = d / 2;
  const petra_executor_virtual_options settings = {
      .engines = engines,
      .rule = {.split_backward = s->split_backward, .fused_head = !s->split_head},
      .costs = &cost,
      .cost_count = 1,
      .fabric = {.sharing = seed & 1 ? PETRA_LINK_FAIR : PETRA_LINK_FIFO,
                 .latency_ns = seed & 2 ? 3 : 0,
                 .bandwidth_Bps = bandwidths[seed >> 2 & 3],
                 .node = seed & 16 ? node : NULL,
                 .card_Bps = seed & 32 ? 5e8 : 0}};
  const petra_method method = {.program = &s->program};
  static const petra_worker_ops ops = {.perform = perform};
  double_entry worker = {.base = {&ops}, .schedule = s};
  rows all = {.maximum = s->first[s->devices]};
  petra_executor *executor = NULL;
  timed drawn;
  sink reported;
  all.row = zeros(all.maximum, sizeof *all.row);
  worker.flights = zeros(all.maximum, sizeof *worker.flights);
  worker.counts = zeros(s->stages, sizeof *worker.counts);
  if (petra_program_check(&s->program, &options) != PETRA_OK)
    petra_fuzz_fail("a checked schedule has options that cannot run");
  if (petra_worker_cost_create(&method, &options, &worker.inner) != PETRA_OK ||
      petra_executor_virtual_create(&settings, &executor) != PETRA_OK)
    petra_fuzz_fail("no executor");
  if (executor->ops->run(executor, &s->program, &options, timed_of(&drawn, &worker.base, draw, &seed),
                         sink_of(&reported, keep, &all)) != PETRA_OK)
    petra_fuzz_fail("a checked schedule does not run to its end");
  if (memcmp(petra_worker_cost_counts(worker.inner), worker.counts, (size_t)s->stages * sizeof *worker.counts) != 0)
    petra_fuzz_fail("the worker counted something else than is in flight");
  if (!repeats(s))
    check_trace(s, &all, engines, executor->ops->now_ns(executor));
  executor->ops->destroy(executor);
  petra_worker_cost_destroy(worker.inner);
  free(worker.counts);
  free(worker.flights);
  free(all.row);
  free(node);
}

void petra_fuzz_run(const petra_schedule *schedule, const uint8_t *data, size_t size) {
  const uint64_t seed = hash(data, size, UINT64_C(0xcbf29ce484222325));
  run(schedule, seed >> 8, 1);
  run(schedule, seed >> 8, 2);
}
