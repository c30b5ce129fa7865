/* SPDX-License-Identifier: Apache-2.0 */
/* Program `arrival`, which has no order: what a stage and the source of microbatches make of what has come, whoever keeps the
 * time. A stage takes the message that came first, B before F where both came at one moment; U follows every k of its B, E the B
 * that ends an epoch to be evaluated, and nothing else of the stage comes before them. */
#ifndef PETRA_SCHEDULE_ARRIVAL_H
#define PETRA_SCHEDULE_ARRIVAL_H

#include "schedule/program.h"

typedef struct petra_arrival_stage {
  int64_t backwards; /* since the last update */
  int64_t update;    /* an update is due: it covers up to this microbatch; -1: none is */
  int64_t evaluate;  /* an evaluation is due, at the end of the epoch with this last one; -1: none is */
} petra_arrival_stage;

static inline petra_arrival_stage petra_arrival_stage_new(void) {
  return (petra_arrival_stage){.update = -1, .evaluate = -1};
}

/* U, then E, that a stage has to do before anything else; false: neither. Of *out kind and microbatch are set. */
static inline bool petra_arrival_due(const petra_arrival_stage *stage, petra_action *out) {
  const bool update = stage->update >= 0;
  if (!update && stage->evaluate < 0)
    return false;
  out->kind = update ? PETRA_ACTION_UPDATE : PETRA_ACTION_EVALUATE;
  out->microbatch = update ? stage->update : stage->evaluate;
  return true;
}

/* An action of the stage has ended. */
static inline void petra_arrival_count(petra_arrival_stage *stage, const petra_program_options *options,
                                       const petra_action *action) {
  if (action->kind == PETRA_ACTION_UPDATE) {
    stage->update = -1;
    stage->backwards = 0;
  }
  if (action->kind == PETRA_ACTION_EVALUATE)
    stage->evaluate = -1;
  if (action->kind != PETRA_ACTION_BACKWARD)
    return;
  if (++stage->backwards == options->accumulate)
    stage->update = action->microbatch;
  if (petra_program_evaluates(options, action->microbatch))
    stage->evaluate = action->microbatch;
}

/* Actions of all stages when all have done the first microbatches and nothing else. */
static inline int64_t petra_arrival_actions(const petra_program_options *options, int64_t microbatches) {
  const int64_t passes = 2 * options->stages - !options->split_head, every = options->eval_every * options->batches;
  return microbatches * passes +
         options->stages * (microbatches / options->accumulate + (every > 0 ? microbatches / every : 0));
}

/* Microbatches that stage 1 has started, and those that have come back to it. */
typedef struct petra_arrival_source {
  int64_t offered, finished;
} petra_arrival_source;

/* The source may offer one more. */
static inline bool petra_arrival_offers(const petra_arrival_source *source, const petra_program_options *options) {
  return source->offered < options->microbatches &&
         (options->credit == 0 || source->offered - source->finished < options->credit);
}

#endif
