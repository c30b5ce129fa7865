/* SPDX-License-Identifier: Apache-2.0 */
#include "search/search_cuts.h"

#include "base/log.h"
#include "base/mem.h"
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

static int64_t left_by_forward(const petra_memory_stage *stage) {
  const petra_memory_change *own = &stage->change[PETRA_MEMORY_FIRST][PETRA_ACTION_FORWARD][PETRA_MEMORY_OWN];
  int64_t bytes = 0;
  for (int c = 0; c < PETRA_MEMORY_CATEGORIES; c++)
    bytes += c == PETRA_MEMORY_MESSAGES ? 0 : own->bytes[c];
  return bytes > 0 ? bytes : 0;
}

static petra_status fill(const petra_plan *plan, petra_block_prices *prices) {
  const int blocks = plan->model.block_count;
  PETRA_FREED petra_memory_stage *memory = NULL;
  prices->blocks = blocks;
  PETRA_TRY(petra_allocate(&prices->sums, (size_t)blocks + 1, sizeof *prices->sums));
  PETRA_TRY(petra_cluster_init(&prices->cluster, plan));
  PETRA_TRY(petra_allocate(&memory, (size_t)blocks, sizeof *memory));
  PETRA_TRY(petra_predict_memory_measured(plan, NULL, memory));
  for (int b = 0; b < blocks; b++) {
    petra_block_sums *sums = &prices->sums[b + 1];
    *sums = prices->sums[b];
    for (int i = 0; i < PETRA_COST_PARTS; i++)
      sums->cost.ns[i] += prices->cluster.costs[b].ns[i];
    for (int i = 0; i < PETRA_MEMORY_CATEGORIES; i++)
      sums->base_bytes += memory[b].base[i];
    sums->growth_bytes += left_by_forward(&memory[b]);
    sums->weight_bytes += memory[b].base[PETRA_MEMORY_PARAMETERS];
  }
  return PETRA_OK;
}

/* Opens a plan with one block per stage and one stage per device. */
static petra_status open_blocks(const petra_candidates *c, int64_t batch, petra_keep keep, petra_config **config,
                                petra_run **run) {
  const petra_run_options alone = {.kind = PETRA_RUN_SIMULATE, .times_alone = true};
  const petra_candidate one = {
      .method = petra_method_get(0), .stages = c->devices, .keep = keep, .accumulate = 1, .batch = batch};
  PETRA_TRY(petra_candidate_make(c, &one, config));
  (*config)->stages.partition = PETRA_PARTITION_BLOCK;
  (*config)->stages.count = 0;
  (*config)->method.chunks = 0;
  (*config)->cluster.speeds.count = 0;
  (*config)->cluster.placement.count = 0;
  return petra_run_open(*config, &alone, run);
}

petra_status petra_block_prices_create(const petra_candidates *c, int64_t batch, petra_keep keep,
                                       petra_block_prices **out) {
  const petra_config *own = c->config;
  petra_log_kept log = {.line = "out of memory while the blocks are priced"};
  petra_block_prices *prices;
  petra_config *config = NULL;
  petra_run *run = NULL;
  PETRA_TRY(petra_allocate(&prices, 1, sizeof *prices));
  *prices = (petra_block_prices){.batch = batch, .keep = keep, .speeds = own->cluster.speeds};
  if (!counts_blocks(own)) {
    *out = prices;
    return PETRA_OK;
  }
  petra_log_keep(&log);
  petra_status status = open_blocks(c, batch, keep, &config, &run);
  if (status == PETRA_OK)
    status = fill(petra_run_plan(run), prices);
  petra_run_destroy(run);
  petra_config_destroy(config);
  petra_log_keep_end(&log);
  const bool cannot_run = status == PETRA_CONFIG || status == PETRA_SCHEDULE || status == PETRA_UNSUPPORTED;
  if (status != PETRA_OK && !cannot_run) {
    petra_block_prices_destroy(prices);
    return petra_fail(status, "%s", log.line);
  }
  if (cannot_run)
    prices->blocks = 0;
  *out = prices;
  return PETRA_OK;
}

void petra_block_prices_destroy(petra_block_prices *prices) {
  if (!prices)
    return;
  petra_cluster_fini(&prices->cluster);
  PETRA_FREE_ALL(prices->sums, prices);
}

