/* SPDX-License-Identifier: Apache-2.0 */
/* The threads that compute: how many cores there are for this process, and how many threads OpenMP gives. A library that computes with
 * fewer threads than it was promised leaves out a part of the work or waits for ever; so nothing is promised that was not counted. */
#ifndef PETRA_BASE_THREADS_H
#define PETRA_BASE_THREADS_H

#ifdef _OPENMP
#include <omp.h>
#endif
#include <stdbool.h>

/* Cores that this process may use: those that it may run on (taskset, a binding by mpirun, a Slurm job), and no more than the processor
 * time of its control groups is worth, rounded up. At least 1. */
int petra_threads_cores(void);

/* Cores' worth of processor time that the control groups of this process allow, the least of them; 0: no limit. `root` is put in front of
 * /proc and /sys: "" but in tests. */
double petra_threads_quota(const char *root);

/* `threads`, or as many as the environment lets a team of OpenMP have (OMP_THREAD_LIMIT, OMP_MAX_ACTIVE_LEVELS) if these are fewer; 1 in a
 * build without OpenMP. It is what device.threads: 0 goes by, where nobody asked for a number. */
int petra_threads_allowed(int threads);

/* The size of a real team of `wanted` threads, which are asked for as all others will be: 1 .. wanted. Where it is smaller, one warning
 * says so, with the reason. It is a parallel region, and so not for a forked child of a process that has had one. */
int petra_threads_given(int wanted);

/* Sets the number of threads of the parallel regions of the calling thread, which libraries go by; OpenMP does not make it smaller
 * by itself then (OMP_DYNAMIC). */
void petra_threads_use(int threads);

/* The number of the calling thread in its team, from 0. */
static inline int petra_threads_number(void) {
#ifdef _OPENMP
  return omp_get_thread_num();
#else
  return 0;
#endif
}

/* Whether operations and libraries compute by OpenMP. */
static inline bool petra_threads_openmp(void) {
#ifdef _OPENMP
  return true;
#else
  return false;
#endif
}

#endif
