/* SPDX-License-Identifier: Apache-2.0 */
/* A program: for every device, the order of its actions. It knows no durations; the executor decides when an action
 * runs. An action waits for its messages, its engine and, on its own device, by these rules:
 *  - F and B wait for the last U before them in program order; U waits for all F and B before it; E for everything
 *    before it;
 *  - nothing of round s + 1 starts before everything of round s has ended: of a tick in lockstep, of a microbatch in
 *    sequential, because two engines would otherwise let F run ahead within an accumulation. In a locked program this
 *    holds for the whole network: an action starts when everything of all earlier rounds has ended on every device;
 *  - joined actions are one step of a device with one engine: they start together, when all of them can, and end
 *    together. A step has at most one F, one B and one W, the W of that B. F and B of a step overlap; B and W of a step
 *    are a backward that is not split, in a program that splits others.
 * The programs are in programs_single.c, programs_loop.c, programs_v.c and program_NAME.c. */
#pragma once

#include "schedule/action.h"

#include <stdbool.h>

/* The maximum number of actions in a step. */
enum { PETRA_STEP_ACTIONS = 3 };

/* The stages that a device may have. In a loop stage s is on device (s - 1) mod D + 1, in a V the second half goes back
 * from device D to device 1, so device 1 has the first and the last stage. */
typedef enum petra_layout { PETRA_LAYOUT_SINGLE, PETRA_LAYOUT_LOOP, PETRA_LAYOUT_V, PETRA_LAYOUT_ANY } petra_layout;

/* Returns the device, from 1, of a stage in a layout of `devices` devices. A V with more than two stages per device
 * turns back at device 1, too. */
static inline int32_t petra_layout_device(petra_layout layout, int32_t devices, int32_t stage) {
  const int32_t place = (stage - 1) % devices;
  return layout == PETRA_LAYOUT_V && (stage - 1) / devices % 2 == 1 ? devices - place : place + 1;
}

typedef struct petra_program_options {
  int32_t stages; /* number of all stages */
  /* v: stages per device (0 counts as 1) in a loop of stages / v devices; only used without `device_of` */
  int32_t chunks;
  int64_t microbatches; /* M: number of microbatches that stage 1 reads */
  int64_t accumulate;   /* k: microbatches per flush in flush programs, else per update */
  bool drain;           /* undrained programs: run until every microbatch has come back */
  int64_t batches;      /* N: microbatches per epoch */
  int64_t eval_every;   /* epochs between evaluations; 0: none */
  bool split_head;      /* the last stage's F and B are two actions; otherwise they are one action, named B */
  bool local;           /* every stage has its own loss, and no message goes down */
  int64_t credit;       /* arrival: maximum number of microbatches in flight; 0: no limit */
  /* W, a multiple of whole epochs: the microbatches before W come first, synchronously in the order of 1f1b. The
   * program's own order begins with microbatch W, with nothing in flight. For programs with a delay; 0 in other
   * programs. */
  int64_t warmup;
  /* Additional ticks (slots, rounds) between F and B, for programs with a delay: none, one number for all stages, or
   * one number per stage, none of which exceeds the number before it. In lockstep the tick of a split head counts as
   * one of these ticks. If the last stage has any, its head is split. Borrowed. */
  const int64_t *extra_delay;
  int32_t extra_delays;
  /* number of microbatches in whole periods that a simulation has skipped; the numbers of microbatches do not include
   * them */
  int64_t skipped;
  const void *data; /* additional data of a program, such as orders that are written out (schedule.h). Borrowed. */
  /* The device of each stage, from 1, and the number of devices. NULL: a loop of `chunks`. Borrowed. */
  const int32_t *device_of;
  int32_t devices;
} petra_program_options;

/* A position in a stage's order. Initialise it with zeros. */
typedef struct petra_cursor {
  int64_t round; /* a tick, or a microbatch; from 0 at the start of the program's own order */
  int step;      /* within the round */
  bool warm;     /* the warm-up has ended */
  bool joined;   /* the action that was returned last and the next action are in one step */
} petra_cursor;

