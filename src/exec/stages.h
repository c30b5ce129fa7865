/* SPDX-License-Identifier: Apache-2.0 */
/* The stages of a network. One process has all stages, or several processes have some stages each. Code that iterates
 * over stages (worker, evaluation, probe, checkpoint) iterates over the stages that are here. */
#pragma once

#include "stage/stage.h"

typedef struct petra_stages {
  int32_t count;             /* J, in all processes */
  petra_stage *const *stage; /* J pointers, borrowed; NULL: elsewhere */
} petra_stages;

/* Returns stage `number` (from 1), which must be here. */
static inline petra_stage *petra_stages_get(const petra_stages *stages, int32_t number) {
  return stages->stage[number - 1];
}

static inline bool petra_stages_has(const petra_stages *stages, int32_t number) {
  return stages->stage[number - 1] != NULL;
}

/* Returns the first stage that is here, from 1; J + 1 if none is. */
static inline int32_t petra_stages_first(const petra_stages *stages) {
  int32_t number = 1;
  while (number <= stages->count && !petra_stages_has(stages, number))
    number++;
  return number;
}

/* Counts the stages that are here. */
static inline int32_t petra_stages_here(const petra_stages *stages) {
  int32_t here = 0;
  for (int32_t number = 1; number <= stages->count; number++)
    here += petra_stages_has(stages, number);
  return here;
}

/* Returns true if the data set is read here: images at the first stage, labels at the last. */
static inline bool petra_stages_read_data(const petra_stages *stages) {
  return petra_stages_has(stages, 1) || petra_stages_has(stages, stages->count);
}

static inline bool petra_stages_all(const petra_stages *stages) {
  return petra_stages_here(stages) == stages->count;
}
