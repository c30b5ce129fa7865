/* SPDX-License-Identifier: Apache-2.0 */
/* For tests: a worker that sleeps for a random time before every action, so that the ranks of an executed run come and go in
 * other orders. */
#pragma once

#include "exec/worker.h"

/* *out: around `worker`, which is borrowed, where the environment has PETRA_TEST_DELAYS=SEED:MOST, with up to MOST
 * microseconds an action, drawn for each rank by itself; else NULL. */
petra_status petra_random_delays_create(petra_worker *worker, int rank, petra_worker **out);
void petra_random_delays_destroy(petra_worker *delays); /* NULL is allowed */
