/* SPDX-License-Identifier: Apache-2.0 */
/* For tests: a function that is told of every action that ends, as an observer; and a worker around another that says how
 * long its actions take. */
#pragma once

#include "schedule/executor.h"

typedef petra_status (*petra_trace_sink)(void *context, const petra_trace_row *row);

typedef struct sink {
  petra_observer base;
  petra_trace_sink report;
  void *context;
} sink;

static inline petra_status sink_ended(petra_observer *base, const petra_trace_row *row) {
  sink *s = (sink *)base;
  return s->report ? s->report(s->context, row) : PETRA_OK;
}

static inline petra_observer *sink_of(sink *s, petra_trace_sink report, void *context) {
  static const petra_observer_ops ops = {.ended = sink_ended};
  *s = (sink){.base.ops = &ops, .report = report, .context = context};
  return &s->base;
}

/* Nanoseconds of an action; 0: the executor prices it. */
typedef petra_status (*timed_duration)(void *context, const petra_action *action, int64_t *duration_ns);

typedef struct timed {
  petra_worker base;
  petra_worker *inner;
  timed_duration duration;
  void *context;
} timed;

static inline petra_status timed_perform(petra_worker *base, int64_t virtual_ns, const petra_action *actions, int count,
                                         petra_action_result *results) {
  timed *t = (timed *)base;
  PETRA_TRY(t->inner->ops->perform(t->inner, virtual_ns, actions, count, results));
  for (int i = 0; i < count; i++)
    if (actions[i].kind != PETRA_ACTION_EVALUATE)
      PETRA_TRY(t->duration(t->context, &actions[i], &results[i].measured_ns));
  return PETRA_OK;
}

static inline petra_status timed_finish(petra_worker *base) {
  return petra_worker_finish(((timed *)base)->inner);
}

static inline petra_worker *timed_of(timed *t, petra_worker *inner, timed_duration duration, void *context) {
  static const petra_worker_ops ops = {.perform = timed_perform, .finish = timed_finish};
  *t = (timed){.base.ops = &ops, .inner = inner, .duration = duration, .context = context};
  return &t->base;
}
