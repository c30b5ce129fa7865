/* SPDX-License-Identifier: Apache-2.0 */
/* Files with a schedule, and method.schedule: the order in a file replaces the order of a program. */
#include "setup/plan.h"

#include "base/log.h"
#include "base/mem.h"
#include "base/seal.h"
#include "base/text.h"
#include "io/recorded_run.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* A config has at most 2^20 bytes (config/document.c). With one byte more, its reader can report that it is too
 * long. */
enum { CONFIG_BYTES = (1 << 20) + 1, SCHEDULE_BYTES = 1 << 30, LEAST_ROOM = 4096 };

const char *petra_schedule_file_name(const char *path) {
  return strcmp(path, "-") == 0 ? "standard input" : path;
}

/* Fills the buffer up to `most` bytes. */
static petra_status read_up_to(FILE *file, const char *name, size_t maximum, petra_schedule_text *out) {
  int64_t room = (int64_t)out->size;
  while (out->size < maximum) {
    PETRA_TRY(petra_array_reserve(&out->text, &room, room + LEAST_ROOM, 1));
    errno = 0;
    size_t wanted = ((size_t)room < maximum ? (size_t)room : maximum) - out->size,
           found = fread(out->text + out->size, 1, wanted, file);
    out->size += found;
    if (ferror(file))
      return petra_fail(PETRA_IO, "%s: cannot be read: %s; expected a config or a schedule", name, strerror(errno));
    if (found < wanted)
      break;
  }
  return PETRA_OK;
}

static petra_status read_stream(FILE *file, const char *name, petra_schedule_text *out) {
  PETRA_TRY(read_up_to(file, name, CONFIG_BYTES, out));
  out->is_schedule = petra_schedule_recognise(out->text, out->size);
  if (!out->is_schedule || out->size < CONFIG_BYTES)
    return PETRA_OK;
  PETRA_TRY(read_up_to(file, name, SCHEDULE_BYTES, out));
  return out->size < SCHEDULE_BYTES
             ? PETRA_OK
             : petra_fail(PETRA_SCHEDULE, "%s: a schedule of %d bytes or more; expected fewer", name, SCHEDULE_BYTES);
}

static int by_stage(const void *a, const void *b) {
  const petra_recorded_action *x = *(const petra_recorded_action *const *)a,
                              *y = *(const petra_recorded_action *const *)b;
  return x->stage != y->stage ? (x->stage > y->stage) - (x->stage < y->stage) : (x > y) - (x < y);
}

/* The actions of a recorded run. */
typedef struct recorded {
  const char *path;
  petra_recorded_action *rows;
  int64_t count;
} recorded;

/* Prints the actions of every stage in the order in which they started. */
static petra_status print_actions(const void *context, FILE *out) {
  const recorded *run = context;
  const petra_recorded_action *rows = run->rows;
  const int64_t count = run->count;
  PETRA_FREED const petra_recorded_action **order = NULL;
  int64_t stages = 0, stage = 0;
  for (int64_t i = 0; i < count; i++) {
    stages = rows[i].stage > stages ? rows[i].stage : stages;
    const char *expected = petra_action_check(rows[i].stage, rows[i].kind, rows[i].microbatch);
    if (expected)
      return petra_fail(PETRA_DATA, "%s: /trace/actions: row %lld is not an action; expected %s", run->path,
                        (long long)i, expected);
  }
  if (count == 0 || stages > count)
    return petra_fail(PETRA_DATA,
                      "%s: /trace/actions contains no schedule; expected the log of a run with run.trace_actions: true",
                      run->path);
  PETRA_TRY(petra_allocate(&order, (size_t)count, sizeof *order));
  for (int64_t i = 0; i < count; i++)
    order[i] = &rows[i];
  qsort(order, (size_t)count, sizeof *order, by_stage);
  for (int64_t i = 0; i < count; i++) {
    const petra_action action = {(int32_t)order[i]->stage, (petra_action_kind)order[i]->kind, order[i]->microbatch};
    char text[40];
    for (; stage < action.stage; stage++)
      fprintf(out, "%s%lld:", stage ? "\n" : "", (long long)stage + 1);
    petra_action_print(&action, text, sizeof text);
    fprintf(out, " %s", text);
  }
  fprintf(out, "\n");
  return PETRA_OK;
}

