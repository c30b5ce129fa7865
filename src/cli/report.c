/* SPDX-License-Identifier: Apache-2.0 */
/* petra report: a page of figures, drawn by analysis/petra_report.py, which takes the place of this process. */
#include "base/log.h"
#include "base/mem.h"
#include "cli/command.h"
#include "run/folder.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { PATH_BYTES = 4096 };
static const char SCRIPT[] = "petra_report.py";

/* The folder of this program; false where the system does not tell. */
static bool own_folder(char out[PATH_BYTES]) {
  const ssize_t length = readlink("/proc/self/exe", out, PATH_BYTES - 1);
  char *slash = NULL;
  if (length > 0) {
    out[length] = 0;
    slash = strrchr(out, '/');
  }
  if (slash)
    *slash = 0;
  return slash != NULL;
}

static petra_status find_script(char **out) {
  static const char *const beside[] = {"analysis", "../share/petra/analysis", "../analysis"};
  char own[PATH_BYTES], path[2 * PATH_BYTES];
  bool known = own_folder(own), there = false;
  for (size_t i = 0; known && !there && i < sizeof beside / sizeof *beside; i++) {
    snprintf(path, sizeof path, "%s/%s/%s", own, beside[i], SCRIPT); /* built, installed or moved, bundled */
    there = access(path, R_OK) == 0;
  }
  if (!there)
    snprintf(path, sizeof path, "%s/%s", PETRA_ANALYSIS_DIR, SCRIPT);
  if (!there && access(path, R_OK) != 0)
    return petra_fail(PETRA_IO, "%s: %s; expected petra as it was built, installed or bundled", path, strerror(errno));
  return petra_duplicate_string(out, path);
}

static bool set(const char *name, const char **out) {
  *out = getenv(name);
  return *out && **out;
}

/* Takes the place of this process; returns only where that fails. */
static petra_status start(const char **line) {
  const char *python;
  if (set("PETRA_PYTHON", &python) || set("PYTHON", &python)) {
    line[0] = python;
    execvp(python, (char *const *)(uintptr_t)line);
    return petra_fail(PETRA_IO,
                      "%s: cannot be started: %s; expected Python 3 by its path or name in the environment variable "
                      "PETRA_PYTHON",
                      python, strerror(errno));
  }
  static const char *const found[] = {PETRA_PYTHON,
                                      "python3"}; /* by configure, which may have been another machine's */
  for (size_t i = 0; i < sizeof found / sizeof *found; i++) {
    line[0] = found[i];
    execvp(found[i], (char *const *)(uintptr_t)line);
  }
  return petra_fail(PETRA_IO,
                    "neither " PETRA_PYTHON " nor python3 can be started: %s; expected Python 3 by its path in the "
                    "environment variable PETRA_PYTHON",
                    strerror(errno));
}

static petra_status run(const petra_arguments *arguments) {
  const char **line;
  char *script;
  size_t at = 1;
  if (!arguments->output)
    return petra_fail(PETRA_USAGE, "petra report needs --output FILE.html (or -o); see petra report --help");
  PETRA_TRY(find_script(&script));
  petra_status status = petra_allocate(&line, (size_t)arguments->input_count + 8, sizeof *line);
  if (status == PETRA_OK) {
    line[at++] = "-B"; /* leaves no compiled modules where it is installed */
    line[at++] = script;
    line[at++] = "--output";
    line[at++] = arguments->output;
    if (arguments->json)
      line[at++] = "--json";
    if (arguments->quiet)
      line[at++] = "--quiet";
    line[at++] = "--";
    for (int i = 0; i < arguments->input_count; i++)
      line[at++] = arguments->inputs[i];
    status = start(line);
    petra_free(line);
  }
  petra_free(script);
  return status;
}

const petra_command petra_command_report = {
    .name = "report",
    .summary = "one page of figures of runs and of a sweep, for a browser",
    .arguments = "RUN... [SWEEP]... --output FILE.html [--json] [--quiet]",
    .help =
        "Draws runs (folders or their run.h5) and sweeps (folders with a summary.csv) on one page that needs nothing "
        "else: what was\n"
        "run and how the configs differ, loss and accuracy, fidelity of gradients, lags, memory, the timeline, "
        "predicted beside\n"
        "measured, and means of sweeps with their 95 % intervals. What runs have no data for is left out, and said "
        "so. -o is short\n"
        "for --output. Needs Python with h5py, numpy and plotly (Debian: python3-h5py python3-plotly): the one that "
        "./configure found,\n"
        "or python3; the environment variable PETRA_PYTHON (or PYTHON) names another.\n",
    .inputs_least = 1,
    .inputs_max = PETRA_MAX_INPUTS,
    .options = (const petra_option[]){PETRA_OPTION("output", "FILE", output,
                                                   "the page to write, in place of what is "
                                                   "there"),
                                      {0}},
    .run = run};
