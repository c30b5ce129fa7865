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
  petra_crew *crew;
  pthread_t thread;
  int lane;
} member;

struct petra_crew {
  pthread_mutex_t mutex; /* guards all below */
  pthread_cond_t wanted; /* there are jobs, or the crew ends */
  pthread_cond_t done;   /* no job is left */
  void (*run)(void *context, int job);
  void *context;
  int jobs, next, left; /* next: not taken yet; left: not done yet */
  bool ends;
  int count; /* members that were started */
  member members[];
};

/* Takes jobs until all are taken; the mutex is held before and after, not while one is done. */
static void take_jobs(petra_crew *crew) {
  while (crew->next < crew->jobs) {
    const int job = crew->next++;
    pthread_mutex_unlock(&crew->mutex);
    crew->run(crew->context, job);
    pthread_mutex_lock(&crew->mutex);
    if (--crew->left == 0)
      pthread_cond_signal(&crew->done);
  }
}

static void *work(void *context) {
  const member *self = context;
  petra_crew *crew = self->crew;
  petra_lane_here()->number = self->lane;
  pthread_mutex_lock(&crew->mutex);
  while (!crew->ends) {
    take_jobs(crew);
    if (!crew->ends)
      pthread_cond_wait(&crew->wanted, &crew->mutex);
  }
  pthread_mutex_unlock(&crew->mutex);
  return NULL;
}

/* Signals stay with the caller's thread. */
static petra_status start(petra_crew *crew, int threads) {
  sigset_t all, before;
  int error = 0;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  for (int i = 0; i < threads - 1 && !error; i++) {
    member *self = &crew->members[i];
    *self = (member){.crew = crew, .lane = i + 1};
    error = pthread_create(&self->thread, NULL, work, self);
    crew->count += !error;
  }
  pthread_sigmask(SIG_SETMASK, &before, NULL);
  return error ? petra_fail(PETRA_NO_MEMORY, "thread %d of %d that work side by side could not be started: %s",
                            crew->count + 2, threads, strerror(error))
               : PETRA_OK;
}

petra_status petra_crew_create(int threads, petra_crew **out) {
  petra_crew *crew;
  PETRA_TRY(petra_allocate(&crew, 1, sizeof *crew + (size_t)(threads - 1) * sizeof *crew->members));
  pthread_mutex_init(&crew->mutex, NULL);
  pthread_cond_init(&crew->wanted, NULL);
  pthread_cond_init(&crew->done, NULL);
  petra_status status = start(crew, threads);
  if (status != PETRA_OK)
    petra_crew_destroy(crew);
  else
    *out = crew;
  return status;
}

void petra_crew_destroy(petra_crew *crew) {
  if (!crew)
    return;
  pthread_mutex_lock(&crew->mutex);
  crew->ends = true;
  pthread_cond_broadcast(&crew->wanted);
  pthread_mutex_unlock(&crew->mutex);
  for (int i = 0; i < crew->count; i++)
    pthread_join(crew->members[i].thread, NULL);
  pthread_cond_destroy(&crew->done);
  pthread_cond_destroy(&crew->wanted);
  pthread_mutex_destroy(&crew->mutex);
  petra_free(crew);
}

int petra_crew_threads(const petra_crew *crew) {
  return crew->count + 1;
}

void petra_crew_run(petra_crew *crew, int jobs, void (*run)(void *context, int job), void *context) {
  pthread_mutex_lock(&crew->mutex);
  crew->run = run;
  crew->context = context;
  crew->jobs = crew->left = jobs;
  crew->next = 0;
  if (jobs > 1)
    pthread_cond_broadcast(&crew->wanted);
  take_jobs(crew);
  while (crew->left > 0)
    pthread_cond_wait(&crew->done, &crew->mutex);
  pthread_mutex_unlock(&crew->mutex);
}
