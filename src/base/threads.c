/* SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE /* sched_getaffinity, RTLD_DEFAULT */
#include "base/threads.h"

#include "base/log.h"
#include "base/mem.h"

#include <dlfcn.h>
#include <limits.h>
#include <math.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>

/* --- control groups --- */

/* Returns the minimum quota, in cores, of a group and the groups above it; 0: no limit. `file` holds "QUOTA PERIOD"
 * (version 2), or QUOTA, with the period in another file. */
static double least_of_groups(const char *mount, const char *group, const char *file, const char *period_file) {
  char folder[PATH_MAX], path[PATH_MAX + 64];
  double least = 0;
  snprintf(folder, sizeof folder, "%s%s", mount, group);
  for (size_t length = strlen(folder);; length = strlen(folder)) {
    double quota = 0, period = 0;
    while (length > 0 && folder[length - 1] == '/')
      folder[--length] = 0;
    snprintf(path, sizeof path, "%s/%s", folder, file);
    FILE *in = fopen(path, "r");
    int read = in ? fscanf(in, "%lf %lf", &quota, &period) : 0; /* "max" is not a number: no limit */
    if (in)
      fclose(in);
    snprintf(path, sizeof path, "%s/%s", folder, period_file);
    if (read == 1 && (in = fopen(path, "r"))) {
      read += fscanf(in, "%lf", &period) == 1;
      fclose(in);
    }
    if (read == 2 && quota > 0 && period > 0 && (least == 0 || quota / period < least))
      least = quota / period;
    char *slash = strrchr(folder, '/');
    if (length <= strlen(mount) || !slash)
      return least;
    *slash = 0;
  }
}

/* Returns true if a list such as "cpu,cpuacct" contains the controller of processor time. */
static bool has_cpu(const char *controllers) {
  for (const char *at = controllers; at; at = strchr(at, ',')) {
    at += *at == ',';
    if (strncmp(at, "cpu", 3) == 0 && (at[3] == ',' || at[3] == 0))
      return true;
  }
  return false;
}

double petra_threads_quota(const char *root) {
  char path[PATH_MAX], line[PATH_MAX];
  double least = 0;
  snprintf(path, sizeof path, "%s/proc/self/cgroup", root);
  FILE *in = fopen(path, "r");
  while (in && fgets(line, sizeof line, in)) { /* NUMBER:CONTROLLERS:GROUP; version 2: "0::GROUP" */
    char *controllers = strchr(line, ':'), *group = controllers ? strchr(controllers + 1, ':') : NULL;
    double quota = 0;
    if (!group)
      continue;
    *group++ = 0;
    group[strcspn(group, "\n")] = 0;
    controllers++;
    snprintf(path, sizeof path, "%s/sys/fs/cgroup%s", root, *controllers ? "/cpu" : "");
    if (!*controllers || has_cpu(controllers))
      quota = least_of_groups(path, group, *controllers ? "cpu.cfs_quota_us" : "cpu.max", "cpu.cfs_period_us");
    if (quota > 0 && (least == 0 || quota < least))
      least = quota;
  }
  if (in)
    fclose(in);
  return least;
}

/* --- cores --- */

/* OpenMP knows the affinity from before it bound the first thread itself (OMP_PROC_BIND). */
static int cores_by_affinity(void) {
#ifdef _OPENMP
  return omp_get_num_procs();
#else
  cpu_set_t cores;
  return sched_getaffinity(0, sizeof cores, &cores) == 0 ? CPU_COUNT(&cores) : 1;
#endif
}

int petra_threads_cores(void) {
  const int cores = cores_by_affinity();
  const double quota = ceil(petra_threads_quota(""));
  const int maximum = quota > 0 && quota < cores ? (int)quota : cores;
  return maximum > 1 ? maximum : 1;
}

/* --- threads --- */

int petra_threads_allowed(int threads) {
#ifdef _OPENMP
  const int limit = omp_get_max_active_levels() < 1 ? 1 : omp_get_thread_limit();
  return limit < threads ? limit : threads;
#else
  (void)threads;
  return 1;
#endif
}

/* If petra is built without OpenMP, a library may still load OpenMP. */
void petra_threads_use(int threads) {
#ifdef _OPENMP
  if (omp_get_dynamic())
    omp_set_dynamic(0);
  if (omp_get_max_threads() != threads)
    omp_set_num_threads(threads);
#else
  void (*set)(int) = NULL;
  void *found = dlsym(RTLD_DEFAULT, "omp_set_num_threads");
  memcpy(&set, &found, sizeof set);
  if (set)
    set(threads);
#endif
}

/* Also measures within a region of one thread, since an operation may compute a product there. */
static int size_of_team(int wanted) {
  int size = 1;
#ifdef _OPENMP
#pragma omp parallel num_threads(wanted)
#pragma omp single
  size = omp_get_num_threads();
#pragma omp parallel num_threads(1)
  {
    petra_threads_use(size);
    int inner = 1;
#pragma omp parallel num_threads(size)
#pragma omp single
    inner = omp_get_num_threads();
    size = inner;
  }
#else
  (void)wanted;
#endif
  return size;
}

static void describe_limit(int wanted, char *text, size_t size) {
#ifdef _OPENMP
  const int limit = omp_get_thread_limit();
  if (omp_get_max_active_levels() < 1)
    snprintf(text, size, "OpenMP gives 1 (OMP_MAX_ACTIVE_LEVELS is 0)");
  else if (limit < wanted)
    snprintf(text, size, "OpenMP gives %d (OMP_THREAD_LIMIT is %d)", limit, limit);
  else
    snprintf(text, size, "OpenMP gives fewer");
#else
  (void)wanted;
  snprintf(text, size, "this build has no OpenMP");
#endif
}

int petra_threads_given(int wanted) {
  int given = wanted;
  petra_threads_use(wanted);
  for (int before = 0; given > 1 && given != before;) { /* until the team has the size that was requested */
    before = given;
    given = size_of_team(given);
  }
  petra_threads_use(given);
  if (given < wanted) {
    char reason[128];
    describe_limit(wanted, reason, sizeof reason);
    petra_log(PETRA_LOG_WARNING,
              "device.threads: %d threads per operation were requested, but %s; operations run on %d", wanted, reason,
              given);
  }
  return given;
}

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
  int jobs, next, left; /* next: first job that is not taken; left: number of jobs that are not done */
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

/* Starts the threads, with all signals blocked, so that signals go to the caller's thread. */
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
  PETRA_LOCKED(&pool->mutex);
  pool->run = run;
  pool->context = context;
  pool->jobs = pool->left = jobs;
  pool->next = 0;
  if (jobs > 1)
    pthread_cond_broadcast(&pool->wanted);
  take_jobs(pool);
  while (pool->left > 0)
    pthread_cond_wait(&pool->done, &pool->mutex);
}
