/* SPDX-License-Identifier: Apache-2.0 */
#include "nn/model.h"

#include "base/mem.h"

static petra_status allocate(petra_partition *partition, const petra_model *model, int64_t stages) {
  PETRA_TRY(petra_allocate(&partition->first, (size_t)stages + 1, sizeof *partition->first));
  partition->stages = (int)stages;
  partition->first[stages] = model->block_count;
  return PETRA_OK;
}

void petra_partition_fini(petra_partition *partition) {
  petra_free(partition->first);
  *partition = (petra_partition){0};
}

static petra_status by_list(petra_partition *partition, const petra_config *config, const petra_model *model) {
  const petra_int_list *list = &config->stages.blocks;
  if (list->count == 0)
    return petra_config_fail(config, "stages.blocks",
                             "stages.partition: list needs the number of blocks of every stage, such as [2, 3, 5]");
  if (list->count > model->block_count)
    return petra_config_fail(config, "stages.blocks",
                             "%lld stages for a network of %d blocks; expected at most one stage per block",
                             (long long)list->count, model->block_count);
  int64_t sum = 0;
  for (int64_t i = 0; i < list->count; i++) {
    if (list->values[i] > model->block_count)
      return petra_config_fail(config, "stages.blocks", "a stage of %lld blocks; the network has %d",
                               (long long)list->values[i], model->block_count);
    sum += list->values[i];
  }
  if (sum != model->block_count)
    return petra_config_fail(config, "stages.blocks", "the stages have %lld blocks together; the network has %d",
                             (long long)sum, model->block_count);
  PETRA_TRY(allocate(partition, model, list->count));
  for (int64_t i = 0; i < list->count; i++)
    partition->first[i + 1] = partition->first[i] + (int)list->values[i];
  return PETRA_OK;
}

/* The best cut of the first b items into j parts: the minimal maximum, and the beginning of the last part. */
typedef struct choice {
  int64_t maximum;
  int cut;
} choice;

/* Returns the first position in [low, b) from which the last part costs no more than the parts before it or, if
 * `before` is NULL, than `maximum`; b if there is none. */
static int first_below(const int64_t *sum, const choice *before, int low, int b, int64_t maximum) {
  int high = b;
  while (low < high) {
    const int middle = low + (high - low) / 2;
    if (sum[b] - sum[middle] <= (before ? before[middle].maximum : maximum))
      high = middle;
    else
      low = middle + 1;
  }
  return low;
}

/* Finds the best last part of the first b items, if those before are cut into at least `low` parts. The later it
 * begins, the less it costs and the more those before it cost, so that the minimal maximum is where the two cross.
 * Among several such positions it takes the first. */
static choice best_last(const int64_t *sum, const choice *before, int low, int b) {
  if (low >= b)
    return (choice){INT64_MAX, 0};
  const int cross = first_below(sum, before, low, b, 0);
  int64_t maximum = cross < b ? before[cross].maximum : INT64_MAX;
  if (cross > low && sum[b] - sum[cross - 1] < maximum)
    maximum = sum[b] - sum[cross - 1];
  return (choice){maximum, first_below(sum, NULL, low, b, maximum)};
}

petra_status petra_balanced_cut(const int64_t *costs, int count, int parts, int *first) {
  const int width = count + 1;
  PETRA_FREED int64_t *sum = NULL; /* sum[b]: sum over the first b items */
  PETRA_FREED choice *best = NULL; /* [j][b] */
  PETRA_TRY(petra_allocate(&sum, (size_t)width, sizeof *sum));
  PETRA_TRY(petra_allocate(&best, (size_t)(parts + 1) * (size_t)width, sizeof *best));
  for (int b = 0; b < count; b++)
    sum[b + 1] = sum[b] + costs[b];
  for (int b = 1; b <= count; b++)
    best[b].maximum = INT64_MAX; /* items cannot be cut into 0 parts */
  for (int j = 1; j <= parts; j++)
    for (int b = 0; b <= count; b++)
      best[(size_t)j * (size_t)width + (size_t)b] = best_last(sum, &best[(size_t)(j - 1) * (size_t)width], j - 1, b);
  first[parts] = count;
  for (int j = parts; j > 0; j--)
    first[j - 1] = best[(size_t)j * (size_t)width + (size_t)first[j]].cut;
  return PETRA_OK;
}

petra_status petra_partition_balance(petra_partition *partition, const petra_config *config, const petra_model *model,
                                     const int64_t *costs) {
  const int blocks = model->block_count;
  const int64_t stages = config->stages.count;
  PETRA_FREED int64_t *flops = NULL;
  if (stages < 1)
    return petra_config_fail(config, "stages.count",
                             "stages.partition: balanced needs the number of stages; expected 1 to %d", blocks);
  if (stages > blocks)
    return petra_config_fail(config, "stages.count",
                             "%lld stages for a network of %d blocks; expected at most one stage per block",
                             (long long)stages, blocks);
  PETRA_TRY(allocate(partition, model, stages));
  if (costs)
    return petra_balanced_cut(costs, blocks, (int)stages, partition->first);
  PETRA_TRY(petra_allocate(&flops, (size_t)blocks, sizeof *flops));
  for (int b = 0; b < blocks; b++)
    flops[b] = petra_block_work(&model->blocks[b], NULL);
  return petra_balanced_cut(flops, blocks, (int)stages, partition->first);
}

petra_status petra_partition_init(petra_partition *partition, const petra_config *config, const petra_model *model) {
  *partition = (petra_partition){0};
  if (config->stages.partition == PETRA_PARTITION_LIST)
    return by_list(partition, config, model);
  if (config->stages.partition == PETRA_PARTITION_BALANCED)
    return petra_partition_balance(partition, config, model, NULL);
  if (config->stages.count != 0 && config->stages.count != model->block_count)
    return petra_config_fail(
        config, "stages.count",
        "stages.partition: block gives %d stages, one per block; expected 0 or %d, or partition: balanced",
        model->block_count, model->block_count);
  PETRA_TRY(allocate(partition, model, model->block_count));
  for (int j = 0; j < model->block_count; j++)
    partition->first[j] = j;
  return PETRA_OK;
}
