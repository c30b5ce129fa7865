/* SPDX-License-Identifier: Apache-2.0 */
/* A device under the virtual clock: what it waits for, what it may start next. For executor_virtual.c. */
#ifndef PETRA_SIM_DEVICE_H
#define PETRA_SIM_DEVICE_H

#include "exec/executor.h"

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

#endif
