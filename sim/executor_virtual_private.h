/* SPDX-License-Identifier: Apache-2.0 */
/* The inside of the virtual executor, shared by the files executor_*.c. */
#ifndef PETRA_SIM_EXECUTOR_PRIVATE_H
#define PETRA_SIM_EXECUTOR_PRIVATE_H

#include "sim/executor_virtual.h"
#include "sim/microbatch_set.h"

typedef struct petra_arrival petra_arrival; /* queues of an `arrival` run; executor_arrival.c */

typedef struct petra_hosts petra_hosts; /* what issues actions; executor_host.c */

/* --- a device: what it waits for, what it may start next --- */

enum { PETRA_ENGINES = 2 };

/* An action with what came before it in the order. */
typedef struct petra_step {
  petra_action action;
  int64_t order;                         /* its place in the device's order */
  int64_t updates_before, passes_before; /* U; F, B and W earlier in the order */
  int64_t round_start;                   /* place of the first action of its round */
} petra_step;

/* One engine: a reader of the device's order that stops at the actions of its engine. */
typedef struct petra_engine {
  petra_cursor cursor;
  petra_step reading; /* counters of the reader; its action is unused */
  int64_t round;
  petra_step next;
  bool waiting, busy;
  bool parked;     /* the round of its next action has not begun (locked programs) */
  int64_t free_ns; /* when its last action ended */
  petra_trace_row running;
} petra_engine;

typedef struct petra_device {
  petra_engine engines[PETRA_ENGINES];
  int64_t updates, passes, done; /* ended: U; F, B and W; all */
  int64_t in_flight;
  bool dirty; /* in the list of devices to look at */
} petra_device;

/* --- the executor --- */

/* Kinds of events. */
enum { PETRA_EVENT_END, PETRA_EVENT_NETWORK, PETRA_EVENT_HOST };

/* What a stage exchanges with its replicas before its next update. */
typedef struct petra_exchange {
  int64_t gradients; /* of microbatches, since the last update */
  bool done;         /* there were as many as an update takes, and their mean is here */
} petra_exchange;

typedef struct petra_executor_virtual {
  petra_executor base;
  petra_executor_virtual_options settings;
  int64_t now_ns, last_end_ns; /* last_end_ns: of an action */
  int64_t actions, runaway, host_ns;
  petra_device_counts *counts; /* per device; kept after a run */
  /* Below: of the run in progress. */
  const petra_program_ops *program;
  const petra_program_options *options;
  petra_observer *observers;
  int32_t devices;
  petra_device *device;                       /* per device, from 0 */
  petra_microbatch_set *forward, *backward;   /* per stage, from 0: of which a message has come */
  petra_exchange *exchanges;                  /* per stage, from 0; NULL: there are no replicas */
  petra_jitter_quantiles *quantiles;          /* NULL: none are kept */
  int64_t (*duration_ns)[PETRA_ACTION_KINDS]; /* per stage, or one for all inner stages and one for the last */
  petra_event_queue *events;
  petra_fabric *fabric;
  petra_arrival *arrival;
  petra_hosts *hosts; /* NULL: there are none */
  /* A locked program: the round that runs, engines that have not done with it, parked engines by round (the event's
   * time). */
  int64_t round, engines_left;
  petra_event_queue *parked;
  int32_t *dirty, dirty_count; /* devices to look at, from 0 */
  petra_action *group;
  petra_action_result *results;
  int64_t *prices_ns;       /* of the group */
  petra_stage_cost costs[]; /* our copy */
} petra_executor_virtual;

static inline int petra_engine_of(const petra_executor_virtual *executor, petra_action_kind kind) {
  return executor->settings.engines == 2 && kind != PETRA_ACTION_FORWARD;
}

/* Programs with an order: a reader of an engine reads up to its next action; tells whether that may start now. */
void petra_device_read(const petra_executor_virtual *executor, int32_t device, int engine, petra_engine *reader);
bool petra_device_ready(const petra_executor_virtual *executor, const petra_device *device, const petra_step *step);

/* Replicas: an action has ended; with the last one before an update the exchange of its stage begins. */
petra_status petra_exchange_count(petra_executor_virtual *executor, const petra_action *ended);
/* An update that waits for ever, as its stage has too few gradients: PETRA_SCHEDULE. */
petra_status petra_exchange_fail(const petra_executor_virtual *executor, const petra_action *update);

/* Whether an update need not wait for replicas. */
static inline bool petra_exchange_done(const petra_executor_virtual *executor, int32_t stage) {
  return !executor->exchanges || executor->exchanges[stage - 1].done;
}

/* Hosts: whether an action that nothing else keeps has been issued, else its host is asked; an action has started; the
 * requests of this moment are taken up; a lane, which an event names, has been issued its next action. */
petra_status petra_hosts_create(petra_executor_virtual *executor);
void petra_hosts_destroy(petra_hosts *hosts);
bool petra_host_may_start(petra_executor_virtual *executor, int32_t device, int engine);
void petra_host_started(petra_executor_virtual *executor, int32_t device, int engine, petra_action_kind kind);
petra_status petra_hosts_serve(petra_executor_virtual *executor);
petra_status petra_host_issued(petra_executor_virtual *executor, int32_t lane);
int64_t petra_hosts_busy_ns(const petra_hosts *hosts); /* of the busiest */

/* arrival: what has arrived, and what an engine starts next. */
petra_status petra_arrival_create(petra_executor_virtual *executor);
void petra_arrival_destroy(petra_arrival *arrival);
petra_status petra_arrival_message(petra_executor_virtual *executor, const petra_packet *packet);
/* Chooses the next action of an engine; false when nothing may start. */
bool petra_arrival_choose(petra_executor_virtual *executor, int32_t device, int engine, petra_action *out);
void petra_arrival_ended(petra_executor_virtual *executor, const petra_action *action);

#endif
