/* The stages of a network that one process has: all of them, or consecutive ones beside other processes. What walks over
 * stages (worker, evaluation, probe, checkpoint) walks over these. */
#ifndef PETRA_EXEC_STAGES_H
#define PETRA_EXEC_STAGES_H

#include "stage/stage.h"

typedef struct petra_stages {
  int32_t count;             /* J, wherever they are */
  int32_t first, last;       /* from 1: those that are here */
  petra_stage *const *stage; /* last - first + 1 of them, borrowed */
} petra_stages;

/* Stage `number` (from 1), which has to be here. */
static inline petra_stage *petra_stages_get(const petra_stages *stages, int32_t number) {
  return stages->stage[number - stages->first];
}

static inline int32_t petra_stages_here(const petra_stages *stages) {
  return stages->last - stages->first + 1;
}

static inline bool petra_stages_has(const petra_stages *stages, int32_t number) {
  return stages->first <= number && number <= stages->last;
}

#endif
