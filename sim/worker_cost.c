/* SPDX-License-Identifier: Apache-2.0 */
#include "sim/worker_cost.h"

#include "base/log.h"
#include "base/mem.h"
#include "sim/cycle.h"

/* Numbers with a rising index. Only a window of them is kept, in a ring. */
typedef struct window {
  int64_t *ring;
  int64_t capacity;   /* 0 or a power of two */
  int64_t first, end; /* indices in use: first .. end - 1 */
} window;

typedef struct in_flight {
  window versions; /* by microbatch: version that its forward read; -1: it is not in flight */
  window users;    /* by version: number of microbatches in flight whose forward read it */
  int64_t copy;    /* the version of F's copy, with a sync period */
  /* The share of skipped periods in the totals. It is added at the end of the run: until then the versions of the stage
   * continue as if nothing had been skipped. */
  int64_t skipped[PETRA_STAGE_TOTALS];
} in_flight;

typedef struct worker_cost {
  petra_worker base;
  int32_t stages;
  bool split_head;             /* the last stage has an F of its own */
  bool split_backward;         /* W releases what is kept */
  petra_version_rule versions; /* versions that F and B read */
  petra_stage_counts *counts;  /* per stage; behind `kept` */
  in_flight kept[];            /* per stage */
} worker_cost;

static int64_t *at(const window *w, int64_t index) {
  return &w->ring[index & (w->capacity - 1)];
}

/* Widens the window to include `index`; its new entries become `empty`. */
static petra_status widen(window *w, int64_t index, int64_t empty) {
  if (w->first == w->end)
    w->first = w->end = index;
  const int64_t first = index < w->first ? index : w->first, end = index < w->end ? w->end : index + 1;
  int64_t capacity = w->capacity ? w->capacity : 4;
  while (end - first > capacity)
    capacity *= 2;
  if (capacity > w->capacity) {
    window larger = {.capacity = capacity};
    PETRA_TRY(petra_allocate_raw(&larger.ring, (size_t)capacity, sizeof *larger.ring));
    for (int64_t i = w->first; i < w->end; i++)
      *at(&larger, i) = *at(w, i);
    petra_free(w->ring);
    w->ring = larger.ring;
    w->capacity = capacity;
  }
  while (w->first > first)
    *at(w, --w->first) = empty;
  while (w->end < end)
    *at(w, w->end++) = empty;
  return PETRA_OK;
}

/* Does the same as widen. The index is usually in the window or directly after it. */
static inline petra_status hold(window *w, int64_t index, int64_t empty) {
  if (index == w->end && w->first < index && index - w->first < w->capacity) {
    *at(w, w->end++) = empty;
    return PETRA_OK;
  }
  return index >= w->first && index < w->end ? PETRA_OK : widen(w, index, empty);
}

static int64_t value_at(const window *w, int64_t index, int64_t outside) {
  return index < w->first || index >= w->end ? outside : *at(w, index);
}

/* Returns the version of a microbatch in flight; -1: it is not in flight. */
static int64_t version_of(const in_flight *kept, int64_t microbatch) {
  return value_at(&kept->versions, microbatch, -1);
}

static void count_up(int64_t *count, int64_t *max) {
  if (++*count > *max)
    *max = *count;
}

static petra_status forward(petra_stage_counts *c, in_flight *kept, const petra_action *action, int64_t version) {
  if (version_of(kept, action->microbatch) >= 0)
    return petra_fail(PETRA_SCHEDULE, "stage %d: microbatch %lld is forwarded while it is in flight", action->stage,
                      (long long)action->microbatch);
  PETRA_TRY(hold(&kept->versions, action->microbatch, -1));
  PETRA_TRY(hold(&kept->users, version, 0));
  *at(&kept->versions, action->microbatch) = version;
  /* An old version that no microbatch used is used again. */
  if (++*at(&kept->users, version) == 1 && version != c->updates)
    count_up(&c->stash, &c->stash_max);
  c->forwards++;
  count_up(&c->in_flight, &c->in_flight_max);
  count_up(&c->kept, &c->kept_max);
  return PETRA_OK;
}

static void give_up(petra_stage_counts *c, in_flight *kept, int64_t microbatch) {
  const int64_t version = version_of(kept, microbatch);
  window *versions = &kept->versions, *users = &kept->users;
  *at(versions, microbatch) = -1;
  while (versions->first < versions->end && *at(versions, versions->first) < 0)
    versions->first++;
  if (--*at(users, version) == 0 && version != c->updates)
    c->stash--;
  while (users->first < users->end && *at(users, users->first) == 0)
    users->first++;
  c->kept--;
}

