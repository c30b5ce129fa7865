/* SPDX-License-Identifier: Apache-2.0 */
#include "sim/observer_memory.h"

#include "base/mem.h"

#include <string.h>

enum { COLUMNS = PETRA_MEMORY_CATEGORIES + 1 };

typedef struct memory_observer {
  petra_observer base;
  petra_memory_observer_options options;
  petra_worker *counting;
  const petra_stage_counts *counts;
  petra_account *accounts;
  bool shares;
  struct {
    unsigned touched[PETRA_MEMORY_WHENS][PETRA_ACTION_KINDS][PETRA_MEMORY_NEIGHBOURS]; /* categories, as bits */
    int64_t done[PETRA_MEMORY_HOLDERS];                                                /* B and W so far */
  } stage[];                                                                           /* per stage */
} memory_observer;

static void sample(memory_observer *observer, int32_t stage, int64_t now_ns, const petra_account *highest) {
  const petra_account *account = &observer->accounts[stage - 1];
  int64_t level[COLUMNS], peak[COLUMNS];
  memcpy(level, account->bytes, sizeof account->bytes);
  memcpy(peak, highest->bytes, sizeof highest->bytes);
  level[PETRA_MEMORY_CATEGORIES] = account->total_bytes;
  peak[PETRA_MEMORY_CATEGORIES] = highest->total_bytes;
  petra_samples_put(observer->options.samples, stage - 1, now_ns, peak, level);
}

static int64_t larger(int64_t a, int64_t b) {
  return a > b ? a : b;
}

/* Applies a change to an account, its peaks included; `touched` has a bit for each category that it touches.
 */
static void apply(memory_observer *observer, int32_t stage, int64_t now_ns, const petra_memory_change *change,
                  unsigned touched) {
  petra_account *account = &observer->accounts[stage - 1];
  petra_account highest;
  if (!touched)
    return;
  if (observer->options.samples) {
    highest = *account;
    highest.total_bytes += change->total_peak;
  }
  account->total_peak_bytes = larger(account->total_peak_bytes, account->total_bytes + change->total_peak);
  for (int c = 0; touched >> c; c++) {
    if (!(touched >> c & 1))
      continue;
    int64_t peak = account->bytes[c] + change->peak[c];
    account->peak_bytes[c] = larger(account->peak_bytes[c], peak);
    account->bytes[c] += change->bytes[c];
    account->total_bytes += change->bytes[c];
    if (observer->options.samples)
      highest.bytes[c] = peak;
  }
  if (observer->options.samples)
    sample(observer, stage, now_ns, &highest);
}

/* Sets what goes by counts: inputs and versions. */
static void count(memory_observer *observer, int32_t stage, int64_t now_ns) {
  const petra_memory_stage *about = &observer->options.stage[stage - 1];
  const petra_stage_counts *counts = &observer->counts[stage - 1];
  petra_account *account = &observer->accounts[stage - 1];
  if (about->input_bytes == 0 && about->version_bytes == 0 && about->copy_bytes == 0)
    return;
  int64_t inputs = about->input_bytes * larger(counts->kept - 1, 0), versions = about->version_bytes * counts->stash;
  if (counts->copy && !(about->version_bytes && counts->copy_stashed))
    versions += about->copy_bytes;
  /* What measured changes put into these categories stays: they come with input_bytes 0. */
  if (about->input_bytes)
    petra_account_add(account, PETRA_MEMORY_INPUT_BUFFER,
                      about->base[PETRA_MEMORY_INPUT_BUFFER] + inputs - account->bytes[PETRA_MEMORY_INPUT_BUFFER]);
  petra_account_add(account, PETRA_MEMORY_WEIGHT_BUFFER,
                    about->base[PETRA_MEMORY_WEIGHT_BUFFER] + versions - account->bytes[PETRA_MEMORY_WEIGHT_BUFFER]);
  if (observer->options.samples)
    sample(observer, stage, now_ns, account);
}

/* What an action of a stage changes around it, with what it lets go of as the later of two. */
typedef struct changes {
  petra_memory_change change[PETRA_MEMORY_NEIGHBOURS];
  unsigned touched[PETRA_MEMORY_NEIGHBOURS];
} changes;

/* Tensors of stage `lower` and the one above, which is neighbour `n` of the acting stage. */
static void let_go(const memory_observer *observer, int32_t lower, petra_memory_holder holder, petra_memory_of n,
                   changes *out) {
  const int64_t *shared = observer->options.stage[lower - 1].shared[holder];
  for (int c = 0; c < PETRA_MEMORY_CATEGORIES; c++) {
    out->change[n].bytes[c] -= shared[c];
    out->touched[n] |= shared[c] ? 1u << c : 0;
  }
}

/* The other holder may have let go before. */
static void release_shared(memory_observer *observer, const petra_action *action, changes *out) {
  const int32_t stage = action->stage;
  const bool w = action->kind == PETRA_ACTION_WEIGHT_GRADIENT;
  if (!observer->shares || (!w && action->kind != PETRA_ACTION_BACKWARD))
    return;
  const petra_memory_holder holder = w ? PETRA_MEMORY_HELD_BY_WEIGHT_GRADIENT : PETRA_MEMORY_HELD_BY_BACKWARD;
  if (stage < observer->options.stages &&
      observer->stage[stage].done[PETRA_MEMORY_HELD_BY_WEIGHT_GRADIENT] > action->microbatch)
    let_go(observer, stage, holder, PETRA_MEMORY_ABOVE, out);
  for (int h = 0; w && stage > 1 && h < PETRA_MEMORY_HOLDERS; h++)
    if (observer->stage[stage - 2].done[h] > action->microbatch)
      let_go(observer, stage - 1, (petra_memory_holder)h, PETRA_MEMORY_OWN, out);
  observer->stage[stage - 1].done[holder]++;
}

