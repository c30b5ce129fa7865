/* SPDX-License-Identifier: Apache-2.0 */
/* A set of microbatches. They usually arrive in order; a count then suffices. */
#pragma once

#include "base/status.h"
#include "sim/cycle.h"

#include <stdbool.h>
#include <stdint.h>

/* Holds the microbatches 0 .. next - 1 and those in the bitmap. All zeros: empty. */
typedef struct petra_microbatch_set {
  int64_t next;
  int64_t words;
  uint64_t *beyond; /* bit i: microbatch next + 1 + i, as a ring over microbatch numbers; NULL: never needed */
} petra_microbatch_set;

/* Adds a microbatch, which may be there already. */
petra_status petra_microbatch_set_put(petra_microbatch_set *set, int64_t microbatch);
bool petra_microbatch_set_has(const petra_microbatch_set *set, int64_t microbatch);
void petra_microbatch_set_fini(petra_microbatch_set *set);

/* Gives the set to a cycle. */
void petra_microbatch_set_state(const petra_microbatch_set *set, petra_cycle *cycle);