/* Replaces the text of a log by the schedule that it contains. */
static petra_status read_log(const char *path, petra_schedule_text *out) {
  recorded run = {.path = path};
  char *text;
  size_t size;
  PETRA_TRY(petra_recorded_order_read(path, &run.rows, &run.count));
  petra_status status = petra_text_print(print_actions, &run, "the schedule of a log", &text, &size);
  petra_free(run.rows);
  PETRA_TRY(status);
  petra_free(out->text);
  *out = (petra_schedule_text){text, size, true};
  return PETRA_OK;
}

petra_status petra_schedule_file_peek(const char *path, petra_schedule_text *out) {
  *out = (petra_schedule_text){0};
  FILE *file = strcmp(path, "-") == 0 ? stdin : fopen(path, "rb");
  if (!file)
    return PETRA_OK;
  petra_status status = read_stream(file, petra_schedule_file_name(path), out);
  if (file != stdin)
    fclose(file);
  if (status == PETRA_OK && file != stdin && petra_seal_begins_hdf5(out->text, out->size))
    status = read_log(path, out);
  if (status != PETRA_OK) {
    petra_free(out->text);
    *out = (petra_schedule_text){0};
  }
  return status;
}

/* Reads and checks a schedule. PETRA_IO; PETRA_SCHEDULE, with the line or the action. */
static petra_status read_schedule(const char *path, petra_schedule **out) {
  const char *name = petra_schedule_file_name(path);
  petra_schedule_text file;
  errno = 0;
  PETRA_TRY(petra_schedule_file_peek(path, &file));
  PETRA_FREED char *text = file.text;
  if (!text)
    return petra_fail(PETRA_IO, "%s: cannot be read: %s; expected a schedule", name, strerror(errno));
  PETRA_TRY(petra_schedule_parse(name, text, file.size, out));
  return petra_schedule_check(*out, name);
}

/* --- method.schedule: the order in a file replaces the program of the method; the weights and the costs of the method
 * stay --- */

/* Checks the properties that are required of a file with one flush and of a file with a whole run. */
static petra_status check_stages(const petra_config *config, const petra_schedule *s, int32_t stages) {
  const char *path = config->method.schedule;
  if (s->stages != stages)
    return petra_config_fail(config, "method.schedule",
                             "%s: %d stages on %d devices; expected the %d stages of this config", path, s->stages,
                             s->devices, stages);
  if (strcmp(config->method.program, "preset") != 0)
    return petra_config_fail(config, "method.program",
                             "%s with method.schedule: %s, whose order replaces that of a program; expected preset",
                             config->method.program, path);
  if (config->method.chunks > 0 && config->method.chunks * s->devices != s->stages)
    return petra_config_fail(config, "method.chunks", "%lld, but %s has %d stages on %d devices; expected 0",
                             (long long)config->method.chunks, path, s->stages, s->devices);
  return PETRA_OK;
}

static petra_status check_length(const petra_config *config, const petra_schedule *s) {
  const char *path = config->method.schedule;
  if (s->flush && config->method.accumulate != s->microbatches)
    return petra_config_fail(
        config, "method.accumulate", "%lld, but a flush of %s has %lld microbatches; expected %lld",
        (long long)config->method.accumulate, path, (long long)s->microbatches, (long long)s->microbatches);
  if (s->flush)
    return PETRA_OK;
  if (config->run.max_microbatches > 0 && config->run.max_microbatches != s->microbatches)
    return petra_config_fail(config, "run.max_microbatches", "%lld, but %s has %lld; expected 0 or the same",
                             (long long)config->run.max_microbatches, path, (long long)s->microbatches);
  if (config->run.drain != PETRA_DRAIN_AUTO)
    return petra_config_fail(config, "run.drain",
                             "with method.schedule, whose order determines the end; expected auto");
  return PETRA_OK;
}

