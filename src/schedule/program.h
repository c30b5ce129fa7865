/* A program: for every stage, the order of its actions. It knows no durations: when an action runs is the executor's
 * matter. An action waits for its messages, its engine and, on its own stage, for what these rules say:
 *  - F and B wait for the last U before them in program order; U waits for all F and B before it; E for everything before it;
 *  - nothing of round s + 1 starts before everything of round s has ended: of a tick in lockstep, of a microbatch in
 *    sequential, where two engines would otherwise let F run ahead within an accumulation.
 * One program per file: program_NAME.c. */
#ifndef PETRA_SCHEDULE_PROGRAM_H
#define PETRA_SCHEDULE_PROGRAM_H

#include "schedule/action.h"

#include <stdbool.h>

typedef struct petra_program_options {
  int32_t stages;       /* J */
  int64_t microbatches; /* M: how many stage 1 reads */
  int64_t accumulate;   /* k */
  bool drain;           /* lockstep: run until every microbatch came back */
  int64_t batches;      /* N: microbatches per epoch */
  int64_t eval_every;   /* epochs between evaluations; 0: none */
} petra_program_options;

/* A place in a stage's order. Start with zeros. */
typedef struct petra_cursor {
  int64_t round; /* a tick, or a microbatch */
  int step;      /* within the round */
} petra_cursor;

typedef struct petra_program_ops {
  const char *name;
  bool ticks; /* a step's round is a tick of the stage */
  /* The action at the cursor, which moves on, and the round (tick) that it belongs to; false at the end of the order. */
  bool (*next)(const petra_program_options *options, int32_t stage, petra_cursor *cursor, petra_action *out,
               int64_t *round);
  /* The index of the learning rate (nn/lr.h) for an update of `stage` whose last microbatch is `microbatch`. */
  int64_t (*rate_index)(const petra_program_options *options, int32_t stage, int64_t microbatch);
  /* The epoch whose training mean the loss of `microbatch` counts in. */
  int64_t (*loss_epoch)(const petra_program_options *options, int64_t microbatch);
} petra_program_ops;

extern const petra_program_ops petra_program_sequential;
extern const petra_program_ops petra_program_lockstep;

/* By name; NULL if there is none. */
const petra_program_ops *petra_program_find(const char *name);

/* Microbatches in flight over the whole pipeline at stage `stage` between F and B: tau_j = 2 (J - j) in lockstep. */
static inline int64_t petra_program_delay(int32_t stages, int32_t stage) {
  return 2 * ((int64_t)stages - stage);
}

#endif
