/* SPDX-License-Identifier: Apache-2.0 */
/* A crew of threads that does jobs at once. The caller is one of them (lane 0); between calls the others sleep. */
#ifndef PETRA_BASE_THREAD_POOL_H
#define PETRA_BASE_THREAD_POOL_H

#include "base/status.h"

typedef struct petra_crew petra_crew;

/* Starts threads - 1 threads, with all signals blocked; `threads` >= 1. PETRA_NO_MEMORY: one could not be started. */
petra_status petra_crew_create(int threads, petra_crew **out);

/* NULL is allowed. */
void petra_crew_destroy(petra_crew *crew);

/* How many work, the caller among them. */
int petra_crew_threads(const petra_crew *crew);

/* Does run(context, job) for every job of 0 .. jobs - 1, each once, and returns when all are done. A thread that is free
 * takes the next job; petra_lane_here()->number is then its own, 0 .. threads - 1. */
void petra_crew_run(petra_crew *crew, int jobs, void (*run)(void *context, int job), void *context);

#endif
