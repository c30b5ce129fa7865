/* SPDX-License-Identifier: Apache-2.0 */
/* Subcommands that are scripts of analysis/. */
#include "base/log.h"
#include "base/mem.h"
#include "cli/command.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { PATH_BYTES = 4096 };

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

static petra_status find_script(const char *script, char **out) {
  static const char *const beside[] = {"analysis", "../share/petra/analysis", "../analysis"};
  char own[PATH_BYTES], path[2 * PATH_BYTES];
  bool known = own_folder(own), there = false;
  for (size_t i = 0; known && !there && i < sizeof beside / sizeof *beside; i++) {
    snprintf(path, sizeof path, "%s/%s/%s", own, beside[i], script); /* built, installed or moved, bundled */
    there = access(path, R_OK) == 0;
  }
  if (!there)
    snprintf(path, sizeof path, "%s/%s", PETRA_ANALYSIS_DIR, script);
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

petra_status petra_script_start(const char *script, const petra_arguments *arguments, const char *option,
                                const char *value) {
  const char **line;
  char *path;
  size_t at = 1;
  PETRA_TRY(find_script(script, &path));
  petra_status status = petra_allocate(&line, (size_t)arguments->input_count + 8, sizeof *line);
  if (status == PETRA_OK) {
    line[at++] = "-B"; /* leaves no compiled modules where it is installed */
    line[at++] = path;
    line[at++] = option;
    line[at++] = value;
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
  petra_free(path);
  return status;
}
