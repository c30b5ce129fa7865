/* SPDX-License-Identifier: Apache-2.0 */
/* The cuts of petra plan: all of them are counted and visited once; the trade between bottleneck and memory is that of a
 * search through all cuts; devices with several stages are balanced. */
#include "base/mem.h"
#include "harness.h"
#include "search/search_cuts.h"

enum { BLOCKS = 9 };

static uint32_t state;

static int64_t below(int64_t bound) {
  state = state * 1664525 + 1013904223;
  return (int64_t)(state >> 16) % bound;
}

/* Random prices, with ties in every other case. */
static petra_block_prices random_prices(int blocks, int64_t largest) {
  petra_block_prices prices = {.blocks = blocks, .cluster.executor.engines = 1};
  prices.sums = calloc((size_t)blocks + 1, sizeof *prices.sums);
  prices.cluster.costs = calloc((size_t)blocks, sizeof *prices.cluster.costs);
  for (int b = 0; b < blocks; b++) {
    petra_block_sums *next = &prices.sums[b + 1];
    *next = prices.sums[b];
    next->cost.forward_ns += below(largest);
    next->cost.backward_ns += below(largest);
    next->base_bytes += below(largest);
    next->growth_bytes += below(largest);
    next->weight_bytes += below(largest);
  }
  return prices;
}

static void release(petra_block_prices *prices) {
  free(prices->sums);
  free(prices->cluster.costs);
}

typedef struct figures {
  int64_t ns, bytes;
} figures;

static figures largest_stage(const petra_cut_rule *rule, const int64_t *cut) {
  const petra_block_prices *p = rule->prices;
  figures found = {0};
  for (int s = 0, a = 0; s < rule->stages; a += (int)cut[s++]) {
    const int e = a + (int)cut[s];
    const petra_block_sums *from = &p->sums[a], *to = &p->sums[e];
    const int64_t ns = to->cost.forward_ns - from->cost.forward_ns + to->cost.backward_ns - from->cost.backward_ns;
    const int64_t bytes = to->base_bytes - from->base_bytes + rule->kept[s] * (to->growth_bytes - from->growth_bytes) +
                          rule->versions * (to->weight_bytes - from->weight_bytes);
    found.ns = ns > found.ns ? ns : found.ns;
    found.bytes = bytes > found.bytes ? bytes : found.bytes;
  }
  return found;
}

START_TEST(every_cut_comes_once) {
  for (int blocks = 1; blocks <= BLOCKS; blocks++)
    for (int32_t stages = 1; stages <= blocks; stages++) {
      int64_t cut[BLOCKS], before[BLOCKS], count = 0;
      petra_cuts_first(blocks, stages, cut);
      do {
        int64_t sum = 0;
        int s = 0;
        for (int i = 0; i < stages; i++) {
          ck_assert_int_gt(cut[i], 0);
          sum += cut[i];
        }
        ck_assert_int_eq(sum, blocks);
        while (count > 0 && s < stages && cut[s] == before[s])
          s++;
        ck_assert(count == 0 || (s < stages && cut[s] > before[s]));
        memcpy(before, cut, sizeof cut);
        count++;
      } while (petra_cuts_next(stages, cut));
      ck_assert_int_eq(petra_cuts_count(blocks, stages, 1000), count);
      ck_assert_int_eq(petra_cuts_count(blocks, stages, 3), count < 3 ? count : 3);
    }
  ck_assert_int_eq(petra_cuts_count(3, 4, 10), 0);
  ck_assert_int_eq(petra_cuts_count(1000, 500, 10), 10);
}
END_TEST

/* The cuts of the trade are in the order of rising bottlenecks and falling memory, and no other cut has less of one
 * without more of the other. */
START_TEST(trades_are_those_of_all_cuts) {
  for (int number = 0; number < 400; number++) {
    state = (uint32_t)number;
    const int blocks = 2 + (int)below(BLOCKS - 1);
    petra_block_prices prices = random_prices(blocks, number % 2 ? 4 : 1000);
    const int32_t stages = 1 + (int32_t)below(blocks < 5 ? blocks : 5);
    int64_t kept[5], cut[BLOCKS], *cuts, count;
    for (int s = 0; s < stages; s++)
      kept[s] = stages - s;
    const petra_cut_rule rule = {.prices = &prices,
                                 .stages = stages,
                                 .devices = stages,
                                 .kept = kept,
                                 .versions = number % 3,
                                 .layout = PETRA_LAYOUT_SINGLE};
    ck_assert_int_eq(petra_cuts_trade(&rule, &cuts, &count), PETRA_OK);
    ck_assert_int_gt(count, 0);
    for (int64_t i = 1; i < count; i++) {
      const figures a = largest_stage(&rule, &cuts[(i - 1) * stages]), b = largest_stage(&rule, &cuts[i * stages]);
      ck_assert(a.ns < b.ns && a.bytes > b.bytes);
    }
    petra_cuts_first(blocks, stages, cut);
    do {
      const figures any = largest_stage(&rule, cut);
      bool covered = false;
      for (int64_t i = 0; i < count && !covered; i++) {
        const figures one = largest_stage(&rule, &cuts[i * stages]);
        covered = one.ns <= any.ns && one.bytes <= any.bytes;
      }
      ck_assert_msg(covered, "case %d: a cut of %lld ns and %lld bytes is missing", number, (long long)any.ns,
                    (long long)any.bytes);
    } while (petra_cuts_next(stages, cut));
    petra_free(cuts);
    release(&prices);
  }
}
END_TEST

/* Twelve equal blocks in a V of four devices: a stage of two blocks and one of one on each. */
START_TEST(devices_are_balanced) {
  enum { MANY = 12, STAGES = 8 };
  petra_block_prices prices = random_prices(MANY, 1);
  int64_t kept[STAGES] = {0}, cut[STAGES] = {1, 1, 1, 2, 2, 2, 2, 1}, device[4] = {0};
  petra_device_load loads[4];
  petra_cut_rule rule = {
      .prices = &prices, .stages = STAGES, .devices = 4, .kept = kept, .layout = PETRA_LAYOUT_V, .loads = loads};
  for (int b = 0; b <= MANY; b++)
    prices.sums[b].cost.forward_ns = 100 * b;
  petra_cuts_balance(&rule, false, cut);
  for (int s = 0; s < STAGES; s++)
    device[petra_layout_device(PETRA_LAYOUT_V, 4, s + 1) - 1] += cut[s];
  for (int d = 0; d < 4; d++)
    ck_assert_int_eq(device[d], 3);
  release(&prices);
}
END_TEST

int main(void) {
  TCase *tcase = tcase_create("search_cuts");
  tcase_add_test(tcase, every_cut_comes_once);
  tcase_add_test(tcase, trades_are_those_of_all_cuts);
  tcase_add_test(tcase, devices_are_balanced);
  return harness_run_case("search_cuts", tcase);
}
