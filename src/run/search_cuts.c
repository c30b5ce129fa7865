/* SPDX-License-Identifier: Apache-2.0 */
#include "run/search_cuts.h"

#include "base/log.h"
#include "base/mem.h"
#include "plan/virtual_cluster.h"
#include "predict/memory.h"
#include "run/run.h"

#include <math.h>
#include <string.h>

/* --- prices --- */

static bool counts_blocks(const petra_config *config) {
  const petra_cost_model model = config->cluster.cost.model;
  return config->cluster.stages == 0 &&
         (model == PETRA_COST_ROOFLINE || model == PETRA_COST_KERNELS || model == PETRA_COST_PROFILE);
}

static petra_status allocate(petra_block_prices *prices, int blocks) {
  const size_t count = (size_t)blocks + 1;
  prices->blocks = blocks;
  PETRA_TRY(petra_allocate(&prices->cost, count, sizeof *prices->cost));
  PETRA_TRY(petra_allocate(&prices->base_bytes, count, sizeof *prices->base_bytes));
  PETRA_TRY(petra_allocate(&prices->growth_bytes, count, sizeof *prices->growth_bytes));
  return petra_allocate(&prices->weight_bytes, count, sizeof *prices->weight_bytes);
}

static void add_cost(petra_stage_cost *sum, const petra_stage_cost *one) {
  sum->forward_ns += one->forward_ns;
  sum->backward_ns += one->backward_ns;
  sum->reconstruct_ns += one->reconstruct_ns;
  sum->weight_gradient_ns += one->weight_gradient_ns;
  sum->update_ns += one->update_ns;
}

static int64_t left_by_forward(const petra_memory_stage *stage) {
  const petra_memory_change *own = &stage->change[PETRA_MEMORY_FIRST][PETRA_ACTION_FORWARD][PETRA_MEMORY_OWN];
  int64_t bytes = 0;
  for (int c = 0; c < PETRA_MEMORY_CATEGORIES; c++)
    bytes += c == PETRA_MEMORY_MESSAGES ? 0 : own->bytes[c];
  return bytes > 0 ? bytes : 0;
}

static petra_status fill(const petra_plan *plan, petra_block_prices *prices) {
  const int blocks = plan->model.block_count;
  petra_cluster cluster = {0};
  petra_memory_stage *memory = NULL;
  petra_status status;
  PETRA_TRY(allocate(prices, blocks));
  PETRA_TRY_GOTO(status, petra_cluster_init(&cluster, plan), done);
  PETRA_TRY_GOTO(status, petra_allocate(&memory, (size_t)blocks, sizeof *memory), done);
  PETRA_TRY_GOTO(status, petra_predict_memory_measured(plan, NULL, memory), done);
  for (int b = 0; b < blocks; b++) {
    int64_t base = 0;
    prices->cost[b + 1] = prices->cost[b];
    add_cost(&prices->cost[b + 1], &cluster.costs[b]);
    for (int i = 0; i < PETRA_MEMORY_CATEGORIES; i++)
      base += memory[b].base[i];
    prices->base_bytes[b + 1] = prices->base_bytes[b] + base;
    prices->growth_bytes[b + 1] = prices->growth_bytes[b] + left_by_forward(&memory[b]);
    prices->weight_bytes[b + 1] = prices->weight_bytes[b] + memory[b].base[PETRA_MEMORY_PARAMETERS];
  }
done:
  petra_free(memory);
  petra_cluster_fini(&cluster);
  return status;
}

/* Opens a plan with one block per stage, each on a device of its own. */
static petra_status open_blocks(const petra_candidates *c, int64_t batch, petra_keep keep, petra_config **config,
                                petra_run **run) {
  const petra_run_options alone = {.kind = PETRA_RUN_SIMULATE, .times_alone = true};
  const petra_candidate one = {.method = petra_method_get(0),
                               .stages = petra_candidates_devices(c),
                               .keep = keep,
                               .accumulate = 1,
                               .batch = batch};
  PETRA_TRY(petra_candidate_make(c, &one, config));
  (*config)->stages.partition = PETRA_PARTITION_BLOCK;
  (*config)->stages.count = 0;
  (*config)->method.chunks = 0;
  (*config)->cluster.speeds.count = 0;
  (*config)->cluster.placement.count = 0;
  return petra_run_open(*config, &alone, run);
}

