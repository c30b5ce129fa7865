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

/* Writes a line that a sink received to stderr, in the same form as without a sink. */
void petra_log_write(petra_log_level level, const char *line);

/* Between petra_log_keep and petra_log_keep_end no line is written. The last error is stored in `line`, and the caller
 * decides whether to report it. */
typedef struct petra_log_kept {
  char line[512]; /* unchanged since petra_log_keep if there is no error */
  petra_log_sink sink;
  void *context; /* the sink and context to restore */
} petra_log_kept;
void petra_log_keep(petra_log_kept *kept);
void petra_log_keep_end(petra_log_kept *kept);

/* Ends petra_log_keep and the buffering of the calling thread's lane, so that the last line before the program exits is
 * written. */
void petra_log_keep_no_more(void);

/* The context of the calling thread when several threads work side by side: its number, and buffers for effects that
 * other threads must not see yet. It is thread-local, like OpenMP's number of threads, and the only state of the
 * program that is not passed by argument. */

struct petra_journal;

enum { PETRA_LANE_LINE = 2048 };

typedef struct petra_lane {
  int number; /* from 0, which is also the number of every thread outside a pool */
  struct petra_journal
      *journal; /* journal of the current action (backend/tensor.h); NULL: changes take effect immediately */
  /* Buffer of PETRA_LANE_LINE bytes for the line of the first failure; NULL: it is written immediately. */
  char *failure;
} petra_lane;

/* Returns the lane of the calling thread, which the caller may change. */
petra_lane *petra_lane_here(void);

/* Handles libraries that end or stop the program when memory runs out: oneDNN, C++ behind a C interface, lets
 * std::bad_alloc escape, which would abort the program; HDF5 calls exit if it runs out of memory in certain functions;
 * OpenBLAS retries for ever. */

/* Call this once, at the start of main. `argv` is main's; the program may restart itself with it. From then on the
 * program ends with one line and exit status 1 if `new` in a C++ library runs out of memory, or if a library calls exit
 * with a status that petra does not use. */
void petra_last_words(char **argv);
