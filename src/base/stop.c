/* SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE /* sigaction with -std=c11 */
#include "base/stop.h"

#include "base/clock.h"

#include <errno.h>
#include <math.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

/* Process-wide, like signals themselves. One of the two lines may be written while the handler reads the other. */
static volatile sig_atomic_t requested, deferred, current, reported, forgotten;
static char lines[2][PETRA_STOP_LINE];

void petra_stop_report(void) {
  const char *line = lines[current];
  if (reported || forgotten || !*line)
    return;
  reported = 1;
  if (isatty(STDERR_FILENO) && write(STDERR_FILENO, "\n", 1) < 0)
    return;
  if (write(STDERR_FILENO, line, strlen(line)) < 0)
    return;
}

static atomic_llong silent_from_ns; /* deadline set by petra_stop_alive; 0: none */

static void forget_if_silent(void) {
  const long long from_ns = atomic_load(&silent_from_ns);
  if (from_ns > 0 && petra_clock_ns() > from_ns)
    petra_stop_forget();
}

void petra_stop_alive(int64_t silent_ns) {
  forget_if_silent();
  atomic_store(&silent_from_ns, silent_ns > 0 ? petra_clock_ns() + silent_ns : 0);
}

static void on_signal(int number) {
  const int before = errno;
  requested = number;
  forget_if_silent();
  petra_stop_report();
  errno = before;
}

static const int signals[] = {SIGINT, SIGTERM, SIGUSR1};

void petra_stop_catch(void) {
  struct sigaction before, action = {.sa_handler = on_signal, .sa_flags = (int)SA_RESETHAND | SA_RESTART};
  sigemptyset(&action.sa_mask);
  for (size_t i = 0; i < sizeof signals / sizeof *signals; i++)
    if (sigaction(signals[i], NULL, &before) == 0 && before.sa_handler != SIG_IGN)
      sigaction(signals[i], &action, NULL);
}

static void say(const char *format, va_list arguments) {
  char *line = lines[!current];
  int length = snprintf(line, PETRA_STOP_LINE - 1, "petra: ");
  length += vsnprintf(line + length, (size_t)(PETRA_STOP_LINE - 1 - length), format, arguments);
  if (length > PETRA_STOP_LINE - 2)
    length = PETRA_STOP_LINE - 2;
  memcpy(line + length, "\n", 2);
  atomic_thread_fence(memory_order_release); /* the handler may run in another thread */
  current = !current;
}

void petra_stop_say(const char *format, ...) {
  va_list arguments;
  if (reported)
    return; /* petra_stop_end compares its line with the one that was written */
  va_start(arguments, format);
  say(format, arguments);
  va_end(arguments);
}

void petra_stop_end(const char *format, ...) {
  va_list arguments;
  const char *before = lines[current];
  const size_t length = strlen(before);
  va_start(arguments, format);
  say(format, arguments);
  va_end(arguments);
  reported = reported && length > 0 && strncmp(lines[current], before, length - 1) == 0;
  deferred = 0;
}

void petra_stop_forget(void) {
  forgotten = 1;
}

void petra_stop_release(void) {
  struct sigaction now;
  petra_stop_forget();
  for (size_t i = 0; i < sizeof signals / sizeof *signals; i++)
    if (sigaction(signals[i], NULL, &now) == 0 && now.sa_handler == on_signal)
      signal(signals[i], SIG_DFL);
}

bool petra_stop_signalled(void) {
  return requested != 0;
}

void petra_stop_defer(bool defers) {
  deferred = defers;
}

petra_status petra_stop_requested(void) {
  return requested && !deferred ? PETRA_STOPPED : PETRA_OK;
}

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
