/* SPDX-License-Identifier: Apache-2.0 */
#include "schedule/schedule.h"

#include "base/log.h"
#include "base/mem.h"
#include "base/utf8.h"

#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

/* The cursor of a schedule from a file: the round is the position in the device's list. */
static bool next(const petra_program_options *options, int32_t device, petra_cursor *cursor, petra_action *out,
                 int64_t *round) {
  const petra_schedule *schedule = options->data;
  int64_t place = schedule->first[device - 1] + cursor->round;
  if (place >= schedule->first[device])
    return false;
  cursor->round++;
  *out = schedule->entries[place].action;
  *round = schedule->entries[place].round;
  return true;
}

static int64_t losses(const petra_program_options *options) {
  return ((const petra_schedule *)options->data)->losses;
}

/* A schedule under construction. */
typedef struct builder {
  petra_schedule *schedule;
  int64_t entries, entries_max;
  int64_t devices_max;
  size_t bar; /* number of characters that end its rounds; 0: none has ended */
} builder;

static petra_status add_entry(builder *b, petra_action action, int64_t round) {
  PETRA_TRY(petra_array_reserve(&b->schedule->entries, &b->entries_max, b->entries + 1, sizeof *b->schedule->entries));
  b->schedule->entries[b->entries++] = (petra_schedule_entry){action, round};
  return PETRA_OK;
}

/* Starts the next device with the next entry; its end is set as well, for now. */
static petra_status add_device(builder *b) {
  PETRA_TRY(petra_array_reserve(&b->schedule->first, &b->devices_max, (int64_t)b->schedule->devices + 2,
                                sizeof *b->schedule->first));
  b->schedule->first[b->schedule->devices++] = b->entries;
  return PETRA_OK;
}

/* Sets what follows from the entries. */
static void finish(builder *b, const char *name) {
  petra_schedule *s = b->schedule;
  s->first[s->devices] = b->entries;
  s->stages = s->devices; /* the last ones may have no action yet if a run ends undrained */
  for (int64_t i = 0; i < b->entries; i++) {
    const petra_action *a = &s->entries[i].action;
    s->stages = a->stage > s->stages ? a->stage : s->stages;
    s->split_backward |= a->kind == PETRA_ACTION_WEIGHT_GRADIENT;
    if (a->kind != PETRA_ACTION_EVALUATE && a->kind != PETRA_ACTION_UPDATE && a->microbatch >= s->microbatches)
      s->microbatches = a->microbatch + 1;
  }
  int64_t passes[2] = {0, 0}; /* F and B of the last stage */
  for (int64_t i = 0; i < b->entries; i++)
    if (s->entries[i].action.stage == s->stages && s->entries[i].action.kind <= PETRA_ACTION_BACKWARD)
      passes[s->entries[i].action.kind == PETRA_ACTION_BACKWARD]++;
  s->split_head = passes[0] > 0;
  s->losses = passes[!s->split_head];
  s->program = (petra_program_ops){.name = name,
                                   .losses = losses,
                                   .split_backward = s->split_backward,
                                   .chunked = true,
                                   .locked = s->locked,
                                   .next = next};
}

/* Checks the sizes by which the rest of the program allocates: every microbatch has actions of its own, and so has
 * every stage, unless its own line says that it has none yet. */
static petra_status check_sizes(const builder *b, const char *name) {
  const petra_schedule *s = b->schedule;
  if (s->devices == 0)
    return petra_fail(PETRA_SCHEDULE, "%s: no device; expected lines such as '1: 1F0 1B0 1U0'", name);
  if (b->entries == 0)
    return petra_fail(PETRA_SCHEDULE, "%s: no action", name);
  if (s->microbatches == 0)
    return petra_fail(PETRA_SCHEDULE, "%s: no F, B or W; expected some beside U and E", name);
  if ((s->stages > b->entries && s->stages > s->devices) || s->microbatches > b->entries)
    return petra_fail(
        PETRA_SCHEDULE,
        "%s: stages up to %d and microbatches up to %lld with only %lld actions; expected numbers without gaps, "
        "from stage 1 and microbatch 0",
        name, s->stages, (long long)s->microbatches - 1, (long long)b->entries);
  if (s->stages % s->devices)
    return petra_fail(PETRA_SCHEDULE, "%s: %d stages on %d devices; expected a multiple", name, s->stages, s->devices);
  return PETRA_OK;
}

