/* SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE /* sigaction with -std=c11 */
#include "base/watchdog.h"

#include <math.h>
#include <signal.h>
#include <string.h>
#include <unistd.h>

/* Process-wide, like the alarm itself. */
static const char *volatile last_line;

static void on_alarm(int number) {
  (void)number;
  if (write(STDERR_FILENO, last_line, strlen(last_line)) < 0)
    _exit(1);
  _exit(1);
}

void petra_watchdog_start(double seconds, const char *line) {
  struct sigaction action = {.sa_handler = on_alarm};
  sigemptyset(&action.sa_mask);
  last_line = line;
  sigaction(SIGALRM, &action, NULL);
  alarm((unsigned)fmin(ceil(seconds), 1e6));
}

void petra_watchdog_end(void) {
  alarm(0);
}
