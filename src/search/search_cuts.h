/* SPDX-License-Identifier: Apache-2.0 */
/* Cuts of a network into stages for the search: prices of blocks, the cuts that trade the bottleneck against memory, and
 * bounds. */
#pragma once

#include "setup/virtual_cluster.h"
#include "search/candidate.h"

/* Sums over a range of blocks. */
typedef struct petra_block_sums {
  petra_stage_cost cost; /* durations */
  int64_t base_bytes;    /* weights, gradients, state of the optimiser */
  int64_t growth_bytes;  /* bytes that F of a microbatch keeps until its B, without messages */
  int64_t weight_bytes;  /* weights alone */
} petra_block_sums;

/* The prices of the blocks of a network for one batch and one choice of the tensors that are kept between F and B. */
typedef struct petra_block_prices {
  int64_t batch;
  petra_keep keep;
  int blocks;             /* 0: there are no prices */
  petra_block_sums *sums; /* sums over the first b blocks, b from 0 */
  petra_cluster cluster;  /* cluster of a plan with one block per stage: the messages of each block, and the links */
  petra_real_list speeds; /* speeds of the devices; borrowed */
} petra_block_prices;

/* Prices the blocks of the config's network by a plan with one block per stage. If costs are not known for each block, or
 * the network cannot run with this batch, the prices have 0 blocks. */
petra_status petra_block_prices_create(const petra_candidates *c, int64_t batch, petra_keep keep,
                                       petra_block_prices **out);
void petra_block_prices_destroy(petra_block_prices *prices);

/* Returns the sums over the blocks begin .. end - 1. */
petra_block_sums petra_block_sums_of(const petra_block_prices *prices, int begin, int end);

/* The times of a stage for a microbatch, in nanoseconds; `rest` is the time of W and of updates. */
typedef struct petra_stage_times {
  double forward, backward, rest;
} petra_stage_times;

/* The load of a device in a cut. */
typedef struct petra_device_load {
  petra_stage_times sum;    /* sum over its stages */
  int64_t base, most_grown; /* bytes of all its stages, and bytes of the stage that certainly grows most */
  int64_t bytes;            /* estimate of the maximum memory of all its stages */
  double fill, drain;       /* times of a microbatch from stage 1 to the device's first stage, and back */
} petra_device_load;

/* The values by which a cut is judged: the prices, and facts of a candidate without a cut. */
typedef struct petra_cut_rule {
  const petra_block_prices *prices;
  petra_cost_rule cost; /* how the method combines the costs */
  petra_layout layout;
  int32_t stages, devices;
  const int64_t *kept; /* microbatches that each stage keeps */
  bool kept_is_fixed;  /* `kept` does not depend on the cut */
  int64_t versions;    /* additional versions of the weights that a stage may keep: for the trade, not for bounds */
  /* For bounds of the time per microbatch, each 0 if there is no such bound. It is at least
   * - `share` of the work of a device for a microbatch, with `updates` updates;
   * - `windows`, the number of whole windows of k microbatches per microbatch, times the length of a window: a device
   *   waits until the first F has reached it, does F and B of k microbatches, and its last B goes down to stage 1;
   * - `rounds` times the way of a microbatch through all stages and links: the reciprocal of the number in flight. */
  double share, updates, windows, rounds;
  int64_t k;
  petra_device_load *loads; /* scratch memory, of `devices` devices; borrowed */
} petra_cut_rule;

/* Lower bounds of the time per microbatch and of the memory of the fullest device, for all simulations of a cut. */
typedef struct petra_cut_bound {
  double time_s;
  int64_t bytes;
} petra_cut_bound;
petra_cut_bound petra_cut_bound_of(const petra_cut_rule *rule, const int64_t *blocks);

/* Finds for each limit of memory the cut with the smallest bottleneck. The bottleneck is the longest time that a stage
 * takes for a microbatch. The first cut has no limit; each further cut has less memory and a longer bottleneck. `*cuts`
 * has `*count` cuts of `stages` numbers each. Time and memory are estimates by the prices. */
petra_status petra_cuts_trade(const petra_cut_rule *rule, int64_t **cuts, int64_t *count);

/* Improves a cut whose devices have several stages: moves a block from one stage to another, with all boundaries in
 * between, as long as this makes the busiest device faster (by_memory: the fullest device smaller) or, if the maximum
 * stays equal, makes the devices more similar. Time and memory are estimates by the prices. */
void petra_cuts_balance(const petra_cut_rule *rule, bool by_memory, int64_t *cut);

/* Returns the number of cuts of `blocks` blocks into `stages` stages, at most `limit`. */
int64_t petra_cuts_count(int blocks, int32_t stages, int64_t limit);

/* The second function gets the next cut in lexical order; it returns false after the last cut. The first cut is 1, 1,
 * ..., and the remaining blocks. */
void petra_cuts_first(int blocks, int32_t stages, int64_t *cut);
bool petra_cuts_next(int32_t stages, int64_t *cut);