petra_block_sums petra_block_sums_of(const petra_block_prices *prices, int begin, int end) {
  petra_block_sums sums = prices->sums[end];
  const petra_block_sums *before = &prices->sums[begin];
  for (int i = 0; i < PETRA_COST_PARTS; i++)
    sums.cost.ns[i] -= before->cost.ns[i];
  sums.base_bytes -= before->base_bytes;
  sums.growth_bytes -= before->growth_bytes;
  sums.weight_bytes -= before->weight_bytes;
  return sums;
}

/* --- one stage of a cut --- */

static int32_t device_of(const petra_cut_rule *rule, int32_t stage) {
  return petra_layout_device(rule->layout, rule->devices, stage + 1) - 1;
}

static petra_stage_times times_of(const petra_cut_rule *rule, int32_t stage, int begin, int end) {
  const petra_real_list *speeds = &rule->prices->speeds;
  const bool last = stage == rule->stages - 1;
  petra_stage_cost cost = petra_block_sums_of(rule->prices, begin, end).cost;
  const double speed = speeds->count > 0 ? speeds->values[device_of(rule, stage)] : 1;
  int64_t ns[PETRA_ACTION_KINDS];
  if (rule->cost.early)
    cost.reconstruct_ns = 0;
  petra_cost_durations(&cost, &rule->cost, last, ns);
  return (petra_stage_times){
      .forward = last && rule->cost.fused_head ? 0 : (double)ns[PETRA_ACTION_FORWARD] / speed,
      .backward = (double)ns[PETRA_ACTION_BACKWARD] / speed,
      .rest = ((double)ns[PETRA_ACTION_WEIGHT_GRADIENT] + rule->updates * (double)ns[PETRA_ACTION_UPDATE]) / speed};
}

/* Returns the time that the engines of a device need for a forward and a backward. */
static double engines_ns(const petra_cut_rule *rule, double forward, double backward) {
  const petra_executor_virtual_options *executor = &rule->prices->cluster.executor;
  if (executor->engines > 1)
    return fmax(forward, backward);
  return forward + backward - executor->overlap * fmin(forward, backward);
}

/* Returns the time of a message of `bytes` between two stages whose link is free. */
static double message_ns(const petra_cut_rule *rule, int32_t from_stage, int32_t to_stage, int64_t bytes) {
  const petra_fabric_options *fabric = &rule->prices->cluster.executor.fabric;
  const int32_t from = device_of(rule, from_stage), to = device_of(rule, to_stage);
  return from == to
             ? 0
             : (double)(petra_fabric_latency_ns(fabric, from, to) + petra_fabric_alone_ns(fabric, from, to, bytes));
}

/* Returns an estimate of the maximum memory of a stage. */
static int64_t stage_bytes(const petra_cut_rule *rule, int32_t stage, int begin, int end) {
  const petra_block_sums sums = petra_block_sums_of(rule->prices, begin, end);
  return sums.base_bytes + rule->kept[stage] * sums.growth_bytes + rule->versions * sums.weight_bytes;
}

/* --- bounds --- */

/* Returns the maximum rounding error: each part of the cost of a block is rounded to a nanosecond, and so is each part
 * of the cost of a stage. */
static double rounding_ns(const petra_cut_rule *rule) {
  enum { PARTS = 5 };
  double slowest = 1;
  for (int64_t d = 0; d < rule->prices->speeds.count; d++)
    slowest = fmin(slowest, rule->prices->speeds.values[d]);
  return PARTS * (rule->prices->blocks + 2 * rule->stages) / slowest;
}

/* Adds a stage with the blocks begin .. end - 1 to its device; returns the times that a microbatch spends in it. */
static petra_stage_times add_stage(const petra_cut_rule *rule, int32_t stage, int begin, int end) {
  const petra_block_sums sums = petra_block_sums_of(rule->prices, begin, end);
  petra_device_load *load = &rule->loads[device_of(rule, stage)];
  const petra_stage_times t = times_of(rule, stage, begin, end);
  const int64_t kept = rule->kept_is_fixed || rule->kept[stage] < 1 ? rule->kept[stage] : 1;
  const int64_t grown = kept * sums.growth_bytes;
  load->sum.forward += t.forward;
  load->sum.backward += t.backward;
  load->sum.rest += t.rest;
  load->base += sums.base_bytes;
  load->most_grown = grown > load->most_grown ? grown : load->most_grown;
  load->bytes += stage_bytes(rule, stage, begin, end);
  return t;
}

