/* SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE /* gethostname */
#include "group/ranks.h"

#include "base/clock.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/stop.h"
#include "base/threads.h"

#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { LINE = 800, ECHOES = 16, BOOT_ID = 40 };

/* --- the launcher (mpirun, mpiexec, srun) --- */

/* Open MPI and PRRTE; Hydra (MPICH, Intel MPI), Slurm's PMI-2 and Cray's PALS; MVAPICH's two; IBM's jsrun. */
static const char *const size_names[] = {
    "OMPI_COMM_WORLD_SIZE", "PMI_SIZE",          "PALS_SIZE", "MV2_COMM_WORLD_SIZE",
    "MVP_COMM_WORLD_SIZE",  "JSM_NAMESPACE_SIZE"};
static const char *const rank_names[] = {
    "OMPI_COMM_WORLD_RANK", "PMI_RANK",          "PMIX_RANK", "PALS_RANKID", "MV2_COMM_WORLD_RANK",
    "MVP_COMM_WORLD_RANK",  "JSM_NAMESPACE_RANK"};
/* Counts the processes of one host. A Hydra that gives a port sets no other variable. */
static const char local_size[] = "MPI_LOCALNRANKS";
/* Slurm sets SLURM_NTASKS in the shell of a batch script as well. It sets this size and a task number only in a
 * step. */
static const char step_size[] = "SLURM_STEP_NUM_TASKS", step_rank[] = "SLURM_PROCID", step_id[] = "SLURM_STEP_ID";
static const unsigned long SPECIAL_STEP = 0xfffffff0; /* first of the numbers of batch scripts and interactive shells */

enum { SIZES = sizeof size_names / sizeof *size_names, RANKS = sizeof rank_names / sizeof *rank_names };

/* Returns -1 if the variable is not set or is not a number. */
static int number_of(const char *name) {
  const char *text = getenv(name);
  char *end = NULL;
  const long value = text ? strtol(text, &end, 10) : -1;
  return text && end != text && *end == 0 && value >= 0 && value < 1 << 30 ? (int)value : -1;
}

static bool in_step(void) {
  const char *id = getenv(step_id);
  return number_of(step_size) > 0 && number_of(step_rank) >= 0 && !(id && strtoul(id, NULL, 10) >= SPECIAL_STEP);
}

/* Returns the largest number of processes that a launcher of MPI reports; 0: none. One launcher may have started
 * another. */
static int size_by_launcher(const char **name) {
  int largest = 0;
  for (int i = 0; i < SIZES; i++)
    if (number_of(size_names[i]) > largest) {
      largest = number_of(size_names[i]);
      *name = size_names[i];
    }
  return largest;
}

/* mpirun itself starts its helpers on other hosts by srun. So the tasks of a step count only if no other launcher says
 * how many processes there are. */
int petra_launcher_size(const char **name) {
  const char *found = NULL;
  int size = size_by_launcher(&found);
  if (size == 0 && number_of(local_size) > 0) {
    size = number_of(local_size);
    found = local_size;
  }
  if (size == 0 && in_step()) {
    size = number_of(step_size);
    found = step_size;
  }
  for (int i = 0; i < RANKS && (!found || found == local_size); i++) /* the rank implies a minimum size */
    if (number_of(rank_names[i]) >= size && number_of(rank_names[i]) > 0) {
      size = number_of(rank_names[i]) + 1;
      found = rank_names[i];
    }
  if (name)
    *name = found;
  return size > 1 ? size : 1;
}

int petra_launcher_rank(void) {
  for (int i = 0; i < RANKS; i++)
    if (number_of(rank_names[i]) >= 0)
      return number_of(rank_names[i]);
  return in_step() ? number_of(step_rank) : 0;
}

/* The values that all launchers set. They are read before MPI starts, because an MPI library sets such variables
 * itself. */
typedef struct launched {
  int size;         /* result of petra_launcher_size */
  const char *name; /* its *name */
  int said[SIZES];
} launched;

static launched look_at_launcher(void) {
  launched launch = {0};
  launch.size = petra_launcher_size(&launch.name);
  for (int i = 0; i < SIZES; i++)
    launch.said[i] = number_of(size_names[i]);
  return launch;
}

/* Returns true if srun launched this process in a step of several tasks without PMI, which they need to find each
 * other. */
