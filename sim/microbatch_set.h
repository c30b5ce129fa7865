/* SPDX-License-Identifier: Apache-2.0 */
/* A set of microbatches. They come in their order as a rule: then a count is all there is. */
#ifndef PETRA_SIM_MICROBATCH_SET_H
#define PETRA_SIM_MICROBATCH_SET_H

#include "base/status.h"

#include <stdbool.h>
#include <stdint.h>

/* Microbatches 0 .. next - 1, and those in the bitmap beyond. Zeros: empty. */
typedef struct petra_microbatch_set {
  int64_t next;
  int64_t words;
  uint64_t *beyond; /* bit i: microbatch next + 1 + i, as a ring over microbatch numbers; NULL: none ever */
} petra_microbatch_set;

/* What is there already stays. */
petra_status petra_microbatch_set_put(petra_microbatch_set *set, int64_t microbatch);
bool petra_microbatch_set_has(const petra_microbatch_set *set, int64_t microbatch);
void petra_microbatch_set_fini(petra_microbatch_set *set);

#endif