/* A text that is read word by word. */
typedef struct reader {
  const char *name, *at, *end;
  int64_t line;
} reader;

static bool blank(char c) {
  return c == ' ' || c == '\t' || c == '\r';
}

/* Advances to the next word of the line; returns false at its end. */
static bool skip_blanks(reader *r) {
  while (r->at < r->end && blank(*r->at))
    r->at++;
  if (r->at < r->end && *r->at == '#')
    while (r->at < r->end && *r->at != '\n')
      r->at++;
  return r->at < r->end && *r->at != '\n';
}

/* Reads "1:" with the next number. */
static petra_status read_device(reader *r, int32_t expected) {
  char text[24];
  int length = snprintf(text, sizeof text, "%d:", expected);
  if (r->end - r->at < length || memcmp(r->at, text, (size_t)length) != 0)
    return petra_fail(PETRA_SCHEDULE, "%s:%lld: expected the line of device %d, beginning with '%s'", r->name,
                      (long long)r->line, expected, text);
  r->at += length;
  return PETRA_OK;
}

static petra_status read_word(reader *r, builder *b, int64_t *round) {
  char word[48];
  size_t length = 0;
  while (r->at + length < r->end && !blank(r->at[length]) && r->at[length] != '\n' && r->at[length] != '#')
    length++;
  if (length > 0 && length <= 2 && *r->at == '|' && r->at[length - 1] == '|') {
    if (b->bar && b->bar != length)
      return petra_fail(PETRA_SCHEDULE, "%s:%lld: both | and ||; expected rounds of the devices or of the network",
                        r->name, (long long)r->line);
    b->bar = length;
    b->schedule->locked = length == 2;
    ++*round;
    r->at += length;
    return PETRA_OK;
  }
  size_t kept = length < sizeof word ? length : sizeof word - 1;
  memcpy(word, r->at, kept);
  word[kept] = 0;
  petra_action action;
  if (kept < length || strlen(word) < length)
    memcpy(word, "?", sizeof "?");
  const char *expected = petra_action_read(word, &action);
  if (expected) {
    char shown[44];
    return petra_fail(PETRA_SCHEDULE, "%s:%lld: '%s' is not an action; expected %s", r->name, (long long)r->line,
                      petra_utf8_show(shown, sizeof shown, r->at, length), expected);
  }
  r->at += length;
  return add_entry(b, action, *round);
}

static petra_status read_lines(reader *r, builder *b) {
  for (; r->at < r->end; r->line++) {
    if (skip_blanks(r)) {
      int64_t round = 0;
      PETRA_TRY(read_device(r, b->schedule->devices + 1));
      PETRA_TRY(add_device(b));
      while (skip_blanks(r))
        PETRA_TRY(read_word(r, b, &round));
    }
    r->at += r->at < r->end; /* the end of the line */
  }
  return PETRA_OK;
}

bool petra_schedule_recognise(const char *text, size_t size) {
  reader r = {.at = text, .end = text + size};
  while (r.at < r.end && !skip_blanks(&r))
    r.at += r.at < r.end;
  const char *start = r.at;
  while (r.at < r.end && *r.at >= '0' && *r.at <= '9')
    r.at++;
  return r.at > start && r.at < r.end && *r.at == ':';
}

petra_status petra_schedule_parse(const char *name, const char *text, size_t size, petra_schedule **out) {
  builder b = {0};
  reader r = {.name = name, .at = text, .end = text + size, .line = 1};
  petra_status status;
  PETRA_TRY(petra_allocate(&b.schedule, 1, sizeof *b.schedule));
  PETRA_TRY_GOTO(status, read_lines(&r, &b), fail);
  if (b.schedule->devices)
    finish(&b, "file");
  PETRA_TRY_GOTO(status, check_sizes(&b, name), fail);
  *out = b.schedule;
  return PETRA_OK;
fail:
  petra_schedule_destroy(b.schedule);
  return status;
}