static bool lacks_pmi(void) {
  const char *name;
  if (petra_launcher_size(&name) < 2 || name != step_size)
    return false;
  for (char **variable = environ; *variable; variable++)
    if (strncmp(*variable, "PMI", 3) == 0)
      return false;
  return true;
}

/* Returns true if the launcher ends all processes as soon as one of them fails. The launcher of Open MPI does so; Hydra
 * and srun do so only on request. */
static bool ends_all(void) {
  const char *name;
  return petra_launcher_size(&name) > 1 && (strncmp(name, "OMPI", 4) == 0 || strncmp(name, "PMIX", 4) == 0);
}

void petra_launcher_forget(void) {
  for (int i = 0; i < SIZES; i++)
    unsetenv(size_names[i]);
  for (int i = 0; i < RANKS; i++)
    unsetenv(rank_names[i]);
  unsetenv(local_size);
  unsetenv(step_size);
}

/* --- lines --- */

/* State of the process, like stderr itself: the first line that was kept back, if any. The progress thread logs as
 * well. */
static pthread_mutex_t held_lock = PTHREAD_MUTEX_INITIALIZER;
static char held[LINE];

static void hold(void *context, petra_log_level level, const char *line) {
  (void)context;
  PETRA_LOCKED(&held_lock);
  if (level == PETRA_LOG_ERROR && !*held)
    snprintf(held, sizeof held, "%s", line);
}

/* The sink of rank 0: a failure is one line, even if several ranks or two threads find it. */
static void write_first(void *context, petra_log_level level, const char *line) {
  static bool failed;
  (void)context;
  pthread_mutex_lock(&held_lock);
  const bool repeats = failed && level == PETRA_LOG_ERROR;
  failed = failed || level == PETRA_LOG_ERROR;
  pthread_mutex_unlock(&held_lock);
  if (!repeats)
    petra_log_write(level, line);
}

void petra_ranks_hold_lines(void) {
  if (petra_launcher_rank() > 0) {
    petra_log_set_sink(hold, NULL);
    petra_stop_forget(); /* rank 0 reports it */
  }
}

void petra_ranks_release_lines(void) {
  petra_log_set_sink(NULL, NULL);
  if (*held) {
    sleep(5); /* rank 0, which found the same, has ended the run before that */
    if (!petra_stop_signalled())
      petra_log(PETRA_LOG_ERROR, "%s", held);
  }
}

petra_status petra_ranks_alone(const char *command, const char *expected) {
  const char *name;
  const int size = petra_launcher_size(&name);
  return size == 1
             ? PETRA_OK
             : petra_fail(
                   PETRA_USAGE,
                   "%d processes were launched (by %s), but petra %s runs in one process, and each would "
                   "write the same files; expected %s (or %s unset, if each process is to write files of its own)",
                   size, name, command, expected, name);
}

/* MPI may end the program itself without a PMI, so this check runs before MPI starts. */
static petra_status check_launcher(const launched *launch) {
  if (launch->size > 1 && !petra_wire_mpi_version())
    return petra_fail(PETRA_UNSUPPORTED,
                      "%d processes were launched (by %s), but this petra was built without MPI, and each would run "
                      "alone; expected one process, or ./configure --with-mpi=yes (Debian: libopenmpi-dev)",
                      launch->size, launch->name);
  if (lacks_pmi())
    return petra_fail(PETRA_UNSUPPORTED,
                      "srun launched %d processes without a PMI, which MPI needs to find them; expected srun "
                      "--mpi=pmix, or another of srun --mpi=list that the MPI library knows",
                      launch->size);
  return PETRA_OK;
}

/* Fails if the launcher started more processes than MPI finds. A launcher may have been started by another launcher:
 * the number of one of them must match the world of MPI. */
static petra_status check_world(const launched *launch, const petra_wire *wire) {
  bool fits = wire->ranks >= launch->size;
  for (int i = 0; i < SIZES; i++)
    fits = fits || launch->said[i] == wire->ranks;
  return fits ? PETRA_OK
              : petra_fail(
                    PETRA_UNSUPPORTED,
                    "%d processes were launched (by %s), but %s finds %d: this launcher does not belong to this MPI "
                    "library; expected the library's own mpirun, or srun --mpi=pmix if the library knows PMIx",
                    launch->size, launch->name, petra_wire_mpi_version(), wire->ranks);
}

