#include "nn/partition.h"

static petra_status by_list(petra_partition *partition, const petra_config *config, const petra_model *model) {
  const petra_int_list *list = &config->stages.blocks;
  if (list->count == 0)
    return petra_config_fail(config, "stages.blocks",
                             "stages.partition: list needs the number of blocks of every stage, such as [2, 3, 5]");
  if (list->count > model->block_count)
    return petra_config_fail(config, "stages.blocks",
                             "%lld stages for a network of %d blocks; expected at most one stage a block",
                             (long long)list->count, model->block_count);
  int64_t sum = 0;
  for (int64_t i = 0; i < list->count; i++) {
    partition->first[i] = (int)sum;
    if (list->values[i] > model->block_count)
      return petra_config_fail(config, "stages.blocks", "a stage of %lld blocks; the network has %d",
                               (long long)list->values[i], model->block_count);
    sum += list->values[i];
  }
  if (sum != model->block_count)
    return petra_config_fail(config, "stages.blocks", "the stages hold %lld blocks together; the network has %d",
                             (long long)sum, model->block_count);
  partition->stages = (int)list->count;
  return PETRA_OK;
}

/* best[j][b]: the smallest possible maximum when the first b blocks are cut into j stages. */
petra_status petra_partition_balance(petra_partition *partition, const petra_config *config, const petra_model *model,
                                     const int64_t *costs) {
  int blocks = model->block_count;
  int64_t stages = config->stages.count;
  if (stages < 1)
    return petra_config_fail(config, "stages.count",
                             "stages.partition: balanced needs the number of stages; expected 1 to %d", blocks);
  if (stages > blocks)
    return petra_config_fail(config, "stages.count",
                             "%lld stages for a network of %d blocks; expected at most one stage a block",
                             (long long)stages, blocks);
  int64_t sum[PETRA_MODEL_BLOCKS + 1] = {0};
  int64_t best[PETRA_MODEL_BLOCKS + 1][PETRA_MODEL_BLOCKS + 1];
  int cut[PETRA_MODEL_BLOCKS + 1][PETRA_MODEL_BLOCKS + 1] = {{0}};
  for (int b = 0; b < blocks; b++)
    sum[b + 1] = sum[b] + (costs ? costs[b] : petra_block_flops(&model->blocks[b]));
  for (int j = 0; j <= stages; j++)
    for (int b = 0; b <= blocks; b++) {
      best[j][b] = j == 0 && b == 0 ? 0 : INT64_MAX;
      for (int last = j > 0 ? j - 1 : b; last < b; last++) {
        if (best[j - 1][last] == INT64_MAX)
          continue;
        int64_t cost = sum[b] - sum[last];
        int64_t most = cost > best[j - 1][last] ? cost : best[j - 1][last];
        if (most < best[j][b]) {
          best[j][b] = most;
          cut[j][b] = last;
        }
      }
    }
  *partition = (petra_partition){.stages = (int)stages};
  partition->first[stages] = blocks;
  for (int j = (int)stages, b = blocks; j > 0; j--) {
    b = cut[j][b];
    partition->first[j - 1] = b;
  }
  return PETRA_OK;
}

petra_status petra_partition_init(petra_partition *partition, const petra_config *config, const petra_model *model) {
  *partition = (petra_partition){0};
  switch (config->stages.partition) {
  case PETRA_PARTITION_BLOCK:
    if (config->stages.count != 0 && config->stages.count != model->block_count)
      return petra_config_fail(
          config, "stages.count",
          "stages.partition: block gives %d stages, one a block; expected 0 or %d, or partition: balanced",
          model->block_count, model->block_count);
    partition->stages = model->block_count;
    for (int j = 0; j < model->block_count; j++)
      partition->first[j] = j;
    break;
  case PETRA_PARTITION_LIST:
    PETRA_TRY(by_list(partition, config, model));
    break;
  case PETRA_PARTITION_BALANCED:
    PETRA_TRY(petra_partition_balance(partition, config, model, NULL));
    break;
  }
  partition->first[partition->stages] = model->block_count;
  return PETRA_OK;
}
