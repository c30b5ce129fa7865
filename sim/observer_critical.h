/* SPDX-License-Identifier: Apache-2.0 */
/* The critical path of a run under the virtual clock: the chain of actions and messages, each beginning when the one
 * before it ended, that leads from the start of the run to its last end. It is computed after the run from the records
 * of an observer, about 40 bytes per action and 32 per message that takes time.
 *
 * The path goes back from the action that ended last. An action has waited for the event at the moment of its start:
 *  1. its message, if it arrived at that moment (its sender ended then, if a message takes no time);
 *  2. else the action that ended on its engine then;
 *  3. else the action that ended on the device's other engine then (the last U, the end of the round);
 *  4. else, in a locked program (schedule/program.h), an action that ended then on any device: the end of the network's
 *     round.
 * If two events happen at once there are several critical paths, and one of them is returned. */
#pragma once

#include "sim/executor_virtual.h"

/* X(NAME, name in files). The time of a message consists of its transmission (as if it had its link and cards for
 * itself), the latency, and the rest: queueing behind other messages, or sharing with them. WAIT is the time before an
 * action that nothing explains; the programs of this version have no such time, because each of their waits ends with
 * an action or a message. */
#define PETRA_CRITICAL_LIST(X)                                                                                         \
  X(FORWARD, "F")                                                                                                      \
  X(BACKWARD, "B")                                                                                                     \
  X(WEIGHT_GRADIENT, "W")                                                                                              \
  X(UPDATE, "U")                                                                                                       \
  X(TRANSMISSION, "transmission")                                                                                      \
  X(LATENCY, "latency")                                                                                                \
  X(QUEUEING, "queueing")                                                                                              \
  X(WAIT, "wait")

typedef enum petra_critical_kind {
#define PETRA_CRITICAL_ENUM(name, text) PETRA_CRITICAL_##name,
  PETRA_CRITICAL_LIST(PETRA_CRITICAL_ENUM)
#undef PETRA_CRITICAL_ENUM
      PETRA_CRITICAL_KINDS
} petra_critical_kind;

const char *petra_critical_name(petra_critical_kind kind);

typedef struct petra_critical_path {
  int64_t ns[PETRA_CRITICAL_KINDS]; /* their sum is exactly the end of the last action: the makespan */
  int64_t actions, messages;        /* numbers on the path; only messages that take time count */
} petra_critical_path;

/* The maximum number of actions: about 3 GB. */
#define PETRA_CRITICAL_MAX_ACTIONS INT64_C(50000000)

/* Creates the observer of a run, which fails with PETRA_CONFIG if there are too many actions. `options` are the options
 * of the executor, `program` the options of the run; `locked` is a fact of the program (schedule/program.h). The first
 * two are borrowed until petra_critical_destroy. */
petra_status petra_critical_create(const petra_executor_virtual_options *options, const petra_program_options *program,
                                   bool locked, petra_observer **out);
void petra_critical_destroy(petra_observer *critical);

/* After the run: finds the path. stage_ns (program->stages of them, or NULL): nanoseconds of the path spent in actions
 * of each stage. */
petra_status petra_critical_trace(const petra_observer *critical, petra_critical_path *out, int64_t *stage_ns);
