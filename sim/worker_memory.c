#include "sim/worker_memory.h"

#include "base/mem.h"
#include "sim/worker_cost.h"

#include <string.h>

enum { COLUMNS = PETRA_MEMORY_CATEGORIES + 1 };

typedef struct worker_memory {
  petra_worker base;
  petra_worker_memory_options options;
  const petra_stage_counts *counts;
  petra_account *accounts;
  unsigned (*touched)[PETRA_ACTION_KINDS][PETRA_MEMORY_NEIGHBOURS]; /* per stage: categories, as bits */
  int64_t (*done)[PETRA_MEMORY_HOLDERS];                            /* per stage: B and W so far */
  bool shares;
} worker_memory;

static void sample(worker_memory *worker, int32_t stage, int64_t now_ns, const petra_account *highest) {
  const petra_account *account = &worker->accounts[stage - 1];
  int64_t level[COLUMNS], peak[COLUMNS];
  memcpy(level, account->bytes, sizeof account->bytes);
  memcpy(peak, highest->bytes, sizeof highest->bytes);
  level[PETRA_MEMORY_CATEGORIES] = account->total_bytes;
  peak[PETRA_MEMORY_CATEGORIES] = highest->total_bytes;
  petra_samples_put(worker->options.samples, stage - 1, now_ns, peak, level);
}

static int64_t larger(int64_t a, int64_t b) {
  return a > b ? a : b;
}

/* Applies a change to an account, its peaks included; `touched` has a bit for each category that it touches.
 */
static void apply(worker_memory *worker, int32_t stage, int64_t now_ns, const petra_memory_change *change,
                  unsigned touched) {
  petra_account *account = &worker->accounts[stage - 1];
  petra_account highest;
  if (!touched)
    return;
  if (worker->options.samples) {
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
    if (worker->options.samples)
      highest.bytes[c] = peak;
  }
  if (worker->options.samples)
    sample(worker, stage, now_ns, &highest);
}

/* Sets what goes by counts: inputs and versions. */
static void count(worker_memory *worker, int32_t stage, int64_t now_ns) {
  const petra_memory_stage *about = &worker->options.stage[stage - 1];
  const petra_stage_counts *counts = &worker->counts[stage - 1];
  petra_account *account = &worker->accounts[stage - 1];
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
  if (worker->options.samples)
    sample(worker, stage, now_ns, account);
}

/* What an action of a stage changes around it, with what it lets go of as the later of two. */
typedef struct changes {
  petra_memory_change change[PETRA_MEMORY_NEIGHBOURS];
  unsigned touched[PETRA_MEMORY_NEIGHBOURS];
} changes;

/* Tensors of stage `lower` and the one above, which is neighbour `n` of the acting stage. */
static void let_go(const worker_memory *worker, int32_t lower, petra_memory_holder holder, petra_memory_of n,
                   changes *out) {
  const int64_t *shared = worker->options.stage[lower - 1].shared[holder];
  for (int c = 0; c < PETRA_MEMORY_CATEGORIES; c++) {
    out->change[n].bytes[c] -= shared[c];
    out->touched[n] |= shared[c] ? 1u << c : 0;
  }
}

/* The other holder may have let go before. */
static void release_shared(worker_memory *worker, const petra_action *action, changes *out) {
  const int32_t stage = action->stage;
  const bool w = action->kind == PETRA_ACTION_WEIGHT_GRADIENT;
  if (!worker->shares || (!w && action->kind != PETRA_ACTION_BACKWARD))
    return;
  const petra_memory_holder holder = w ? PETRA_MEMORY_HELD_BY_WEIGHT_GRADIENT : PETRA_MEMORY_HELD_BY_BACKWARD;
  if (stage < worker->options.stages && worker->done[stage][PETRA_MEMORY_HELD_BY_WEIGHT_GRADIENT] > action->microbatch)
    let_go(worker, stage, holder, PETRA_MEMORY_ABOVE, out);
  for (int h = 0; w && stage > 1 && h < PETRA_MEMORY_HOLDERS; h++)
    if (worker->done[stage - 2][h] > action->microbatch)
      let_go(worker, stage - 1, (petra_memory_holder)h, PETRA_MEMORY_OWN, out);
  worker->done[stage - 1][holder]++;
}

static petra_status perform(petra_worker *base, int64_t virtual_ns, const petra_action *actions, int action_count,
                            petra_action_result *results) {
  worker_memory *worker = (worker_memory *)base;
  petra_worker *counting = worker->options.counting;
  for (int i = 0; i < action_count; i++) {
    int32_t stage = actions[i].stage;
    PETRA_TRY(counting->ops->perform(counting, virtual_ns, &actions[i], 1, &results[i]));
    changes all;
    memcpy(all.change, worker->options.stage[stage - 1].change[actions[i].kind], sizeof all.change);
    memcpy(all.touched, worker->touched[stage - 1][actions[i].kind], sizeof all.touched);
    release_shared(worker, &actions[i], &all);
    apply(worker, stage, virtual_ns, &all.change[PETRA_MEMORY_OWN], all.touched[PETRA_MEMORY_OWN]);
    if (stage > 1)
      apply(worker, stage - 1, virtual_ns, &all.change[PETRA_MEMORY_BELOW], all.touched[PETRA_MEMORY_BELOW]);
    if (stage < worker->options.stages)
      apply(worker, stage + 1, virtual_ns, &all.change[PETRA_MEMORY_ABOVE], all.touched[PETRA_MEMORY_ABOVE]);
    count(worker, stage, virtual_ns);
  }
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

petra_status petra_worker_memory_create(const petra_worker_memory_options *options, petra_worker **out) {
  static const petra_worker_ops ops = {.perform = perform};
  worker_memory *worker;
  petra_status status;
  size_t stages = (size_t)options->stages;
  PETRA_TRY(petra_allocate(&worker, 1, sizeof *worker));
  worker->base.ops = &ops;
  worker->options = *options;
  worker->counts = petra_worker_cost_counts(options->counting);
  PETRA_TRY_GOTO(status, petra_allocate(&worker->accounts, stages, sizeof *worker->accounts), fail);
  PETRA_TRY_GOTO(status, petra_allocate(&worker->touched, stages, sizeof *worker->touched), fail);
  PETRA_TRY_GOTO(status, petra_allocate(&worker->done, stages, sizeof *worker->done), fail);
  for (size_t j = 0; j < stages; j++) {
    const petra_memory_stage *stage = &options->stage[j];
    worker->shares = worker->shares || shares_any(stage);
    for (int c = 0; c < PETRA_MEMORY_CATEGORIES; c++)
      petra_account_add(&worker->accounts[j], (petra_memory_category)c, stage->base[c]);
    for (int k = 0; k < PETRA_ACTION_KINDS; k++)
      for (int n = 0; n < PETRA_MEMORY_NEIGHBOURS; n++)
        worker->touched[j][k][n] = touched_by(&stage->change[k][n]);
    if (options->samples)
      sample(worker, (int32_t)j + 1, 0, &worker->accounts[j]);
  }
  *out = &worker->base;
  return PETRA_OK;
fail:
  petra_worker_memory_destroy(&worker->base);
  return status;
}

void petra_worker_memory_destroy(petra_worker *base) {
  if (!base)
    return;
  petra_free(((worker_memory *)base)->done);
  petra_free(((worker_memory *)base)->touched);
  petra_free(((worker_memory *)base)->accounts);
  petra_free(base);
}

const petra_account *petra_worker_memory_accounts(const petra_worker *worker) {
  return ((const worker_memory *)worker)->accounts;
}
