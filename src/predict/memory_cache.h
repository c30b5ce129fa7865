/* SPDX-License-Identifier: Apache-2.0 */
/* Predictions of memory (petra_predict_memory_measured) of many plans of one config, which differ in the method, the cut
 * and the batch. What was predicted before is not predicted again: the memory of an action depends on the weights that
 * the method reads and on what it keeps, not on the order of the actions. */
#pragma once

#include "predict/memory.h"

typedef struct petra_memory_cache petra_memory_cache;

petra_status petra_memory_cache_create(petra_memory_cache **out);
void petra_memory_cache_destroy(petra_memory_cache *cache);

/* Fills `out` as petra_predict_memory_measured does for one process. */
petra_status petra_memory_cache_measured(petra_memory_cache *cache, const petra_plan *plan, petra_memory_stage *out);
