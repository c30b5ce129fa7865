/* SPDX-License-Identifier: Apache-2.0 */
/* For tests: a worker that sleeps for a random time before every action, so that the ranks of an executed run proceed
 * in other orders. */
#pragma once

#include "schedule/executor.h"

/* Wraps `worker`, which is borrowed, if the environment has PETRA_TEST_DELAYS=SEED:MOST; else *out is NULL. The delays
 * are up to MOST microseconds per action, drawn for each rank by itself. */
petra_status petra_random_delays_create(petra_worker *worker, int rank, petra_worker **out);
void petra_random_delays_destroy(petra_worker *delays); /* NULL is allowed */