static petra_status start_wire(double timeout_s, petra_wire **out) {
  const launched launch = look_at_launcher();
  petra_wire *wire = NULL;
  PETRA_TRY(check_launcher(&launch));
  petra_watchdog_start(timeout_s,
                       petra_launcher_rank() > 0
                           ? ""
                           : "petra: MPI did not start within cluster.timeout_s; one of the processes hangs\n");
  petra_status status = petra_wire_mpi_create(&wire);
  if (status == PETRA_OK)
    status = check_world(&launch, wire);
  if (status != PETRA_OK)
    petra_wire_destroy(wire);
  else
    *out = wire;
  petra_watchdog_end();
  return status;
}

static petra_status create(double timeout_s, petra_ranks **out) {
  petra_ranks *ranks;
  petra_status status;
  PETRA_TRY(petra_allocate(&ranks, 1, sizeof *ranks));
  PETRA_TRY_GOTO(status, start_wire(timeout_s, &ranks->wire), fail);
  ranks->rank = ranks->wire->rank;
  ranks->count = ranks->wire->ranks;
  gethostname(ranks->host, sizeof ranks->host - 1);
  snprintf(ranks->name, sizeof ranks->name, "rank %d (%s)", ranks->rank, ranks->host);
  ranks->timeout_s = timeout_s;
  PETRA_TRY_GOTO(status,
                 petra_progress_thread_create(ranks->wire, ranks->name, (int64_t)(1e9 * timeout_s), &ranks->progress),
                 fail);
  *out = ranks;
  return PETRA_OK;
fail:
  petra_wire_destroy(ranks->wire);
  petra_free(ranks);
  return status;
}

petra_status petra_ranks_open(double timeout_s, petra_status before, petra_ranks **out) {
  petra_ranks *ranks = NULL;
  if (before != PETRA_OK && petra_launcher_size(NULL) == 1)
    return before;
  if (before != PETRA_OK) /* rank 0 has written a line, and one is enough */
    petra_log_set_sink(hold, NULL);
  const bool silent = petra_launcher_rank() == 0 || !ends_all(); /* before MPI changes the variables */
  petra_status status = create(timeout_s, &ranks);
  if (status != PETRA_OK) {
    if (silent) /* rank 0 has logged the same, and perhaps nobody ends this process */
      *held = 0;
    return before != PETRA_OK ? before : status;
  }
  petra_log_set_sink(ranks->rank > 0 ? hold : write_first, NULL);
  *out = ranks;
  return petra_ranks_agree(ranks, before, NULL);
}

void petra_ranks_rename(petra_ranks *ranks, const char *stages) {
  snprintf(ranks->name, sizeof ranks->name, "rank %d (%s, %s)", ranks->rank, ranks->host, stages);
  petra_progress_thread_rename(ranks->progress, ranks->name);
}

/* The header of the text that a rank sends to rank 0. */
typedef struct report {
  int32_t status;
  char name[128], line[LINE];
} report;

/* Finds the first lines in which two texts differ, and shortens them to fit into `out`. */
static void first_difference(const char *a, const char *b, char out[LINE]) {
  while (*a) {
    size_t one = strcspn(a, "\n"), other = strcspn(b, "\n");
    if (one != other || memcmp(a, b, one) != 0) {
      snprintf(out, LINE, "\"%.*s\" where rank 0 has \"%.*s\"", (int)(other < 300 ? other : 300), b,
               (int)(one < 300 ? one : 300), a);
      return;
    }
    a += one + (a[one] == '\n');
    b += other + (b[other] == '\n');
  }
  snprintf(out, LINE, "more than rank 0 has");
}

typedef struct agreement {
  petra_status status;
  const char *text; /* rank 0's */
} agreement;

