/* SPDX-License-Identifier: Apache-2.0 */
#include "distributed/random_delays.h"

#include "base/mem.h"

#include <stdio.h>
#include <stdlib.h>
#include <time.h>

typedef struct delays {
  petra_worker base, *worker;
  unsigned seed, max_us;
} delays;

/* Half of the actions are not delayed, and few of the others for long. */
static void pause_randomly(delays *p) {
  const double share = (double)rand_r(&p->seed) / RAND_MAX;
  if (rand_r(&p->seed) % 2 == 0)
    return;
  const int64_t us = (int64_t)(share * share * p->max_us);
  nanosleep(&(const struct timespec){us / 1000000, us % 1000000 * 1000}, NULL);
}

static petra_status perform(petra_worker *base, int64_t virtual_ns, const petra_action *actions, int count,
                            petra_action_result *results) {
  delays *p = (delays *)base;
  pause_randomly(p);
  return p->worker->ops->perform(p->worker, virtual_ns, actions, count, results);
}

static petra_status finish(petra_worker *base) {
  return petra_worker_finish(((delays *)base)->worker);
}

petra_status petra_random_delays_create(petra_worker *worker, int rank, petra_worker **out) {
  static const petra_worker_ops ops = {.perform = perform, .finish = finish};
  const char *text = getenv("PETRA_TEST_DELAYS");
  unsigned seed, max_us;
  delays *p;
  *out = NULL;
  if (!text || sscanf(text, "%u:%u", &seed, &max_us) != 2)
    return PETRA_OK;
  PETRA_TRY(petra_allocate(&p, 1, sizeof *p));
  *p = (delays){.base.ops = &ops, .worker = worker, .seed = seed + 7919U * (unsigned)rank, .max_us = max_us};
  *out = &p->base;
  return PETRA_OK;
}

void petra_random_delays_destroy(petra_worker *base) {
  petra_free(base);
}
