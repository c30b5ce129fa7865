/* SPDX-License-Identifier: Apache-2.0 */
/* petra schedule: the orders of a method's actions, or the orders of a file, as text, as a chart or as JSON. The orders
 * of a file are checked first. */
#include "base/json.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/progress.h"
#include "base/release.h"
#include "cli/command.h"
#include "record/replay.h"
#include "run/folder.h"
#include "setup/plan.h"
#include "run/simulation.h"
#include "schedule/schedule.h"

#include <jansson.h>
#include <string.h>

/* --- a chart of a schedule under unit costs: a row per device (two with two engines), a column per unit of time --- */

/* Limits of a chart. The maximum number of characters in a line is the width of the terminal, within these limits. */
enum { LINE = 120 /* if there is no terminal */, SHORTEST_LINE = 40, LONGEST_LINE = 1000, MAX_CELLS = 100000 };

/* The action in a unit of time of one row. */
typedef struct cell {
  petra_action action;
  bool busy, begins, update; /* update: an update ends at the beginning of this unit */
  bool joined;               /* the action is in one step with the action before it */
} cell;

typedef struct chart {
  petra_observer base;
  const petra_schedule *schedule;
  petra_program_options options;
  int engines;
  int32_t rows;
  int64_t units; /* units of time, including one more for updates at the very end */
  int width;     /* width of a cell */
  int line;      /* maximum number of characters in a line */
  cell *cells;   /* NULL while only the time is measured */
} chart;

static void label(const chart *c, const petra_action *action, char *text, size_t size) {
  if (c->options.stages > c->schedule->devices)
    petra_action_print(action, text, size);
  else /* the row shows the stage */
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
  if (row->start_ns < row->end_ns && cells[row->start_ns].busy) { /* the other actions of a step; W belongs to its B */
    cell *second = &cells[row->start_ns + 1];
    if (row->action.kind != PETRA_ACTION_WEIGHT_GRADIENT && row->start_ns + 1 < row->end_ns)
      *second = (cell){.action = row->action, .busy = true, .begins = true, .joined = true, .update = second->update};
    return PETRA_OK;
  }
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
  char line[2 * LONGEST_LINE] = "";
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
    used += snprintf(line + used, sizeof line - (size_t)used, "%c%-*s",
                     cells[t].update   ? '|'
                     : cells[t].joined ? '+'
                                       : ' ',
                     c->width, text);
  }
  if (to == c->units && cells[to].update)
    used += snprintf(line + used, sizeof line - (size_t)used, "|");
  while (used > 0 && line[used - 1] == ' ')
    line[--used] = 0;
  fprintf(out, "%s\n", line);
}

/* Prints the number of every fifth unit above its column. */
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
  int64_t columns = (c->line - 6) / (c->width + 1);
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

/* Returns PETRA_USAGE, logged, for a chart that is too large for a screen: more than 100,000 cells. */
static petra_status gantt_check(int64_t rows, int64_t units) {
  if (units <= MAX_CELLS / rows)
    return PETRA_OK;
  return petra_fail(PETRA_USAGE,
                    "a chart of %lld rows and at least %lld units of time is too large for any screen; expected at "
                    "most %d cells, rows times units",
                    (long long)rows, (long long)units, MAX_CELLS);
}

/* Returns a lower bound of the units of the chart: a device is busy for at least one unit in each F, B and W. */
static int64_t least_units(const petra_schedule *s, int engines) {
  int64_t maximum = 0;
  for (int32_t d = 0; d < s->devices; d++) {
    int64_t passes = 0;
    for (int64_t i = s->first[d]; i < s->first[d + 1]; i++)
      passes += s->entries[i].action.kind <= PETRA_ACTION_WEIGHT_GRADIENT;
    maximum = passes > maximum ? passes : maximum;
  }
  return maximum / engines;
}

static int line_width(FILE *out) {
  const int width = petra_terminal_width(out, LINE);
  return width < SHORTEST_LINE ? SHORTEST_LINE : width > LONGEST_LINE ? LONGEST_LINE : width;
}

