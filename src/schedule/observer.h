/* SPDX-License-Identifier: Apache-2.0 */
/* The executor, with any clock, notifies an observer of the actions of a run. It computes nothing of the run and
 * changes nothing in it. Observers form a list and are notified in the order in which they were added; the first
 * failure ends the run and is returned. */
#pragma once

#include "schedule/worker.h"

/* One action as it ran. */
typedef struct petra_trace_row {
  petra_action action;
  int64_t start_ns, end_ns;
  petra_action_result result;
  int64_t shared_ns; /* the part of its time that counts for the other actions of its step */
} petra_trace_row;

/* Returns the start of an action in logs and traces: W of a step is shown within its B, at the end. */
static inline int64_t petra_trace_row_start_ns(const petra_trace_row *row) {
  return row->start_ns + (row->action.kind == PETRA_ACTION_WEIGHT_GRADIENT ? row->shared_ns : 0);
}

typedef struct petra_observer petra_observer;
struct petra_cycle;

/* Each function may be NULL. `now_ns` is the executor's clock. */
typedef struct petra_observer_ops {
  /* A group of actions (petra_worker_ops.perform) is about to be performed; nothing has changed yet. */
  petra_status (*starting)(petra_observer *observer, int64_t now_ns, const petra_action *actions, int count);
  /* The worker has performed the group; the duration of its actions begins now. */
  petra_status (*started)(petra_observer *observer, int64_t now_ns, const petra_action *actions,
                          const petra_action_result *results, int count);
  /* An action ended; in the order of (end, stage, start of the action). What it sends was reported before. */
  petra_status (*ended)(petra_observer *observer, const petra_trace_row *row);
  /* Stage `from` sent a message that takes time (in an exchange with replicas: the receiver itself); the message
   * arrived. */
  petra_status (*sent)(petra_observer *observer, int32_t from, const petra_packet *packet, int64_t now_ns);
  petra_status (*arrived)(petra_observer *observer, const petra_packet *packet, int64_t now_ns);
  /* Gives the observer's state to sim/cycle.h, so that the virtual executor may skip whole periods. NULL: the observer
   * needs every action. */
  void (*state)(petra_observer *observer, struct petra_cycle *cycle);
} petra_observer_ops;

struct petra_observer {
  const petra_observer_ops *ops;
  petra_observer *next; /* in the list; set by PETRA_OBSERVERS_ADD */
};

/* Adds an observer to the end of a list, the address of a pointer that starts as NULL. The observer is borrowed, and is
 * in one list only. */
#define PETRA_OBSERVERS_ADD(type, list, observer)                                                                      \
  do {                                                                                                                 \
    type **link_ = (list);                                                                                             \
    while (*link_)                                                                                                     \
      link_ = &(*link_)->next;                                                                                         \
    *link_ = (observer);                                                                                               \
    (*link_)->next = NULL;                                                                                             \
  } while (0)

/* Notifies every observer of a list: PETRA_NOTIFY(petra_observer, list, ended, observer, &row) calls the `ended` of
 * each with `observer` and `&row`. */
#define PETRA_NOTIFY(type, list, what, ...)                                                                            \
  do {                                                                                                                 \
    for (type *observer = (list); observer; observer = observer->next)                                                 \
      if (observer->ops->what)                                                                                         \
        PETRA_TRY(observer->ops->what(__VA_ARGS__));                                                                   \
  } while (0)
