/* SPDX-License-Identifier: Apache-2.0 */
/* Runs the open cells, some concurrently. Signals are received by waiting for them, so that nothing happens in a
 * handler. */
#include "base/clock.h"
#include "base/mem.h"
#include "base/utf8.h"
#include "sweep/sweep.h"
#include "group/ranks.h"

#include <signal.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <time.h>

static const double SUMMARY_S = 2; /* minimum time between two summaries while cells run */
static const double GRACE_S = 30;  /* after SIGTERM, before SIGKILL: a run may want to save itself */

typedef struct pool {
  petra_sweep *sweep;
  petra_sweep_child *child;
  int slots, running, next; /* next: the next cell to examine */
  int begun, open;          /* runs started, and their total */
  int stopped;              /* the first signal that requested the end */
  bool killing;
  double stopped_s;
  bool stale; /* a cell has ended since the last summary */
  double summary_s;
  sigset_t watched, before;
} pool;

/* Collects SIGCHLD and, of the signals that request the end, those that the parent of this process did not set to be
 * ignored (nohup). */
static void watch_signals(pool *p) {
  static const int ends[] = {SIGINT, SIGTERM, SIGHUP};
  struct sigaction action;
  signal(SIGCHLD, SIG_DFL);
  sigemptyset(&p->watched);
  sigaddset(&p->watched, SIGCHLD);
  for (size_t i = 0; i < sizeof ends / sizeof *ends; i++)
    if (sigaction(ends[i], NULL, &action) == 0 && action.sa_handler != SIG_IGN)
      sigaddset(&p->watched, ends[i]);
  sigprocmask(SIG_BLOCK, &p->watched, &p->before);
}

static void signal_children(const pool *p, int number) {
  for (int s = 0; s < p->slots; s++)
    if (p->child[s].cell >= 0)
      kill(-p->child[s].pid, number);
}

/* The first signal ends the runs gently, a second one at once. */
static void stop(pool *p, int number) {
  if (p->stopped == 0) {
    p->stopped = number;
    p->stopped_s = petra_clock_s();
    signal_children(p, SIGTERM);
  } else {
    p->killing = true;
    signal_children(p, SIGKILL);
  }
}

static petra_status start_cells(pool *p) {
  petra_sweep *sweep = p->sweep;
  for (int s = 0; s < p->slots; s++) {
    if (p->child[s].cell >= 0)
      continue;
    while (p->next < sweep->cells &&
           (sweep->cell[p->next].state != PETRA_CELL_OPEN || (sweep->only >= 0 && p->next != sweep->only)))
      p->next++;
    if (p->next == sweep->cells)
      return PETRA_OK;
    PETRA_TRY(petra_sweep_child_start(sweep, p->next++, s, &p->child[s]));
    p->running++;
  }
  return PETRA_OK;
}

static void report(const pool *p, const petra_sweep_child *child) {
  static const char *const words[] = {[PETRA_CELL_OPEN] = "open",
                                      [PETRA_CELL_COMPLETE] = "done",
                                      [PETRA_CELL_FAILED] = "failed",
                                      [PETRA_CELL_STOPPED] = "stopped"};
  const petra_sweep *sweep = p->sweep;
  if (sweep->options.json || sweep->options.quiet)
    return;
  petra_utf8_print(stdout, "[%d/%d] %s: %s after %.1f s\n", p->begun, p->open, sweep->cell[child->cell].name,
                   words[sweep->cell[child->cell].state], petra_clock_s() - child->start_s);
  fflush(stdout);
}

static petra_status reap(pool *p) {
  petra_status result = PETRA_OK;
  for (int s = 0; s < p->slots; s++) {
    int wait_status = 0;
    if (p->child[s].cell < 0 || waitpid(p->child[s].pid, &wait_status, WNOHANG) != p->child[s].pid)
      continue;
    petra_status status = petra_sweep_child_end(p->sweep, &p->child[s], wait_status, p->stopped != 0);
    p->begun++;
    p->running--;
    report(p, &p->child[s]);
    p->child[s].cell = -1;
    p->stale = true;
    if (result == PETRA_OK)
      result = status;
  }
  return result;
}

/* Waits for a signal, but checks every second in any case. */
static void wait_for_signal(pool *p) {
  const struct timespec second = {1, 0};
  int number = sigtimedwait(&p->watched, NULL, &second);
  if (number > 0 && number != SIGCHLD)
    stop(p, number);
  if (p->stopped != 0 && !p->killing && petra_clock_s() - p->stopped_s > GRACE_S)
    stop(p, SIGKILL);
}

/* Shows readers how far the sweep is. */
static petra_status write_summary(pool *p) {
  if (p->sweep->only >= 0 || !p->stale || petra_clock_s() - p->summary_s < SUMMARY_S)
    return PETRA_OK;
  p->stale = false;
  p->summary_s = petra_clock_s();
  return petra_sweep_write_summary(p->sweep);
}

/* A failure of the sweep itself (such as a full disk) ends the running cells and is the result. */
static petra_status run_pool(pool *p) {
  p->stale = true;
  p->summary_s = -SUMMARY_S;
  petra_status status = write_summary(p);
  if (status == PETRA_OK)
    status = start_cells(p);
  while (p->running > 0) {
    if (status != PETRA_OK && p->stopped == 0)
      stop(p, SIGTERM);
    wait_for_signal(p);
    petra_status now = reap(p);
    if (now == PETRA_OK && status == PETRA_OK && p->stopped == 0)
      now = start_cells(p);
    if (now == PETRA_OK)
      now = write_summary(p);
    if (status == PETRA_OK)
      status = now;
  }
  return status;
}

petra_status petra_sweep_run(petra_sweep *sweep, int *stopped) {
  pool p = {.sweep = sweep};
  for (int c = 0; c < sweep->cells; c++)
    p.open += sweep->cell[c].state == PETRA_CELL_OPEN && (sweep->only < 0 || c == sweep->only);
  sweep->jobs = p.slots = sweep->jobs < p.open ? sweep->jobs : p.open;
  if (p.slots == 0)
    return PETRA_OK;
  PETRA_TRY(petra_allocate(&p.child, (size_t)p.slots, sizeof *p.child));
  for (int s = 0; s < p.slots; s++)
    p.child[s].cell = -1;
  if (p.slots > 1)
    setenv("OMP_WAIT_POLICY", "passive", 0); /* waiting threads must not keep other cells from the cores */
  petra_launcher_forget();                   /* each cell is a run of one process, whatever launched this one */
  watch_signals(&p);
  petra_status status = run_pool(&p);
  *stopped = p.stopped;
  sigprocmask(SIG_SETMASK, &p.before, NULL);
  petra_free(p.child);
  return status;
}