static petra_status look_at_report(void *context, int rank, const void *data, size_t size) {
  agreement *found = context;
  char difference[LINE];
  report r;
  memcpy(&r, data, sizeof r);
  const char *text = (const char *)data + sizeof r;
  (void)size;
  if (found->status != PETRA_OK)
    return PETRA_OK;
  found->status = (petra_status)r.status;
  if (rank == 0)
    found->text = text;
  else if (r.status == PETRA_STOPPED && petra_stop_signalled())
    return PETRA_OK; /* rank 0 was stopped as well, and has reported it */
  else if (r.status == PETRA_STOPPED)
    petra_log(PETRA_LOG_ERROR, "%s: stopped by a signal", r.name);
  else if (r.status != PETRA_OK)
    petra_log(PETRA_LOG_ERROR, "%s: %s", r.name, r.line);
  else if (strcmp(text, found->text) != 0) {
    first_difference(found->text, text, difference);
    found->status = petra_fail(PETRA_CONFIG,
                               "%s differs from rank 0: %s; expected the same config, petra, data, number of threads "
                               "and kind of processor everywhere",
                               r.name, difference);
  }
  return PETRA_OK;
}

/* The header of the data that a rank sends: the number of bytes, and the number of the gathering (from 1). */
typedef struct gather_head {
  uint64_t bytes, number;
} gather_head;

petra_status petra_ranks_gather(petra_ranks *ranks, const void *data, size_t size,
                                petra_status (*each)(void *context, int rank, const void *data, size_t size),
                                void *context) {
  gather_head head = {size, ++ranks->gathered};
  if (ranks->rank > 0) {
    PETRA_TRY(petra_progress_thread_put(ranks->progress, 0, &head, sizeof head));
    return petra_progress_thread_put(ranks->progress, 0, data, size);
  }
  PETRA_TRY(each(context, 0, data, size));
  for (int r = 1; r < ranks->count; r++) {
    PETRA_FREED unsigned char *theirs = NULL;
    PETRA_TRY(petra_progress_thread_get(ranks->progress, r, &head, sizeof head));
    if (head.number != ranks->gathered)
      return petra_fail(PETRA_INTERNAL, "rank %d is at its gathering %llu, rank 0 at %llu", r,
                        (unsigned long long)head.number, (unsigned long long)ranks->gathered);
    PETRA_TRY(petra_allocate(&theirs, head.bytes, 1));
    PETRA_TRY(petra_progress_thread_get(ranks->progress, r, theirs, head.bytes));
    PETRA_TRY(each(context, r, theirs, head.bytes));
  }
  return PETRA_OK;
}

typedef struct rows_of {
  char *rows;
  size_t size;
} rows_of;

static petra_status take_row(void *context, int rank, const void *data, size_t size) {
  const rows_of *all = context;
  memcpy(all->rows + (size_t)rank * all->size, data, size);
  return PETRA_OK;
}

petra_status petra_ranks_gather_rows(petra_ranks *ranks, const void *row, size_t size, void *rows) {
  rows_of all = {rows, size};
  return petra_ranks_gather(ranks, row, size, take_row, &all);
}

petra_status petra_ranks_share(petra_ranks *ranks, void *data, size_t size) {
  if (ranks->rank > 0)
    return petra_progress_thread_get(ranks->progress, 0, data, size);
  for (int r = 1; r < ranks->count; r++)
    PETRA_TRY(petra_progress_thread_put(ranks->progress, r, data, size));
  return PETRA_OK;
}

petra_status petra_ranks_agree(petra_ranks *ranks, petra_status status, const char *text) {
  agreement found = {PETRA_OK, NULL};
  PETRA_FREED unsigned char *data = NULL;
  ranks->agreed = false;
  const size_t length = text ? strlen(text) : 0;
  PETRA_TRY(petra_allocate(&data, 1, sizeof(report) + length + 1));
  report mine = {.status = (int32_t)status};
  snprintf(mine.name, sizeof mine.name, "%s", ranks->name);
  snprintf(mine.line, sizeof mine.line, "%s", held);
  memcpy(data, &mine, sizeof mine);
  if (length)
    memcpy(data + sizeof mine, text, length);
  PETRA_TRY(petra_ranks_gather(ranks, data, sizeof mine + length + 1, look_at_report, &found));
  int32_t verdict = found.status;
  PETRA_TRY(petra_ranks_share(ranks, &verdict, sizeof verdict));
  ranks->agreed = verdict != PETRA_OK;
  if (ranks->agreed && ranks->rank > 0)
    *held = 0; /* rank 0 has reported it */
  return (petra_status)verdict;
}