petra_status petra_block_prices_create(const petra_candidates *c, int64_t batch, petra_keep keep, bool *known,
                                       petra_block_prices **out) {
  const petra_config *own = petra_candidates_config(c);
  petra_log_kept log = {.line = "out of memory while the blocks are priced"};
  petra_block_prices *prices;
  petra_config *config = NULL;
  petra_run *run = NULL;
  *known = counts_blocks(own);
  PETRA_TRY(petra_allocate(&prices, 1, sizeof *prices));
  *prices = (petra_block_prices){.batch = batch,
                                 .keep = keep,
                                 .engines = (int)own->cluster.engines,
                                 .overlap = own->cluster.overlap,
                                 .speeds = own->cluster.speeds};
  *out = prices;
  if (!*known)
    return PETRA_OK;
  petra_log_keep(&log);
  petra_status status = open_blocks(c, batch, keep, &config, &run);
  if (status == PETRA_OK)
    status = fill(petra_run_plan(run), prices);
  petra_run_destroy(run);
  petra_config_destroy(config);
  petra_log_keep_end(&log);
  if (status == PETRA_OK)
    return PETRA_OK;
  prices->blocks = 0;
  *known = false;
  return status == PETRA_CONFIG || status == PETRA_SCHEDULE || status == PETRA_UNSUPPORTED
             ? PETRA_OK
             : petra_fail(status, "%s", log.line);
}

void petra_block_prices_destroy(petra_block_prices *prices) {
  if (!prices)
    return;
  petra_free(prices->cost);
  petra_free(prices->base_bytes);
  petra_free(prices->growth_bytes);
  petra_free(prices->weight_bytes);
  petra_free(prices);
}

/* --- one stage of a cut --- */

static int32_t device_of(const petra_cut_rule *rule, int32_t stage) {
  return petra_layout_device(rule->layout, rule->devices, stage + 1) - 1;
}

/* The times of a stage (from 0) for a microbatch, in nanoseconds: of the first engine and of the second. */
typedef struct engine_times {
  double first, second;
} engine_times;

static engine_times times_of(const petra_cut_rule *rule, int32_t stage, int begin, int end) {
  const petra_block_prices *prices = rule->prices;
  const petra_stage_cost *a = &prices->cost[begin], *b = &prices->cost[end];
  const bool last = stage == rule->stages - 1;
  const petra_stage_cost cost = {.forward_ns = b->forward_ns - a->forward_ns,
                                 .backward_ns = b->backward_ns - a->backward_ns,
                                 .reconstruct_ns = rule->cost.early ? 0 : b->reconstruct_ns - a->reconstruct_ns,
                                 .weight_gradient_ns = b->weight_gradient_ns - a->weight_gradient_ns,
                                 .update_ns = b->update_ns - a->update_ns};
  const double speed = prices->speeds.count > 0 ? prices->speeds.values[device_of(rule, stage)] : 1;
  int64_t ns[PETRA_ACTION_KINDS];
  petra_cost_durations(&cost, &rule->cost, last, ns);
  return (engine_times){(last && rule->cost.fused_head ? 0 : (double)ns[PETRA_ACTION_FORWARD]) / speed,
                        ((double)(ns[PETRA_ACTION_BACKWARD] + ns[PETRA_ACTION_WEIGHT_GRADIENT]) +
                         rule->updates * (double)ns[PETRA_ACTION_UPDATE]) /
                            speed};
}

static double busy_ns(const petra_cut_rule *rule, engine_times t) {
  if (rule->prices->engines > 1)
    return fmax(t.first, t.second);
  return t.first + t.second - rule->prices->overlap * fmin(t.first, t.second);
}

/* --- bounds --- */