/* Runs the schedule on the virtual executor and draws it, in pieces as wide as the terminal. Refuses charts as
 * gantt_check does; it does so before the run if the number of actions is sufficient to decide. */
static petra_status gantt_print(const petra_schedule *schedule, bool recomputes, int engines, FILE *out) {
  chart c = {.schedule = schedule,
             .options = petra_schedule_options(schedule),
             .engines = engines,
             .rows = schedule->devices * engines,
             .width = 1,
             .line = line_width(out)};
  PETRA_FREED cell *cells = NULL;
  PETRA_TRY(gantt_check(c.rows, least_units(schedule, engines)));
  PETRA_TRY(run_units(&c, recomputes));
  PETRA_TRY(gantt_check(c.rows, c.units));
  PETRA_TRY(petra_allocate(&cells, (size_t)c.rows * (size_t)(c.units + 1), sizeof *cells));
  c.cells = cells;
  PETRA_TRY(run_units(&c, recomputes));
  return draw(&c, out);
}

/* --- the JSON of a schedule and of the plan of a training, written as it is computed, because a million actions do not
 * fit into an object of jansson --- */

static petra_status put_member(const char *key, json_t *value, FILE *out) {
  fprintf(out, "\"%s\": ", key);
  PETRA_TRY(petra_json_put_new(value, out));
  fputs(",\n", out);
  return PETRA_OK;
}

static petra_status put_integer(const char *key, int64_t value, FILE *out) {
  return put_member(key, json_integer(value), out);
}

static void put_device(const petra_schedule *schedule, int32_t device, FILE *out) {
  const char *between = "\"";
  char text[40];
  for (int64_t i = schedule->first[device]; i < schedule->first[device + 1]; i++) {
    petra_action_print(&schedule->entries[i].action, text, sizeof text);
    fprintf(out, "%s%s", between, text);
    between = schedule->entries[i].joined ? "+" : "\", \"";
  }
  if (schedule->first[device + 1] > schedule->first[device])
    fputc('"', out);
}

static void put_schedule(const petra_schedule *schedule, FILE *out) {
  fputs("\"devices\": [\n", out);
  for (int32_t d = 0; d < schedule->devices; d++) {
    fputc('[', out);
    put_device(schedule, d, out);
    fputs(d + 1 < schedule->devices ? "],\n" : "]\n]", out);
  }
}

/* Prints the actions of each device in the order in which they start. */
static petra_status put_rows_by_device(const petra_replay *replay, FILE *out) {
  const petra_program_options *program = &replay->plan.program;
  const int32_t devices = petra_program_devices(program);
  PETRA_FREED int64_t *place = NULL, *rows = NULL;
  PETRA_TRY(petra_allocate(&place, (size_t)devices + 1, sizeof *place));
  PETRA_TRY(petra_allocate_raw(&rows, (size_t)replay->count, sizeof *rows));
  for (int64_t i = 0; i < replay->count; i++)
    place[petra_program_device(program, replay->rows[i].action.stage)]++;
  for (int32_t d = 1; d <= devices; d++)
    place[d] += place[d - 1]; /* place[d - 1]: the next position of device d */
  for (int64_t i = 0; i < replay->count; i++)
    rows[place[petra_program_device(program, replay->rows[i].action.stage) - 1]++] = i;
  fputs("\"devices\": [\n", out);
  for (int32_t d = 0; d < devices; d++) {
    fputc('[', out);
    for (int64_t i = d ? place[d - 1] : 0; i < place[d]; i++) {
      char text[40];
      petra_action_print(&replay->rows[rows[i]].action, text, sizeof text);
      fprintf(out, "%s\"%s\"", i == (d ? place[d - 1] : 0) ? "" : ", ", text);
    }
    fputs(d + 1 < devices ? "],\n" : "]\n]", out);
  }
  return PETRA_OK;
}

