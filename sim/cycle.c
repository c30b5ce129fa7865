/* SPDX-License-Identifier: Apache-2.0 */
#include "sim/cycle.h"

#include "base/mem.h"

void petra_cycle_begin(petra_cycle *cycle, petra_cycle_pass pass, int64_t now_ns, int64_t microbatch) {
  cycle->pass = pass;
  cycle->now_ns = now_ns;
  cycle->microbatch = microbatch;
  cycle->alike = true;
  cycle->place = cycle->total_place = 0;
  cycle->status = PETRA_OK;
  if (pass == PETRA_CYCLE_RECORD)
    cycle->state.count = cycle->totals.count = 0;
  if (pass == PETRA_CYCLE_COMPARE)
    cycle->periods = INT64_MAX;
}

void petra_cycle_fini(petra_cycle *cycle) {
  PETRA_FREE_ALL(cycle->state.number, cycle->totals.number, cycle->events);
  *cycle = (petra_cycle){0};
}

void petra_cycle_append(petra_cycle *cycle, petra_cycle_numbers *numbers, int64_t number) {
  if (numbers->count == numbers->capacity && cycle->status == PETRA_OK)
    cycle->status = petra_array_reserve(&numbers->number, &numbers->capacity, numbers->count + 1, sizeof number);
  if (cycle->status == PETRA_OK)
    numbers->number[numbers->count++] = number;
}

void petra_cycle_restrict(petra_cycle *cycle, int64_t growth, int64_t room) {
  const int64_t periods = growth <= 0 ? INT64_MAX : room > 0 ? room / growth : 0;
  if (cycle->pass == PETRA_CYCLE_COMPARE && periods < cycle->periods)
    cycle->periods = periods;
}

void petra_cycle_queue(petra_cycle *cycle, const petra_event_queue *queue,
                       void (*give)(petra_cycle *cycle, const void *context, const petra_event *event),
                       const void *context) {
  int64_t count;
  if (cycle->pass == PETRA_CYCLE_SKIP || !cycle->alike || cycle->status != PETRA_OK)
    return;
  cycle->status = petra_event_queue_copy(queue, &cycle->events, &cycle->events_capacity, &count);
  if (cycle->status != PETRA_OK)
    return;
  for (int64_t i = 0; i < count; i++)
    give(cycle, context, &cycle->events[i]);
  petra_cycle_value(cycle, INT64_MIN); /* the end */
}

void petra_microbatch_set_state(const petra_microbatch_set *set, petra_cycle *cycle) {
  const bool empty = set->next == 0 && !set->words;
  petra_cycle_value(cycle, empty ? INT64_MAX : set->next - cycle->microbatch);
  for (int64_t m = set->next; m < set->next + 64 * set->words; m++)
    if (petra_microbatch_set_has(set, m))
      petra_cycle_microbatch(cycle, m);
  petra_cycle_value(cycle, INT64_MIN);
}