static void note_lag(petra_stage_counts *c, int64_t version) {
  int64_t lag = c->updates - version;
  c->backwards++;
  c->lag_sum += lag;
  if (lag > c->lag_max)
    c->lag_max = lag;
}

/* Records the version that is kept regardless of microbatches in flight. */
static void note_copy(const petra_version_rule *rule, petra_stage_counts *c, const in_flight *kept) {
  int64_t version = c->updates;
  if (rule->forward_weights == PETRA_WEIGHTS_DOUBLE_BUFFER && c->updates > 0)
    version = c->updates - 1;
  else if (rule->sync_period > 0)
    version = kept->copy;
  c->copy = version != c->updates;
  c->copy_stashed = c->copy && value_at(&kept->users, version, 0) > 0;
}

/* Makes the latest version an old one; it is stashed if a microbatch in flight was forwarded with it. */
static void update(petra_stage_counts *c, const window *users) {
  bool used = value_at(users, c->updates, 0) > 0;
  c->updates++;
  if (used)
    count_up(&c->stash, &c->stash_max);
}

static petra_status check_in_flight(const in_flight *kept, const petra_action *action) {
  if (version_of(kept, action->microbatch) >= 0)
    return PETRA_OK;
  return petra_fail(PETRA_SCHEDULE, "stage %d: %s of microbatch %lld, which is not in flight", action->stage,
                    action->kind == PETRA_ACTION_BACKWARD ? "backward" : "weight gradient",
                    (long long)action->microbatch);
}

static petra_status perform_one(worker_cost *worker, const petra_action *action, petra_action_result *result) {
  petra_stage_counts *c = &worker->counts[action->stage - 1];
  in_flight *kept = &worker->kept[action->stage - 1];
  const petra_version_rule *rule = &worker->versions;
  bool fused = petra_head_is_fused(action->stage, worker->stages, worker->split_head);
  *result = (petra_action_result){c->updates, -1, 0, 0};
  switch (action->kind) {
  case PETRA_ACTION_FORWARD:
    PETRA_TRY(
        petra_forward_version(rule, action->stage, action->microbatch, c->updates, &kept->copy, &result->version_read));
    return forward(c, kept, action, result->version_read);
  case PETRA_ACTION_BACKWARD:
    if (fused) {
      int64_t version;
      PETRA_TRY(petra_forward_version(rule, action->stage, action->microbatch, c->updates, &kept->copy, &version));
      if (rule->backward_weights != PETRA_WEIGHTS_PRESET && rule->backward_weights != PETRA_WEIGHTS_LATEST)
        result->version_read = version;
      note_lag(c, version);
      c->forwards++;
      if (c->kept_max == 0)
        c->in_flight_max = c->kept_max = 1;
      return PETRA_OK;
    }
    PETRA_TRY(check_in_flight(kept, action));
    result->version_read = petra_backward_version(rule, rule->backward_weights, action->microbatch, c->updates,
                                                  version_of(kept, action->microbatch));
    note_lag(c, version_of(kept, action->microbatch));
    c->in_flight--;
    if (!worker->split_backward)
      give_up(c, kept, action->microbatch);
    return PETRA_OK;
  case PETRA_ACTION_WEIGHT_GRADIENT:
    if (fused)
      return PETRA_OK;
    PETRA_TRY(check_in_flight(kept, action));
    give_up(c, kept, action->microbatch);
    return PETRA_OK;
  case PETRA_ACTION_UPDATE:
    update(c, &kept->users);
    result->version_written = c->updates;
    return PETRA_OK;
  case PETRA_ACTION_EVALUATE:
  case PETRA_ACTION_KINDS:
    break;
  }
  return PETRA_OK;
}

static petra_status perform(petra_worker *base, int64_t virtual_ns, const petra_action *actions, int count,
                            petra_action_result *results) {
  (void)virtual_ns;
  worker_cost *worker = (worker_cost *)base;
  const petra_version_rule *rule = &worker->versions;
  bool copies = rule->sync_period > 0 || rule->forward_weights == PETRA_WEIGHTS_DOUBLE_BUFFER;
  for (int i = 0; i < count; i++) {
    int32_t row = actions[i].stage - 1;
    PETRA_TRY(perform_one(worker, &actions[i], &results[i]));
    if (copies)
      note_copy(rule, &worker->counts[row], &worker->kept[row]);
  }
  return PETRA_OK;
}