/* Prints the members of a plan that also exist for a schedule without a config. */
static petra_status print_schedule_json(const petra_schedule *schedule, FILE *out) {
  fputs("{\n", out);
  PETRA_TRY(put_integer("stages", schedule->stages, out));
  PETRA_TRY(put_integer("microbatches", schedule->microbatches, out));
  put_schedule(schedule, out);
  fputs("\n}\n", out);
  return petra_json_end(out);
}

static json_t *method_json(const petra_method *method) {
  return json_pack("{s:s, s:s, s:s, s:s, s:s, s:s, s:s, s:b, s:I}", "name", method->name, "program",
                   method->program->name, "forward_weights", petra_weights_name(method->forward_weights),
                   "backward_weights", petra_weights_name(method->backward_weights), "invert_weights",
                   petra_weights_name(method->invert_weights), "keep", petra_keep_name(method->keep), "head",
                   method->split_head ? "split" : "fused", "split_backward", method->program->split_backward,
                   "sync_period", (json_int_t)method->sync_period);
}

static petra_status put_texts(const petra_replay *replay, FILE *out) {
  PETRA_FREED char *config = NULL;
  size_t size;
  PETRA_TRY(put_member("format", json_string("petra-plan"), out));
  PETRA_TRY(put_integer("version", PETRA_SCHEMA_SCHEDULE, out));
  PETRA_TRY(put_member("petra_version", json_string(petra_version()), out));
  PETRA_TRY(petra_folder_expand_config(replay->config, &config, &size));
  PETRA_TRY(put_member("config", petra_json_string(config), out));
  return put_member("method", method_json(&replay->plan.method), out);
}

static petra_status put_sizes(const petra_replay *replay, FILE *out) {
  const petra_program_options *program = &replay->plan.program;
  PETRA_TRY(put_integer("stages", program->stages, out));
  PETRA_TRY(put_integer("microbatches", program->microbatches, out));
  PETRA_TRY(put_integer("accumulate", program->accumulate, out));
  PETRA_TRY(put_integer("epoch_microbatches", program->batches, out));
  PETRA_TRY(put_integer("warmup_microbatches", program->warmup, out));
  return put_member("drain", json_boolean(replay->returned == program->microbatches), out);
}

static json_t *delay_json(double delay) {
  return delay < 0 ? json_null() : json_real(delay);
}

static petra_status put_stages(const petra_replay *replay, FILE *out) {
  fputs("\"stage\": [\n", out);
  for (int32_t stage = 1; stage <= replay->plan.stages; stage++) {
    const petra_stage_delay delay = petra_replay_delay(replay, stage);
    PETRA_TRY(petra_json_put_new(json_pack("{s:i, s:i, s:o, s:o, s:o}", "stage", stage, "device",
                                           petra_program_device(&replay->plan.program, stage), "delay_microbatches",
                                           delay.microbatches < 0 ? json_null() : json_integer(delay.microbatches),
                                           "delay_updates", delay_json(delay.updates), "descent_updates",
                                           delay_json(delay.descent)),
                                 out));
    fputs(stage < replay->plan.stages ? ",\n" : "\n],\n", out);
  }
  return PETRA_OK;
}

/* Prints the versions of the end-to-end networks of a microbatch: a list per stage. */
static void put_references(const petra_replay *replay, int64_t window, int64_t slot, FILE *out) {
  const int32_t stages = replay->plan.stages;
  for (int32_t stage = 1; stage <= stages; stage++)
    for (int32_t of = 1; of <= stages; of++)
      fprintf(out, "%s%lld%s",
              of > 1      ? ", "
              : stage > 1 ? "], ["
                          : "[[",
              (long long)petra_replay_reference(replay, window, slot, stage, of),
              of == stages && stage == stages ? "]]" : "");
}

