/* SPDX-License-Identifier: Apache-2.0 */
#include "search/search.h"

#include "base/log.h"
#include "base/mem.h"
#include "search/search_cuts.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* All properties of a candidate except its cut, and the values that all its simulations have in common. */
typedef struct family {
  petra_candidate candidate;
  const petra_block_prices *prices;
  bool cuts;           /* the family has cuts */
  bool runs;           /* at least one cut was simulated */
  bool fixed;          /* the order of the actions of a device does not depend on the cut */
  int64_t lag_min;     /* a lower bound of the largest lag */
  petra_cut_rule rule; /* valid if it has cuts and runs */
  int64_t *kept;       /* kept microbatches of each stage in the first simulated cut */
  int64_t *tried;      /* cuts that were simulated or excluded, `stages` numbers each */
  int64_t tried_count, tried_capacity;
} family;

typedef struct search {
  const petra_candidates *c;
  const petra_search_options *options;
  petra_search_result *out;
  petra_block_prices **prices;
  int64_t price_count, price_capacity;
  family *families;
  int64_t count, capacity;
  int64_t ran;      /* number of candidates that could run */
  char reason[512]; /* the reason why the first candidate could not run */
} search;

/* --- the Pareto set --- */

/* Returns true if a point covers these figures. */
static bool covers(const petra_point_set *set, double seconds, int64_t bytes, int64_t lag) {
  for (int64_t i = 0; i < set->count; i++) {
    const petra_point *p = &set->point[i];
    if (p->seconds <= seconds && p->found.peak_bytes <= bytes && p->found.lag_max <= lag)
      return true;
  }
  return false;
}

static void remove_covered(petra_point_set *set, const petra_point *by) {
  const petra_point_set one = {.point = (petra_point *)by, .count = 1};
  int64_t left = 0;
  for (int64_t i = 0; i < set->count; i++) {
    const petra_point *p = &set->point[i];
    if (covers(&one, p->seconds, p->found.peak_bytes, p->found.lag_max))
      petra_free((void *)p->candidate.blocks);
    else
      set->point[left++] = *p;
  }
  set->count = left;
}

/* Inserts a point, with a copy of its candidate's cut, unless it is covered; removes the points that it covers. */
static petra_status insert(petra_point_set *set, const petra_point *point) {
  const size_t stages = (size_t)point->candidate.stages;
  int64_t *blocks = NULL;
  if (covers(set, point->seconds, point->found.peak_bytes, point->found.lag_max))
    return PETRA_OK;
  PETRA_TRY(petra_array_reserve(&set->point, &set->capacity, set->count + 1, sizeof *set->point));
  if (point->candidate.blocks) {
    PETRA_TRY(petra_allocate(&blocks, stages, sizeof *blocks));
    memcpy(blocks, point->candidate.blocks, stages * sizeof *blocks);
  }
  remove_covered(set, point);
  petra_point *p = &set->point[set->count++];
  *p = *point;
  p->candidate.blocks = blocks;
  return PETRA_OK;
}

/* Compares points by seconds, and for equal seconds by memory. */
static int compare_points(const void *a, const void *b) {
  const petra_point *p = a, *q = b;
  if (p->seconds != q->seconds)
    return p->seconds < q->seconds ? -1 : 1;
  return (p->found.peak_bytes > q->found.peak_bytes) - (p->found.peak_bytes < q->found.peak_bytes);
}

void petra_search_fini(petra_search_result *result) {
  for (int64_t i = 0; i < result->points.count; i++)
    petra_free((void *)result->points.point[i].candidate.blocks);
  petra_free(result->points.point);
  *result = (petra_search_result){0};
}

/* --- the families --- */

static bool is_exact(const petra_method *method) {
  return method->program->moment == PETRA_MOMENT_WINDOW;
}

/* Returns true if B reads the weights that its F read. The gradient then does not depend on the tensors that are kept
 * between them. */
static bool keeps_freely(const petra_method *m) {
  return is_exact(m) ||
         (m->backward_weights == PETRA_WEIGHTS_STASHED &&
          (!m->inverts || m->invert_weights == PETRA_WEIGHTS_STASHED)) ||
         m->backward_weights == PETRA_WEIGHTS_DOUBLE_BUFFER;
}

