/* SPDX-License-Identifier: Apache-2.0 */
/* One run of a cell: a process of this same program. The sweep sees only its end. */
#define _GNU_SOURCE /* sched_setaffinity */
#include "base/clock.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/threads.h"
#include "base/utf8.h"
#include "run/folder.h"
#include "sweep/sweep.h"
#include "io/file.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <sched.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { LOCK_TRIES = 300, LOCK_PAUSE_NS = 100000000, TAIL_BYTES = 8192 };

/* Everything that the child needs, allocated before the fork: between fork and exec it must not allocate. */
typedef struct launch {
  char *config_path, *log_path, *output_path; /* output_path: file for standard output if it does not go into the log */
  int log, output;
  int folder; /* the cell's, for its lock */
  bool pinned;
  cpu_set_t cores;
  char *arguments[8];
} launch;

/* The cores of slot `slot` if `jobs` cells share those of this process: device.threads: 0 counts the cores that a
 * process may use, so that the cells together use each core once, within a limit of processor time. */
static bool share_of_cores(int jobs, int slot, cpu_set_t *out) {
  cpu_set_t all;
  if (jobs < 2 || sched_getaffinity(0, sizeof all, &all) != 0)
    return false;
  int count = CPU_COUNT(&all), seen = 0;
  int first = jobs <= count ? slot * count / jobs : slot % count;
  int end = jobs <= count ? (slot + 1) * count / jobs : first + 1;
  const int worth = petra_threads_cores(), share = (slot + 1) * worth / jobs - slot * worth / jobs;
  if (worth < count && share < end - first)
    end = first + (share > 1 ? share : 1);
  CPU_ZERO(out);
  for (int core = 0; core < CPU_SETSIZE; core++)
    if (CPU_ISSET(core, &all)) {
      if (seen >= first && seen < end)
        CPU_SET(core, out);
      seen++;
    }
  return true;
}

static petra_status open_file(const char *path, int flags, int *out) {
  *out = open(path, flags | O_CLOEXEC, 0666);
  return *out >= 0 ? PETRA_OK : petra_fail(PETRA_IO, "%s: cannot open: %s", path, strerror(errno));
}

/* Returns true if nothing in the cell's folder is of use: a checkpoint would be, and it comes with a log. */
static bool begins_anew(const petra_sweep_cell *cell) {
  char path[PATH_MAX];
  return cell->spoilt && snprintf(path, sizeof path, "%s/checkpoint.h5", cell->directory) < (int)sizeof path &&
         access(path, F_OK) != 0;
}

/* A run continues from its checkpoint if there is one. */
static void set_arguments(launch *l, const petra_sweep *sweep, const petra_sweep_cell *cell) {
  bool trains = petra_grid_runs(sweep->grid) == PETRA_GRID_TRAIN;
  int count = 0;
  l->arguments[count++] = "petra";
  l->arguments[count++] = trains ? "train" : "simulate";
  l->arguments[count++] = l->config_path;
  l->arguments[count++] = trains ? "--output" : "--json";
  if (trains)
    l->arguments[count++] = cell->directory;
  if (trains)
    l->arguments[count++] = begins_anew(cell) ? "--overwrite" : "--resume";
  l->arguments[count] = NULL;
}

/* Writes a line into the log before the output of this run; *end: where that output begins. */
static petra_status begin_log(const launch *l, off_t *end) {
  char when[32] = "";
  struct tm parts;
  time_t now = time(NULL);
  if (gmtime_r(&now, &parts))
    strftime(when, sizeof when, "%Y-%m-%dT%H:%M:%SZ", &parts);
  int written = dprintf(l->log, "== %s petra", when);
  for (int i = 1; l->arguments[i] && written >= 0; i++) {
    char shown[4 * PATH_MAX];
    written = dprintf(l->log, " %s", petra_utf8_show(shown, sizeof shown, l->arguments[i], strlen(l->arguments[i])));
  }
  if (written < 0 || dprintf(l->log, "\n") < 0)
    return petra_fail(PETRA_IO, "%s: cannot write: %s", l->log_path, strerror(errno));
  *end = lseek(l->log, 0, SEEK_END);
  return PETRA_OK;
}

static petra_status prepare(launch *l, const petra_sweep *sweep, const petra_sweep_cell *cell, int slot,
                            off_t *log_start) {
  char *config = NULL;
  size_t size;
  PETRA_TRY(petra_make_folder(cell->directory));
  PETRA_TRY(petra_join_path(cell->directory, "config.yaml", &l->config_path));
  PETRA_TRY(petra_join_path(cell->directory, "log.txt", &l->log_path));
  PETRA_TRY(petra_join_path(cell->directory, ".simulate.json.tmp.out", &l->output_path));
  petra_status status = petra_folder_expand_config(cell->config, &config, &size);
  if (status == PETRA_OK)
    status = petra_folder_write_config(cell->directory, config, size);
  petra_free(config);
  PETRA_TRY(status);
  PETRA_TRY(open_file(l->log_path, O_WRONLY | O_CREAT | O_APPEND, &l->log));
  PETRA_TRY(open_file(cell->directory, O_RDONLY | O_DIRECTORY, &l->folder));
  if (petra_grid_runs(sweep->grid) == PETRA_GRID_SIMULATE)
    PETRA_TRY(open_file(l->output_path, O_WRONLY | O_CREAT | O_TRUNC, &l->output));
  l->pinned = cell->config->device.threads == 0 && share_of_cores(sweep->jobs, slot, &l->cores);
  set_arguments(l, sweep, cell);
  return begin_log(l, log_start);
}

