/* SPDX-License-Identifier: Apache-2.0 */
#include "sim/observer_memory.h"

#include "sim/cycle.h"

#include <string.h>

enum { COLUMNS = PETRA_MEMORY_CATEGORIES + 1 };

typedef struct memory_observer {
  petra_observer base;
  const petra_memory_stage *about; /* per stage */
  const petra_program_options *program;
  int32_t stages;
  petra_time_bins *samples;
  petra_worker *counting;
  const petra_stage_counts *counts;
  petra_account *accounts;
  petra_account *devices; /* per device; stored after the accounts of the stages */
  struct {
    unsigned touched[PETRA_MEMORY_WHENS][PETRA_ACTION_KINDS][PETRA_MEMORY_NEIGHBOURS]; /* categories, as bits */
    petra_microbatch_set done[PETRA_MEMORY_UNTILS];                                    /* B and W so far */
    int64_t skipped_updates;                                                           /* not included in its counts */
  } stage[];                                                                           /* per stage */
} memory_observer;

static void sample(memory_observer *observer, int32_t stage, int64_t now_ns, const petra_account *highest) {
  const petra_account *account = &observer->accounts[stage - 1];
  int64_t level[COLUMNS], peak[COLUMNS];
  memcpy(level, account->bytes, sizeof account->bytes);
  memcpy(peak, highest->bytes, sizeof highest->bytes);
  level[PETRA_MEMORY_CATEGORIES] = account->total_bytes;
  peak[PETRA_MEMORY_CATEGORIES] = highest->total_bytes;
  petra_time_bins_put(observer->samples, stage - 1, now_ns, peak, level);
}

static int64_t larger(int64_t a, int64_t b) {
  return a > b ? a : b;
}

/* Applies a change to an account, including its peaks. `touched` has a bit for each category that it touches. */
static void apply_to(petra_account *account, const petra_memory_change *change, unsigned touched) {
  account->total_peak_bytes = larger(account->total_peak_bytes, account->total_bytes + change->total_peak);
  for (int c = 0; touched >> c; c++) {
    if (!(touched >> c & 1))
      continue;
    account->peak_bytes[c] = larger(account->peak_bytes[c], account->bytes[c] + change->peak[c]);
    account->bytes[c] += change->bytes[c];
    account->total_bytes += change->bytes[c];
  }
}

/* Returns the account of the device of a stage. */
static petra_account *device_account(const memory_observer *observer, int32_t stage) {
  return &observer->devices[petra_program_device(observer->program, stage) - 1];
}

static void apply(memory_observer *observer, int32_t stage, int64_t now_ns, const petra_memory_change *change,
                  unsigned touched) {
  petra_account *account = &observer->accounts[stage - 1];
  petra_account highest;
  if (!touched)
    return;
  if (observer->samples) {
    highest = *account;
    highest.total_bytes += change->total_peak;
    for (int c = 0; touched >> c; c++)
      highest.bytes[c] += change->peak[c];
  }
  apply_to(account, change, touched);
  apply_to(device_account(observer, stage), change, touched);
  if (observer->samples)
    sample(observer, stage, now_ns, &highest);
}

static void add(memory_observer *observer, int32_t stage, petra_memory_category category, int64_t bytes) {
  petra_account_add(&observer->accounts[stage - 1], category, bytes);
  petra_account_add(device_account(observer, stage), category, bytes);
}

static void count(memory_observer *observer, int32_t stage, int64_t now_ns) {
  const petra_memory_stage *about = &observer->about[stage - 1];
  const petra_stage_counts *counts = &observer->counts[stage - 1];
  const petra_account *account = &observer->accounts[stage - 1];
  if (about->input_bytes == 0 && about->version_bytes == 0 && about->copy_bytes == 0)
    return;
  int64_t inputs = about->input_bytes * larger(counts->kept - 1, 0), versions = about->version_bytes * counts->stash;
  if (counts->copy && !(about->version_bytes && counts->copy_stashed))
    versions += about->copy_bytes;
  /* Contributions of measured changes to these categories stay: they come with input_bytes 0. */
  if (about->input_bytes)
    add(observer, stage, PETRA_MEMORY_INPUT_BUFFER,
        about->base[PETRA_MEMORY_INPUT_BUFFER] + inputs - account->bytes[PETRA_MEMORY_INPUT_BUFFER]);
  add(observer, stage, PETRA_MEMORY_WEIGHT_BUFFER,
      about->base[PETRA_MEMORY_WEIGHT_BUFFER] + versions - account->bytes[PETRA_MEMORY_WEIGHT_BUFFER]);
  if (observer->samples)
    sample(observer, stage, now_ns, account);
}

