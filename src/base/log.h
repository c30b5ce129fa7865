/* SPDX-License-Identifier: Apache-2.0 */
/* The log writes single lines to stderr, "petra: ...". An error is one line, written by the first function that detects
 * it. */
#pragma once

#include "base/status.h"

typedef enum petra_log_level { PETRA_LOG_ERROR, PETRA_LOG_WARNING, PETRA_LOG_INFO } petra_log_level;

/* Drops lines above this level (default: PETRA_LOG_INFO). Process-wide; set once at start. */
void petra_log_set_level(petra_log_level level);

/* Writes the line "petra: [warning: ]message" and its newline in one write. Escapes characters that a terminal does not
 * show, including line breaks (petra_utf8_show). */
void petra_log(petra_log_level level, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* Logs an error line and returns `status`, so that a failure reads `return petra_fail(PETRA_IO, ...)`. */
petra_status petra_fail(petra_status status, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* Sends lines to `sink` (without the newline) instead of stderr; NULL restores stderr. */
typedef void (*petra_log_sink)(void *context, petra_log_level level, const char *line);
void petra_log_set_sink(petra_log_sink sink, void *context);

/* Writes a line that a sink received to stderr, as is done without a sink. */
void petra_log_write(petra_log_level level, const char *line);

/* Between petra_log_keep and petra_log_keep_end no line is written. The last error is stored in `line`, for the caller
 * to report it or not. */
typedef struct petra_log_kept {
  char line[512]; /* unchanged since petra_log_keep if there is no error */
  petra_log_sink sink;
  void *context; /* the ones to restore */
} petra_log_kept;
void petra_log_keep(petra_log_kept *kept);
void petra_log_keep_end(petra_log_kept *kept);

/* Ends petra_log_keep and the buffering of the calling thread's lane, so that the last line before the program exits is
 * written. */
void petra_log_keep_no_more(void);
