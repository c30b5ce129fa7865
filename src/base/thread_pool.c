/* SPDX-License-Identifier: Apache-2.0 */
#include "base/thread_pool.h"

#include "base/lane.h"
#include "base/log.h"
#include "base/mem.h"

#include <pthread.h>
#include <signal.h>
#include <stdbool.h>
#include <string.h>

typedef struct member {
  petra_thread_pool *pool;
  pthread_t thread;
  int lane;
} member;

struct petra_thread_pool {
  pthread_mutex_t mutex; /* protects everything below */
  pthread_cond_t wanted; /* there are jobs, or the pool ends */
  pthread_cond_t done;   /* no job is left */
  void (*run)(void *context, int job);
  void *context;
  int jobs, next, left; /* next: not taken yet; left: not done yet */
  bool ends;
  int count; /* members that were started */
  member members[];
};

/* Takes jobs until all are taken. The mutex is locked before and after, but not while a job runs. */
static void take_jobs(petra_thread_pool *pool) {
  while (pool->next < pool->jobs) {
    const int job = pool->next++;
    pthread_mutex_unlock(&pool->mutex);
    pool->run(pool->context, job);
    pthread_mutex_lock(&pool->mutex);
    if (--pool->left == 0)
      pthread_cond_signal(&pool->done);
  }
}

static void *work(void *context) {
  const member *self = context;
  petra_thread_pool *pool = self->pool;
  petra_lane_here()->number = self->lane;
  pthread_mutex_lock(&pool->mutex);
  while (!pool->ends) {
    take_jobs(pool);
    if (!pool->ends)
      pthread_cond_wait(&pool->wanted, &pool->mutex);
  }
  pthread_mutex_unlock(&pool->mutex);
  return NULL;
}

/* Signals stay with the caller's thread. */
static petra_status start(petra_thread_pool *pool, int threads) {
  sigset_t all, before;
  int error = 0;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  for (int i = 0; i < threads - 1 && !error; i++) {
    member *self = &pool->members[i];
    *self = (member){.pool = pool, .lane = i + 1};
    error = pthread_create(&self->thread, NULL, work, self);
    pool->count += !error;
  }
  pthread_sigmask(SIG_SETMASK, &before, NULL);
  return error ? petra_fail(PETRA_NO_MEMORY, "compute thread %d of %d could not be started: %s", pool->count + 2,
                            threads, strerror(error))
               : PETRA_OK;
}

petra_status petra_thread_pool_create(int threads, petra_thread_pool **out) {
  petra_thread_pool *pool;
  PETRA_TRY(petra_allocate(&pool, 1, sizeof *pool + (size_t)(threads - 1) * sizeof *pool->members));
  pthread_mutex_init(&pool->mutex, NULL);
  pthread_cond_init(&pool->wanted, NULL);
  pthread_cond_init(&pool->done, NULL);
  petra_status status = start(pool, threads);
  if (status != PETRA_OK)
    petra_thread_pool_destroy(pool);
  else
    *out = pool;
  return status;
}

void petra_thread_pool_destroy(petra_thread_pool *pool) {
  if (!pool)
    return;
  pthread_mutex_lock(&pool->mutex);
  pool->ends = true;
  pthread_cond_broadcast(&pool->wanted);
  pthread_mutex_unlock(&pool->mutex);
  for (int i = 0; i < pool->count; i++)
    pthread_join(pool->members[i].thread, NULL);
  pthread_cond_destroy(&pool->done);
  pthread_cond_destroy(&pool->wanted);
  pthread_mutex_destroy(&pool->mutex);
  petra_free(pool);
}

int petra_thread_pool_threads(const petra_thread_pool *pool) {
  return pool->count + 1;
}

void petra_thread_pool_run(petra_thread_pool *pool, int jobs, void (*run)(void *context, int job), void *context) {
  pthread_mutex_lock(&pool->mutex);
  pool->run = run;
  pool->context = context;
  pool->jobs = pool->left = jobs;
  pool->next = 0;
  if (jobs > 1)
    pthread_cond_broadcast(&pool->wanted);
  take_jobs(pool);
  while (pool->left > 0)
    pthread_cond_wait(&pool->done, &pool->mutex);
  pthread_mutex_unlock(&pool->mutex);
}