/* The interval over which the time per microbatch is measured. */
typedef enum petra_program_time {
  /* The makespan of all microbatches: the pipeline comes to rest repeatedly, or its period is unknown. */
  PETRA_TIME_WHOLE,
  PETRA_TIME_STEADY /* the steady state, between two ends of stage 1's B */
} petra_program_time;

/* The weights that the stages have "when B of microbatch m runs at stage j": the weights of the end-to-end
 * reference (docs/semantics/gradient-fidelity.md). */
typedef enum petra_program_moment {
  PETRA_MOMENT_NONE, /* undefined: the order comes from a file, and no program has it */
  /* the weights before m's window of k: the updates that the stages make after the window are one step of the whole
   * network. Such programs are synchronous and have no delay */
  PETRA_MOMENT_WINDOW,
  /* for each stage, the weights before the round (tick, slot) in which stage j does B(m). In that round stage i does
   * B(n) with n = m + i - j + e_j - e_i (e: extra_delay), so it has made floor(min(max(0, n), M) / k) updates before */
  PETRA_MOMENT_ROUND,
  /* the weights at the time on the clock when B(m) starts: every update counts that started before B(m) or at the same
   * moment; at stage j itself, the updates before B(m) in its order count */
  PETRA_MOMENT_CLOCK
} petra_program_moment;

typedef struct petra_schedule petra_schedule; /* schedule.h */

/* Costs by which a program chooses an order. All are in the same unit, which may be any. */
typedef struct petra_order_costs {
  const int64_t (*duration)[PETRA_ACTION_KINDS]; /* durations of the actions of each stage, from 0 */
  int64_t message;                               /* the longest time of a message between two devices */
  /* Gets the time of a run of `flushes` flushes in an order, on a clock that considers more than these costs, such as
   * messages that share links. NULL: there is no such clock. */
  petra_status (*simulate)(const void *context, const petra_schedule *flush, int64_t flushes, int64_t *time);
  const void *context;
} petra_order_costs;

/* A program and its facts. Code does not recognise a program by its address; it queries the facts here. */
typedef struct petra_program_ops {
  const char *name;
  petra_program_moment moment;
  petra_program_time time;
  bool arrival;        /* there is no fixed order: the executor takes the messages that have arrived (`next` is NULL) */
  bool split_head;     /* by default the last stage's F and B are two actions */
  bool local;          /* every stage has its own loss: its B waits only for its own F, and sends nothing down */
  bool split_backward; /* W is split from B */
  petra_layout layout; /* the stages of the devices */
  /* A round covers the whole network: `next` numbers rounds in the same way on all devices, from 0, and the number
   * never decreases; a device may have no action in a round. */
  bool locked;
  /* After the warm-up, learning rates and losses count by ticks of the network: stage j does F of microbatch m at tick
   * m + j - 1, and its B petra_program_delay ticks later. */
  bool ticks;
  bool undrained; /* the run ends with microbatches in flight unless options->drain; other programs always drain */
  /* The order of the microbatches from m + k on is the order of the microbatches from m on, with larger numbers, except
   * near the end and at evaluations; the cursor's round is larger by k, or by 1. By arrival: the same holds for the
   * state. */
  bool repeats;
  int descent; /* without extra delays petra_program_descent is (stage - 1) / descent, or 0 if `descent` is 0 */
  /* A stage finishes all F of a flush before its first B, so that recomputation can begin before the gradient has
   * arrived. */
  bool early_recompute;
  /* Gets the action at the cursor for a device (from 1; without chunks the stage) and the round (tick) of the action,
   * and advances the cursor. Returns false at the end of the device's order. It does not include the warm-up;
   * petra_program_next does. */
  bool (*next)(const petra_program_options *options, int32_t device, petra_cursor *cursor, petra_action *out,
               int64_t *round);
  /* Writes the order of one flush; `next` is then petra_flush_list_next. NULL for other programs. */
  petra_status (*write)(const petra_program_options *options, const petra_order_costs *costs, petra_schedule **out);
  /* May be NULL. The functions of the same names below call them. */
  int64_t (*delay)(const petra_program_options *options, int32_t stage);
  int64_t (*losses)(const petra_program_options *options);
  /* Additional checks of this program in petra_program_check; may be NULL. */
  petra_status (*check)(const struct petra_program_ops *program, const petra_program_options *options);
} petra_program_ops;