/* Returns true if stage `place` of the stages that may keep the shared bytes does not keep them after this action. */
static bool lets_go(const memory_observer *observer, const petra_memory_shared *shared, int32_t owner, int place,
                    const petra_action *action, petra_memory_until now) {
  const petra_memory_until until = shared->until[place];
  const int32_t stage = owner + PETRA_MEMORY_KEPT_FROM + place;
  return until == PETRA_MEMORY_NOT_KEPT || (stage == action->stage && until == now) ||
         petra_microbatch_set_has(&observer->stage[stage - 1].done[until], action->microbatch);
}

/* Releases the shared bytes in the account of stage `owner` that this action is the last to keep. The action's stage is
 * number `acting` of the stages that may keep them. */
static void release_of(memory_observer *observer, int32_t owner, int acting, int64_t now_ns, const petra_action *action,
                       petra_memory_until now) {
  const petra_memory_stage *about = &observer->about[owner - 1];
  for (int i = 0; i < about->shared_count; i++) {
    const petra_memory_shared *shared = &about->shared[i];
    bool last = shared->until[acting] == now;
    for (int place = 0; place < PETRA_MEMORY_KEPT_STAGES; place++)
      last = last && lets_go(observer, shared, owner, place, action, now);
    if (!last)
      continue;
    add(observer, owner, shared->category, -shared->bytes);
    if (observer->samples)
      sample(observer, owner, now_ns, &observer->accounts[owner - 1]);
  }
}

static petra_status release_shared(memory_observer *observer, int64_t now_ns, const petra_action *action) {
  const bool backward = action->kind == PETRA_ACTION_BACKWARD;
  if (!backward && action->kind != PETRA_ACTION_WEIGHT_GRADIENT)
    return PETRA_OK;
  const petra_memory_until now = backward ? PETRA_MEMORY_UNTIL_BACKWARD : PETRA_MEMORY_UNTIL_WEIGHT_GRADIENT;
  for (int place = 0; place < PETRA_MEMORY_KEPT_STAGES; place++) {
    const int32_t owner = action->stage - PETRA_MEMORY_KEPT_FROM - place;
    if (owner >= 1 && owner <= observer->stages)
      release_of(observer, owner, place, now_ns, action, now);
  }
  return petra_microbatch_set_put(&observer->stage[action->stage - 1].done[now], action->microbatch);
}

/* Returns the change of an action. `lag` is used if it is a B. */
static petra_memory_when when(const memory_observer *observer, const petra_action *action, int64_t lag) {
  const petra_memory_stage *about = &observer->about[action->stage - 1];
  const int64_t updates = observer->counts[action->stage - 1].updates + /* after the action */
                          observer->stage[action->stage - 1].skipped_updates;
  const bool later = action->kind == PETRA_ACTION_BACKWARD
                         ? lag > 0 || updates > about->extrapolates_after
                         : action->kind == PETRA_ACTION_UPDATE && updates > about->mitigates_after;
  return later ? PETRA_MEMORY_LATER : PETRA_MEMORY_FIRST;
}

static bool forwards(const memory_observer *observer, const petra_action *action) {
  return action->kind == PETRA_ACTION_FORWARD ||
         (action->kind == PETRA_ACTION_BACKWARD && petra_program_fused(observer->program, action->stage));
}

/* Adds the samples of stage 1 while an older copy of the weights still exists. */
static void take(memory_observer *observer, int32_t stage, int64_t now_ns) {
  const int64_t bytes = observer->about[stage - 1].taken_bytes;
  petra_memory_change change = {.total_peak = bytes};
  change.peak[PETRA_MEMORY_MESSAGES] = bytes;
  if (bytes > 0)
    apply(observer, stage, now_ns, &change, 1u << PETRA_MEMORY_MESSAGES);
}

