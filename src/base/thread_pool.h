/* SPDX-License-Identifier: Apache-2.0 */
/* A pool of threads that run jobs concurrently. The caller is one of them (lane 0); between calls the others sleep. */
#ifndef PETRA_BASE_CREW_H
#define PETRA_BASE_CREW_H

#include "base/status.h"

typedef struct petra_crew petra_crew;

/* Starts threads - 1 threads, with all signals blocked; `threads` >= 1. Errors: PETRA_NO_MEMORY if a thread could not
 * be started. */
petra_status petra_crew_create(int threads, petra_crew **out);

/* NULL is allowed. */
void petra_crew_destroy(petra_crew *crew);

/* Returns the number of threads, including the caller. */
int petra_crew_threads(const petra_crew *crew);

/* Calls run(context, job) once for every job of 0 .. jobs - 1 and returns when all are done. A free thread takes the
 * next job; petra_lane_here()->number is then its own, 0 .. threads - 1. */
void petra_crew_run(petra_crew *crew, int jobs, void (*run)(void *context, int job), void *context);

#endif
