/* SPDX-License-Identifier: Apache-2.0 */
#include "setup/schedule_file.h"

#include "base/log.h"
#include "base/mem.h"
#include "base/seal.h"
#include "base/text.h"
#include "io/recorded_order.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* A config has at most 2^20 bytes (config/document.c). With one more, its reader can report that it is too long. */
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
  const petra_recorded_action **order;
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
  petra_free(order);
  return PETRA_OK;
}

/* Replaces the bytes of a log by its schedule. */
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

petra_status petra_schedule_file_read(const char *path, petra_schedule **out) {
  const char *name = petra_schedule_file_name(path);
  petra_schedule_text text;
  petra_schedule *schedule = NULL;
  errno = 0;
  PETRA_TRY(petra_schedule_file_peek(path, &text));
  if (!text.text)
    return petra_fail(PETRA_IO, "%s: cannot be read: %s; expected a schedule", name, strerror(errno));
  petra_status status = petra_schedule_parse(name, text.text, text.size, &schedule);
  petra_free(text.text);
  if (status == PETRA_OK)
    status = petra_schedule_check(schedule, name);
  if (status != PETRA_OK) {
    petra_schedule_destroy(schedule);
    return status;
  }
  *out = schedule;
  return PETRA_OK;
}