/* Returns true if another preset, earlier or later in the list, is the same as this method with `keep`. */
static bool is_preset(const petra_method *method, petra_keep keep) {
  for (int i = 0; i < petra_method_count(); i++) {
    const petra_method m = petra_method_get(i);
    if (m.program == method->program && m.keep == keep && m.forward_weights == method->forward_weights &&
        m.backward_weights == method->backward_weights &&
        (keep != PETRA_KEEP_NOTHING || m.invert_weights == method->backward_weights))
      return true;
  }
  return false;
}

static petra_status price(search *s, int64_t batch, petra_keep keep, const petra_block_prices **out) {
  for (int64_t i = 0; i < s->price_count; i++)
    if (s->prices[i]->batch == batch && s->prices[i]->keep == keep) {
      *out = s->prices[i];
      return PETRA_OK;
    }
  PETRA_TRY(petra_array_reserve(&s->prices, &s->price_capacity, s->price_count + 1, sizeof(petra_block_prices *)));
  PETRA_TRY(petra_block_prices_create(s->c, batch, keep, &s->prices[s->price_count]));
  *out = s->prices[s->price_count++];
  return PETRA_OK;
}

static petra_status add_family(search *s, const petra_candidate *candidate) {
  const petra_keep keep = candidate->keep == PETRA_KEEP_PRESET ? candidate->method.keep : candidate->keep;
  family f = {.candidate = *candidate};
  PETRA_TRY(petra_array_reserve(&s->families, &s->capacity, s->count + 1, sizeof *s->families));
  PETRA_TRY(price(s, candidate->batch, keep, &f.prices));
  f.cuts = f.prices->blocks > 0;
  if (f.cuts && f.prices->blocks < candidate->stages)
    return PETRA_OK;
  PETRA_TRY(petra_allocate(&f.kept, (size_t)candidate->stages, sizeof *f.kept));
  s->families[s->count++] = f;
  return PETRA_OK;
}

/* Adds a family for each k. */
static petra_status add_windows(search *s, petra_candidate candidate) {
  const petra_config *config = s->c->config;
  enum { BATCH_MAX = 65536, K_MAX = 1000000 }; /* maximum values of data.batch and method.accumulate */
  const int64_t samples = config->data.batch * config->method.accumulate;
  const bool counts = config->cluster.stages == 0 && (config->cluster.cost.model == PETRA_COST_ROOFLINE ||
                                                      config->cluster.cost.model == PETRA_COST_KERNELS);
  for (int64_t k = 1; k <= samples && k <= K_MAX; k++) {
    if (counts ? samples % k != 0 || samples / k > BATCH_MAX : k != config->method.accumulate)
      continue;
    candidate.accumulate = k;
    candidate.batch = samples / k;
    PETRA_TRY(add_family(s, &candidate));
  }
  return PETRA_OK;
}

/* Adds a family for each choice of the tensors that are kept. */
static petra_status add_kept(search *s, petra_candidate candidate) {
  const petra_method *method = &candidate.method;
  static const petra_keep all[] = {PETRA_KEEP_GRAPH, PETRA_KEEP_INPUT, PETRA_KEEP_NOTHING};
  candidate.keep = PETRA_KEEP_PRESET;
  PETRA_TRY(add_windows(s, candidate));
  for (int i = 0; i < 3; i++) {
    const bool new = keeps_freely(method) && all[i] != method->keep && !is_preset(method, all[i]);
    if (!new || (all[i] == PETRA_KEEP_NOTHING && !s->c->reversible))
      continue;
    candidate.keep = all[i];
    PETRA_TRY(add_windows(s, candidate));
  }
  if (!method->program->early_recompute || method->keep != PETRA_KEEP_INPUT)
    return PETRA_OK;
  candidate.keep = PETRA_KEEP_PRESET;
  candidate.early_recompute = true;
  return add_windows(s, candidate);
}

/* Adds the families of a method, for all numbers of stages per device. */
static petra_status add_method(search *s, const petra_method *method) {
  const petra_config *config = s->c->config;
  const int32_t devices = s->c->devices;
  const petra_layout layout = method->program->layout;
  const int32_t own = petra_candidates_chunks(s->c, method);
  const int32_t chunks_min = layout == PETRA_LAYOUT_LOOP ? 1 : method->chunks;
  int32_t chunks_max = layout == PETRA_LAYOUT_LOOP ? PETRA_SEARCH_CHUNKS : method->chunks;
  if (layout == PETRA_LAYOUT_LOOP && config->cluster.stages > 0)
    chunks_max = 2;
  if (layout == PETRA_LAYOUT_LOOP && own > chunks_max)
    chunks_max = own;
  if (config->cluster.stages == 0 && chunks_max > s->c->blocks / devices)
    chunks_max = s->c->blocks / devices;
  for (int32_t chunks = chunks_min; chunks <= chunks_max; chunks++)
    PETRA_TRY(add_kept(s, (petra_candidate){.method = *method, .stages = chunks * devices}));
  return PETRA_OK;
}

