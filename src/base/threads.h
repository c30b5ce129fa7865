/* SPDX-License-Identifier: Apache-2.0 */
/* Compute threads: how many cores this process has, and how many threads OpenMP provides. A library that computes with
 * fewer threads than it was promised omits a part of the work or waits for ever, so the number that is promised is
 * always measured first. */
#pragma once

#include "base/status.h"

#ifdef _OPENMP
#include <omp.h>
#endif
#include <pthread.h>
#include <stdbool.h>

/* Returns the number of cores that this process may use: the cores that it may run on (taskset, a binding by mpirun, a
 * Slurm job), but no more than the processor time of its control groups, rounded up. At least 1. */
int petra_threads_cores(void);

/* Returns the processor time, in cores, that the control groups of this process allow (their minimum); 0: no limit.
 * `root` is a prefix of /proc and /sys, "" except in tests. */
double petra_threads_quota(const char *root);

/* Returns `threads`, or the maximum that the environment allows for an OpenMP team (OMP_THREAD_LIMIT,
 * OMP_MAX_ACTIVE_LEVELS) if it is smaller; 1 in a build without OpenMP. device.threads: 0 uses it, since the user has
 * not requested a number. */
int petra_threads_allowed(int threads);

/* Requests a team of `wanted` threads, in the same way as all later parallel regions do, and returns the team's actual
 * size: 1 .. wanted. If it is smaller, logs one warning with the reason. This is a parallel region, so do not call it
 * in a forked child of a process that has had one. */
int petra_threads_given(int wanted);

/* Sets the number of threads for the parallel regions of the calling thread, which libraries use too. OpenMP then does
 * not reduce it (OMP_DYNAMIC). */
void petra_threads_use(int threads);

/* Returns the number of the calling thread in its team, from 0. */
static inline int petra_threads_number(void) {
#ifdef _OPENMP
  return omp_get_thread_num();
#else
  return 0;
#endif
}

/* Returns true if operations and libraries compute with OpenMP. */
static inline bool petra_threads_openmp(void) {
#ifdef _OPENMP
  return true;
#else
  return false;
#endif
}

/* Locks a mutex until the end of the block. */
#define PETRA_LOCKED(mutex)                                                                                            \
  PETRA_FINISHED(petra_unlock_local) pthread_mutex_t *petra_locked_ = (pthread_mutex_lock(mutex), (mutex))
static inline void petra_unlock_local(pthread_mutex_t **mutex) {
  pthread_mutex_unlock(*mutex);
}

/* A pool of threads that run jobs concurrently. The caller is one of them (lane 0); between calls the others sleep. */

typedef struct petra_thread_pool petra_thread_pool;

/* Starts threads - 1 threads, with all signals blocked; `threads` >= 1. Errors: PETRA_NO_MEMORY if a thread could not
 * be started. */
petra_status petra_thread_pool_create(int threads, petra_thread_pool **out);

/* NULL is allowed. */
void petra_thread_pool_destroy(petra_thread_pool *pool);

/* Returns the number of threads, including the caller. */
int petra_thread_pool_threads(const petra_thread_pool *pool);

/* Calls run(context, job) once for every job of 0 .. jobs - 1 and returns when all are done. A free thread takes the
 * next job; petra_lane_here()->number is then the number of the thread, 0 .. threads - 1. */
void petra_thread_pool_run(petra_thread_pool *pool, int jobs, void (*run)(void *context, int job), void *context);
