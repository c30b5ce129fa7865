/* SPDX-License-Identifier: Apache-2.0 */
/* One microbatch up and down through the real stages on a backend without content: what each action does to their accounts. */
#pragma once

#include "plan/plan.h"
#include "sim/observer_memory.h"

/* Fills `out`, one a stage, of stages on processes `rank_of` (NULL: one has all), but for what goes by counts (`input_bytes`, `version_bytes`, `copy_bytes`). `plan` has its program. */
petra_status petra_footprint_pass(const petra_plan *plan, const int32_t *rank_of, petra_memory_stage *out);
