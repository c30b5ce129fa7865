/* SPDX-License-Identifier: Apache-2.0 */
/* A pool of threads that run jobs concurrently. The caller is one of them (lane 0); between calls the others sleep. */
#pragma once

#include "base/status.h"

typedef struct petra_thread_pool petra_thread_pool;

/* Starts threads - 1 threads, with all signals blocked; `threads` >= 1. Errors: PETRA_NO_MEMORY if a thread could not
 * be started. */
petra_status petra_thread_pool_create(int threads, petra_thread_pool **out);

/* NULL is allowed. */
void petra_thread_pool_destroy(petra_thread_pool *pool);

/* Returns the number of threads, including the caller. */
int petra_thread_pool_threads(const petra_thread_pool *pool);

/* Calls run(context, job) once for every job of 0 .. jobs - 1 and returns when all are done. A free thread takes the
 * next job; petra_lane_here()->number is then its own, 0 .. threads - 1. */
void petra_thread_pool_run(petra_thread_pool *pool, int jobs, void (*run)(void *context, int job), void *context);
