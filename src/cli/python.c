/* SPDX-License-Identifier: Apache-2.0 */
/* The subcommands that are written in Python (analysis/petrapipe/commands/): their names, and how they are started. */
#include "base/log.h"
#include "base/mem.h"
#include "cli/command.h"
#include "group/ranks.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Only the name and the summary, for petra --help: the module of the subcommand has its options and its help. */
const petra_command petra_command_list = {
    .name = "list",
    .summary = "lists the runs below a folder: method, stages, state, optimiser, data, evaluation, date"};
const petra_command petra_command_compare = {
    .name = "compare", .summary = "compares runs: configs (key by key), results, and losses and weights (bit by bit)"};
const petra_command petra_command_reach = {
    .name = "reach", .summary = "prints when runs reach a loss: updates, seconds and bytes, on any cluster"};
const petra_command petra_command_export = {.name = "export",
                                            .summary = "writes the tables of a run's log as CSV files"};
const petra_command petra_command_report = {.name = "report",
                                            .summary = "draws runs and sweeps on one page for a browser"};

enum { PATH_BYTES = 4096 };

/* Gets the path of this program. Returns false if the system does not tell. */
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
    snprintf(path, sizeof path, "%s/%s/%s", own, beside[i], script); /* built, installed or moved, bundled */
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
    setenv("PETRA_PROGRAM", own, 1);
  if (size == 1) {
    unsetenv("PETRA_LAUNCHED");
    return;
  }
  snprintf(launched, sizeof launched, "%d %s %d", size, name, petra_launcher_rank());
  setenv("PETRA_LAUNCHED", launched, 1);
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
  /* configure may have found the first one on another machine. */
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
  /* -B: leaves no compiled modules where petra is installed; file names are UTF-8 in every locale */
  static const char *const options[] = {"-B", "-X", "utf8"};
  enum { OPTIONS = sizeof options / sizeof *options };
  const char **line;
  char *script;
  size_t count = 0;
  while (arguments[count])
    count++;
  PETRA_TRY(find_script(&script));
  petra_status status = petra_allocate(&line, count + OPTIONS + 3, sizeof *line); /* Python, script, NULL */
  if (status == PETRA_OK) {
    memcpy(line + 1, options, sizeof options);
    line[OPTIONS + 1] = script;
    memcpy(line + OPTIONS + 2, arguments, count * sizeof *line);
    set_environment();
    status = start(line);
    petra_free(line);
  }
  petra_free(script);
  return status;
}
