/* SPDX-License-Identifier: Apache-2.0 */
/* Max-min fair sharing of links and cards by concurrent transmissions (a fluid model; progressive filling, Bertsekas
 * and Gallager, "Data networks", section 6.5.2). Times are int64 nanoseconds; the remainder of a transmission is a
 * double of bytes. */
#pragma once

#include "base/status.h"
#include "schedule/action.h"
#include "sim/cycle.h"

typedef struct petra_fair petra_fair;

/* Returns the time of `bytes` at `Bps` > 0 in nanoseconds, rounded; at most PETRA_LONGEST_NS. */
int64_t petra_transmission_ns(double bytes, double Bps);
#define PETRA_LONGEST_NS (INT64_C(1) << 60)

/* Bandwidth 0: infinite. Every transmission must use a finite link or card. */
petra_status petra_fair_create(int32_t links, int32_t cards, double card_Bps, petra_fair **out);
void petra_fair_destroy(petra_fair *fair);

/* The resources of a transmission: its link, and the cards at both ends (-1: no finite card). */
typedef struct petra_route {
  int32_t link, cards[2];
  double link_Bps; /* the same for all transmissions on a link; 0: infinite */
  int64_t latency_ns;
} petra_route;

/* Starts a transmission. */
petra_status petra_fair_start(petra_fair *fair, int64_t now_ns, const petra_route *route, double bytes,
                              const petra_packet *packet);

/* Gets the time at which the next transmission ends at the current rates, and a number that identifies the current
 * state (petra_fair_is_current); returns false if there is no transmission. */
bool petra_fair_next_end(petra_fair *fair, int64_t *time_ns, int64_t *number);

/* Returns true if nothing has started or ended since `number` was given. */
bool petra_fair_is_current(const petra_fair *fair, int64_t number);

/* Takes the transmission that started first among those that have ended at `now_ns`; returns false if there is none, or
 * none left. */
bool petra_fair_take_ended(petra_fair *fair, int64_t now_ns, int64_t *latency_ns, petra_packet *out);

/* Gives the transmissions to a cycle. */
void petra_fair_state(const petra_fair *fair, petra_cycle *cycle);
