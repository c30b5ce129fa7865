/* SPDX-License-Identifier: Apache-2.0 */
/* The event queue: its order is total, whatever the order of pushes and however it is mixed with pops. */
#include "base/mem.h"
#include "base/rng.h"
#include "harness.h"
#include "sim/engine.h"

enum { EVENTS = 3000 };

/* Few values, so that ties in time and in priority are common. */
static petra_event random_event(petra_rng *rng, uint32_t times) {
  return (petra_event){.time_ns = petra_rng_u32(rng) % times,
                       .priority = (int32_t)(petra_rng_u32(rng) % 3),
                       .sequence = -77, /* not the caller's to set */
                       .stage = (int32_t)(petra_rng_u32(rng) % 1000),
                       .detail = (int32_t)(petra_rng_u32(rng) % 1000)};
}

static int compare(const void *left, const void *right) {
  const petra_event *a = left, *b = right;
  if (a->time_ns != b->time_ns)
    return a->time_ns < b->time_ns ? -1 : 1;
  if (a->priority != b->priority)
    return a->priority < b->priority ? -1 : 1;
  return (a->sequence > b->sequence) - (a->sequence < b->sequence);
}

static void expect_event(const petra_event *found, const petra_event *expected) {
  ck_assert_int_eq(found->time_ns, expected->time_ns);
  ck_assert_int_eq(found->priority, expected->priority);
  ck_assert_int_eq(found->sequence, expected->sequence);
  ck_assert_int_eq(found->stage, expected->stage);
  ck_assert_int_eq(found->detail, expected->detail);
}

START_TEST(pops_are_sorted_by_time_priority_sequence) {
  static petra_event reference[EVENTS];
  const uint32_t times[] = {1, 5, 100, 1000000};
  for (size_t c = 0; c < sizeof times / sizeof *times; c++) {
    petra_event_queue *queue;
    petra_rng rng;
    petra_event event;
    petra_rng_init(&rng, 7, PETRA_RNG_INIT, 0, c);
    ck_assert_int_eq(petra_event_queue_create(&queue), PETRA_OK);
    ck_assert_int_eq(petra_event_queue_time(queue), INT64_MAX);
    ck_assert(!petra_event_queue_pop(queue, &event));
    for (int i = 0; i < EVENTS; i++) {
      event = random_event(&rng, times[c]);
      ck_assert_int_eq(petra_event_queue_push(queue, &event), PETRA_OK);
      reference[i] = event;
      reference[i].sequence = i;
    }
    qsort(reference, EVENTS, sizeof *reference, compare);
    for (int i = 0; i < EVENTS; i++) {
      ck_assert_int_eq(petra_event_queue_time(queue), reference[i].time_ns);
      ck_assert(petra_event_queue_pop(queue, &event));
      expect_event(&event, &reference[i]);
    }
    ck_assert(!petra_event_queue_pop(queue, &event));
    ck_assert_int_eq(petra_event_queue_time(queue), INT64_MAX);
    petra_event_queue_destroy(queue);
  }
}
END_TEST

/* As a simulation uses it: pushes and pops in turn, against a list that is searched whole. */
START_TEST(pushes_and_pops_mixed) {
  static petra_event list[EVENTS];
  petra_event_queue *queue;
  petra_rng rng;
  int count = 0, maximum = 0;
  int64_t sequence = 0;
  petra_rng_init(&rng, 8, PETRA_RNG_INIT, 0, 0);
  ck_assert_int_eq(petra_event_queue_create(&queue), PETRA_OK);
  for (int step = 0; step < 4 * EVENTS; step++) {
    petra_event event;
    if (count < EVENTS && (count == 0 || petra_rng_u32(&rng) % 100 < (step < 2 * EVENTS ? 60 : 40))) {
      event = random_event(&rng, 50);
      ck_assert_int_eq(petra_event_queue_push(queue, &event), PETRA_OK);
      list[count] = event;
      list[count++].sequence = sequence++;
      maximum = count > maximum ? count : maximum;
      continue;
    }
    int first = 0;
    for (int i = 1; i < count; i++)
      if (compare(&list[i], &list[first]) < 0)
        first = i;
    ck_assert(petra_event_queue_pop(queue, &event));
    expect_event(&event, &list[first]);
    list[first] = list[--count];
  }
  ck_assert_int_gt(maximum, 256); /* it has grown more than once */
  petra_event_queue_destroy(queue);
}
END_TEST

static bool fail_all(void *context, size_t bytes) {
  (void)bytes;
  ++*(int *)context;
  return true;
}

START_TEST(no_memory) {
  petra_event_queue *queue = NULL;
  petra_event event = {.time_ns = 0};
  int requested = 0, pushed = 0;
  harness_clear();
  petra_mem_set_hook(fail_all, &requested);
  ck_assert_int_eq(petra_event_queue_create(&queue), PETRA_NO_MEMORY);
  petra_mem_set_hook(NULL, NULL);
  ck_assert_ptr_null(queue);
  ck_assert_int_eq(harness_lines, 1);
  ck_assert_int_eq(petra_event_queue_create(&queue), PETRA_OK);
  /* Growing fails: nothing is lost, and the queue goes on when there is memory again. */
  petra_mem_set_hook(fail_all, &requested);
  requested = 0;
  ck_assert_int_eq(petra_event_queue_push(queue, &event), PETRA_NO_MEMORY);
  petra_mem_set_hook(NULL, NULL);
  ck_assert_int_eq(petra_event_queue_push(queue, &event), PETRA_OK);
  pushed = 1;
  petra_mem_set_hook(fail_all, &requested);
  for (requested = 0; requested == 0; pushed++) {
    event.time_ns = -pushed;
    petra_status status = petra_event_queue_push(queue, &event);
    ck_assert_int_eq(status, requested ? PETRA_NO_MEMORY : PETRA_OK);
    if (requested)
      break;
  }
  petra_mem_set_hook(NULL, NULL);
  ck_assert_int_eq(petra_event_queue_push(queue, &event), PETRA_OK);
  for (int i = pushed; i >= 0; i--) {
    ck_assert(petra_event_queue_pop(queue, &event));
    ck_assert_int_eq(event.time_ns, -i);
  }
  ck_assert(!petra_event_queue_pop(queue, &event));
  petra_event_queue_destroy(queue);
  petra_event_queue_destroy(NULL);
}
END_TEST

int main(void) {
  const TTest *const tests[] = {pops_are_sorted_by_time_priority_sequence, pushes_and_pops_mixed, no_memory};
  return harness_run("engine", tests, HARNESS_COUNT(tests));
}
