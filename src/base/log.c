/* SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE /* RTLD_DEFAULT, on_exit */
#include "base/log.h"

#include "base/utf8.h"

#include <dlfcn.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>
#ifdef __GLIBC__
#include <malloc.h>
#endif

/* Process-wide by nature, like stderr: set at start, read afterwards. */
static petra_log_level log_level = PETRA_LOG_INFO;
static petra_log_sink log_sink;
static void *log_sink_context;

void petra_log_set_level(petra_log_level level) {
  log_level = level;
}

void petra_log_set_sink(petra_log_sink sink, void *context) {
  log_sink = sink;
  log_sink_context = context;
}

static void keep_line(void *context, petra_log_level level, const char *line) {
  petra_log_kept *kept = context;
  if (level == PETRA_LOG_ERROR)
    snprintf(kept->line, sizeof kept->line, "%s", line);
}

void petra_log_keep(petra_log_kept *kept) {
  kept->sink = log_sink;
  kept->context = log_sink_context;
  petra_log_set_sink(keep_line, kept);
}

void petra_log_keep_end(petra_log_kept *kept) {
  petra_log_set_sink(kept->sink, kept->context);
}

void petra_log_keep_no_more(void) {
  while (log_sink == keep_line)
    petra_log_keep_end(log_sink_context);
  petra_lane_here()->failure = NULL;
}

void petra_log_write(petra_log_level level, const char *line) {
  static const char *const prefix[] = {"", "warning: ", ""};
  fprintf(stderr, "petra: %s%s\n", prefix[level], line);
}

static void write_line(petra_log_level level, const char *format, va_list arguments) {
  char text[2048], shown[4 * sizeof text];
  if (level > log_level)
    return;
  vsnprintf(text, sizeof text, format, arguments);
  char *failure = petra_lane_here()->failure;
  if (level == PETRA_LOG_ERROR && failure && !*failure) {
    snprintf(failure, PETRA_LANE_LINE, "%s", text);
    return;
  }
  petra_utf8_show(shown, sizeof shown, text, strlen(text));
  if (log_sink)
    log_sink(log_sink_context, level, shown);
  else
    petra_log_write(level, shown);
}

void petra_log(petra_log_level level, const char *format, ...) {
  va_list arguments;
  va_start(arguments, format);
  write_line(level, format, arguments);
  va_end(arguments);
}

petra_status petra_fail(petra_status status, const char *format, ...) {
  va_list arguments;
  va_start(arguments, format);
  write_line(PETRA_LOG_ERROR, format, arguments);
  va_end(arguments);
  return status;
}

petra_lane *petra_lane_here(void) {
  static _Thread_local petra_lane lane;
  return &lane;
}

enum { MAX_STATUS = 2 };

/* std::set_new_handler, as the common C++ ABI of Linux names it. It is missing if no library uses C++. */
static const char set_new_handler[] = "_ZSt15set_new_handlerPFvvE";
typedef void (*new_handler)(void);

static void end_without_memory(void) {
  petra_log_keep_no_more();
  petra_log(PETRA_LOG_ERROR, "out of memory: a library could not allocate");
  _exit(petra_status_exit_code(PETRA_NO_MEMORY));
}

#ifdef __GLIBC__
static void end_for_library(int status, void *unused) {
  (void)unused;
  if (status >= 0 && status <= MAX_STATUS)
    return;
  petra_log_keep_no_more();
  petra_log(PETRA_LOG_ERROR, "a library ended the program (exit status %d), perhaps because it was out of memory",
            status);
  _exit(petra_status_exit_code(PETRA_BACKEND));
}
#endif

/* If address space is limited (ulimit -v), a thread of OpenBLAS that finds no memory while the library is loaded
 * retries for ever. It takes and returns the 128 MiB of an arena, which other threads then lack, and the program waits
 * for the thread at its end. petra uses one thread of OpenBLAS. If the environment does not set the number of its
 * threads, the program sets it and starts once more. The threads of petra share one arena. */
static void live_within_limits(char **argv) {
  static const char threads[] = "OPENBLAS_NUM_THREADS";
  struct rlimit space;
  if (getrlimit(RLIMIT_AS, &space) != 0 || space.rlim_cur == RLIM_INFINITY)
    return;
  if (!getenv(threads) && setenv(threads, "1", 1) == 0)
    execv("/proc/self/exe", argv);
#ifdef __GLIBC__
  mallopt(M_ARENA_MAX, 1);
#endif
}

void petra_last_words(char **argv) {
  new_handler (*set)(new_handler) = NULL;
  void *found = dlsym(RTLD_DEFAULT, set_new_handler);
  memcpy(&set, &found, sizeof set);
  if (set)
    set(end_without_memory);
  live_within_limits(argv);
#ifdef __GLIBC__
  on_exit(end_for_library, NULL);
#endif
}