static void put_probes(const petra_replay *replay, FILE *out) {
  const int64_t slots = replay->plan.program.accumulate;
  fputs("\"probes\": [", out);
  for (int64_t window = 0; window < replay->window_count; window++) {
    fprintf(out, "%s\n{\"microbatch\": %lld, \"microbatches\": %lld, \"end_to_end\": [", window ? "," : "",
            (long long)replay->windows[window], (long long)slots);
    for (int64_t slot = 0; slot < slots; slot++) {
      fputs(slot ? ", " : "", out);
      put_references(replay, window, slot, out);
    }
    fputs("]}", out);
  }
  fputs(replay->window_count ? "\n],\n" : "],\n", out);
}

/* Prints a number, or null if it is negative. */
static void put_number(int64_t number, FILE *out) {
  if (number < 0)
    fputs(", null", out);
  else
    fprintf(out, ", %lld", (long long)number);
}

static void put_row(const petra_replay *replay, int64_t at, FILE *out) {
  const petra_trace_row *row = &replay->rows[at];
  const petra_action *action = &row->action;
  const bool updates = action->kind == PETRA_ACTION_UPDATE;
  fprintf(out, "%s\n[\"%c\", %d, %lld, %d, %lld, %lld", at ? "," : "", petra_action_letter(action->kind), action->stage,
          (long long)action->microbatch, petra_program_device(&replay->plan.program, action->stage),
          (long long)row->start_ns, (long long)row->end_ns);
  put_number(updates                                        ? row->result.version_written
             : action->kind == PETRA_ACTION_WEIGHT_GRADIENT ? -1
                                                            : row->result.version_read,
             out);
  put_number(replay->inverse[at], out);
  put_number(replay->kept_until[at], out);
  if (updates)
    fprintf(out, ", %.17g", petra_replay_rate(replay, action));
  else
    fputs(", null", out);
  put_number(petra_replay_epoch(replay, action), out);
  fputc(']', out);
}

/* Prints the plan of a training (docs/plan-format.md). `schedule` has the orders of its devices; NULL: the program has
 * none, and a device does its actions in the order in which they start. */
static petra_status print_plan_json(const petra_replay *replay, const petra_schedule *schedule, FILE *out) {
  fputs("{\n", out);
  PETRA_TRY(put_texts(replay, out));
  PETRA_TRY(put_sizes(replay, out));
  PETRA_TRY(put_stages(replay, out));
  put_probes(replay, out);
  if (schedule)
    put_schedule(schedule, out);
  else
    PETRA_TRY(put_rows_by_device(replay, out));
  fputs(",\n\"columns\": [\"kind\", \"stage\", \"microbatch\", \"device\", \"start_ns\", \"end_ns\", \"weights\", "
        "\"inverse_weights\", \"kept_until\", \"learning_rate\", \"epoch\"],\n\"actions\": [",
        out);
  for (int64_t i = 0; i < replay->count; i++)
    put_row(replay, i, out);
  fputs("\n]\n}\n", out);
  return petra_json_end(out);
}

/* --- the command --- */

/* The number of times that the pipeline is filled if the config does not give the number of microbatches. A chart shows
 * the first microbatches that come back; an order in text is long enough for `petra simulate` to find a steady state in
 * it. */
enum { CHART_FILLINGS = 1, TEXT_FILLINGS = 2 };

static bool writes_csv(const petra_arguments *arguments) {
  return arguments->format && strcmp(arguments->format, "torch-csv") == 0;
}

/* The schedule to print. */
typedef struct printed {
  petra_schedule_text text; /* text of the file */
  petra_schedule *schedule;
  bool recomputes;
  int engines;
} printed;

static void printed_fini(printed *p) {
  petra_free(p->text.text);
  petra_schedule_destroy(p->schedule);
}

/* Limits the run to one flush, because the CSV of PyTorch has the order of one flush. */
static petra_status one_flush(const petra_config *config, petra_plan *plan) {
  const bool local = plan->method.program->local;
  if (local || plan->method.program->moment != PETRA_MOMENT_WINDOW)
    return petra_config_fail(config, "method.name",
                             "%s %s, which the CSV of --format torch-csv cannot express; expected a synchronous method",
                             plan->method.name, local ? "has a loss at every stage" : "updates between passes");
  if (!plan->schedule)
    plan->program.microbatches = plan->program.accumulate;
  return PETRA_OK;
}

