/* SPDX-License-Identifier: Apache-2.0 */
/* The internals of the virtual executor, shared by the files executor_*.c. */
#pragma once

#include "sim/executor_virtual.h"
#include "sim/cycle.h"

typedef struct petra_arrival petra_arrival; /* queues of an `arrival` run; virtual_arrival.c */

typedef struct petra_hosts petra_hosts; /* executor_device.c */

typedef struct petra_cycle_search petra_cycle_search; /* executor_cycle.c */

/* Far enough below 2^63 that a transmission and its latency cannot overflow. */
#define PETRA_LATEST_NS (INT64_C(1) << 61)

/* --- a device: what it waits for, and what it may start next --- */

enum { PETRA_ENGINES = 2 };

/* Counts of the actions before an action. */
typedef struct petra_counters {
  int64_t order;                         /* its position in the device's order */
  int64_t updates_before, passes_before; /* number of U; number of F, B and W before it */
  int64_t round_start;                   /* position of the first action of its round */
} petra_counters;

/* An action, or several joined actions. */
typedef struct petra_step {
  petra_counters before;
  int count;
  petra_action action[PETRA_STEP_ACTIONS];
} petra_step;

/* An engine reads the device's order, skips the other engine's actions and stops at its own. */
typedef struct petra_engine {
  petra_cursor cursor;
  petra_counters reading;
  int64_t round;
  petra_step next;
  bool waiting, busy;
  bool parked;             /* the round of its next action has not begun (locked programs) */
  int64_t free_ns;         /* when its last action ended */
  petra_trace_row running; /* the first action of its step; petra_device.joined has the others */
  int running_count;
} petra_engine;

typedef struct petra_device {
  petra_engine engines[PETRA_ENGINES];
  int64_t updates, passes, done; /* numbers of actions that have ended: U; F, B and W; all */
  int64_t in_flight, kept;
  bool dirty; /* in the list of devices to examine */
  petra_trace_row joined[PETRA_STEP_ACTIONS - 1];
} petra_device;

/* --- the executor --- */

/* Kinds of events. */
enum { PETRA_EVENT_END, PETRA_EVENT_NETWORK, PETRA_EVENT_HOST };

/* The exchange of a stage with its replicas before its next update. */
typedef struct petra_exchange {
  int64_t gradients; /* number of microbatches since the last update */
  bool done;         /* all gradients that the update takes exist, and their mean has arrived */
} petra_exchange;

typedef struct petra_executor_virtual {
  petra_executor base;
  petra_executor_virtual_options settings;
  int64_t now_ns, last_end_ns; /* both without the time of skipped periods; last_end_ns: the last end of an action */
  int64_t skipped_ns;          /* time in skipped periods */
  int64_t returned;            /* B of stage 1 that have ended, without those in skipped periods */
  petra_virtual_totals totals;
  /* The members below belong to the current run. */
  const petra_program_ops *program;
  const petra_program_options *options;
  petra_observer *observers;
  int32_t devices;
  petra_device *device;                       /* per device, from 0 */
  petra_microbatch_set *forward, *backward;   /* per stage, from 0: microbatches whose message has arrived */
  petra_exchange *exchanges;                  /* per stage, from 0; NULL: there are no replicas */
  petra_jitter_quantiles *quantiles;          /* NULL: no quantiles are kept */
  int64_t (*duration_ns)[PETRA_ACTION_KINDS]; /* per stage */
  petra_event_queue *events;
  petra_fabric *fabric;
  petra_arrival *arrival;
  petra_hosts *hosts; /* NULL: there are no hosts */
  /* Locked programs: the current round, the number of engines that have not finished it, and a queue of the parked
   * engines, in which the time of an event is the engine's round. */
  int64_t round, engines_left;
  petra_event_queue *parked;
  int32_t *dirty, dirty_count; /* devices to examine, from 0 */
  petra_action *group;
  petra_action_result *results;
  int64_t *prices_ns;               /* of the actions of the group */
  petra_cycle_search *cycle_search; /* NULL: nothing is skipped */
  petra_stage_cost costs[];         /* our copy */
} petra_executor_virtual;

static inline int petra_engine_of(const petra_executor_virtual *executor, petra_action_kind kind) {
  return executor->settings.engines == 2 && kind != PETRA_ACTION_FORWARD;
}

/* Programs with an order: petra_device_read advances an engine to its next action; petra_device_ready returns true if
 * that action may start now. */
void petra_device_read(const petra_executor_virtual *executor, int32_t device, int engine, petra_engine *reader);
bool petra_device_ready(const petra_executor_virtual *executor, const petra_device *device, const petra_step *step);

/* Replicas: records that an action has ended. After the last one before an update, the exchange of the stage begins. */
petra_status petra_exchange_count(petra_executor_virtual *executor, const petra_action *ended);
/* Returns true if an update need not wait for replicas. */
static inline bool petra_exchange_done(const petra_executor_virtual *executor, int32_t stage) {
  return !executor->exchanges || executor->exchanges[stage - 1].done;
}

/* Hosts. petra_host_may_start: returns whether an action that nothing else delays has been issued; if not, requests it
 * from the host. petra_host_started: the action has started. petra_hosts_serve: accepts the requests of this moment.
 * petra_host_issued: call it for an event that reports that the next action of `lane` has been issued. */
petra_status petra_hosts_create(petra_executor_virtual *executor);
void petra_hosts_destroy(petra_hosts *hosts);
bool petra_host_may_start(petra_executor_virtual *executor, int32_t device, int engine);
void petra_host_started(petra_executor_virtual *executor, int32_t device, int engine, petra_action_kind kind);
petra_status petra_hosts_serve(petra_executor_virtual *executor);
petra_status petra_host_issued(petra_executor_virtual *executor, int32_t lane);
int64_t petra_hosts_busy_ns(const petra_hosts *hosts); /* of the busiest host */

/* Cycles (executor_cycle.c): petra_cycle_search_create creates a search unless something needs every action. Call
 * petra_cycle_search_look when everything of a moment has happened; it skips periods if this moment is like an earlier
 * one. */
petra_status petra_cycle_search_create(petra_executor_virtual *executor, const petra_worker *worker);
void petra_cycle_search_destroy(petra_cycle_search *cycles);
petra_status petra_cycle_search_look(petra_executor_virtual *executor, petra_worker *worker);

/* Give the state of a part. */
void petra_engine_state(petra_executor_virtual *executor, const petra_engine *engine, int32_t device,
                        petra_cycle *cycle);
void petra_hosts_state(petra_executor_virtual *executor, petra_cycle *cycle);
void petra_arrival_state(const petra_executor_virtual *executor, petra_cycle *cycle);

/* Programs by arrival: the messages that have arrived, and what an engine starts next. */
petra_status petra_arrival_create(petra_executor_virtual *executor);
void petra_arrival_destroy(petra_arrival *arrival);
petra_status petra_arrival_message(petra_executor_virtual *executor, const petra_packet *packet);
/* Chooses the next action of an engine; returns false if none may start. */
bool petra_arrival_choose(petra_executor_virtual *executor, int32_t device, int engine, petra_action *out);
int64_t petra_arrival_offered(const petra_executor_virtual *executor); /* microbatches that stage 1 has started */
void petra_arrival_ended(petra_executor_virtual *executor, const petra_action *action);