/* Of an action of `lag`, where it is a B. */
static petra_memory_when when(const memory_observer *observer, const petra_action *action, int64_t lag) {
  const petra_memory_stage *about = &observer->options.stage[action->stage - 1];
  const int64_t updates = observer->counts[action->stage - 1].updates; /* after the action */
  const bool later = action->kind == PETRA_ACTION_BACKWARD
                         ? lag > 0 || updates > about->extrapolates_after
                         : action->kind == PETRA_ACTION_UPDATE && updates > about->mitigates_after;
  return later ? PETRA_MEMORY_LATER : PETRA_MEMORY_FIRST;
}

/* What F (the head's too, in its one action) lets go of and U copies comes before all else that they do; what B and W let go of, after it. */
static bool counts_first(const memory_observer *observer, const petra_action *action) {
  const petra_worker_cost_options *counting = &observer->options.counting;
  return action->kind == PETRA_ACTION_FORWARD || action->kind == PETRA_ACTION_UPDATE ||
         petra_head_is_fused(action->stage, counting->stages, counting->split_head);
}

/* What stage 1 takes while an older copy of the weights is still there. */
static void take(memory_observer *observer, const petra_action *action, int64_t now_ns) {
  const int64_t bytes = observer->options.stage[action->stage - 1].taken_bytes;
  petra_memory_change change = {.total_peak = bytes};
  change.peak[PETRA_MEMORY_MESSAGES] = bytes;
  if (bytes > 0 && action->kind != PETRA_ACTION_UPDATE)
    apply(observer, action->stage, now_ns, &change, 1u << PETRA_MEMORY_MESSAGES);
}

static petra_status count_action(memory_observer *observer, int64_t now_ns, const petra_action *action) {
  const int32_t stage = action->stage;
  const int64_t lags = observer->counts[stage - 1].lag_sum;
  petra_action_result ignored;
  PETRA_TRY(observer->counting->ops->perform(observer->counting, now_ns, action, 1, &ignored));
  const petra_memory_when w = when(observer, action, observer->counts[stage - 1].lag_sum - lags);
  changes all;
  memcpy(all.change, observer->options.stage[stage - 1].change[w][action->kind], sizeof all.change);
  memcpy(all.touched, observer->stage[stage - 1].touched[w][action->kind], sizeof all.touched);
  release_shared(observer, action, &all);
  const bool first = counts_first(observer, action);
  if (first) {
    take(observer, action, now_ns);
    count(observer, stage, now_ns);
  }
  apply(observer, stage, now_ns, &all.change[PETRA_MEMORY_OWN], all.touched[PETRA_MEMORY_OWN]);
  if (stage > 1)
    apply(observer, stage - 1, now_ns, &all.change[PETRA_MEMORY_BELOW], all.touched[PETRA_MEMORY_BELOW]);
  if (stage < observer->options.stages)
    apply(observer, stage + 1, now_ns, &all.change[PETRA_MEMORY_ABOVE], all.touched[PETRA_MEMORY_ABOVE]);
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

static unsigned touched_by(const petra_memory_change *change) {
  unsigned bits = 0;
  for (int c = 0; c < PETRA_MEMORY_CATEGORIES; c++)
    if (change->bytes[c] || change->peak[c])
      bits |= 1u << c;
  return bits;
}

static bool shares_any(const petra_memory_stage *stage) {
  for (int h = 0; h < PETRA_MEMORY_HOLDERS; h++)
    for (int c = 0; c < PETRA_MEMORY_CATEGORIES; c++)
      if (stage->shared[h][c])
        return true;
  return false;
}

petra_status petra_memory_observer_create(const petra_memory_observer_options *options, petra_observer **out) {
  static const petra_observer_ops ops = {.started = started};
  memory_observer *observer;
  petra_status status;
  size_t stages = (size_t)options->stages;
  PETRA_TRY(petra_allocate(&observer, 1, sizeof *observer + stages * sizeof *observer->stage));
  observer->base.ops = &ops;
  observer->options = *options;
  PETRA_TRY_GOTO(status, petra_worker_cost_create(&options->counting, &observer->counting), fail);
  observer->counts = petra_worker_cost_counts(observer->counting);
  PETRA_TRY_GOTO(status, petra_allocate(&observer->accounts, stages, sizeof *observer->accounts), fail);
  for (size_t j = 0; j < stages; j++) {
    const petra_memory_stage *stage = &options->stage[j];
    observer->shares = observer->shares || shares_any(stage);
    for (int c = 0; c < PETRA_MEMORY_CATEGORIES; c++)
      petra_account_add(&observer->accounts[j], (petra_memory_category)c, stage->base[c]);
    for (int w = 0; w < PETRA_MEMORY_WHENS; w++)
      for (int k = 0; k < PETRA_ACTION_KINDS; k++)
        for (int n = 0; n < PETRA_MEMORY_NEIGHBOURS; n++)
          observer->stage[j].touched[w][k][n] = touched_by(&stage->change[w][k][n]);
    if (options->samples)
      sample(observer, (int32_t)j + 1, 0, &observer->accounts[j]);
  }
  *out = &observer->base;
  return PETRA_OK;
fail:
  petra_memory_observer_destroy(&observer->base);
  return status;
}

void petra_memory_observer_destroy(petra_observer *base) {
  memory_observer *observer = (memory_observer *)base;
  if (!observer)
    return;
  petra_worker_cost_destroy(observer->counting);
  petra_free(observer->accounts);
  petra_free(observer);
}

const petra_account *petra_memory_observer_accounts(const petra_observer *observer) {
  return ((const memory_observer *)observer)->accounts;
}