void petra_ranks_agreement_start(petra_ranks *ranks, int64_t every_ns, int64_t position) {
  ranks->every_ns = every_ns;
  ranks->since_ns = petra_clock_ns();
  if (ranks->progress)
    petra_agreement_start(ranks->progress, every_ns, position);
}

bool petra_ranks_agreement_discard(petra_ranks *ranks, bool discards) {
  ranks->discards = discards;
  return !ranks->progress || petra_agreement_discard(ranks->progress, discards);
}

static bool reach_alone(petra_ranks *ranks, int64_t done, petra_agreed *then) {
  if (petra_stop_signalled())
    *then = ranks->discards ? PETRA_AGREED_DISCARD : PETRA_AGREED_STOP;
  const bool due = ranks->every_ns > 0 && ranks->last != done && petra_clock_ns() - ranks->since_ns >= ranks->every_ns;
  if (!due && *then == PETRA_AGREED_CONTINUE)
    return false;
  ranks->last = done;
  return true;
}

petra_status petra_ranks_agreement_reach(petra_ranks *ranks, int64_t done, int64_t next, bool *agreed,
                                         petra_agreed *then, int64_t *waited_ns) {
  int64_t position = -1;
  *waited_ns = 0;
  *then = PETRA_AGREED_CONTINUE;
  if (!ranks->progress) {
    *agreed = reach_alone(ranks, done, then);
    return PETRA_OK;
  }
  if (!petra_agreement_may_pass(ranks->progress, next)) {
    const int64_t began_ns = petra_clock_ns();
    PETRA_TRY(petra_agreement_wait(ranks->progress, &position, then));
    *waited_ns = petra_clock_ns() - began_ns;
  }
  *agreed = position == done;
  return PETRA_OK;
}

void petra_ranks_agreement_leave(petra_ranks *ranks, bool agreed) {
  ranks->since_ns = petra_clock_ns();
  if (ranks->progress)
    petra_agreement_leave(ranks->progress, agreed);
}

/* Identifies the running kernel: its processes share the clock. Zeros if it is not known. */
static void boot_id(char out[BOOT_ID]) {
  memset(out, 0, BOOT_ID);
  FILE *file = fopen("/proc/sys/kernel/random/boot_id", "r");
  if (file && !fgets(out, BOOT_ID, file))
    memset(out, 0, BOOT_ID);
  if (file)
    fclose(file);
}

void petra_ranks_host_id(const petra_ranks *ranks, char *text, size_t size) {
  char kernel[BOOT_ID];
  boot_id(kernel);
  snprintf(text, size, "%s %.12s", ranks->host, kernel);
}

petra_status petra_ranks_hosts(petra_ranks *ranks, int32_t *out) {
  char mine[sizeof ranks->host + BOOT_ID] = "";
  PETRA_FREED char *all = NULL;
  int32_t hosts = 0;
  petra_ranks_host_id(ranks, mine, sizeof mine);
  PETRA_TRY(petra_allocate(&all, (size_t)ranks->count, sizeof mine));
  PETRA_TRY(petra_ranks_gather_rows(ranks, mine, sizeof mine, all));
  for (int r = 0; r < ranks->count && ranks->rank == 0; r++) {
    int same = 0; /* the first rank of its host */
    while (strcmp(all + (size_t)same * sizeof mine, all + (size_t)r * sizeof mine) != 0)
      same++;
    hosts += same == r;
  }
  *out = hosts;
  return petra_ranks_share(ranks, out, sizeof *out);
}

petra_status petra_ranks_clock_origin(petra_ranks *ranks, int64_t *origin_ns) {
  int64_t best_ns = INT64_MAX, theirs_ns = 0;
  char own[BOOT_ID], first[BOOT_ID];
  *origin_ns = 0;
  boot_id(own);
  for (int r = 1; r < ranks->count && ranks->rank == 0; r++)
    for (int i = 0; i < ECHOES; i++) {
      PETRA_TRY(petra_progress_thread_get(ranks->progress, r, &theirs_ns, sizeof theirs_ns));
      theirs_ns = petra_clock_ns();
      PETRA_TRY(petra_progress_thread_put(ranks->progress, r, &theirs_ns, sizeof theirs_ns));
    }
  for (int i = 0; i < ECHOES && ranks->rank > 0; i++) {
    const int64_t sent_ns = petra_clock_ns();
    PETRA_TRY(petra_progress_thread_put(ranks->progress, 0, &sent_ns, sizeof sent_ns));
    PETRA_TRY(petra_progress_thread_get(ranks->progress, 0, &theirs_ns, sizeof theirs_ns));
    const int64_t back_ns = petra_clock_ns();
    if (back_ns - sent_ns < best_ns) {
      best_ns = back_ns - sent_ns;
      *origin_ns = sent_ns + (back_ns - sent_ns) / 2 - theirs_ns;
    }
  }
  memcpy(first, own, sizeof own);
  PETRA_TRY(petra_ranks_share(ranks, first, sizeof first));
  if (ranks->rank > 0 && *own && memcmp(own, first, sizeof own) == 0)
    *origin_ns = 0; /* the same kernel, so the same clock */
  return PETRA_OK;
}