/* X(identifier): petra_program_IDENTIFIER, in the order in which they are listed. */
#define PETRA_PROGRAM_LIST(X)                                                                                          \
  X(sequential)                                                                                                        \
  X(lockstep)                                                                                                          \
  X(arrival)                                                                                                           \
  X(gpipe)                                                                                                             \
  X(1f1b)                                                                                                              \
  X(1f1b_async)                                                                                                        \
  X(forward_locked)                                                                                                    \
  X(local)                                                                                                             \
  X(interleaved)                                                                                                       \
  X(looped_bfs)                                                                                                        \
  X(zb_h1)                                                                                                             \
  X(zb_h2)                                                                                                             \
  X(zb_v)                                                                                                              \
  X(v_half)                                                                                                            \
  X(v_min)                                                                                                             \
  X(interleaved_zb)                                                                                                    \
  X(dualpipe_v)

#define PETRA_PROGRAM_DECLARE(name) extern const petra_program_ops petra_program_##name;
PETRA_PROGRAM_LIST(PETRA_PROGRAM_DECLARE)
#undef PETRA_PROGRAM_DECLARE

/* Finds a program by name; returns NULL if there is none. */
const petra_program_ops *petra_program_find(const char *name);
int petra_program_count(void);
const petra_program_ops *petra_program_get(int index);

/* Returns PETRA_SCHEDULE, logged, for options with which the program cannot run. `next` may rely on options that passed
 * this check. */
petra_status petra_program_check(const petra_program_ops *program, const petra_program_options *options);

/* Gets the actions of the warm-up, which is a separate round, and then calls `next`. */
bool petra_program_next(const petra_program_ops *program, const petra_program_options *options, int32_t device,
                        petra_cursor *cursor, petra_action *out, int64_t *round);

/* Gets the interval over which the time per microbatch is measured, and the microbatches between whose B at stage 1 the
 * steady state is measured: after the warm-up a quarter and a half of the run. A run that consists of the warm-up has
 * none. */
static inline petra_program_time petra_program_time_of(const petra_program_ops *program,
                                                       const petra_program_options *options) {
  return options->microbatches <= options->warmup ? PETRA_TIME_WHOLE : program->time;
}

static inline int64_t petra_program_part(const petra_program_options *options, int divisor) {
  const int64_t own = options->microbatches - options->warmup;
  return own > 0 ? options->warmup + own / divisor : options->microbatches / divisor;
}

/* Returns true if `microbatch` is the last of an epoch with an evaluation. */
static inline bool petra_program_evaluates(const petra_program_options *options, int64_t microbatch) {
  int64_t done = microbatch + options->skipped + 1;
  return options->eval_every > 0 && done > 0 && done % options->batches == 0 &&
         done / options->batches % options->eval_every == 0;
}

static inline int32_t petra_program_devices(const petra_program_options *options) {
  if (options->device_of)
    return options->devices;
  return options->chunks > 1 ? options->stages / options->chunks : options->stages;
}

/* Returns the number of stages per device, rounded up. */
static inline int32_t petra_program_chunks(const petra_program_options *options) {
  const int32_t devices = petra_program_devices(options);
  return (options->stages + devices - 1) / devices;
}

static inline int32_t petra_program_device(const petra_program_options *options, int32_t stage) {
  if (options->device_of)
    return options->device_of[stage - 1];
  return options->chunks > 1 ? petra_layout_device(PETRA_LAYOUT_LOOP, options->stages / options->chunks, stage) : stage;
}

/* Returns true if the assignment of stages to devices is the layout; every assignment is PETRA_LAYOUT_ANY. */
bool petra_program_has_layout(const petra_program_options *options, petra_layout layout);