static void clean_up(launch *l) {
  if (l->log >= 0)
    close(l->log);
  if (l->output >= 0)
    close(l->output);
  if (l->folder >= 0)
    close(l->folder);
  petra_free(l->config_path);
  petra_free(l->log_path);
  petra_free(l->output_path);
}

/* Ends a run that a killed sweep has left behind. This may take a moment, in which the run still locks the folder. */
static void wait_for_folder(int folder) {
  const struct timespec pause = {0, LOCK_PAUSE_NS};
  for (int i = 0; i < LOCK_TRIES && flock(folder, LOCK_EX | LOCK_NB) != 0; i++)
    nanosleep(&pause, NULL);
  flock(folder, LOCK_UN);
}

/* Runs in the child. The sweep may be killed at any moment: the kernel then sends SIGTERM to its children. */
static void become(const launch *l, pid_t parent) {
  sigset_t none;
  setpgid(0, 0);
  prctl(PR_SET_PDEATHSIG, SIGTERM);
  if (getppid() != parent)
    _exit(1);
  int null = open("/dev/null", O_RDONLY);
  dup2(null, 0);
  dup2(l->output >= 0 ? l->output : l->log, 1);
  dup2(l->log, 2);
  if (null > 2)
    close(null);
  if (l->pinned)
    sched_setaffinity(0, sizeof l->cores, &l->cores);
  sigemptyset(&none);
  sigprocmask(SIG_SETMASK, &none, NULL);
  wait_for_folder(l->folder);
  execv("/proc/self/exe", l->arguments); /* this program, even if its file has been replaced */
  dprintf(2, "petra: /proc/self/exe: cannot be started: %s\n", strerror(errno));
  _exit(1);
}

petra_status petra_sweep_child_start(const petra_sweep *sweep, int cell, int slot, petra_sweep_child *out) {
  launch l = {.log = -1, .output = -1, .folder = -1};
  petra_sweep_child child = {.cell = cell, .start_s = petra_clock_s()};
  petra_status status = prepare(&l, sweep, &sweep->cell[cell], slot, &child.log_start);
  if (status == PETRA_OK) {
    pid_t parent = getpid();
    child.pid = fork();
    if (child.pid == 0)
      become(&l, parent);
    if (child.pid < 0)
      status = petra_fail(PETRA_CHILD, "%s: its run cannot be started: %s", sweep->cell[cell].name, strerror(errno));
    else
      setpgid(child.pid, child.pid); /* in both processes: whichever is first */
  }
  clean_up(&l);
  if (status == PETRA_OK)
    *out = child;
  return status;
}

/* Gets the last error line of this run in the log, else its last line, else nothing. */
static void last_words(const char *path, off_t start, char *out, size_t size) {
  char text[TAIL_BYTES + 1];
  int log = open(path, O_RDONLY | O_CLOEXEC);
  off_t end = log >= 0 ? lseek(log, 0, SEEK_END) : 0;
  off_t from = end - start > TAIL_BYTES ? end - TAIL_BYTES : start;
  ssize_t bytes = log >= 0 ? pread(log, text, TAIL_BYTES, from) : 0;
  if (log >= 0)
    close(log);
  text[bytes > 0 ? bytes : 0] = 0;
  *out = 0;
  bool error = false;
  char *rest = NULL;
  for (const char *line = strtok_r(text, "\n", &rest); line; line = strtok_r(NULL, "\n", &rest)) {
    bool is_error = strncmp(line, "petra: ", 7) == 0 && strncmp(line, "petra: warning: ", 16) != 0;
    if (is_error || !error)
      snprintf(out, size, "%s", is_error ? line + 7 : line);
    error |= is_error;
  }
}

static void explain(petra_sweep_cell *cell, off_t log_start, int wait_status) {
  char words[PETRA_SWEEP_REASON - 64] = "", *path = NULL;
  if (petra_join_path(cell->directory, "log.txt", &path) == PETRA_OK)
    last_words(path, log_start, words, sizeof words);
  petra_free(path);
  if (WIFSIGNALED(wait_status))
    snprintf(cell->reason, sizeof cell->reason, "ended by signal %d (%s)", WTERMSIG(wait_status),
             strsignal(WTERMSIG(wait_status)));
  else if (*words)
    snprintf(cell->reason, sizeof cell->reason, "%s", words);
  else
    snprintf(cell->reason, sizeof cell->reason, "exit status %d without a message", WEXITSTATUS(wait_status));
}

petra_status petra_sweep_child_end(const petra_sweep *sweep, const petra_sweep_child *child, int wait_status,
                                   bool stopping) {
  petra_sweep_cell *cell = &sweep->cell[child->cell];
  bool done = WIFEXITED(wait_status) && WEXITSTATUS(wait_status) == 0;
  if (done && petra_grid_runs(sweep->grid) == PETRA_GRID_SIMULATE) {
    char *printed = NULL;
    PETRA_TRY(petra_join_path(cell->directory, ".simulate.json.tmp.out", &printed));
    petra_status status = petra_sweep_keep_simulation(cell, printed);
    petra_free(printed);
    PETRA_TRY(status);
  }
  if (done) {
    PETRA_TRY(petra_sweep_read_cell(sweep, cell));
    if (cell->state == PETRA_CELL_COMPLETE)
      return PETRA_OK;
    snprintf(cell->reason, sizeof cell->reason, "ended without an error, but its results are not in %s",
             cell->directory);
    cell->state = PETRA_CELL_FAILED;
    return PETRA_OK;
  }
  explain(cell, child->log_start, wait_status);
  cell->state = stopping ? PETRA_CELL_STOPPED : PETRA_CELL_FAILED;
  return PETRA_OK;
}