/* --- simulation of a candidate --- */

static bool is_random(const petra_config *config) {
  return config->cluster.jitter.model != PETRA_JITTER_NONE || config->cluster.pauses.mean_between_s > 0 ||
         config->cluster.failures.mean_between_s > 0;
}

/* Sets the bounds of the time per microbatch if it is computed from the makespan, which contains all work. The
 * microbatches of a window of k begin after the update of the previous window and end before the update of their
 * window. */
static void bound_makespan(family *f, const petra_candidate_figures *found) {
  const int64_t windows = found->microbatches / f->rule.k;
  const bool alone = found->in_flight_max == 1 && (f->fixed || f->candidate.method.program->locked);
  f->rule.share = 1;
  f->rule.updates = (double)windows / (double)found->microbatches;
  f->rule.windows = f->rule.updates;
  if (f->fixed || alone)
    f->rule.rounds = 1 / (double)(alone ? 1 : found->in_flight_max + 1);
}

/* Sets the bounds if it is measured between two B of stage 1: all passes of the microbatches that stage 1 reads after
 * the first of them are in between; in rounds, all rounds except one. */
static void bound_steady_state(const petra_config *config, family *f, const petra_candidate_figures *found) {
  const petra_method *method = &f->candidate.method;
  const int64_t credit = config->method.credit > 0 ? config->method.credit : 2 * (int64_t)f->candidate.stages - 1;
  const int64_t first = found->microbatches / 4, count = found->microbatches / 2 - first;
  const int64_t delay = petra_method_distance(method, f->candidate.stages, 1);
  const int64_t in_flight = method->program->arrival ? credit : delay + 1;
  const bool full = first + count + delay + 1 < found->microbatches;
  if ((!f->fixed && !method->program->locked && !method->program->arrival) || count <= in_flight)
    return;
  f->rule.rounds = (double)(count - in_flight) / (double)count / (double)in_flight;
  f->rule.share = (double)(count - (method->program->locked && full ? 1 : in_flight)) / (double)count;
}

/* Takes from the first simulation of a family the values that all its cuts have in common. */
static petra_status learn(const search *s, family *f, const petra_candidate_figures *found) {
  const petra_config *config = s->c->config;
  const petra_program_ops *program = f->candidate.method.program;
  const petra_keep keep = f->candidate.keep == PETRA_KEEP_PRESET ? f->candidate.method.keep : f->candidate.keep;
  f->runs = true;
  f->fixed = !program->arrival && !program->write && config->cluster.engines == 1;
  if (f->fixed || program->locked)
    f->lag_min = found->lag_max;
  if (!f->cuts)
    return PETRA_OK;
  f->rule = (petra_cut_rule){.prices = f->prices,
                             .cost = {.recomputes = keep != PETRA_KEEP_GRAPH,
                                      .early = f->candidate.early_recompute,
                                      .split_backward = program->split_backward,
                                      .fused_head = !f->candidate.method.split_head},
                             .layout = program->layout,
                             .stages = f->candidate.stages,
                             .devices = s->c->devices,
                             .kept = f->kept,
                             .kept_is_fixed = f->fixed,
                             .versions = petra_method_stashes(&f->candidate.method) ? found->lag_max : 0,
                             .k = f->candidate.accumulate};
  if (!is_random(config) && program->time == PETRA_TIME_WHOLE)
    bound_makespan(f, found);
  else if (!is_random(config))
    bound_steady_state(config, f, found);
  return petra_allocate(&f->rule.loads, (size_t)f->rule.devices, sizeof *f->rule.loads);
}

static int64_t limit_of(const search *s) {
  return s->options->memory_bytes > 0 ? s->options->memory_bytes : INT64_MAX;
}

static double samples_of(const search *s, const family *f) {
  const petra_config *config = s->c->config;
  return config->cluster.stages > 0 ? 1 : (double)(f->candidate.batch * config->cluster.replicas);
}