/* Gets the orders of the config's method. */
static petra_status from_config(const petra_arguments *arguments, printed *p) {
  const petra_config_text source = {arguments->input, p->text.text, p->text.size};
  PETRA_DESTROYED(petra_config_destroy) petra_config *config = NULL;
  PETRA_FINISHED(petra_plan_fini) petra_plan plan = {0};
  PETRA_TRY(petra_config_load_text(&source, arguments->sets, arguments->set_count, &config));
  PETRA_TRY(petra_plan_simulated(&plan, config, arguments->gantt ? CHART_FILLINGS : TEXT_FILLINGS));
  if (writes_csv(arguments))
    PETRA_TRY(one_flush(config, &plan));
  p->recomputes = plan.method.recomputes;
  p->engines = (int)config->cluster.engines;
  if (arguments->gantt) /* every microbatch takes at least one unit of time */
    PETRA_TRY(gantt_check((int64_t)petra_program_devices(&plan.program) * p->engines, plan.program.microbatches));
  return petra_schedule_record(plan.method.program, &plan.program, &p->schedule);
}

/* Reads and checks a schedule from a file. */
static petra_status from_schedule(const petra_arguments *arguments, printed *p) {
  const char *name = petra_schedule_file_name(arguments->input);
  if (arguments->set_count)
    return petra_fail(PETRA_USAGE, "%s: a schedule has no keys for --set", name);
  PETRA_TRY(petra_schedule_parse(name, p->text.text, p->text.size, &p->schedule));
  PETRA_TRY(petra_schedule_check(p->schedule, name));
  if (!p->schedule->flush)
    return PETRA_OK;
  PETRA_FINISHED(printed_fini) printed flush = {.schedule = p->schedule}; /* a run adds the updates */
  const petra_program_options options = petra_schedule_options(flush.schedule);
  p->schedule = NULL;
  return petra_schedule_record(&flush.schedule->program, &options, &p->schedule);
}

/* Warns of an order that ends before any microbatch returns to stage 1, because every figure would be wrong. */
static void warn_without_backward(const petra_schedule *schedule) {
  int64_t microbatches = 0;
  const int64_t *first = &schedule->first[schedule->device_of[0] - 1];
  for (int64_t i = first[0]; i < first[1]; i++) {
    const petra_action *action = &schedule->entries[i].action;
    if (action->stage == 1 && action->kind == PETRA_ACTION_BACKWARD)
      return;
    microbatches += action->stage == 1 && action->kind == PETRA_ACTION_FORWARD;
  }
  petra_log(PETRA_LOG_WARNING,
            "none of %lld microbatches returns to stage 1 before the schedule ends; expected a larger "
            "run.max_microbatches, or run.drain: true",
            (long long)microbatches);
}

/* Prints the plan of a training. If the program has no orders, the plan has no order for its devices. */
static petra_status print_plan(const petra_arguments *arguments, printed *p) {
  const petra_config_text source = {arguments->input, p->text.text, p->text.size};
  PETRA_DESTROYED(petra_config_destroy) petra_config *config = NULL;
  PETRA_FINISHED(petra_replay_fini) petra_replay replay = {0};
  PETRA_TRY(petra_config_load_text(&source, arguments->sets, arguments->set_count, &config));
  PETRA_TRY(petra_replay_init(&replay, config));
  const petra_program_ops *program = replay.plan.method.program;
  if (!program->arrival) {
    PETRA_TRY(petra_schedule_record(program, &replay.plan.program, &p->schedule));
    warn_without_backward(p->schedule);
  }
  return print_plan_json(&replay, p->schedule, stdout);
}

/* Prints a schedule as the options say. */
static petra_status print_schedule(const petra_arguments *arguments, const printed *p) {
  warn_without_backward(p->schedule);
  if (arguments->json)
    return print_schedule_json(p->schedule, stdout);
  if (arguments->gantt)
    return gantt_print(p->schedule, p->recomputes, p->engines, stdout);
  return writes_csv(arguments) ? petra_torch_csv_print(p->schedule, stdout) : petra_schedule_print(p->schedule, stdout);
}