static petra_status record_device(builder *b, const petra_program_ops *program, const petra_program_options *options,
                                  int32_t device) {
  petra_cursor cursor = {0};
  petra_action action;
  int64_t round, last = 0, rounds = 0;
  bool begun = false;
  PETRA_TRY(add_device(b));
  while (petra_program_next(program, options, device, &cursor, &action, &round)) {
    rounds += begun && round != last;
    begun = true;
    last = round;
    PETRA_TRY(add_entry(b, action, program->locked ? round : rounds));
  }
  return PETRA_OK;
}

petra_status petra_schedule_record(const petra_program_ops *program, const petra_program_options *options,
                                   petra_schedule **out) {
  builder b = {0};
  petra_status status;
  if (!program->next)
    return petra_fail(PETRA_UNSUPPORTED, "program %s has no order of its own: a stage takes what arrives first",
                      program->name);
  PETRA_TRY(petra_program_check(program, options));
  PETRA_TRY(petra_allocate(&b.schedule, 1, sizeof *b.schedule));
  for (int32_t d = 1; d <= petra_program_devices(options); d++)
    PETRA_TRY_GOTO(status, record_device(&b, program, options, d), fail);
  b.schedule->locked = program->locked;
  finish(&b, program->name);
  b.schedule->stages = options->stages; /* an undrained run may end before the last ones begin */
  b.schedule->split_head = options->split_head;
  *out = b.schedule;
  return PETRA_OK;
fail:
  petra_schedule_destroy(b.schedule);
  return status;
}

petra_status petra_schedule_print(const petra_schedule *schedule, FILE *out) {
  for (int32_t d = 0; d < schedule->devices; d++) {
    fprintf(out, "%d:", d + 1);
    int64_t round = 0;
    for (int64_t i = schedule->first[d]; i < schedule->first[d + 1]; i++) {
      const petra_schedule_entry *entry = &schedule->entries[i];
      char text[40];
      petra_action_print(&entry->action, text, sizeof text);
      for (; schedule->locked && round < entry->round; round++)
        fputs(" ||", out);
      fprintf(out, "%s %s", i > schedule->first[d] && round < entry->round ? " |" : "", text);
      round = entry->round;
    }
    fputc('\n', out);
  }
  return ferror(out) ? petra_fail(PETRA_IO, "the schedule could not be written") : PETRA_OK;
}

int32_t petra_schedule_device(const petra_schedule *schedule, int64_t entry) {
  int32_t low = 0, high = schedule->devices - 1;
  while (low < high) {
    int32_t middle = low + (high - low + 1) / 2;
    if (schedule->first[middle] <= entry)
      low = middle;
    else
      high = middle - 1;
  }
  return low + 1;
}

petra_status petra_schedule_refuse(const petra_schedule *schedule, const char *name, int64_t entry, const char *format,
                                   ...) {
  const int32_t device = petra_schedule_device(schedule, entry);
  char reason[200], text[40];
  va_list arguments;
  va_start(arguments, format);
  vsnprintf(reason, sizeof reason, format, arguments);
  va_end(arguments);
  petra_action_print(&schedule->entries[entry].action, text, sizeof text);
  return petra_fail(PETRA_SCHEDULE, "%s: device %d, action %lld (%s): %s", name, device,
                    (long long)(entry - schedule->first[device - 1] + 1), text, reason);
}

petra_program_options petra_schedule_options(const petra_schedule *schedule) {
  int64_t updates = 0;
  for (int64_t i = 0; i < schedule->first[schedule->devices]; i++)
    updates += schedule->entries[i].action.stage == 1 && schedule->entries[i].action.kind == PETRA_ACTION_UPDATE;
  int64_t accumulate = updates ? schedule->microbatches / updates : schedule->microbatches;
  return (petra_program_options){.stages = schedule->stages,
                                 .chunks = schedule->stages / schedule->devices,
                                 .microbatches = schedule->microbatches,
                                 .accumulate = accumulate > 0 ? accumulate : 1,
                                 .drain = true,
                                 .batches = schedule->microbatches > 0 ? schedule->microbatches : 1,
                                 .split_head = schedule->split_head,
                                 .data = schedule};
}

void petra_schedule_destroy(petra_schedule *schedule) {
  if (!schedule)
    return;
  petra_free(schedule->first);
  petra_free(schedule->entries);
  petra_free(schedule);
}
