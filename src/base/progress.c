/* SPDX-License-Identifier: Apache-2.0 */
#include "base/progress.h"

#include "base/clock.h"
#include "base/utf8.h"

#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

static const int64_t terminal_interval_ns = 100 * INT64_C(1000000);
static const int64_t lines_interval_ns = 10 * INT64_C(1000000000);

static int64_t monotonic_clock(void *context) {
  (void)context;
  return petra_clock_ns();
}

int petra_terminal_width(FILE *stream, int otherwise) {
  const char *columns = getenv("COLUMNS");
  const long given = columns ? strtol(columns, NULL, 10) : 0;
  struct winsize window;
  if (given > 0 && given <= INT16_MAX)
    return (int)given;
  return ioctl(fileno(stream), TIOCGWINSZ, &window) == 0 && window.ws_col > 0 ? window.ws_col : otherwise;
}

void petra_progress_init(petra_progress *progress, FILE *stream, petra_progress_style style) {
  if (style == PETRA_PROGRESS_AUTO)
    style = isatty(fileno(stream)) ? PETRA_PROGRESS_TERMINAL : PETRA_PROGRESS_LINES;
  *progress = (petra_progress){.stream = stream, .style = style, .clock = monotonic_clock, .width = 80};
  if (style == PETRA_PROGRESS_TERMINAL)
    progress->width = petra_terminal_width(stream, progress->width);
}

/* Formats ", 1:02:03 left" from the mean speed so far; "" if there is none yet. */
static void format_left(const petra_progress *progress, int64_t done, int64_t total, char *out, size_t size) {
  out[0] = 0;
  int64_t step = done - progress->start_done;
  if (step <= 0 || total <= done)
    return;
  double elapsed_s = (double)(progress->clock(progress->clock_context) - progress->start_ns) * 1e-9;
  double left_s = elapsed_s / (double)step * (double)(total - done);
  if (left_s < 0 || left_s > 1e9) /* some 30 years: no forecast */
    return;
  long s = (long)(left_s + 0.5);
  snprintf(out, size, ", %ld:%02ld:%02ld left", s / 3600, s / 60 % 60, s % 60);
}

static void format_line(petra_progress *progress, int64_t done, int64_t total, const char *text) {
  char left[48], share[64] = "";
  format_left(progress, done, total, left, sizeof left);
  if (total > 0)
    snprintf(share, sizeof share, "/%lld %3d%%", (long long)total, (int)(100.0 * (double)done / (double)total));
  char line[sizeof progress->line];
  snprintf(line, sizeof line, "%lld%s %s%s", (long long)done, share, text, left);
  petra_utf8_show(progress->line, sizeof progress->line, line, strlen(line));
}

/* Cuts the line before the terminal's width, at the start of a UTF-8 character: a line as wide as the terminal would
 * wrap, and could then not be rewritten. */
static void write_in_place(petra_progress *progress) {
  int length = (int)strlen(progress->line);
  if (length > progress->width - 1) {
    length = progress->width - 1;
    while (length > 0 && ((unsigned char)progress->line[length] & 0xc0) == 0x80)
      length--;
  }
  fprintf(progress->stream, "\r%.*s\033[K", length, progress->line);
  progress->visible = true;
}

static void show(petra_progress *progress, int64_t now_ns) {
  if (progress->style == PETRA_PROGRESS_TERMINAL)
    write_in_place(progress);
  else
    fprintf(progress->stream, "%s\n", progress->line);
  fflush(progress->stream);
  progress->shown_ns = now_ns;
  progress->pending = false;
}

void petra_progress_update(petra_progress *progress, int64_t done, int64_t total, const char *text) {
  if (progress->style == PETRA_PROGRESS_QUIET)
    return;
  bool first = !progress->started;
  int64_t now_ns = progress->clock(progress->clock_context);
  if (first) {
    progress->started = true;
    progress->start_ns = now_ns;
    progress->start_done = done;
  }
  int64_t interval_ns = progress->style == PETRA_PROGRESS_TERMINAL ? terminal_interval_ns : lines_interval_ns;
  format_line(progress, done, total, text);
  progress->pending = true;
  if (first || now_ns - progress->shown_ns >= interval_ns)
    show(progress, now_ns);
}

void petra_progress_hide(petra_progress *progress) {
  if (!progress->visible)
    return;
  fputs("\r\033[K", progress->stream);
  fflush(progress->stream);
  progress->visible = false;
  progress->shown_ns -= terminal_interval_ns; /* the next update may show its line immediately */
}

void petra_progress_finish(petra_progress *progress) {
  petra_progress_hide(progress);
  if (progress->style == PETRA_PROGRESS_LINES && progress->pending)
    show(progress, progress->shown_ns);
  progress->pending = false;
}