/* Each part of the cost of a block is rounded to a nanosecond, that of a stage too. */
static double rounding_ns(const petra_cut_rule *rule) {
  enum { PARTS = 5 };
  double slowest = 1;
  for (int64_t d = 0; d < rule->prices->speeds.count; d++)
    slowest = fmin(slowest, rule->prices->speeds.values[d]);
  return PARTS * (rule->prices->blocks + 2 * rule->stages) / slowest;
}

petra_cut_bound petra_cut_bound_of(const petra_cut_rule *rule, const int64_t *blocks) {
  const petra_block_prices *prices = rule->prices;
  double work_ns = 0, busiest_ns = 0;
  petra_cut_bound bound = {0};
  for (int32_t d = 0; d < rule->devices; d++) {
    engine_times sum = {0};
    int64_t base = 0, most = 0;
    int begin = 0;
    for (int32_t s = 0; s < rule->stages; s++) {
      const int end = begin + (int)blocks[s];
      if (device_of(rule, s) == d) {
        const engine_times t = times_of(rule, s, begin, end);
        const int64_t kept = rule->kept_is_fixed || rule->kept[s] < 1 ? rule->kept[s] : 1;
        const int64_t grown = kept * (prices->growth_bytes[end] - prices->growth_bytes[begin]);
        sum.first += t.first;
        sum.second += t.second;
        base += prices->base_bytes[end] - prices->base_bytes[begin];
        most = grown > most ? grown : most;
      }
      begin = end;
    }
    work_ns += sum.first + sum.second;
    busiest_ns = fmax(busiest_ns, busy_ns(rule, sum));
    bound.bytes = base + most > bound.bytes ? base + most : bound.bytes;
  }
  double ns = rule->share * busiest_ns;
  if (rule->in_flight > 0)
    ns = fmax(ns, work_ns / (double)rule->in_flight);
  ns -= rounding_ns(rule);
  bound.time_s = ns > 0 ? 1e-9 * ns : 0;
  return bound;
}

/* --- the trade between bottleneck and memory --- */

static double stage_ns(const petra_cut_rule *rule, int32_t stage, int begin, int end) {
  return busy_ns(rule, times_of(rule, stage, begin, end));
}

static int64_t stage_bytes(const petra_cut_rule *rule, int32_t stage, int begin, int end) {
  const petra_block_prices *p = rule->prices;
  return p->base_bytes[end] - p->base_bytes[begin] +
         rule->kept[stage] * (p->growth_bytes[end] - p->growth_bytes[begin]) +
         rule->versions * (p->weight_bytes[end] - p->weight_bytes[begin]);
}

/* The tables of the dynamic programming: for `stages` stages, the times and bytes of every range of blocks, the least
 * bottleneck of the first s stages over the first b blocks, and where the last of these stages begins. */
typedef struct tables {
  int blocks;
  double *time, *best; /* [s][begin][end], [s][b] */
  int64_t *bytes;
  int *from;
} tables;

static size_t range_index(const tables *t, int32_t stage, int begin, int end) {
  const size_t width = (size_t)t->blocks + 1;
  return ((size_t)stage * width + (size_t)begin) * width + (size_t)end;
}

static void tables_fini(tables *t) {
  petra_free(t->time);
  petra_free(t->best);
  petra_free(t->bytes);
  petra_free(t->from);
}

static petra_status tables_init(const petra_cut_rule *rule, tables *t) {
  const size_t width = (size_t)rule->prices->blocks + 1, stages = (size_t)rule->stages;
  *t = (tables){.blocks = rule->prices->blocks};
  PETRA_TRY(petra_allocate(&t->time, stages * width * width, sizeof *t->time));
  PETRA_TRY(petra_allocate(&t->bytes, stages * width * width, sizeof *t->bytes));
  PETRA_TRY(petra_allocate(&t->best, (stages + 1) * width, sizeof *t->best));
  PETRA_TRY(petra_allocate(&t->from, (stages + 1) * width, sizeof *t->from));
  for (int32_t s = 0; s < rule->stages; s++)
    for (int begin = s; begin < t->blocks; begin++)
      for (int end = begin + 1; end <= t->blocks - (rule->stages - 1 - s); end++) {
        t->time[range_index(t, s, begin, end)] = stage_ns(rule, s, begin, end);
        t->bytes[range_index(t, s, begin, end)] = stage_bytes(rule, s, begin, end);
      }
  return PETRA_OK;
}