/* Gives the values of a window. Because a stage may have thousands of microbatches in flight, it gives a value only if
 * the step to it differs from the step before. `base` is subtracted from indices, `latest` from values >= 0. */
static void give_window(const window *w, int64_t base, int64_t latest, petra_cycle *cycle) {
  int64_t previous = 0, step = 0;
  petra_cycle_value(cycle, w->end - w->first);
  petra_cycle_value(cycle, w->first == w->end ? 0 : w->first - base);
  for (int64_t i = w->first; i < w->end; i++) {
    const int64_t value = *at(w, i) < 0 ? INT64_MIN / 2 : *at(w, i) - latest;
    if (value - previous != step) {
      petra_cycle_value(cycle, i - base);
      petra_cycle_value(cycle, value);
    }
    step = value - previous;
    previous = value;
  }
  petra_cycle_value(cycle, INT64_MIN); /* the end */
}

static void state(petra_worker *base, petra_cycle *cycle) {
  worker_cost *worker = (worker_cost *)base;
  const petra_version_rule *rule = &worker->versions;
  if (rule->sync_period > 0)
    petra_cycle_value(cycle, cycle->microbatch % rule->sync_period);
  for (int32_t j = 0; j < worker->stages && cycle->alike; j++) {
    const petra_stage_counts *c = &worker->counts[j];
    in_flight *kept = &worker->kept[j];
    petra_cycle_value(cycle, c->in_flight);
    petra_cycle_value(cycle, c->kept);
    petra_cycle_value(cycle, c->stash);
    petra_cycle_value(cycle, 2 * c->copy + c->copy_stashed);
    if (rule->accumulate > 0)
      petra_cycle_value(cycle, c->updates - cycle->microbatch / rule->accumulate);
    if (rule->sync_period > 0)
      petra_cycle_value(cycle, c->updates - kept->copy);
    give_window(&kept->versions, cycle->microbatch, c->updates, cycle);
    give_window(&kept->users, c->updates, 0, cycle);
    for (int i = 0; i < PETRA_STAGE_TOTALS; i++)
      petra_cycle_total(cycle, c->totals[i], &kept->skipped[i]);
  }
}

static petra_status finish(petra_worker *base) {
  worker_cost *worker = (worker_cost *)base;
  for (int32_t j = 0; j < worker->stages; j++)
    for (int i = 0; i < PETRA_STAGE_TOTALS; i++)
      worker->counts[j].totals[i] += worker->kept[j].skipped[i];
  return PETRA_OK;
}

petra_status petra_worker_cost_create(const petra_method *method, const petra_program_options *options,
                                      petra_worker **out) {
  static const petra_worker_ops ops = {.perform = perform, .finish = finish, .state = state};
  const size_t stages = (size_t)options->stages;
  worker_cost *worker;
  PETRA_TRY(petra_allocate(&worker, 1, sizeof *worker + stages * (sizeof *worker->kept + sizeof *worker->counts)));
  worker->base.ops = &ops;
  worker->stages = options->stages;
  worker->split_head = options->split_head;
  worker->split_backward = method->program->split_backward;
  worker->versions = petra_method_versions(method);
  worker->counts = (petra_stage_counts *)(worker->kept + stages);
  *out = &worker->base;
  return PETRA_OK;
}

void petra_worker_cost_destroy(petra_worker *base) {
  worker_cost *worker = (worker_cost *)base;
  if (!worker)
    return;
  for (int32_t s = 0; s < worker->stages; s++) {
    PETRA_FREE_ALL(worker->kept[s].versions.ring, worker->kept[s].users.ring);
  }
  petra_free(worker);
}

const petra_stage_counts *petra_worker_cost_counts(const petra_worker *worker) {
  return ((const worker_cost *)worker)->counts;
}

petra_status petra_worker_cost_run(const petra_executor_virtual_options *clock, const petra_method *method,
                                   const petra_program_options *options, petra_observer *observers,
                                   int64_t *makespan_ns) {
  petra_executor *executor = NULL;
  petra_worker *worker;
  PETRA_TRY(petra_worker_cost_create(method, options, &worker));
  petra_status status = petra_executor_virtual_create(clock, &executor);
  if (status == PETRA_OK)
    status = executor->ops->run(executor, method->program, options, worker, observers);
  if (executor && makespan_ns)
    *makespan_ns = executor->ops->now_ns(executor);
  petra_executor_destroy(executor);
  petra_worker_cost_destroy(worker);
  return status;
}
