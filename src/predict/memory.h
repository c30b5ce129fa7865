/* SPDX-License-Identifier: Apache-2.0 */
/* The memory of a run of a plan, as plain numbers for the memory over time (sim/observer_memory.h). There are three
 * accountings:
 * - measured: the bytes that the accounts of an emulation count, exactly. One microbatch goes up and down through the
 *   real stages on a backend without content (petra_backend_create_dry), and the changes of the accounts are recorded
 *   for each action. Older weights that a method keeps count as copies of the parameters, one for each version with
 *   which microbatches in flight were forwarded.
 * - paper, strict: the accountings of sim/ledger.h, with the microbatches in flight at each moment instead of the
 *   largest delay. input_buffer also counts the input in use; gradients, momentum, graphs and messages are excluded. */
#pragma once

#include "setup/plan.h"
#include "sim/ledger.h"
#include "sim/observer_memory.h"

/* Fills `out`, one entry per stage. `plan` has its program. `rank_of` has the process of each stage; NULL: one process
 * has all stages. With `rank_of`, the buffers of a stage for messages to other processes, if messages go through the
 * hosts, and for the exchange with its replicas count as well (docs/semantics/memory.md). */
petra_status petra_predict_memory_measured(const petra_plan *plan, const int32_t *rank_of, petra_memory_stage *out);
petra_status petra_predict_memory_counted(const petra_plan *plan, petra_accounting accounting, petra_memory_stage *out);

/* Returns the rule by which the ledger counts the plan, without the members for the inputs and weights that are
 * kept. */
petra_ledger_rule petra_ledger_rule_of(const petra_plan *plan, petra_accounting accounting);

/* Describes block `block` (from 0), in a stage with this delay, for the ledger. Parameters include a bias for every
 * convolution, as in the network of table 3 (docs/semantics/networks.md); petra's convolutions have none. */
void petra_ledger_block_of(const petra_plan *plan, int block, int64_t delay, petra_ledger_block *out);

/* Fills `out` as petra_predict_memory_measured does, except for the members that are multiplied by counts
 * (`input_bytes`, `version_bytes`, `copy_bytes`). */
petra_status petra_predict_memory_pass(const petra_plan *plan, const int32_t *rank_of, petra_memory_stage *out);

/* Predictions of memory (petra_predict_memory_measured) of many plans of one config, which differ in the method, the
 * cut and the batch. A prediction is stored and used again: the memory of an action depends on the weights that the
 * method reads and on what it keeps, not on the order of the actions. */
typedef struct petra_memory_cache petra_memory_cache;

petra_status petra_memory_cache_create(petra_memory_cache **out);
void petra_memory_cache_destroy(petra_memory_cache *cache);

/* Fills `out` as petra_predict_memory_measured does for one process. */
petra_status petra_memory_cache_measured(petra_memory_cache *cache, const petra_plan *plan, petra_memory_stage *out);