static petra_status simulate(search *s, family *f, const int64_t *blocks) {
  petra_point point = {.candidate = f->candidate, .exact = is_exact(&f->candidate.method), .family = f - s->families};
  const petra_candidate_figures *found = &point.found;
  point.candidate.blocks = blocks;
  PETRA_TRY(petra_candidate_simulate(s->c, &point.candidate, &point.found, f->runs ? NULL : f->kept));
  point.seconds = found->time_per_microbatch_s / samples_of(s, f);
  s->out->simulated++;
  if (*found->reason && !*s->reason)
    memcpy(s->reason, found->reason, sizeof s->reason);
  if (*found->reason || isnan(point.seconds))
    return PETRA_OK;
  s->ran++;
  if (!f->runs)
    PETRA_TRY(learn(s, f, found));
  const int64_t lag = s->options->lag_max;
  if (found->peak_bytes <= limit_of(s) && (lag < 0 || found->lag_max <= lag))
    return insert(&s->out->points, &point);
  return PETRA_OK;
}

/* --- the cuts of a family --- */

static bool was_tried(const family *f, const int64_t *blocks) {
  const size_t stages = (size_t)f->candidate.stages;
  for (int64_t i = 0; i < f->tried_count; i++)
    if (memcmp(&f->tried[(size_t)i * stages], blocks, stages * sizeof *blocks) == 0)
      return true;
  return false;
}

static petra_status remember(family *f, const int64_t *blocks) {
  const size_t stages = (size_t)f->candidate.stages;
  PETRA_TRY(petra_array_reserve(&f->tried, &f->tried_capacity, f->tried_count + 1, stages * sizeof *f->tried));
  memcpy(&f->tried[(size_t)f->tried_count++ * stages], blocks, stages * sizeof *blocks);
  return PETRA_OK;
}

/* Returns true if a bound shows that the cut does not fit, or that a point is at least as good. */
static bool is_excluded(const search *s, const family *f, const int64_t *blocks) {
  if (!f->runs)
    return false;
  const petra_cut_bound bound = petra_cut_bound_of(&f->rule, blocks);
  return bound.bytes > limit_of(s) || covers(&s->out->points, bound.time_s / samples_of(s, f), bound.bytes, f->lag_min);
}

/* Simulates a cut unless it was tried or is excluded. */
static petra_status try_cut(search *s, family *f, const int64_t *blocks) {
  if (was_tried(f, blocks))
    return PETRA_OK;
  PETRA_TRY(remember(f, blocks));
  if (!is_excluded(s, f, blocks))
    return simulate(s, f, blocks);
  s->out->excluded++;
  return PETRA_OK;
}

/* Returns true if further cuts of the family may be points. */
static bool has_hope(const search *s, const family *f) {
  const int64_t lag = s->options->lag_max;
  return f->cuts && f->runs && (lag < 0 || f->lag_min <= lag);
}

/* Simulates all cuts of a family, if they are few. */
static petra_status try_all(search *s, family *f) {
  PETRA_FREED int64_t *cut = NULL;
  if (!has_hope(s, f) ||
      petra_cuts_count(f->prices->blocks, f->candidate.stages, PETRA_SEARCH_CUTS + 1) > PETRA_SEARCH_CUTS)
    return PETRA_OK;
  PETRA_TRY(petra_allocate(&cut, (size_t)f->candidate.stages, sizeof *cut));
  petra_cuts_first(f->prices->blocks, f->candidate.stages, cut);
  do
    PETRA_TRY(try_cut(s, f, cut));
  while (petra_cuts_next(f->candidate.stages, cut));
  return PETRA_OK;
}

/* Moves boundary i / 2 of a cut up or down; returns false if a stage would have no block left. */
static bool move_boundary(int64_t *cut, int i) {
  const int up = i % 2 ? 1 : -1;
  cut[i / 2] += up;
  cut[i / 2 + 1] -= up;
  return cut[i / 2] > 0 && cut[i / 2 + 1] > 0;
}

/* Simulates the cuts that trade the bottleneck of a stage against memory, and, with several stages per device, the cuts
 * that balance the devices. */
static petra_status try_trade(search *s, family *f) {
  PETRA_FREED int64_t *cuts = NULL;
  int64_t count = 0;
  if (!has_hope(s, f))
    return PETRA_OK;
  PETRA_TRY(petra_cuts_trade(&f->rule, &cuts, &count));
  for (int64_t i = 0; i < count; i++)
    PETRA_TRY(try_cut(s, f, &cuts[(size_t)(i * f->candidate.stages)]));
  for (int m = 0; m < 2 && count > 0 && f->rule.stages > f->rule.devices; m++) {
    petra_cuts_balance(&f->rule, m == 1, cuts);
    PETRA_TRY(try_cut(s, f, cuts));
  }
  return PETRA_OK;
}

