/* SPDX-License-Identifier: Apache-2.0 */
/* The sweep as a Slurm array job: one task a cell. */
#define _GNU_SOURCE /* getcwd with a buffer of its own */
#include "base/log.h"
#include "base/utf8.h"
#include "sweep/sweep.h"

#include <errno.h>
#include <limits.h>
#include <string.h>
#include <unistd.h>

/* Prints a text in single quotes for a shell; characters that a terminal does not show as their bytes, which the
 * shell's printf makes. */
static void put_quoted(const char *text) {
  putchar('\'');
  while (*text) {
    uint32_t character = 0;
    int bytes = petra_utf8_decode(text, strlen(text), &character);
    if (*text == '\'')
      fputs("'\\''", stdout);
    else if (*text == '\n' || (bytes > 0 && petra_utf8_is_shown(character))) /* $() removes line breaks */
      fwrite(text, 1, (size_t)bytes, stdout);
    else
      for (int i = 0; i < (bytes ? bytes : 1); i++)
        printf("'\"$(printf '\\%03o')\"'", (unsigned char)text[i]);
    text += bytes ? bytes : 1;
  }
  putchar('\'');
}

/* Prints the open cells, "1-4,7", and returns their number. */
static int put_open(const petra_sweep *sweep, bool print) {
  int count = 0;
  const char *comma = "";
  for (int c = 0; c < sweep->cells; c++) {
    if (sweep->cell[c].state != PETRA_CELL_OPEN)
      continue;
    int first = c;
    while (c + 1 < sweep->cells && sweep->cell[c + 1].state == PETRA_CELL_OPEN)
      c++;
    count += c - first + 1;
    if (print && c > first)
      printf("%s%d-%d", comma, first + 1, c + 1);
    else if (print)
      printf("%s%d", comma, first + 1);
    comma = ",";
  }
  return count;
}

petra_status petra_sweep_print_slurm(const petra_sweep *sweep) {
  char program[PATH_MAX], folder[PATH_MAX];
  ssize_t length = readlink("/proc/self/exe", program, sizeof program - 1);
  if (length < 0 || !getcwd(folder, sizeof folder))
    return petra_fail(PETRA_IO, "%s: cannot be read: %s", length < 0 ? "/proc/self/exe" : "the working directory",
                      strerror(errno));
  program[length] = 0;
  if (put_open(sweep, false) == 0) {
    petra_log(PETRA_LOG_INFO, "%s: every cell is complete; there is nothing to submit", sweep->directory);
    return PETRA_OK;
  }
  printf("#!/bin/sh\n#SBATCH --job-name=petra-sweep\n#SBATCH --array=");
  put_open(sweep, true);
  if (sweep->options.jobs_given)
    printf("%%%d", sweep->jobs);
  printf("\ncd ");
  put_quoted(folder);
  printf(" || exit 1\nexec ");
  put_quoted(program);
  printf(" sweep ");
  put_quoted(sweep->options.input);
  for (int i = 0; i < sweep->options.set_count; i++) {
    printf(" --set ");
    put_quoted(sweep->options.sets[i]);
  }
  printf(" --output ");
  put_quoted(sweep->directory);
  printf(" --cell \"$SLURM_ARRAY_TASK_ID\"\n");
  return PETRA_OK;
}
