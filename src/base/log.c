/* SPDX-License-Identifier: Apache-2.0 */
#include "base/log.h"

#include "base/lane.h"
#include "base/utf8.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

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
