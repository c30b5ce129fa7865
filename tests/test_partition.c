/* SPDX-License-Identifier: Apache-2.0 */
/* Which blocks a stage holds. */
#include "networks.h"
#include "nn/model.h"

#include <time.h>

static petra_status cut(const petra_model *model, const char *first, const char *second, petra_partition *out) {
  const char *const sets[] = {first, second};
  petra_config *config = load(sets, second ? 2 : 1);
  harness_clear();
  petra_status status = petra_partition_init(out, config, model);
  petra_config_destroy(config);
  return status;
}

/* The least maximum of `stages` parts of blocks first .. end - 1, by trying every place of the first cut. */
static int64_t brute_force(const petra_model *model, int first, int stages) {
  int64_t best = INT64_MAX, sum = 0;
  for (int end = first + 1; end <= model->block_count - (stages - 1); end++) {
    sum += petra_block_work(&model->blocks[end - 1], NULL);
    if (stages == 1)
      continue;
    int64_t rest = brute_force(model, end, stages - 1), maximum = sum > rest ? sum : rest;
    best = maximum < best ? maximum : best;
  }
  return stages == 1 ? sum : best;
}

START_TEST(partitions) {
  const int depths[] = {18, 34, 50};
  for (int d = 0; d < 3; d++) {
    petra_model model = make_model("revnet", depths[d], 16, "cifar", 10, 32);
    petra_partition partition;
    ck_assert_int_eq(cut(&model, "stages.partition=block", NULL, &partition), PETRA_OK);
    ck_assert_int_eq(partition.stages, model.block_count);
    for (int j = 0; j <= model.block_count; j++)
      ck_assert_int_eq(partition.first[j], j);
    petra_partition_fini(&partition);
    for (int stages = 1; stages <= model.block_count; stages++) {
      char count[40];
      int64_t maximum = 0;
      snprintf(count, sizeof count, "stages.count=%d", stages);
      ck_assert_int_eq(cut(&model, "stages.partition=balanced", count, &partition), PETRA_OK);
      ck_assert_int_eq(partition.stages, stages);
      ck_assert_int_eq(partition.first[0], 0);
      ck_assert_int_eq(partition.first[stages], model.block_count);
      for (int j = 0; j < stages; j++) {
        int64_t sum = 0;
        ck_assert_int_lt(partition.first[j], partition.first[j + 1]);
        for (int b = partition.first[j]; b < partition.first[j + 1]; b++)
          sum += petra_block_work(&model.blocks[b], NULL);
        maximum = sum > maximum ? sum : maximum;
      }
      ck_assert_int_eq(maximum, brute_force(&model, 0, stages));
      petra_partition_fini(&partition);
    }
    petra_model_fini(&model);
  }
  petra_model model = make_model("revnet", 18, 4, "cifar", 10, 32);
  petra_partition partition;
  ck_assert_int_eq(cut(&model, "stages.partition=list", "stages.blocks=[2, 3, 5]", &partition), PETRA_OK);
  ck_assert_int_eq(partition.stages, 3);
  const int first[] = {0, 2, 5, 10};
  for (int j = 0; j < 4; j++)
    ck_assert_int_eq(partition.first[j], first[j]);
  petra_partition_fini(&partition);
  petra_model_fini(&model);
}
END_TEST

/* Of all cuts of items first .. count - 1 into parts the least maximum; the last part of the best one begins as early as it can. */
static int64_t least_maximum(const int64_t *costs, int count, int parts, int *last) {
  int64_t best = parts == 0 && count == 0 ? 0 : INT64_MAX, cost = 0;
  int ignored;
  for (int cut = count - 1; parts > 0 && cut >= parts - 1; cut--) {
    cost += costs[cut];
    const int64_t before = least_maximum(costs, cut, parts - 1, &ignored), maximum = cost > before ? cost : before;
    if (maximum <= best) {
      best = maximum;
      *last = cut;
    }
  }
  return best;
}