/* Determines whether the last stage's F is a separate action, if the file contains actions of the last stage. */
static petra_status settle_head(const petra_config *config, const petra_method *method, petra_schedule *s) {
  bool shown = false;
  const int64_t *first = &s->first[s->device_of[s->stages - 1] - 1];
  for (int64_t i = first[0]; i < first[1] && !shown; i++)
    shown = s->entries[i].action.stage == s->stages &&
            (s->entries[i].action.kind == PETRA_ACTION_FORWARD || s->entries[i].action.kind == PETRA_ACTION_BACKWARD);
  if (!shown)
    s->split_head = method->split_head;
  else if (config->method.head != PETRA_HEAD_PRESET && method->split_head != s->split_head)
    return petra_config_fail(config, "method.head", "%s, but stage %d of %s has %s; expected preset or %s",
                             method->split_head ? "split" : "fused", s->stages, config->method.schedule,
                             s->split_head ? "F of its own" : "no F", s->split_head ? "split" : "fused");
  return PETRA_OK;
}

petra_status petra_plan_read_order(petra_plan *plan) {
  const petra_config *config = plan->config;
  PETRA_DESTROYED(petra_schedule_destroy) petra_schedule *read = NULL;
  if (!*config->method.schedule)
    return PETRA_OK;
  PETRA_TRY(read_schedule(config->method.schedule, &read));
  petra_schedule *s = *(read->flush ? &plan->flush : &plan->schedule) = read;
  read = NULL;
  PETRA_TRY(check_stages(config, s, plan->stages));
  PETRA_TRY(check_length(config, s));
  PETRA_TRY(settle_head(config, &plan->method, s));
  if (!s->flush)
    PETRA_TRY(petra_schedule_find_moment(s, plan->method.program, config->method.accumulate));
  plan->by_arrival = plan->method.program->arrival;
  plan->method.program = &s->program;
  plan->method.split_head = s->split_head;
  plan->method.chunks = (s->stages + s->devices - 1) / s->devices;
  return PETRA_OK;
}

petra_status petra_plan_measure_order(petra_plan *plan) {
  if (!plan->schedule || plan->distance)
    return PETRA_OK;
  PETRA_TRY(petra_allocate(&plan->distance, (size_t)plan->stages, sizeof *plan->distance));
  return petra_schedule_distances(plan->schedule, plan->distance);
}

petra_status petra_plan_check_training(petra_plan *plan, int64_t microbatches) {
  const petra_config *config = plan->config;
  const petra_schedule *schedule = plan->schedule ? plan->schedule : plan->flush;
  if (!schedule || !*config->method.schedule)
    return PETRA_OK;
  if (!schedule->flush && schedule->microbatches > microbatches)
    return petra_config_fail(config, "method.schedule",
                             "%s: %lld microbatches, but %lld epochs have %lld; expected more epochs",
                             config->method.schedule, (long long)schedule->microbatches, (long long)config->run.epochs,
                             (long long)microbatches);
  PETRA_TRY(petra_schedule_check_training(schedule, config->method.schedule, &plan->program,
                                          plan->method.forward_weights == PETRA_WEIGHTS_DOUBLE_BUFFER));
  if (config->probe.per_epoch > 0 && schedule->program.moment == PETRA_MOMENT_NONE)
    return petra_config_fail(
        config, "probe.per_epoch",
        plan->by_arrival ? "%lld with method.schedule: %s and method %s, whose references need the clock of the "
                           "recorded run, which a schedule does not contain; expected 0"
                         : "%lld with method.schedule: %s and method %s: the order is neither synchronous nor one that "
                           "petra schedule prints, so the weights at the time of a backward are undefined; expected 0",
        (long long)config->probe.per_epoch, config->method.schedule, plan->method.name);
  return petra_plan_measure_order(plan);
}
