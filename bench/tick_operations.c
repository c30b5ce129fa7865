/* SPDX-License-Identifier: Apache-2.0 */
#include "tick_operations.h"

#include "base/clock.h"

#include <stdio.h>
#include <time.h>

#define NUMBER(prefix, name, ...) OP_##name,
enum { PETRA_OPERATIONS(NUMBER, ) OP_upload_images, OPERATIONS };
#define NAME(prefix, name, ...) #name,
static const char *const names[] = {PETRA_OPERATIONS(NAME, ) "upload_images"};

typedef struct stamp {
  double wall_s, core_s;
} stamp;

/* The backend's own operations, and those that take their place. */
static const petra_backend_ops *own;
static petra_backend_ops timed;
static bool switched_on;
static stamp begun, all, spent[OPERATIONS];
static int64_t calls[OPERATIONS];

static stamp now(void) {
  struct timespec core;
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &core);
  return (stamp){petra_clock_s(), (double)core.tv_sec + 1e-9 * (double)core.tv_nsec};
}

static void add(stamp *sum, stamp begin) {
  const stamp end = now();
  sum->wall_s += end.wall_s - begin.wall_s;
  sum->core_s += end.core_s - begin.core_s;
}

static void count(int operation, stamp begin) {
  if (!switched_on)
    return;
  add(&spent[operation], begin);
  calls[operation]++;
}

#define TIMED(prefix, name, parameters, arguments, ...)                                                                \
  static petra_status timed_##name(petra_backend *backend, PETRA_UNPACK parameters) {                                  \
    const stamp begin = now();                                                                                         \
    const petra_status status = own->name(backend, PETRA_UNPACK arguments);                                            \
    count(OP_##name, begin);                                                                                           \
    return status;                                                                                                     \
  }
PETRA_OPERATIONS(TIMED, )

static petra_status timed_upload_images(petra_backend *backend, const petra_images *images, petra_tensor *x) {
  const stamp begin = now();
  const petra_status status = own->upload_images(backend, images, x);
  count(OP_upload_images, begin);
  return status;
}

void bench_operations_watch(petra_backend *backend) {
  own = backend->ops;
  timed = *own;
#define REPLACE(prefix, name, ...) timed.name = timed_##name;
  PETRA_OPERATIONS(REPLACE, )
  if (own->upload_images)
    timed.upload_images = timed_upload_images;
  backend->ops = &timed;
}

void bench_operations_time(bool on) {
  if (on)
    begun = now();
  else if (switched_on)
    add(&all, begun);
  switched_on = on;
}

static void print(const char *name, double number, stamp sum, int ticks) {
  printf("%-34s %9.1f %9.3f %9.3f\n", name, number / ticks, 1e3 * sum.wall_s / ticks, 1e3 * sum.core_s / ticks);
}

void bench_operations_print(int ticks) {
  stamp between = all;
  printf("%-34s %9s %9s %9s   (a tick: means of %d)\n", "", "calls", "ms", "core ms", ticks);
  for (int i = 0; i < OPERATIONS; i++)
    if (calls[i] > 0) {
      print(names[i], (double)calls[i], spent[i], ticks);
      between.wall_s -= spent[i].wall_s;
      between.core_s -= spent[i].core_s;
    }
  print("between operations", 0, between, ticks);
  print("all", 0, all, ticks);
}