static petra_status count_action(memory_observer *observer, int64_t now_ns, const petra_action *action) {
  const int32_t stage = action->stage;
  const int64_t lags = observer->counts[stage - 1].lag_sum;
  petra_action_result ignored;
  PETRA_TRY(observer->counting->ops->perform(observer->counting, now_ns, action, 1, &ignored));
  const petra_memory_when w = when(observer, action, observer->counts[stage - 1].lag_sum - lags);
  const petra_memory_change *change = observer->about[stage - 1].change[w][action->kind];
  const unsigned *touched = observer->stage[stage - 1].touched[w][action->kind];
  /* The copies that F releases and that U makes are counted before everything else that F and U do. The copies that B
   * and W release are counted after everything else. */
  const bool takes = forwards(observer, action), first = takes || action->kind == PETRA_ACTION_UPDATE;
  if (takes)
    take(observer, stage, now_ns);
  if (first)
    count(observer, stage, now_ns);
  apply(observer, stage, now_ns, &change[PETRA_MEMORY_OWN], touched[PETRA_MEMORY_OWN]);
  if (stage > 1)
    apply(observer, stage - 1, now_ns, &change[PETRA_MEMORY_BELOW], touched[PETRA_MEMORY_BELOW]);
  if (stage < observer->stages)
    apply(observer, stage + 1, now_ns, &change[PETRA_MEMORY_ABOVE], touched[PETRA_MEMORY_ABOVE]);
  PETRA_TRY(release_shared(observer, now_ns, action));
  if (!first)
    count(observer, stage, now_ns);
  return PETRA_OK;
}

static petra_status started(petra_observer *base, int64_t now_ns, const petra_action *actions,
                            const petra_action_result *results, int action_count) {
  (void)results;
  for (int i = 0; i < action_count; i++)
    PETRA_TRY(count_action((memory_observer *)base, now_ns, &actions[i]));
  return PETRA_OK;
}

static void give_account(const petra_account *account, petra_cycle *cycle) {
  for (int c = 0; c < PETRA_MEMORY_CATEGORIES; c++)
    petra_cycle_value(cycle, account->bytes[c]);
}

/* Skipped periods do not pass the update after which an action takes other memory. */
static void give_updates(memory_observer *observer, int32_t j, petra_cycle *cycle) {
  const petra_memory_stage *about = &observer->about[j];
  int64_t *skipped = &observer->stage[j].skipped_updates;
  const int64_t updates = observer->counts[j].updates + *skipped;
  const int64_t limits[] = {about->extrapolates_after, about->mitigates_after};
  for (int i = 0; i < 2; i++) {
    petra_cycle_value(cycle, updates > limits[i]);
    petra_cycle_limit(cycle, updates, updates > limits[i] ? INT64_MAX : limits[i]);
  }
  petra_cycle_total(cycle, updates, skipped);
}

static void state(petra_observer *base, petra_cycle *cycle) {
  memory_observer *observer = (memory_observer *)base;
  for (int32_t j = 0; j < observer->stages; j++) {
    give_account(&observer->accounts[j], cycle);
    for (int until = 0; until < PETRA_MEMORY_UNTILS; until++)
      petra_microbatch_set_state(&observer->stage[j].done[until], cycle);
    give_updates(observer, j, cycle);
  }
  for (int32_t d = 0; d < petra_program_devices(observer->program); d++)
    give_account(&observer->devices[d], cycle);
  observer->counting->ops->state(observer->counting, cycle);
}

static unsigned touched_by(const petra_memory_change *change) {
  unsigned bits = 0;
  for (int c = 0; c < PETRA_MEMORY_CATEGORIES; c++)
    if (change->bytes[c] || change->peak[c])
      bits |= 1u << c;
  return bits;
}

petra_status petra_memory_observer_create(const petra_memory_stage *stage, const petra_method *method,
                                          const petra_program_options *program, petra_time_bins *samples,
                                          petra_observer **out) {
  /* The levels over time need every action. */
  static const petra_observer_ops ops = {.started = started, .state = state}, ops_over_time = {.started = started};
  memory_observer *observer;
  const size_t stages = (size_t)program->stages, devices = (size_t)petra_program_devices(program);
  PETRA_TRY(petra_allocate(&observer, 1, sizeof *observer + stages * sizeof *observer->stage));
  *out = &observer->base;
  observer->base.ops = samples ? &ops_over_time : &ops;
  observer->about = stage;
  observer->program = program;
  observer->stages = program->stages;
  observer->samples = samples;
  PETRA_TRY(petra_worker_cost_create(method, program, &observer->counting));
  observer->counts = petra_worker_cost_counts(observer->counting);
  PETRA_TRY(petra_allocate(&observer->accounts, stages + devices, sizeof *observer->accounts));
  observer->devices = observer->accounts + stages;
  for (size_t j = 0; j < stages; j++) {
    for (int c = 0; c < PETRA_MEMORY_CATEGORIES; c++)
      add(observer, (int32_t)j + 1, (petra_memory_category)c, stage[j].base[c]);
    for (int w = 0; w < PETRA_MEMORY_WHENS; w++)
      for (int k = 0; k < PETRA_ACTION_KINDS; k++)
        for (int n = 0; n < PETRA_MEMORY_NEIGHBOURS; n++)
          observer->stage[j].touched[w][k][n] = touched_by(&stage[j].change[w][k][n]);
    if (samples)
      sample(observer, (int32_t)j + 1, 0, &observer->accounts[j]);
  }
  return PETRA_OK;
}

