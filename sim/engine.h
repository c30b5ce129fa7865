/* SPDX-License-Identifier: Apache-2.0 */
/* The event queue of the discrete-event engine. Times are int64 nanoseconds. Events have a total order by (time,
 * priority, sequence), so that the same inputs always give the same order. The queue is a 4-ary heap that allocates
 * nothing once it has grown. */
#pragma once

#include "base/status.h"

#include <stdbool.h>
#include <stdint.h>

enum { PETRA_EVENT_PRIORITIES = 16 };

typedef struct petra_event {
  int64_t time_ns;
  int32_t priority;            /* 0 .. 15, smaller first at equal times */
  int64_t sequence;            /* set by push: the order of pushes breaks ties */
  int32_t kind, stage, detail; /* for the caller; kind and detail have 16 bits */
  int64_t microbatch;          /* for the caller */
} petra_event;

typedef struct petra_event_queue petra_event_queue;

petra_status petra_event_queue_create(petra_event_queue **out);
void petra_event_queue_destroy(petra_event_queue *queue);

/* Adds an event. Events of equal time and priority are taken in the order of their pushes. */
petra_status petra_event_queue_push(petra_event_queue *queue, const petra_event *event);

/* Takes the first event; returns false if the queue is empty. */
bool petra_event_queue_pop(petra_event_queue *queue, petra_event *out);

/* Returns the time of the first event; INT64_MAX if the queue is empty. */
int64_t petra_event_queue_time(const petra_event_queue *queue);

/* Copies the events in their order to a growing array (petra_array_reserve). */
petra_status petra_event_queue_copy(const petra_event_queue *queue, petra_event **events, int64_t *capacity,
                                    int64_t *count);

/* A set of microbatches. Microbatches usually arrive in order; a count then suffices. */

/* Contains the microbatches 0 .. next - 1 and the microbatches in the bitmap. All zeros: empty. */
typedef struct petra_microbatch_set {
  int64_t next;
  int64_t words;
  uint64_t *beyond; /* bit i: microbatch next + 1 + i, as a ring over microbatch numbers; NULL: never needed */
} petra_microbatch_set;

/* Adds a microbatch, which may be there already. */
petra_status petra_microbatch_set_put(petra_microbatch_set *set, int64_t microbatch);
bool petra_microbatch_set_has(const petra_microbatch_set *set, int64_t microbatch);
void petra_microbatch_set_fini(petra_microbatch_set *set);