/* Fills the loads of the devices; returns the time that a microbatch takes on its way up and down. */
static double load_devices(const petra_cut_rule *rule, const int64_t *blocks) {
  const petra_stage_cost *costs = rule->prices->cluster.costs; /* costs of single blocks */
  double up = 0, down = 0;
  memset(rule->loads, 0, (size_t)rule->devices * sizeof *rule->loads);
  for (int32_t s = 0, begin = 0; s < rule->stages; s++) {
    const int end = begin + (int)blocks[s];
    if (s < rule->devices) { /* the first stages of the devices */
      rule->loads[device_of(rule, s)].fill = up;
      rule->loads[device_of(rule, s)].drain = down;
    }
    const petra_stage_times t = add_stage(rule, s, begin, end);
    up += t.forward;
    down += t.backward;
    if (s + 1 < rule->stages) {
      up += message_ns(rule, s, s + 1, costs[end - 1].forward_bytes);
      down += message_ns(rule, s + 1, s, costs[end].backward_bytes);
    }
    begin = end;
  }
  return up + down;
}

petra_cut_bound petra_cut_bound_of(const petra_cut_rule *rule, const int64_t *blocks) {
  petra_cut_bound bound = {0};
  double ns = rule->rounds * load_devices(rule, blocks);
  for (int32_t d = 0; d < rule->devices; d++) {
    const petra_device_load *load = &rule->loads[d];
    const petra_stage_times *t = &load->sum;
    const double window = load->fill + (double)rule->k * engines_ns(rule, t->forward, t->backward) + load->drain;
    ns = fmax(ns, rule->share * engines_ns(rule, t->forward, t->backward + t->rest));
    ns = fmax(ns, rule->windows * window);
    if (load->base + load->most_grown > bound.bytes)
      bound.bytes = load->base + load->most_grown;
  }
  ns -= rounding_ns(rule);
  bound.time_s = ns > 0 ? 1e-9 * ns : 0;
  return bound;
}

/* --- the trade between bottleneck and memory --- */

static double stage_ns(const petra_cut_rule *rule, int32_t stage, int begin, int end) {
  const petra_stage_times t = times_of(rule, stage, begin, end);
  return engines_ns(rule, t.forward, t.backward + t.rest);
}

/* The tables of the dynamic programming: for `stages` stages, the times and bytes of every range of blocks, the
 * smallest bottleneck of the first s stages over the first b blocks, and the block at which the last of these stages
 * begins. */
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

/* Finds the cut with the smallest bottleneck whose stages have fewer than `limit` bytes; returns false if there is no
 * such cut. */
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
  int64_t maximum = 0;
  for (int32_t s = 0, begin = 0; s < rule->stages; begin += (int)cut[s++]) {
    const int64_t bytes = t->bytes[range_index(t, s, begin, begin + (int)cut[s])];
    maximum = bytes > maximum ? bytes : maximum;
  }
  return maximum;
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
    if (ns == last_ns) /* the cut is as fast as the previous cut and needs less memory */
      memcpy(cut - stages, cut, stages * sizeof *cut);
    else
      ++*count;
    last_ns = ns;
  }
done:
  PETRA_FREE_ALL(t.time, t.best, t.bytes, t.from);
  if (status == PETRA_OK)
    *cuts = found;
  else
    petra_free(found);
  return status;
}

/* The largest time or memory of a device, and the sum of the squares over all devices. */
typedef struct balance {
  double largest, squares;
} balance;

static balance balance_of(const petra_cut_rule *rule, bool by_memory, const int64_t *cut) {
  balance found = {0};
  load_devices(rule, cut);
  for (int32_t d = 0; d < rule->devices; d++) {
    const petra_stage_times *t = &rule->loads[d].sum;
    const double load = by_memory ? (double)rule->loads[d].bytes : engines_ns(rule, t->forward, t->backward + t->rest);
    found.largest = fmax(found.largest, load);
    found.squares += load * load;
  }
  return found;
}

static bool is_balanced_better(const balance *a, const balance *b) {
  return a->largest < b->largest || (a->largest == b->largest && a->squares < b->squares * (1 - 1e-12));
}

void petra_cuts_balance(const petra_cut_rule *rule, bool by_memory, int64_t *cut) {
  balance best = balance_of(rule, by_memory, cut);
  bool improved = true;
  while (improved) {
    improved = false;
    for (int32_t i = 0; i < rule->stages; i++)
      for (int32_t j = 0; j < rule->stages; j++) {
        if (i == j || cut[i] == 1)
          continue;
        cut[i]--;
        cut[j]++;
        const balance found = balance_of(rule, by_memory, cut);
        if (is_balanced_better(&found, &best)) {
          best = found;
          improved = true;
        } else {
          cut[i]++;
          cut[j]--;
        }
      }
  }
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