void petra_memory_observer_destroy(petra_observer *base) {
  memory_observer *observer = (memory_observer *)base;
  if (!observer)
    return;
  petra_worker_cost_destroy(observer->counting);
  for (int32_t j = 0; j < observer->stages; j++)
    for (int until = 0; until < PETRA_MEMORY_UNTILS; until++)
      petra_microbatch_set_fini(&observer->stage[j].done[until]);
  PETRA_FREE_ALL(observer->accounts, observer);
}

const petra_account *petra_memory_observer_accounts(const petra_observer *observer) {
  return ((const memory_observer *)observer)->accounts;
}

const petra_account *petra_memory_observer_devices(const petra_observer *observer) {
  return ((const memory_observer *)observer)->devices;
}

struct petra_time_bins {
  int32_t rows, bins;
  int columns;
  int64_t width_ns;
  int32_t *last;    /* per row: last bin that is filled; stored after the levels */
  int64_t *level;   /* (rows, columns): current levels; stored after the values */
  int64_t values[]; /* (bins, rows, columns) */
};

petra_status petra_time_bins_create(int32_t rows, int columns, int32_t bins, petra_time_bins **out) {
  petra_time_bins *samples;
  const size_t width = (size_t)rows * (size_t)columns, values = width * ((size_t)bins + 1);
  PETRA_TRY(petra_allocate(&samples, 1,
                           sizeof *samples + values * sizeof *samples->values + (size_t)rows * sizeof *samples->last));
  *samples = (petra_time_bins){.rows = rows, .bins = bins, .columns = columns, .width_ns = 1};
  samples->level = samples->values + width * (size_t)bins;
  samples->last = (int32_t *)(samples->values + values);
  *out = samples;
  return PETRA_OK;
}

static int64_t *value_at(petra_time_bins *samples, int32_t bin, int32_t row) {
  return samples->values + ((size_t)bin * (size_t)samples->rows + (size_t)row) * (size_t)samples->columns;
}

static void raise_to(int64_t *value, const int64_t *level, int columns) {
  for (int c = 0; c < columns; c++)
    if (level[c] > value[c])
      value[c] = level[c];
}

/* Joins bins 2 b and 2 b + 1; bins that no row has reached yet are left for later. */
static void join(petra_time_bins *samples) {
  for (int32_t row = 0; row < samples->rows; row++) {
    for (int32_t bin = 0; bin <= samples->last[row]; bin += 2) {
      int64_t *to = value_at(samples, bin / 2, row);
      memmove(to, value_at(samples, bin, row), (size_t)samples->columns * sizeof *to);
      if (bin + 1 <= samples->last[row])
        raise_to(to, value_at(samples, bin + 1, row), samples->columns);
    }
    samples->last[row] /= 2;
  }
  samples->width_ns *= 2;
}

/* Fills the row up to the bin of this moment with its current levels, and returns the bin. */
static int32_t advance(petra_time_bins *samples, int32_t row, int64_t now_ns) {
  while (now_ns / samples->width_ns >= samples->bins)
    join(samples);
  int32_t bin = (int32_t)(now_ns / samples->width_ns);
  size_t bytes = (size_t)samples->columns * sizeof *samples->level;
  for (int32_t b = samples->last[row] + 1; b <= bin; b++)
    memcpy(value_at(samples, b, row), samples->level + (size_t)row * (size_t)samples->columns, bytes);
  if (bin > samples->last[row])
    samples->last[row] = bin;
  return bin;
}

void petra_time_bins_put(petra_time_bins *samples, int32_t row, int64_t now_ns, const int64_t *peak,
                         const int64_t *level) {
  int32_t bin = advance(samples, row, now_ns);
  raise_to(value_at(samples, bin, row), peak, samples->columns);
  memcpy(samples->level + (size_t)row * (size_t)samples->columns, level, (size_t)samples->columns * sizeof *level);
}

void petra_time_bins_finish(petra_time_bins *samples, int64_t end_ns, int32_t *bins, int64_t *width_ns,
                            const int64_t **values) {
  for (int32_t row = 0; row < samples->rows; row++)
    advance(samples, row, end_ns);
  *bins = (int32_t)(end_ns / samples->width_ns) + 1;
  *width_ns = samples->width_ns;
  *values = samples->values;
}
