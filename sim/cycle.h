/* SPDX-License-Identifier: Apache-2.0 */
/* Detects that a simulation repeats itself. Two moments are alike if the state at both is the same, relative to the
 * clock and to a microbatch. Everything that happens after the first moment then happens after the second moment too,
 * later by the same time and for later microbatches. Whole periods can therefore be skipped, and totals grow by a
 * multiple of their growth in one period.
 *
 * Every part of a simulation has a function that gives its state to the functions below, always in the same order.
 * These functions record the state, compare it with the recorded state, or add the skipped periods to the totals. */
#pragma once

#include "schedule/action.h"
#include "sim/engine.h"

#include <string.h>

typedef enum petra_cycle_pass { PETRA_CYCLE_RECORD, PETRA_CYCLE_COMPARE, PETRA_CYCLE_SKIP } petra_cycle_pass;

/* Numbers of the recorded moment. */
typedef struct petra_cycle_numbers {
  int64_t *number;
  int64_t count, capacity;
} petra_cycle_numbers;

typedef struct petra_cycle {
  petra_cycle_pass pass;
  int64_t now_ns, microbatch; /* the numbers are relative to these */
  bool alike;                 /* COMPARE: all numbers so far are the same */
  petra_status status;        /* out of memory */
  int64_t place, total_place; /* COMPARE, SKIP: index of the next number */
  petra_cycle_numbers state, totals;
  int64_t periods; /* COMPARE: the number that may be skipped, so far. SKIP: the number that is skipped */
  int64_t skipped_ns, skipped_microbatches; /* SKIP: duration of the skipped periods; microbatches in them */
  petra_event *events;                      /* scratch space of petra_cycle_queue */
  int64_t events_capacity;
} petra_cycle;

void petra_cycle_begin(petra_cycle *cycle, petra_cycle_pass pass, int64_t now_ns, int64_t microbatch);
void petra_cycle_fini(petra_cycle *cycle);
void petra_cycle_append(petra_cycle *cycle, petra_cycle_numbers *numbers, int64_t number);

/* COMPARE: a period adds `growth` to something that may grow by no more than `room`. */
void petra_cycle_restrict(petra_cycle *cycle, int64_t growth, int64_t room);

/* Gives a number that must be the same. */
static inline void petra_cycle_value(petra_cycle *cycle, int64_t value) {
  if (cycle->pass == PETRA_CYCLE_RECORD)
    petra_cycle_append(cycle, &cycle->state, value);
  else if (cycle->pass == PETRA_CYCLE_COMPARE && cycle->alike)
    cycle->alike = cycle->place < cycle->state.count && cycle->state.number[cycle->place++] == value;
}

/* Gives a real number; all of its bits must be the same. */
static inline void petra_cycle_real(petra_cycle *cycle, double value) {
  int64_t bits;
  memcpy(&bits, &value, sizeof bits);
  petra_cycle_value(cycle, bits);
}

static inline void petra_cycle_time(petra_cycle *cycle, int64_t time_ns) {
  petra_cycle_value(cycle, time_ns - cycle->now_ns);
}

static inline void petra_cycle_microbatch(petra_cycle *cycle, int64_t microbatch) {
  petra_cycle_value(cycle, microbatch - cycle->microbatch);
}

static inline void petra_cycle_packet(petra_cycle *cycle, const petra_packet *packet) {
  petra_cycle_value(cycle, 4 * (int64_t)packet->stage + 2 * packet->backward + packet->exchange);
  petra_cycle_microbatch(cycle, packet->microbatch);
}

/* Returns by how much a number has grown since the recorded moment; RECORD: 0. */
static inline int64_t petra_cycle_growth(petra_cycle *cycle, int64_t number) {
  if (cycle->pass != PETRA_CYCLE_RECORD)
    return cycle->alike ? number - cycle->totals.number[cycle->total_place++] : 0;
  petra_cycle_append(cycle, &cycle->totals, number);
  return 0;
}

/* Gives a number that grows by the same amount in every period. The growth in the skipped periods is added to *total,
 * which may be the number itself. */
static inline void petra_cycle_total(petra_cycle *cycle, int64_t number, int64_t *total) {
  const int64_t growth = petra_cycle_growth(cycle, number);
  if (cycle->pass == PETRA_CYCLE_SKIP)
    *total += cycle->periods * growth;
}

/* Gives a number that grows by the same amount in every period and must not pass `limit` within skipped periods. */
static inline void petra_cycle_limit(petra_cycle *cycle, int64_t number, int64_t limit) {
  petra_cycle_restrict(cycle, petra_cycle_growth(cycle, number), limit - number);
}

/* Calls `give` for every event of a queue, in their order. */
void petra_cycle_queue(petra_cycle *cycle, const petra_event_queue *queue,
                       void (*give)(petra_cycle *cycle, const void *context, const petra_event *event),
                       const void *context);

/* Gives the set to a cycle. */
void petra_microbatch_set_state(const petra_microbatch_set *set, petra_cycle *cycle);
