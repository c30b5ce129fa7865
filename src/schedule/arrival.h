/* SPDX-License-Identifier: Apache-2.0 */
/* The program `arrival`, which has no order: how a stage and the source of microbatches react to messages, with any
 * clock. A stage takes the message that arrived first, B before F if both arrived at the same moment. U follows every k
 * of its B, and E follows the B that ends an epoch with an evaluation; the stage does nothing else before them. */
#pragma once

#include "schedule/program.h"

typedef struct petra_arrival_stage {
  int64_t backwards; /* number of B since the last update */
  int64_t update;    /* an update is due and covers up to this microbatch; -1: none is due */
  int64_t evaluate;  /* an evaluation is due, at the end of the epoch with this last microbatch; -1: none is due */
} petra_arrival_stage;

static inline petra_arrival_stage petra_arrival_stage_new(void) {
  return (petra_arrival_stage){.update = -1, .evaluate = -1};
}

/* Gets the U, else the E, that a stage must do before anything else; returns false if neither is due. Sets kind and
 * microbatch of *out. */
static inline bool petra_arrival_due(const petra_arrival_stage *stage, petra_action *out) {
  const bool update = stage->update >= 0;
  if (!update && stage->evaluate < 0)
    return false;
  out->kind = update ? PETRA_ACTION_UPDATE : PETRA_ACTION_EVALUATE;
  out->microbatch = update ? stage->update : stage->evaluate;
  return true;
}

/* Records that an action of the stage has ended. */
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

/* Returns the number of actions of all stages if all stages have done the first `microbatches` microbatches and nothing
 * else. */
static inline int64_t petra_arrival_actions(const petra_program_options *options, int64_t microbatches) {
  const int64_t passes = 2 * options->stages - !options->split_head, every = options->eval_every * options->batches;
  return microbatches * passes +
         options->stages * (microbatches / options->accumulate + (every > 0 ? microbatches / every : 0));
}

/* The microbatches that stage 1 has started, and the microbatches that have come back to it. */
typedef struct petra_arrival_source {
  int64_t offered, finished;
} petra_arrival_source;

/* Returns true if the source may offer another microbatch. */
static inline bool petra_arrival_offers(const petra_arrival_source *source, const petra_program_options *options) {
  return source->offered < options->microbatches &&
         (options->credit == 0 || source->offered - source->finished < options->credit);
}
