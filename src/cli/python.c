/* SPDX-License-Identifier: Apache-2.0 */
/* The subcommands that are written in Python (analysis/petrapipe/commands/): their names, and the code that starts
 * them. */
#define _GNU_SOURCE /* pipe2 */
#include "base/log.h"
#include "base/mem.h"
#include "cli/command.h"
#include "group/ranks.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

/* These entries have only the name and the summary, for petra --help; the Python module of the subcommand has its
 * options and its help. */
const petra_command petra_command_list = {
    .name = "list",
    .summary = "lists the runs below a folder: method, stages, state, optimiser, data, evaluation, date"};
const petra_command petra_command_compare = {
    .name = "compare", .summary = "compares runs: configs (key by key), results, and losses and weights (bit by bit)"};
const petra_command petra_command_reach = {
    .name = "reach", .summary = "prints when runs reach a loss: updates, seconds and bytes, on any cluster"};
const petra_command petra_command_export = {.name = "export",
                                            .summary = "writes the tables of a run's log as CSV files"};
const petra_command petra_command_sweep = {
    .name = "sweep", .summary = "runs a grid of configs with several seeds and summarises it; can be resumed"};
const petra_command petra_command_report = {.name = "report",
                                            .summary = "draws runs and sweeps on one page for a browser"};

enum { PATH_BYTES = 4096 };

/* Gets the path of this program. Returns false if the system does not provide it. */
static bool own_path(char out[PATH_BYTES]) {
  const ssize_t length = readlink("/proc/self/exe", out, PATH_BYTES - 1);
  out[length > 0 ? length : 0] = 0;
  return length > 0;
}

static petra_status find_script(char **out) {
  static const char script[] = "petra_python.py";
  static const char *const beside[] = {"analysis", "../share/petra/analysis", "../analysis"};
  char own[PATH_BYTES], path[2 * PATH_BYTES];
  char *slash = own_path(own) ? strrchr(own, '/') : NULL;
  bool found = false;
  if (slash)
    *slash = 0;
  for (size_t i = 0; slash && !found && i < sizeof beside / sizeof *beside; i++) {
    /* the path in a build, in an installation (even if it was moved), or in a bundle */
    snprintf(path, sizeof path, "%s/%s/%s", own, beside[i], script);
    found = access(path, R_OK) == 0;
  }
  if (!found)
    snprintf(path, sizeof path, "%s/%s", PETRA_ANALYSIS_DIR, script);
  if (!found && access(path, R_OK) != 0)
    return petra_fail(PETRA_IO, "%s: %s; expected petra as it was built, installed or bundled", path, strerror(errno));
  return petra_duplicate_string(out, path);
}

/* Sets what Python needs to know: this program, and the processes that a launcher has started, if there are several. */
static void set_environment(void) {
  const char *name;
  char own[PATH_BYTES], launched[256];
  const int size = petra_launcher_size(&name);
  if (own_path(own))
    setenv("PETRA", own, 1);
  snprintf(launched, sizeof launched, "%d %s %d", size, size > 1 ? name : "", petra_launcher_rank());
  if (size > 1)
    setenv("PETRA_LAUNCHED", launched, 1);
  else
    unsetenv("PETRA_LAUNCHED");
  petra_launcher_forget(); /* a run that Python starts has one process */
}

static bool is_set(const char *name, const char **out) {
  *out = getenv(name);
  return *out && **out;
}

/* Replaces this process; returns only if that fails. */
static petra_status start(const char **line) {
  const char *python;
  if (is_set("PETRA_PYTHON", &python) || is_set("PYTHON", &python)) {
    line[0] = python;
    execvp(python, (char *const *)(uintptr_t)line);
    return petra_fail(PETRA_IO,
                      "%s: cannot be started: %s; expected Python 3 by its path or name in the environment variable "
                      "PETRA_PYTHON",
                      python, strerror(errno));
  }
  /* configure may have found PETRA_PYTHON on another machine. */
  static const char *const found[] = {PETRA_PYTHON, "python3"};
  for (size_t i = 0; i < sizeof found / sizeof *found; i++) {
    line[0] = found[i];
    execvp(found[i], (char *const *)(uintptr_t)line);
  }
  return petra_fail(PETRA_IO,
                    "neither " PETRA_PYTHON " nor python3 can be started: %s; expected Python 3 by its path in the "
                    "environment variable PETRA_PYTHON",
                    strerror(errno));
}

petra_status petra_python_start(char *const *arguments) {
  /* -B: writes no compiled modules into the installation of petra; -X utf8: file names are UTF-8 in every locale */
  static const char *const options[] = {"-B", "-X", "utf8"};
  enum { OPTIONS = sizeof options / sizeof *options };
  PETRA_FREED const char **line = NULL;
  PETRA_FREED char *script = NULL;
  size_t count = 0;
  while (arguments[count])
    count++;
  PETRA_TRY(find_script(&script));
  PETRA_TRY(petra_allocate(&line, count + OPTIONS + 3, sizeof *line)); /* Python, script, NULL */
  memcpy(line + 1, options, sizeof options);
  line[OPTIONS + 1] = script;
  memcpy(line + OPTIONS + 2, arguments, count * sizeof *line);
  set_environment();
  return start(line);
}

/* The stream to the child; there is at most one child. */
static FILE *to_child;
static pid_t child;

petra_status petra_python_open(char *const *arguments, FILE **out) {
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0)
    return petra_fail(PETRA_IO, "Python cannot be started: %s", strerror(errno));
  fflush(stdout);
  signal(SIGPIPE, SIG_IGN); /* a child that has failed no longer reads the pipe */
  child = fork();
  if (child == 0) {
    signal(SIGPIPE, SIG_DFL);
    dup2(ends[0], 0);
    _exit(petra_status_exit_code(petra_python_start(arguments)));
  }
  close(ends[0]);
  to_child = child > 0 ? fdopen(ends[1], "w") : NULL;
  if (!to_child) {
    close(ends[1]);
    return petra_fail(PETRA_IO, "Python cannot be started: %s", strerror(errno));
  }
  *out = to_child;
  return PETRA_OK;
}

petra_status petra_python_end(void) {
  int status = 0;
  if (!to_child)
    return PETRA_OK;
  fclose(to_child);
  to_child = NULL;
  while (waitpid(child, &status, 0) < 0 && errno == EINTR)
    continue;
  if (WIFSIGNALED(status))
    return petra_fail(PETRA_CHILD, "Python was ended by signal %d (%s)", WTERMSIG(status), strsignal(WTERMSIG(status)));
  return WEXITSTATUS(status) == 0 ? PETRA_OK : WEXITSTATUS(status) == 2 ? PETRA_USAGE : PETRA_IO;
}