START_TEST(cuts_are_those_of_a_search) {
  uint32_t state = 5;
  for (int c = 0; c < 3000; c++) {
    int64_t costs[9];
    const int count = 1 + c % 9, parts = 1 + c / 9 % count;
    int first[10], end = count;
    for (int i = 0; i < count; i++) {
      state = state * 1664525 + 1013904223;
      costs[i] = (state >> 24) % (c % 2 ? 4 : 100); /* some of them with ties and nothing to do */
    }
    ck_assert_int_eq(petra_balanced_cut(costs, count, parts, first), PETRA_OK);
    for (int j = parts; j > 0; j--) {
      int begin = 0;
      least_maximum(costs, end, j, &begin);
      ck_assert_int_eq(first[j], end);
      ck_assert_msg(first[j - 1] == begin, "case %d: part %d of %d begins at %d, not %d", c, j, parts, first[j - 1],
                    begin);
      end = begin;
    }
    ck_assert_int_eq(first[0], 0);
  }
}
END_TEST

/* As many devices as a simulation can have. A search through all places for each number of items would take 20 times as long as this
 * may. */
START_TEST(many_are_cut_at_once) {
  enum { MANY = 100000 };
  int64_t *costs = calloc(MANY, sizeof *costs);
  int first[5];
  for (int i = 0; i < MANY; i++)
    costs[i] = 3;
  const clock_t begin = clock();
  ck_assert_int_eq(petra_balanced_cut(costs, MANY, 4, first), PETRA_OK);
  ck_assert_msg(clock() - begin < CLOCKS_PER_SEC, "%.3f s", (double)(clock() - begin) / CLOCKS_PER_SEC);
  for (int j = 0; j <= 4; j++)
    ck_assert_int_eq(first[j], j * MANY / 4);
  free(costs);
}
END_TEST

START_TEST(bad_partitions) {
  const struct {
    const char *first, *second, *key, *line;
  } bad[] = {
      {"stages.partition=block", "stages.count=9", "stages.count",
       ": stages.partition: block gives 10 stages, one per block; expected 0 or 10"},
      {"stages.partition=block", "stages.count=11", "stages.count", ": stages.partition: block gives 10 stages"},
      {"stages.partition=balanced", NULL, "stages.count",
       ": stages.partition: balanced needs the number of stages; expected 1 to 10"},
      {"stages.partition=balanced", "stages.count=0", "stages.count",
       ": stages.partition: balanced needs the number of stages"},
      {"stages.partition=balanced", "stages.count=11", "stages.count", ": 11 stages for a network of 10 blocks"},
      {"stages.partition=balanced", "stages.count=100000", "stages.count",
       ": 100000 stages for a network of 10 blocks"},
      {"stages.partition=list", NULL, "stages.blocks",
       ": stages.partition: list needs the number of blocks of every stage"},
      {"stages.partition=list", "stages.blocks=[2, 3, 4]", "stages.blocks",
       ": the stages have 9 blocks together; the network has 10"},
      {"stages.partition=list", "stages.blocks=[2, 3, 6]", "stages.blocks",
       ": the stages have 11 blocks together; the network has 10"},
      {"stages.partition=list", "stages.blocks=[1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1]", "stages.blocks",
       ": 11 stages for a network of 10 blocks"},
      {"stages.partition=list", "stages.blocks=[11]", "stages.blocks", ": a stage of 11 blocks; the network has 10"},
  };
  petra_model model = make_model("revnet", 18, 4, "cifar", 10, 32);
  for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
    petra_partition partition;
    ck_assert_msg(cut(&model, bad[i].first, bad[i].second, &partition) == PETRA_CONFIG, "%s %s was taken", bad[i].first,
                  bad[i].second);
    ck_assert_int_eq(harness_lines, 1);
    ck_assert_logged(bad[i].key);
    ck_assert_logged(bad[i].line);
  }
  petra_model_fini(&model);
  /* A stage without blocks is refused when the config is read. */
  const char *const empty[] = {"stages.partition=list", "stages.blocks=[0, 10]"};
  petra_config *config = NULL;
  harness_clear();
  ck_assert_int_eq(petra_config_load(NULL, empty, 2, &config), PETRA_CONFIG);
  ck_assert_int_eq(harness_lines, 1);
  ck_assert_logged("stages.blocks");
}
END_TEST

int main(void) {
  const TTest *const tests[] = {partitions, cuts_are_those_of_a_search, many_are_cut_at_once, bad_partitions};
  return harness_run("partition", tests, HARNESS_COUNT(tests));
}
