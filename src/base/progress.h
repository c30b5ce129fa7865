/* SPDX-License-Identifier: Apache-2.0 */
/* Shows the progress of a run on stderr: on a terminal one line that is rewritten in place and removed at the end,
 * otherwise plain lines now and then. Failures to write are ignored: they must not end a run. */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

typedef enum petra_progress_style {
  PETRA_PROGRESS_AUTO, /* TERMINAL if the stream is one, else LINES */
  PETRA_PROGRESS_TERMINAL,
  PETRA_PROGRESS_LINES,
  PETRA_PROGRESS_QUIET
} petra_progress_style;

/* Returns the nanoseconds of a clock that never goes back; tests use another clock. */
typedef int64_t (*petra_progress_clock)(void *context);

enum { PETRA_PROGRESS_BYTES = 256 };

typedef struct petra_progress {
  FILE *stream;
  petra_progress_style style; /* never AUTO */
  petra_progress_clock clock;
  void *clock_context;
  int width;    /* columns of the terminal */
  bool started; /* update was called */
  bool visible; /* the terminal shows our line */
  bool pending; /* `line` has not been written */
  int64_t start_ns, start_done;
  int64_t shown_ns; /* when a line was last written */
  char line[PETRA_PROGRESS_BYTES];
} petra_progress;

/* Returns the number of columns of the terminal that `stream` writes to, or `otherwise` if it is no terminal. The
 * environment variable COLUMNS overrides both. */
int petra_terminal_width(FILE *stream, int otherwise);

/* Initialises the progress; there is nothing to release. End it with petra_progress_finish. */
void petra_progress_init(petra_progress *progress, FILE *stream, petra_progress_style style);

/* Reports that `done` of `total` (0: unknown) units are done. `text` has further facts ("epoch 3, loss 1.2"). Cheap: a
 * line is written only if the last one is old enough (0.1 s on a terminal, 10 s otherwise). */
void petra_progress_update(petra_progress *progress, int64_t done, int64_t total, const char *text);

/* Removes the line from a terminal before something else is written there; the next update restores it. */
void petra_progress_hide(petra_progress *progress);

/* Ends the progress: removes the line from a terminal; otherwise writes the last line if it is pending. */
void petra_progress_finish(petra_progress *progress);
