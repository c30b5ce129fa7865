/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/gantt.h"

#include "base/log.h"
#include "base/mem.h"
#include "run/simulation.h"

#include <string.h>

enum { LINE = 120, MOST_CELLS = 100000 };

/* A unit of time of one row: what runs then. */
typedef struct cell {
  petra_action action;
  bool busy, begins, update; /* update: an update ends at the beginning of this unit */
} cell;

typedef struct chart {
  petra_observer base;
  const petra_schedule *schedule;
  petra_program_options options;
  int engines;
  int32_t rows;
  int64_t units; /* of time; one more for updates at the very end */
  int width;     /* of a cell */
  cell *cells;   /* NULL while the time is only measured */
} chart;

static void label(const chart *c, const petra_action *action, char *text, size_t size) {
  if (c->options.chunks > 1)
    petra_action_print(action, text, size);
  else /* the row tells the stage */
    snprintf(text, size, "%c%lld", petra_action_letter(action->kind), (long long)action->microbatch);
}

static petra_status keep_row(petra_observer *base, const petra_trace_row *row) {
  chart *c = (chart *)base;
  char text[40];
  if (!c->cells) {
    label(c, &row->action, text, sizeof text);
    int width = (int)strlen(text);
    if (row->end_ns > row->start_ns && width > c->width)
      c->width = width;
    return PETRA_OK;
  }
  int32_t line = (petra_program_device(&c->options, row->action.stage) - 1) * c->engines;
  line += c->engines == 2 && row->action.kind != PETRA_ACTION_FORWARD;
  cell *cells = c->cells + line * (c->units + 1);
  if (row->action.kind == PETRA_ACTION_UPDATE)
    cells[row->end_ns].update = true;
  for (int64_t t = row->start_ns; t < row->end_ns; t++) {
    cells[t].action = row->action;
    cells[t].busy = true;
    cells[t].begins = t == row->start_ns;
  }
  return PETRA_OK;
}

static petra_status run_units(chart *c, bool recomputes) {
  static const petra_observer_ops ops = {.ended = keep_row};
  c->base.ops = &ops;
  return petra_simulate_units(c->schedule, &c->options, recomputes, c->engines, &c->base, &c->units);
}

static void print_line(const chart *c, int32_t row, int64_t from, int64_t to, FILE *out) {
  const cell *cells = c->cells + row * (c->units + 1);
  char line[2 * LINE] = "";
  int used = 0;
  if (c->engines == 1)
    used = snprintf(line, sizeof line, "%4d", row + 1);
  else /* F runs on the first engine, everything else on the second */
    used = snprintf(line, sizeof line, "%3d%c", row / c->engines + 1, row % c->engines ? 'B' : 'F');
  for (int64_t t = from; t < to; t++) {
    char text[40] = "";
    if (cells[t].begins)
      label(c, &cells[t].action, text, sizeof text);
    else if (cells[t].busy)
      memset(text, '.', (size_t)c->width); /* the array is zeroed */
    used += snprintf(line + used, sizeof line - (size_t)used, "%c%-*s", cells[t].update ? '|' : ' ', c->width, text);
  }
  if (to == c->units && cells[to].update)
    used += snprintf(line + used, sizeof line - (size_t)used, "|");
  while (used > 0 && line[used - 1] == ' ')
    line[--used] = 0;
  fprintf(out, "%s\n", line);
}

/* The number of every fifth unit above its column. */
static void print_times(const chart *c, int64_t from, int64_t to, FILE *out) {
  fprintf(out, "time");
  for (int64_t t = from, column = 0, at = 0; t < to; t++, at += c->width + 1)
    if (t % 5 == 0 && column <= at) {
      int written = fprintf(out, "%*s%lld", (int)(at - column + 1), "", (long long)t);
      column += written;
    }
  fputc('\n', out);
}

static petra_status draw(chart *c, FILE *out) {
  int64_t columns = (LINE - 6) / (c->width + 1);
  for (int64_t from = 0; from < c->units; from += columns) {
    int64_t to = from + columns < c->units ? from + columns : c->units;
    if (from > 0)
      fputc('\n', out);
    print_times(c, from, to, out);
    for (int32_t row = 0; row < c->rows; row++)
      print_line(c, row, from, to, out);
  }
  return ferror(out) ? petra_fail(PETRA_IO, "the chart could not be written") : PETRA_OK;
}

petra_status petra_gantt_check(int64_t rows, int64_t units) {
  if (units <= MOST_CELLS / rows)
    return PETRA_OK;
  return petra_fail(PETRA_USAGE,
                    "a chart of %lld rows and at least %lld units of time is too large for any screen; expected at "
                    "most %d cells, rows times units",
                    (long long)rows, (long long)units, MOST_CELLS);
}

/* A device is busy for at least a unit in each F, B and W. */
static int64_t least_units(const petra_schedule *s, int engines) {
  int64_t most = 0;
  for (int32_t d = 0; d < s->devices; d++) {
    int64_t passes = 0;
    for (int64_t i = s->first[d]; i < s->first[d + 1]; i++)
      passes += s->entries[i].action.kind <= PETRA_ACTION_WEIGHT_GRADIENT;
    most = passes > most ? passes : most;
  }
  return most / engines;
}

petra_status petra_gantt_print(const petra_schedule *schedule, bool recomputes, int engines, FILE *out) {
  chart c = {.schedule = schedule,
             .options = petra_schedule_options(schedule),
             .engines = engines,
             .rows = schedule->devices * engines,
             .width = 1};
  PETRA_TRY(petra_gantt_check(c.rows, least_units(schedule, engines)));
  PETRA_TRY(run_units(&c, recomputes));
  PETRA_TRY(petra_gantt_check(c.rows, c.units));
  PETRA_TRY(petra_allocate(&c.cells, (size_t)c.rows * (size_t)(c.units + 1), sizeof *c.cells));
  petra_status status = run_units(&c, recomputes);
  if (status == PETRA_OK)
    status = draw(&c, out);
  petra_free(c.cells);
  return status;
}