/* Returns true if the F and B of stage `stage` of `stages` are one action, named B: at the last stage, unless the head
 * is split. */
static inline bool petra_head_is_fused(int32_t stage, int32_t stages, bool split_head) {
  return stage == stages && !split_head;
}

static inline bool petra_program_fused(const petra_program_options *options, int32_t stage) {
  return petra_head_is_fused(stage, options->stages, options->split_head);
}

/* Returns true if B of the stage begins with a loss that the stage itself computed: at the last stage, in a local
 * program at every stage. The B of other stages waits for a message from the stage above. */
static inline bool petra_program_has_loss(const petra_program_options *options, int32_t stage) {
  return options->local || stage == options->stages;
}

/* Returns true if B of the stage sends a message to the stage below. */
static inline bool petra_program_sends_down(const petra_program_options *options, int32_t stage) {
  return !options->local && stage > 1;
}

/* Returns options->extra_delay of a stage (from 1). */
static inline int64_t petra_program_extra(const petra_program_options *options, int32_t stage) {
  return options->extra_delays == 0 ? 0 : options->extra_delay[options->extra_delays == 1 ? 0 : stage - 1];
}

/* Returns the number of microbatches that a stage forwards between the F of a microbatch and its B once the pipeline is
 * full, such as 2 (J - j) in lockstep, plus one with a split head, plus extra_delay. It is 0 in synchronous programs,
 * in which no update comes in between, and -1 if no order determines it (arrival). Reads stages, split_head and
 * extra_delay of the options. */
int64_t petra_program_delay(const petra_program_ops *program, const petra_program_options *options, int32_t stage);

/* Returns how many more microbatches the stage finishes (B) between the end of its own B of m and the end of stage 1's
 * B of m, once the pipeline is full: how much older m is by the time it leaves the pipeline. Lockstep (by ticks) and
 * forward-locked (by rounds): j - 1; 1f1b-async, if all F and B have the same duration: floor((j - 1) / 2). The extra
 * delay of stage 1 minus the extra delay of the stage is added. 0 in programs without a delay. */
int64_t petra_program_descent(const petra_program_ops *program, const petra_program_options *options, int32_t stage);

/* Returns the index of the learning rate (nn/optim.h) for an update of `stage` whose last microbatch is `microbatch`:
 * that microbatch or, in lockstep after a warm-up, the tick of the update. */
int64_t petra_program_rate_index(const petra_program_ops *program, const petra_program_options *options, int32_t stage,
                                 int64_t microbatch);

/* Returns the epoch whose training mean includes the loss of `microbatch`: the epoch of the microbatch or, in lockstep
 * (after a warm-up), the epoch of the tick of the loss. */
int64_t petra_program_loss_epoch(const petra_program_ops *program, const petra_program_options *options,
                                 int64_t microbatch);

/* Returns how many of the M microbatches have a loss: all, except the last J - 1 microbatches in an undrained
 * lockstep. */
int64_t petra_program_losses(const petra_program_ops *program, const petra_program_options *options);

/* Compares two runs that differ in length: a run of `microbatches` microbatches, in which stage 1 is about to read
 * microbatch `read`, and a run with these options. Returns true if their probes compute the same values up to that
 * point. They do not if the first run has made all its updates, a longer run would make more updates, and the
 * end-to-end networks would use weights that these updates change. */
bool petra_program_probes_alike(const petra_program_ops *program, const petra_program_options *options,
                                int64_t microbatches, int64_t read);

/* Returns the number of updates that stage `of` has made in the network of the end-to-end reference for B of
 * `microbatch` at `stage`; for PETRA_MOMENT_WINDOW and PETRA_MOMENT_ROUND. */
int64_t petra_program_reference(const petra_program_ops *program, const petra_program_options *options,
                                int64_t microbatch, int32_t stage, int32_t of);

/* Returns true if the update window that begins with `microbatch` (a multiple of k) is probed: it contains the
 * microbatch in the middle of one of `per_epoch` equal parts of an epoch. */
bool petra_program_is_probed(const petra_program_options *options, int64_t per_epoch, int64_t microbatch);
