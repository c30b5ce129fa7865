/* SPDX-License-Identifier: Apache-2.0 */
/* Sends one microbatch up and down through the real stages on a backend without content, and records what each action
 * changes in their accounts. */
#pragma once

#include "plan/plan.h"
#include "sim/observer_memory.h"

/* Fills `out`, one entry per stage, for stages on processes `rank_of` (NULL: one has all), except what is computed by
 * counts (`input_bytes`, `version_bytes`, `copy_bytes`). `plan` has its program. */
petra_status petra_predict_memory_pass(const petra_plan *plan, const int32_t *rank_of, petra_memory_stage *out);