/* Ends all ranks together after a signal, whichever rank received it. */
static void report_stopped(petra_ranks *ranks) {
  petra_watchdog_start(ranks->timeout_s, ""); /* if a rank does not come */
  *held = 0;
  if (ranks->rank == 0)
    petra_stop_report();
  for (int r = 0; r < ranks->count; r++)
    if (r != ranks->rank && (r == 0 || ranks->rank == 0))
      petra_progress_thread_fail(ranks->progress, r, PETRA_STOPPED, "stopped by a signal");
}

void petra_ranks_end_all(petra_ranks *ranks, petra_status status) {
  if (ranks->rank > 0) { /* rank 0 reports it, unless rank 0 itself is lost */
    sleep(ranks->rank < 4 ? (unsigned)ranks->rank : 4);
    petra_log_set_sink(NULL, NULL);
    if (!petra_stop_signalled()) /* otherwise another rank has reported it */
      petra_log(PETRA_LOG_ERROR, "%s", *held ? held : "failed");
  }
  petra_stop_forget();
  petra_progress_thread_abort(ranks->progress, petra_status_exit_code(status));
}

bool petra_ranks_end_together(petra_ranks *ranks, petra_status *status) {
  if (!ranks && *status == PETRA_STOPPED)
    petra_stop_report();
  if (!ranks)
    return true;
  if (*status != PETRA_OK && petra_progress_thread_failed(ranks->progress) == PETRA_STOPPED)
    *status = PETRA_STOPPED; /* whatever failed because of that */
  if (*status == PETRA_STOPPED && !ranks->agreed)
    report_stopped(ranks);
  if (*status == PETRA_STOPPED && ranks->rank == 0)
    petra_stop_report();
  petra_stop_forget(); /* the launcher's signals that follow report nothing new */
  return *status == PETRA_OK || *status == PETRA_STOPPED || ranks->agreed;
}

petra_status petra_ranks_close(petra_ranks *ranks, petra_status status) {
  if (!ranks)
    return status;
  if (status == PETRA_OK || status == PETRA_STOPPED || ranks->agreed) {
    petra_watchdog_start(
        ranks->timeout_s,
        ranks->rank == 0 ? "petra: MPI did not end within cluster.timeout_s; one of the processes hangs\n" : "");
    petra_progress_thread_destroy(ranks->progress);
    petra_wire_destroy(ranks->wire);
    petra_watchdog_end();
    petra_free(ranks);
    return status;
  }
  const bool reported = ranks->rank > 0 && petra_progress_thread_lost(ranks->progress) != 0 &&
                        petra_progress_thread_fail(ranks->progress, 0, status, *held ? held : "failed") == PETRA_OK;
  if (reported) /* rank 0 reports it and ends the run when it next waits */
    sleep((unsigned)ranks->timeout_s);
  /* Rank 0 is silent: one of the others reports it, unless rank 0 reports the same of them and ends the run. */
  else if (ranks->rank > 0)
    sleep(ranks->rank == 1 ? 3 : 5 + (unsigned)ranks->rank);
  petra_log_set_sink(NULL, NULL);
  if (ranks->rank > 0 && !petra_stop_signalled()) /* else the launcher ends it: another rank has reported it */
    petra_log(PETRA_LOG_ERROR, "%s%s%s", reported ? ranks->name : "", reported ? ": " : "", *held ? held : "failed");
  petra_progress_thread_abort(ranks->progress, petra_status_exit_code(status));
  return status;
}
