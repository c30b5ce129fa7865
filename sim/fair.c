/* SPDX-License-Identifier: Apache-2.0 */
#include "sim/fair.h"

#include "base/mem.h"

#include <math.h>
#include <string.h>

typedef struct flow {
  double bytes_left, rate_Bps;
  int64_t end_ns; /* end at the current rates */
  double link_Bps;
  int64_t latency_ns;
  int32_t resource[3]; /* link, cards; -1: none */
  petra_packet packet;
  bool fixed; /* the current filling has set its rate */
} flow;

/* During a filling: the remaining bandwidth, and the number of flows that are not fixed yet. */
typedef struct resource {
  double left_Bps;
  int32_t open;
} resource;

struct petra_fair {
  int32_t links;
  double card_Bps;
  int64_t now_ns, number;
  int32_t count;
  int64_t capacity;
  flow *flows;         /* in the order of their starts */
  resource resource[]; /* links, then cards */
};

int64_t petra_transmission_ns(double bytes, double Bps) {
  double ns = 1e9 * bytes / Bps;
  return ns < (double)PETRA_LONGEST_NS ? llround(ns) : PETRA_LONGEST_NS;
}

petra_status petra_fair_create(int32_t links, int32_t cards, double card_Bps, petra_fair **out) {
  petra_fair *fair;
  PETRA_TRY(petra_allocate(&fair, 1, sizeof *fair + ((size_t)links + (size_t)cards) * sizeof *fair->resource));
  fair->links = links;
  fair->card_Bps = card_Bps > 0 ? card_Bps : INFINITY;
  *out = fair;
  return PETRA_OK;
}

void petra_fair_destroy(petra_fair *fair) {
  if (!fair)
    return;
  PETRA_FREE_ALL(fair->flows, fair);
}

static void advance(petra_fair *fair, int64_t now_ns) {
  double elapsed_s = 1e-9 * (double)(now_ns - fair->now_ns);
  for (int32_t i = 0; i < fair->count; i++)
    fair->flows[i].bytes_left -= fair->flows[i].rate_Bps * elapsed_s;
  fair->now_ns = now_ns;
}

/* Fixes every flow of the tightest resource at that resource's equal share, and subtracts the shares from the
 * others. */
static void fix_tightest(petra_fair *fair, int32_t tightest, double share, int32_t *left) {
  for (int32_t i = 0; i < fair->count; i++) {
    flow *f = &fair->flows[i];
    bool on = f->resource[0] == tightest || f->resource[1] == tightest || f->resource[2] == tightest;
    if (f->fixed || !on)
      continue;
    f->fixed = true;
    f->rate_Bps = share;
    --*left;
    for (int r = 0; r < 3; r++)
      if (f->resource[r] >= 0) {
        fair->resource[f->resource[r]].left_Bps -= share;
        fair->resource[f->resource[r]].open--;
      }
  }
}

/* Progressive filling over the resources in use. */
static void set_rates(petra_fair *fair) {
  for (int32_t i = 0; i < fair->count; i++)
    for (int r = 0; r < 3; r++)
      if (fair->flows[i].resource[r] >= 0)
        fair->resource[fair->flows[i].resource[r]] = (resource){r == 0 ? fair->flows[i].link_Bps : fair->card_Bps, 0};
  for (int32_t i = 0; i < fair->count; i++) {
    fair->flows[i].fixed = false;
    for (int r = 0; r < 3; r++)
      if (fair->flows[i].resource[r] >= 0)
        fair->resource[fair->flows[i].resource[r]].open++;
  }
  for (int32_t left = fair->count; left > 0;) {
    int32_t tightest = -1;
    double share = INFINITY;
    for (int32_t i = 0; i < fair->count; i++)
      for (int r = 0; r < 3 && !fair->flows[i].fixed; r++) {
        int32_t number = fair->flows[i].resource[r];
        if (number < 0 || fair->resource[number].left_Bps == INFINITY)
          continue;
        double equal = fair->resource[number].left_Bps / fair->resource[number].open;
        if (tightest < 0 || equal < share) {
          share = equal;
          tightest = number;
        }
      }
    fix_tightest(fair, tightest, share, &left);
  }
  for (int32_t i = 0; i < fair->count; i++) {
    flow *f = &fair->flows[i];
    f->end_ns = fair->now_ns + (f->bytes_left > 0 ? petra_transmission_ns(f->bytes_left, f->rate_Bps) : 0);
  }
  fair->number++;
}

petra_status petra_fair_start(petra_fair *fair, int64_t now_ns, const petra_route *route, double bytes,
                              const petra_packet *packet) {
  PETRA_TRY(petra_array_reserve(&fair->flows, &fair->capacity, (int64_t)fair->count + 1, sizeof *fair->flows));
  advance(fair, now_ns);
  flow *f = &fair->flows[fair->count++];
  *f = (flow){.bytes_left = bytes,
              .link_Bps = route->link_Bps > 0 ? route->link_Bps : INFINITY,
              .latency_ns = route->latency_ns,
              .packet = *packet};
  f->resource[0] = route->link;
  for (int c = 0; c < 2; c++)
    f->resource[c + 1] = route->cards[c] < 0 ? -1 : fair->links + route->cards[c];
  set_rates(fair);
  return PETRA_OK;
}

bool petra_fair_next_end(petra_fair *fair, int64_t *time_ns, int64_t *number) {
  if (fair->count == 0)
    return false;
  *time_ns = fair->flows[0].end_ns;
  for (int32_t i = 1; i < fair->count; i++)
    if (fair->flows[i].end_ns < *time_ns)
      *time_ns = fair->flows[i].end_ns;
  *number = fair->number;
  return true;
}

bool petra_fair_is_current(const petra_fair *fair, int64_t number) {
  return fair->number == number;
}

bool petra_fair_take_ended(petra_fair *fair, int64_t now_ns, int64_t *latency_ns, petra_packet *out) {
  for (int32_t i = 0; i < fair->count; i++) {
    if (fair->flows[i].end_ns > now_ns)
      continue;
    advance(fair, now_ns);
    *out = fair->flows[i].packet;
    *latency_ns = fair->flows[i].latency_ns;
    memmove(&fair->flows[i], &fair->flows[i + 1], (size_t)(--fair->count - i) * sizeof *fair->flows);
    /* Other transmissions that end now keep their end: the rates of the rest are set when the last of them is taken. */
    for (int32_t k = 0; k < fair->count; k++)
      if (fair->flows[k].end_ns <= now_ns)
        return true;
    set_rates(fair);
    return true;
  }
  return false;
}

void petra_fair_state(const petra_fair *fair, petra_cycle *cycle) {
  petra_cycle_value(cycle, fair->count);
  petra_cycle_time(cycle, fair->count > 0 ? fair->now_ns : cycle->now_ns);
  for (int32_t i = 0; i < fair->count; i++) {
    const flow *f = &fair->flows[i];
    petra_cycle_real(cycle, f->bytes_left);
    petra_cycle_real(cycle, f->rate_Bps);
    petra_cycle_time(cycle, f->end_ns);
    for (int r = 0; r < 3; r++)
      petra_cycle_value(cycle, f->resource[r]);
    petra_cycle_packet(cycle, &f->packet);
  }
}