static petra_status run(const petra_arguments *arguments) {
  PETRA_FINISHED(printed_fini) printed p = {.engines = 1};
  if (!arguments->input)
    return petra_fail(
        PETRA_USAGE, "petra schedule needs a config or a schedule ('-' for standard input); see petra schedule --help");
  if (arguments->format && !writes_csv(arguments) && strcmp(arguments->format, "text") != 0)
    return petra_fail(PETRA_USAGE, "--format: unknown format '%s'; expected text or torch-csv", arguments->format);
  if ((arguments->format != NULL) + arguments->gantt + arguments->json > 1)
    return petra_fail(PETRA_USAGE, "--format, --gantt and --json: expected one of them");
  PETRA_TRY(petra_schedule_file_peek(arguments->input, &p.text));
  if (arguments->json && !p.text.is_schedule)
    return print_plan(arguments, &p);
  PETRA_TRY(p.text.is_schedule ? from_schedule(arguments, &p) : from_config(arguments, &p));
  return print_schedule(arguments, &p);
}

const petra_command petra_command_schedule = {
    .name = "schedule",
    .summary = "prints the schedule of a method, or checks one from a file",
    .arguments = "CONFIG.yaml | FILE.schedule | FILE.csv [--format text|torch-csv | --gantt | --json]",
    .help =
        "Prints the actions of each device in order, one line per device. The actions are:\n"
        "  2F0    forward of microbatch 0 at stage 2\n"
        "  2B0    backward\n"
        "  2W0    weight gradient, if it is separate from the backward\n"
        "  2U0    update; microbatch 0 is the last one that it covers\n"
        "  2E0    the evaluation uses the weights at this point\n"
        "  +      joins actions to one step: 1F3+4B0 starts when both can start\n"
        "  |      end of a round: the next round begins after all actions before it\n"
        "  ||     end of a round of the whole network: actions after the n-th || of a device wait until every\n"
        "         device has completed the actions before its own n-th ||\n"
        "The schedule has run.max_microbatches microbatches. If that key is 0, it has as many as fill the\n"
        "pipeline twice (--gantt: once), plus 8.\n"
        "\n"
        "If the first line of the file or pipe begins with '1:', it is a schedule in this form. If it begins with\n"
        "an action such as 0F0, it is the CSV of PyTorch's pipelining runtime. petra checks it, and prints it if\n"
        "it can run; otherwise the error names the first wrong action. To run such a file, set method.schedule.\n"
        "\n"
        "--gantt draws the actions over time with unit costs: F takes 1, B takes 2 (1 if W is separate; W takes\n"
        "1), and reconstruction or recomputation takes 1 more. A | marks the end of an update. A line is as wide\n"
        "as the terminal, or as COLUMNS in the environment says; elsewhere it has at most 120 characters.\n"
        "--json prints the plan of a training of the config: its actions in one order, the versions of the weights\n"
        "that they read, learning rates and the windows of the probes, for another program that performs them\n"
        "(docs/plan-format.md). It is as long as the training: run.epochs, run.max_microbatches, data.limit. With\n"
        "cluster.stages there is no model, and data.limit is the number of samples of an epoch. For a schedule from\n"
        "a file it prints only {\"stages\": ..., \"microbatches\": ..., \"devices\": [[\"1F0\", ...], ...]}.",
    .takes_config = true,
    .options =
        (const petra_option[]){
            PETRA_OPTION("format", "text|torch-csv", format,
                         "text (the default); torch-csv: one flush as the CSV of PyTorch's pipelining runtime, for a "
                         "synchronous method"),
            PETRA_OPTION("gantt", NULL, gantt,
                         "draws a chart over time, with at most 100,000 cells (rows times units of time)"),
            {0}},
    .run = run};