/* Finds the cut with the least bottleneck whose stages have fewer than `limit` bytes; returns false if there is none. */
static bool find_cut(const petra_cut_rule *rule, tables *t, int64_t limit, int64_t *cut) {
  const int32_t stages = rule->stages;
  const size_t width = (size_t)t->blocks + 1;
  for (int b = 0; b <= t->blocks; b++)
    t->best[b] = b == 0 ? 0 : INFINITY;
  for (int32_t s = 0; s < stages; s++)
    for (int end = 0; end <= t->blocks; end++) {
      double *best = &t->best[((size_t)s + 1) * width + (size_t)end];
      *best = INFINITY;
      for (int begin = s; begin < end && end <= t->blocks - (stages - 1 - s); begin++) {
        const size_t range = range_index(t, s, begin, end);
        const double before = t->best[(size_t)s * width + (size_t)begin];
        const double longest = fmax(before, t->time[range]);
        if (t->bytes[range] >= limit || !(longest < *best))
          continue;
        *best = longest;
        t->from[((size_t)s + 1) * width + (size_t)end] = begin;
      }
    }
  if (isinf(t->best[(size_t)stages * width + (size_t)t->blocks]))
    return false;
  for (int32_t s = stages, end = t->blocks; s > 0; s--) {
    const int begin = t->from[(size_t)s * width + (size_t)end];
    cut[s - 1] = end - begin;
    end = begin;
  }
  return true;
}

static int64_t most_bytes(const petra_cut_rule *rule, const tables *t, const int64_t *cut) {
  int64_t most = 0;
  for (int32_t s = 0, begin = 0; s < rule->stages; begin += (int)cut[s++]) {
    const int64_t bytes = t->bytes[range_index(t, s, begin, begin + (int)cut[s])];
    most = bytes > most ? bytes : most;
  }
  return most;
}

petra_status petra_cuts_trade(const petra_cut_rule *rule, int64_t **cuts, int64_t *count) {
  const size_t stages = (size_t)rule->stages;
  int64_t *found = NULL, capacity = 0, limit = INT64_MAX;
  double last_ns = -1;
  tables t;
  petra_status status;
  *count = 0;
  PETRA_TRY_GOTO(status, tables_init(rule, &t), done);
  for (;;) {
    PETRA_TRY_GOTO(status, petra_array_reserve(&found, &capacity, *count + 1, stages * sizeof *found), done);
    int64_t *cut = &found[(size_t)*count * stages];
    if (!find_cut(rule, &t, limit, cut))
      break;
    const double ns = t.best[stages * ((size_t)t.blocks + 1) + (size_t)t.blocks];
    limit = most_bytes(rule, &t, cut);
    if (ns == last_ns) /* as fast as the one before, with less memory */
      memcpy(cut - stages, cut, stages * sizeof *cut);
    else
      ++*count;
    last_ns = ns;
  }
done:
  tables_fini(&t);
  if (status == PETRA_OK)
    *cuts = found;
  else
    petra_free(found);
  return status;
}

/* --- all cuts --- */

int64_t petra_cuts_count(int blocks, int32_t stages, int64_t limit) {
  double count = 1; /* blocks - 1 over stages - 1 */
  for (int i = 1; i < stages && count <= 1e15; i++)
    count = count * (blocks - stages + i) / i;
  return blocks < stages ? 0 : count > (double)limit ? limit : llround(count);
}

void petra_cuts_first(int blocks, int32_t stages, int64_t *cut) {
  for (int32_t s = 0; s < stages; s++)
    cut[s] = 1;
  cut[stages - 1] = blocks - (stages - 1);
}

bool petra_cuts_next(int32_t stages, int64_t *cut) {
  int32_t s = stages - 1;
  while (s > 0 && cut[s] == 1)
    s--;
  if (s == 0)
    return false;
  const int64_t rest = cut[s] - 1;
  cut[s] = 1;
  cut[s - 1]++;
  cut[stages - 1] = rest;
  return true;
}
