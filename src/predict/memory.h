/* SPDX-License-Identifier: Apache-2.0 */
/* What a run of a plan holds in memory, as plain numbers for the ledger over time (sim/observer_memory.h).
 * Three accountings:
 *  - measured: what the accounts of an emulation count, to the byte: one microbatch goes up and down through
 * the real stages on a backend without content (petra_backend_create_dry), and what each action does to the
 * accounts is noted. Older weights that a method keeps count as copies of the parameters, as many as microbatches
 * in flight were forwarded with.
 *  - paper, strict: those of sim/ledger.h, with what is in flight at each moment in place of the largest
 * delay. input_buffer counts the input that is worked on as well; gradients, momentum, graphs and messages
 * are not in them. */
#pragma once

#include "plan/plan.h"
#include "sim/ledger.h"
#include "sim/observer_memory.h"

/* Fills `out`, one a stage. `plan` has its program. rank_of: the process of each stage, whose buffers for messages to other processes, through
 * their hosts, and for what it exchanges with its replicas count as well (docs/semantics/memory.md); NULL: one process has all stages. */
petra_status petra_footprint_measured(const petra_plan *plan, const int32_t *rank_of, petra_memory_stage *out);
petra_status petra_footprint_counted(const petra_plan *plan, petra_accounting accounting, petra_memory_stage *out);

/* How the ledger counts the plan; whether inputs and weights are kept is left to say. */
petra_ledger_rule petra_footprint_rule(const petra_plan *plan, petra_accounting accounting);

/* What the ledger must know of block `block` (from 0), in a stage of that delay. Parameters include a bias for every
 * convolution, as in the network that table 3 counts (docs/semantics/networks.md); ours have none. */
void petra_footprint_block(const petra_plan *plan, int block, int64_t delay, petra_ledger_block *out);

/* Fills `out` as petra_footprint_measured does, but for what goes by counts (`input_bytes`, `version_bytes`, `copy_bytes`). */
petra_status petra_footprint_pass(const petra_plan *plan, const int32_t *rank_of, petra_memory_stage *out);
