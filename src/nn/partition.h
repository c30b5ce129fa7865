/* SPDX-License-Identifier: Apache-2.0 */
/* The partition of blocks into stages: one block per stage, an explicit list, or balanced by FLOPs. */
#pragma once

#include "nn/model.h"

typedef struct petra_partition {
  int stages;
  int *first; /* stages + 1: stage j (from 0) holds blocks first[j] .. first[j + 1] - 1 (from 0) */
} petra_partition;

/* Makes the partition. `balanced` minimises the FLOPs (petra_block_work) of the most expensive stage over all
 * contiguous partitions into stages.count stages (dynamic programming; among equals the one whose later stages have the
 * most work). Errors: PETRA_CONFIG, with the key: more stages than blocks, a list whose sum is not the number of
 * blocks, ...; PETRA_NO_MEMORY. After a failure nothing has to be released. */
petra_status petra_partition_init(petra_partition *partition, const petra_config *config, const petra_model *model);
void petra_partition_fini(petra_partition *partition);

/* Makes the partition `balanced` with `costs` (0 or more, one per block, their sum far below 2^63) instead of FLOPs;
 * NULL: FLOPs. */
petra_status petra_partition_balance(petra_partition *partition, const petra_config *config, const petra_model *model,
                                     const int64_t *costs);

/* Cuts a sequence of `count` items into `parts` parts of at least one item, so that the largest sum of costs (0 or
 * more, their sum far below 2^63) is minimal: part p has items first[p] .. first[p + 1] - 1. Among equals chooses the
 * cut whose later parts have the largest sums. Errors: PETRA_NO_MEMORY. */
petra_status petra_balanced_cut(const int64_t *costs, int count, int parts, int *first);
