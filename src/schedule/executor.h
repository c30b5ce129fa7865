/* SPDX-License-Identifier: Apache-2.0 */
/* The interfaces between an executor, which decides when each action of a program runs, the worker that performs the
 * actions, and the observers that are notified. */
#pragma once

#include "schedule/program.h"

/* A worker performs the actions: worker_stage performs them on real tensors, with the messages of its transport; sim's
 * worker_cost only counts costs. The executor only determines the next actions, in an order in which every input is
 * available. */

typedef struct petra_worker petra_worker;
struct petra_cycle;

/* The versions that an action read and wrote. Versions count the updates of the stage's weights; -1 if nothing is read
 * or written. */
typedef struct petra_action_result {
  int64_t version_read, version_written;
  int64_t measured_ns; /* real duration, which becomes the virtual duration; 0: the executor prices the action */
  /* duration by the prices of the executor (in a step: its part of the step); an input of the worker */
  int64_t priced_ns;
} petra_action_result;

typedef struct petra_worker_ops {
  /* Performs a group of actions that start at the same moment, `virtual_ns`, and are independent of each other (they
   * belong to different stages, or to the two engines of one stage), except that a W may follow its B. The result is
   * bit-identical for every order. */
  petra_status (*perform)(petra_worker *worker, int64_t virtual_ns, const petra_action *actions, int count,
                          petra_action_result *results);
  /* Optional: reports the results that the worker has not reported yet (losses that a device still computes). It is
   * called at the end of a run, and before the state of the run is saved. */
  petra_status (*finish)(petra_worker *worker);
  /* Gives the worker's state to sim/cycle.h, like `state` of an observer. NULL: the worker must perform every
   * action. */
  void (*state)(petra_worker *worker, struct petra_cycle *cycle);
} petra_worker_ops;

struct petra_worker {
  const petra_worker_ops *ops;
};

static inline petra_status petra_worker_finish(petra_worker *worker) {
  return worker->ops->finish ? worker->ops->finish(worker) : PETRA_OK;
}

/* The executor, with any clock, notifies an observer of the actions of a run. An observer computes no part of the run
 * and does not change it. Observers form a list and are notified in the order in which they were added; the first
 * failure ends the run and is returned. */

/* One action as it ran. */
typedef struct petra_trace_row {
  petra_action action;
  int64_t start_ns, end_ns;
  petra_action_result result;
  int64_t shared_ns; /* the part of its duration that counts for the other actions of its step */
} petra_trace_row;

/* Returns the start of an action in logs and traces: W of a step is shown within its B, at the end. */
static inline int64_t petra_trace_row_start_ns(const petra_trace_row *row) {
  return row->start_ns + (row->action.kind == PETRA_ACTION_WEIGHT_GRADIENT ? row->shared_ns : 0);
}

typedef struct petra_observer petra_observer;

/* Each function may be NULL. `now_ns` is the executor's clock. */
typedef struct petra_observer_ops {
  /* Is called before a group of actions (petra_worker_ops.perform) is performed; nothing has changed yet. */
  petra_status (*starting)(petra_observer *observer, int64_t now_ns, const petra_action *actions, int count);
  /* Is called when the worker has performed the group; the duration of its actions begins now. */
  petra_status (*started)(petra_observer *observer, int64_t now_ns, const petra_action *actions,
                          const petra_action_result *results, int count);
  /* Is called when an action ends, in the order of (end, stage, start of the action). The messages that the action
   * sends were reported before. */
  petra_status (*ended)(petra_observer *observer, const petra_trace_row *row);
  /* Are called when stage `from` has sent a message that takes time, and when the message has arrived. In an exchange
   * with replicas `from` is the receiver itself. */
  petra_status (*sent)(petra_observer *observer, int32_t from, const petra_packet *packet, int64_t now_ns);
  petra_status (*arrived)(petra_observer *observer, const petra_packet *packet, int64_t now_ns);
  /* Gives the observer's state to sim/cycle.h, so that the virtual executor may skip whole periods. NULL: the observer
   * needs every action. */
  void (*state)(petra_observer *observer, struct petra_cycle *cycle);
} petra_observer_ops;

struct petra_observer {
  const petra_observer_ops *ops;
  petra_observer *next; /* next observer in the list; set by PETRA_OBSERVERS_ADD */
};

/* Adds an observer to the end of a list. `list` is the address of a pointer that is initially NULL. The observer is
 * borrowed, and is in one list only. */
#define PETRA_OBSERVERS_ADD(type, list, observer)                                                                      \
  do {                                                                                                                 \
    type **link_ = (list);                                                                                             \
    while (*link_)                                                                                                     \
      link_ = &(*link_)->next;                                                                                         \
    *link_ = (observer);                                                                                               \
    (*link_)->next = NULL;                                                                                             \
  } while (0)

/* Notifies every observer of a list: PETRA_NOTIFY(petra_observer, list, ended, observer, &row) calls `ended` of each
 * observer with `observer` and `&row`. */
#define PETRA_NOTIFY(type, list, what, ...)                                                                            \
  do {                                                                                                                 \
    for (type *observer = (list); observer; observer = observer->next)                                                 \
      if (observer->ops->what)                                                                                         \
        PETRA_TRY(observer->ops->what(__VA_ARGS__));                                                                   \
  } while (0)

/* An executor decides when each action of a program runs, passes it to the worker and notifies the observers:
 * executor_virtual does this under a virtual clock. */

typedef struct petra_executor petra_executor;

typedef struct petra_executor_ops {
  /* Runs the program to its end; `observers` may be NULL. The first failure of the worker or an observer ends the run
   * and is returned. PETRA_SCHEDULE, logged with the first action that waits, if no action can begin. */
  petra_status (*run)(petra_executor *executor, const petra_program_ops *program, const petra_program_options *options,
                      petra_worker *worker, petra_observer *observers);
  int64_t (*now_ns)(const petra_executor *executor);
  void (*destroy)(petra_executor *executor);
} petra_executor_ops;

struct petra_executor {
  const petra_executor_ops *ops;
};

static inline void petra_executor_destroy(petra_executor *executor) {
  if (executor)
    executor->ops->destroy(executor);
}