/* Simulates one cut of a family: the cut with the smallest bottleneck if a device keeps a microbatch at each stage. */
static petra_status try_first(search *s, family *f) {
  const size_t stages = (size_t)f->candidate.stages;
  const int blocks = f->prices->blocks;
  PETRA_FREED int64_t *cut = NULL, *work = NULL;
  PETRA_FREED int *first = NULL;
  if (!f->cuts)
    return simulate(s, f, NULL);
  PETRA_TRY(petra_allocate(&cut, stages, sizeof *cut));
  PETRA_TRY(petra_allocate(&first, stages + 1, sizeof *first));
  PETRA_TRY(petra_allocate(&work, (size_t)blocks, sizeof *work));
  for (int b = 0; b < blocks; b++) {
    const petra_stage_cost cost = petra_block_sums_of(f->prices, b, b + 1).cost;
    work[b] = cost.forward_ns + cost.backward_ns;
  }
  PETRA_TRY(petra_balanced_cut(work, blocks, (int)stages, first));
  for (size_t j = 0; j < stages; j++)
    cut[j] = first[j + 1] - first[j];
  return try_cut(s, f, cut);
}

/* --- the neighbours of the Pareto set --- */

/* Tries every cut that differs from one of the points in one boundary, until all points have been expanded. */
static petra_status expand(search *s) {
  for (int64_t i = 0; i < s->out->points.count;) {
    petra_point *p = &s->out->points.point[i];
    if (p->expanded || !p->candidate.blocks) {
      i++;
      continue;
    }
    p->expanded = true;
    family *f = &s->families[p->family];
    const size_t stages = (size_t)f->candidate.stages;
    PETRA_FREED int64_t *at = NULL;
    PETRA_TRY(petra_allocate(&at, 2 * stages, sizeof *at));
    int64_t *cut = at + stages;
    memcpy(at, p->candidate.blocks, stages * sizeof *at);
    for (int m = 0; m < 2 * ((int)stages - 1); m++) {
      memcpy(cut, at, stages * sizeof *cut);
      if (move_boundary(cut, m))
        PETRA_TRY(try_cut(s, f, cut));
    }
    i = 0; /* the set of points has changed */
  }
  return PETRA_OK;
}

/* --- the whole search --- */

static petra_status open(search *s) {
  for (int i = 0; i < petra_method_count(); i++) {
    const petra_method method = petra_method_get(i);
    if (!method.program->local && (!s->options->exact || is_exact(&method)))
      PETRA_TRY(add_method(s, &method));
  }
  return PETRA_OK;
}

/* Calls a function for every family. Families with the same prices come one after another, because they share
 * predictions of memory (predict/memory.h). */
static petra_status for_each(search *s, petra_status (*function)(search *s, family *f)) {
  for (int64_t p = 0; p < s->price_count; p++)
    for (int64_t i = 0; i < s->count; i++)
      if (s->families[i].prices == s->prices[p])
        PETRA_TRY(function(s, &s->families[i]));
  return PETRA_OK;
}

static petra_status go(search *s) {
  PETRA_TRY(open(s));
  if (s->count == 0)
    return petra_fail(PETRA_CONFIG, "%d devices for a network of %d blocks; expected at most one device per block",
                      s->c->devices, s->c->blocks);
  PETRA_TRY(for_each(s, try_first));
  PETRA_TRY(for_each(s, try_trade));
  PETRA_TRY(for_each(s, try_all));
  PETRA_TRY(expand(s));
  if (s->ran == 0)
    return petra_fail(PETRA_CONFIG, "no candidate can run: %s", *s->reason ? s->reason : "too few microbatches");
  if (s->out->points.count > 1)
    qsort(s->out->points.point, (size_t)s->out->points.count, sizeof(petra_point), compare_points);
  return PETRA_OK;
}

petra_status petra_search(const petra_candidates *c, const petra_search_options *options, petra_search_result *out) {
  search s = {.c = c, .options = options, .out = out};
  *out = (petra_search_result){0};
  const petra_status status = go(&s);
  for (int64_t i = 0; i < s.count; i++) {
    PETRA_FREE_ALL(s.families[i].kept, s.families[i].tried, s.families[i].rule.loads);
  }
  for (int64_t i = 0; i < s.price_count; i++)
    petra_block_prices_destroy(s.prices[i]);
  PETRA_FREE_ALL(s.families, s.prices);
  return status;
}
