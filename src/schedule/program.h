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
  int32_t stages; /* all of them */
  int32_t chunks; /* v: stages on each device (0 counts as 1); stage s is on device (s - 1) mod (stages / v) + 1 */
  int64_t microbatches; /* M: how many stage 1 reads */
  int64_t accumulate;   /* k: microbatches per flush in flush programs, per update elsewhere */
  bool drain;           /* lockstep: run until every microbatch came back */
  int64_t batches;      /* N: microbatches per epoch */
  int64_t eval_every;   /* epochs between evaluations; 0: none */
  bool split_head;      /* the last stage's F and B are two actions; else one, named B */
  int64_t credit;       /* arrival: most microbatches in flight; 0: no limit */
  const void *data;     /* of a program that needs more, such as one read from a file */
} petra_program_options;

/* A place in a stage's order. Start with zeros. */
typedef struct petra_cursor {
  int64_t round; /* a tick, or a microbatch */
  int step;      /* within the round */
} petra_cursor;

typedef struct petra_program_ops {
  const char *name;
  bool ticks;          /* a step's round is a tick of the stage */
  bool flush;          /* every k microbatches all stages come to rest and update: time is counted per flush */
  bool arrival;        /* no fixed order: the executor takes what has arrived (`next` is NULL) */
  bool split_backward; /* W is split from B */
  bool chunked;        /* a device may hold several stages */
  /* The action of a device (from 1; without chunks the stage) at the cursor, which moves on, and the round (tick)
   * that it belongs to; false at the end of the device's order. */
  bool (*next)(const petra_program_options *options, int32_t device, petra_cursor *cursor, petra_action *out,
               int64_t *round);
  /* The index of the learning rate (nn/lr.h) for an update of `stage` whose last microbatch is `microbatch`. */
  int64_t (*rate_index)(const petra_program_options *options, int32_t stage, int64_t microbatch);
  /* The epoch whose training mean the loss of `microbatch` counts in. */
  int64_t (*loss_epoch)(const petra_program_options *options, int64_t microbatch);
} petra_program_ops;

extern const petra_program_ops petra_program_sequential;
extern const petra_program_ops petra_program_lockstep;
extern const petra_program_ops petra_program_arrival;
extern const petra_program_ops petra_program_gpipe;
extern const petra_program_ops petra_program_1f1b;
extern const petra_program_ops petra_program_1f1b_async;
extern const petra_program_ops petra_program_interleaved;
extern const petra_program_ops petra_program_zb_h1;

/* By name; NULL if there is none. */
const petra_program_ops *petra_program_find(const char *name);
int petra_program_count(void);
const petra_program_ops *petra_program_get(int index);

/* PETRA_SCHEDULE, logged, for options with which the program cannot run. `next` may rely on them. */
petra_status petra_program_check(const petra_program_ops *program, const petra_program_options *options);

/* Whether `microbatch` is the last of an epoch that is evaluated. */
static inline bool petra_program_evaluates(const petra_program_options *options, int64_t microbatch) {
  int64_t done = microbatch + 1;
  return options->eval_every > 0 && done > 0 && done % options->batches == 0 &&
         done / options->batches % options->eval_every == 0;
}

static inline int32_t petra_program_devices(const petra_program_options *options) {
  return options->chunks > 1 ? options->stages / options->chunks : options->stages;
}

static inline int32_t petra_program_device(const petra_program_options *options, int32_t stage) {
  return options->chunks > 1 ? (stage - 1) % petra_program_devices(options) + 1 : stage;
}

/* Microbatches in flight over the whole pipeline at stage `stage` between F and B: tau_j = 2 (J - j) in lockstep with a
 * fused head (with a split one, whose B comes a tick after its F, one more). */
static inline int64_t petra_program_delay(int32_t stages, int32_t stage) {
  return 2 * ((int64_t)stages - stage);
}

#endif
