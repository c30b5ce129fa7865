/* SPDX-License-Identifier: Apache-2.0 */
/* The log: single lines on stderr, "petra: ...". An error is one line, written by the first to detect it. */
#ifndef PETRA_BASE_LOG_H
#define PETRA_BASE_LOG_H

#include "base/status.h"

typedef enum petra_log_level { PETRA_LOG_ERROR, PETRA_LOG_WARNING, PETRA_LOG_INFO } petra_log_level;

/* Lines above this level are dropped (default: PETRA_LOG_INFO). Process-wide; set once at start. */
void petra_log_set_level(petra_log_level level);

/* Writes one line: "petra: [warning: ]message\n" in one write. What a terminal does not show, line breaks
 * included, is escaped (petra_utf8_show). */
void petra_log(petra_log_level level, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* Logs an error line and returns `status`, so that a failure reads `return petra_fail(PETRA_IO, ...)`. */
petra_status petra_fail(petra_status status, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* Lines go to `sink` (with the newline removed) instead of stderr; NULL restores stderr. */
typedef void (*petra_log_sink)(void *context, petra_log_level level, const char *line);
void petra_log_set_sink(petra_log_sink sink, void *context);

/* Between the two no line is written: of errors the last one is kept, to be said in another way or not at all. */
typedef struct petra_log_kept {
  char line[512]; /* as of petra_log_keep until there is one */
  petra_log_sink sink;
  void *context; /* those that are put back */
} petra_log_kept;
void petra_log_keep(petra_log_kept *kept);
void petra_log_keep_end(petra_log_kept *kept);

/* Before the line that the program ends with at once: it is not kept, neither by petra_log_keep nor by the lane of the calling thread. */
void petra_log_keep_no_more(void);

#endif
