/* SPDX-License-Identifier: Apache-2.0 */
#include "schedule/schedule.h"

#include "base/log.h"
#include "base/mem.h"
#include "base/utf8.h"
#include "schedule/program_order.h"

#include <stdarg.h>
#include <string.h>

/* The cursor of a schedule from a file: the round is the position in the device's list. */
static bool next(const petra_program_options *options, int32_t device, petra_cursor *cursor, petra_action *out,
                 int64_t *round) {
  const petra_schedule *schedule = options->data;
  int64_t place = schedule->first[device - 1] + cursor->round;
  if (place >= schedule->first[device])
    return false;
  cursor->round++;
  cursor->joined = schedule->entries[place].joined;
  *out = schedule->entries[place].action;
  *round = schedule->entries[place].round;
  return true;
}

static int64_t losses(const petra_program_options *options) {
  return ((const petra_schedule *)options->data)->losses;
}

/* --- the order of one flush --- */

/* Returns true if an entry of the list has an action in this flush. For example, the last stage has no F if its head is
 * fused. */
static bool has_action(const petra_program_options *options, petra_flush flush, const petra_action *a) {
  return a->microbatch < flush.count && !(a->kind == PETRA_ACTION_FORWARD && petra_program_fused(options, a->stage));
}

/* Gets U, which carries the microbatch of the last B, then E, of a stage at the end of a flush; returns false if there
 * is none. */
static bool end_of_flush(const petra_program_options *options, petra_flush flush, int32_t stage, int item,
                         petra_action *out) {
  const petra_schedule *list = options->data;
  int64_t i = list->first[list->device_of[stage - 1]] - 1;
  *out = (petra_action){stage, PETRA_ACTION_EVALUATE, flush.first + flush.count - 1};
  if (item > 0)
    return petra_program_evaluates(options, out->microbatch);
  while (list->entries[i].action.stage != stage || list->entries[i].action.kind != PETRA_ACTION_BACKWARD)
    i--;
  *out = (petra_action){stage, PETRA_ACTION_UPDATE, flush.first + list->entries[i].action.microbatch};
  return flush.count == options->accumulate;
}

/* Returns true if E follows the step that entry `i` ends. */
static bool evaluates_after(const petra_program_options *options, petra_flush flush, int64_t i, petra_action *out) {
  const petra_schedule_entry *entries = ((const petra_schedule *)options->data)->entries;
  for (bool more = true; more; i--) {
    const petra_action *a = &entries[i].action;
    *out = (petra_action){a->stage, PETRA_ACTION_EVALUATE, flush.first + a->microbatch};
    if (a->kind == PETRA_ACTION_BACKWARD && a->microbatch < flush.count - 1 &&
        petra_program_evaluates(options, out->microbatch))
      return true;
    more = i > 0 && entries[i - 1].joined;
  }
  return false;
}

/* The cursor has two steps for each entry (the action and the E after it), then two steps for each stage. */
bool petra_flush_list_next(const petra_program_options *options, int32_t device, petra_cursor *cursor,
                           petra_action *out, int64_t *round) {
  const petra_schedule *list = options->data;
  const int64_t first = list->first[device - 1], end = 2 * (list->first[device] - first);
  petra_flush flush;
  *round = 0;
  cursor->joined = false;
  while (flush = petra_flush_of(options, cursor->round), flush.count > 0) {
    while (cursor->step < end) {
      const int64_t i = first + cursor->step / 2;
      const petra_schedule_entry *entry = &list->entries[i];
      if (cursor->step++ % 2 == 0) {
        *out = entry->action;
        out->microbatch += flush.first;
        cursor->joined = entry->joined && has_action(options, flush, &entry[1].action);
        if (has_action(options, flush, &entry->action))
          return true;
      } else if (!entry->joined && evaluates_after(options, flush, i, out)) {
        return true;
      }
      cursor->joined = false;
    }
    while (cursor->step < end + 2 * (int64_t)list->stages) {
      const int64_t place = cursor->step++ - end;
      const int32_t stage = (int32_t)(place / 2) + 1;
      if (list->device_of[stage - 1] == device && end_of_flush(options, flush, stage, (int)(place % 2), out))
        return true;
    }
    *cursor = (petra_cursor){.round = cursor->round + 1};
  }
  return false;
}

/* --- construction --- */

petra_status petra_schedule_add(petra_schedule_builder *b, petra_schedule_entry entry) {
  petra_schedule *s = &b->schedule;
  PETRA_TRY(petra_array_reserve(&s->entries, &b->entries_max, b->entries + 1, sizeof *s->entries));
  s->entries[b->entries++] = entry;
  s->first[s->devices] = b->entries;
  return PETRA_OK;
}

petra_status petra_schedule_add_device(petra_schedule_builder *b) {
  petra_schedule *s = &b->schedule;
  PETRA_TRY(petra_array_reserve(&s->first, &b->devices_max, (int64_t)s->devices + 2, sizeof *s->first));
  s->first[s->devices++] = b->entries;
  s->first[s->devices] = b->entries;
  return PETRA_OK;
}

/* Checks the sizes that determine how much memory is allocated: every microbatch must have actions, and so must every
 * stage, unless the line of its device says that it has none yet. */
static petra_status check_sizes(const petra_schedule_builder *b, const char *name) {
  const petra_schedule *s = &b->schedule;
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
  return PETRA_OK;
}

/* Places the stages. A stage is on the device that has its actions; in case of doubt it is on its device in a loop. A
 * stage without actions, which an undrained run does not reach, is also on its device in the loop. */
static petra_status place_stages(petra_schedule *s, const char *name) {
  /* Per stage: on its device of the loop, and on the other device with its first action. */
  PETRA_FREED int64_t *actions = NULL;
  PETRA_TRY(petra_allocate(&s->device_of, (size_t)s->stages, sizeof *s->device_of));
  PETRA_TRY(petra_allocate(&actions, 2 * (size_t)s->stages, sizeof *actions));
  for (int32_t d = 1; d <= s->devices; d++)
    for (int64_t i = s->first[d - 1]; i < s->first[d]; i++) {
      const int32_t j = s->entries[i].action.stage - 1;
      const bool loop = d == petra_layout_device(PETRA_LAYOUT_LOOP, s->devices, j + 1);
      if (!loop && s->device_of[j] == 0)
        s->device_of[j] = d;
      actions[2 * j] += loop;
      actions[2 * j + 1] += d == s->device_of[j];
    }
  for (int32_t j = 0; j < s->stages; j++) {
    if (actions[2 * j] + actions[2 * j + 1] == 0 && s->stages % s->devices)
      return petra_fail(PETRA_SCHEDULE, "%s: no device has an action of stage %d", name, j + 1);
    if (actions[2 * j] >= actions[2 * j + 1])
      s->device_of[j] = petra_layout_device(PETRA_LAYOUT_LOOP, s->devices, j + 1);
  }
  return PETRA_OK;
}

/* Sets the members that follow from the entries. */
static petra_status complete(petra_schedule_builder *b, const char *name) {
  petra_schedule *s = &b->schedule;
  if (s->stages < s->devices)
    s->stages = s->devices; /* the last stages may have no action yet if a run ends undrained */
  for (int64_t i = 0; i < b->entries; i++) {
    const petra_action *a = &s->entries[i].action;
    s->stages = a->stage > s->stages ? a->stage : s->stages;
    s->split_backward |= a->kind == PETRA_ACTION_WEIGHT_GRADIENT;
    if (a->kind != PETRA_ACTION_EVALUATE && a->kind != PETRA_ACTION_UPDATE && a->microbatch >= s->microbatches)
      s->microbatches = a->microbatch + 1;
  }
  PETRA_TRY(check_sizes(b, name));
  if (!s->device_of)
    PETRA_TRY(place_stages(s, name));
  int64_t passes[2] = {0, 0}; /* F and B of the last stage */
  for (int64_t i = 0; i < b->entries; i++)
    if (s->entries[i].action.stage == s->stages && s->entries[i].action.kind <= PETRA_ACTION_BACKWARD)
      passes[s->entries[i].action.kind == PETRA_ACTION_BACKWARD]++;
  s->split_head = passes[0] > 0;
  s->losses = passes[!s->split_head];
  s->program = (petra_program_ops){.name = "file",
                                   .losses = s->flush ? NULL : losses,
                                   .split_backward = s->split_backward,
                                   .layout = PETRA_LAYOUT_ANY,
                                   .locked = s->locked,
                                   .repeats = s->flush,
                                   .next = s->flush ? petra_flush_list_next : next};
  if (s->flush) {
    s->program.moment = PETRA_MOMENT_WINDOW;
    s->program.check = petra_flush_check;
  }
  return PETRA_OK;
}

static void free_parts(petra_schedule *schedule) {
  PETRA_FREE_ALL(schedule->device_of, schedule->first, schedule->entries);
}

petra_status petra_schedule_finish(petra_schedule_builder *b, petra_status status, const char *name,
                                   petra_schedule **out) {
  *out = NULL;
  if (status == PETRA_OK)
    status = complete(b, name);
  if (status == PETRA_OK)
    status = petra_allocate(out, 1, sizeof **out);
  if (status == PETRA_OK)
    **out = b->schedule;
  else
    free_parts(&b->schedule);
  return status;
}

/* A text that is read word by word. */
typedef struct reader {
  const char *name, *at, *end;
  int64_t line;
  size_t bar; /* number of characters of the bar that ends its rounds; 0: no round has ended */
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
    return petra_fail(PETRA_SCHEDULE, "%s:%lld: expected the line of device %d, beginning with '%s'%s", r->name,
                      (long long)r->line, expected, text,
                      expected == 1 ? ", or the CSV of PyTorch, beginning with an action such as 0F0" : "");
  r->at += length;
  return PETRA_OK;
}

/* Reads one action of a word. It ends at a + or at the end of the word. */
static petra_status read_action(reader *r, petra_schedule_builder *b, size_t length, int64_t round, bool joined) {
  char word[48];
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
  return petra_schedule_add(b, (petra_schedule_entry){action, round, joined});
}

static petra_status read_word(reader *r, petra_schedule_builder *b, int64_t *round) {
  size_t length = 0, part;
  while (r->at + length < r->end && !blank(r->at[length]) && r->at[length] != '\n' && r->at[length] != '#')
    length++;
  if (length > 0 && length <= 2 && *r->at == '|' && r->at[length - 1] == '|') {
    if (r->bar && r->bar != length)
      return petra_fail(PETRA_SCHEDULE, "%s:%lld: both | and ||; expected rounds of the devices or of the network",
                        r->name, (long long)r->line);
    r->bar = length;
    b->schedule.locked = length == 2;
    ++*round;
    r->at += length;
    return PETRA_OK;
  }
  const char *end = r->at + length;
  for (;;) {
    const char *plus = memchr(r->at, '+', (size_t)(end - r->at));
    part = (size_t)((plus ? plus : end) - r->at);
    PETRA_TRY(read_action(r, b, part, *round, plus != NULL));
    if (!plus)
      return PETRA_OK;
    r->at++;
  }
}

static petra_status read_lines(reader *r, petra_schedule_builder *b) {
  for (; r->at < r->end; r->line++) {
    if (skip_blanks(r)) {
      int64_t round = 0;
      PETRA_TRY(read_device(r, b->schedule.devices + 1));
      PETRA_TRY(petra_schedule_add_device(b));
      while (skip_blanks(r))
        PETRA_TRY(read_word(r, b, &round));
    }
    r->at += r->at < r->end; /* the end of the line */
  }
  return PETRA_OK;
}

bool petra_schedule_recognise(const char *text, size_t size) {
  const size_t mark = petra_utf8_mark_bytes(text, size);
  text += mark;
  size -= mark;
  reader r = {.at = text, .end = text + size};
  while (r.at < r.end && !skip_blanks(&r))
    r.at += r.at < r.end;
  const char *start = r.at;
  while (r.at < r.end && *r.at >= '0' && *r.at <= '9')
    r.at++;
  return (r.at > start && r.at < r.end && *r.at == ':') || petra_torch_csv_recognise(text, size);
}

petra_status petra_schedule_parse(const char *name, const char *text, size_t size, petra_schedule **out) {
  const size_t mark = petra_utf8_mark_bytes(text, size);
  text += mark;
  size -= mark;
  petra_schedule_builder b = {0};
  reader r = {.name = name, .at = text, .end = text + size, .line = 1};
  if (petra_torch_csv_recognise(text, size))
    return petra_torch_csv_parse(name, text, size, out);
  return petra_schedule_finish(&b, read_lines(&r, &b), name, out);
}

static petra_status record_device(petra_schedule_builder *b, const petra_program_ops *program,
                                  const petra_program_options *options, int32_t device) {
  petra_cursor cursor = {0};
  petra_action action;
  int64_t round, last = 0, rounds = 0;
  bool begun = false;
  PETRA_TRY(petra_schedule_add_device(b));
  while (petra_program_next(program, options, device, &cursor, &action, &round)) {
    rounds += begun && round != last;
    begun = true;
    last = round;
    PETRA_TRY(petra_schedule_add(b, (petra_schedule_entry){action, program->locked ? round : rounds, cursor.joined}));
  }
  return PETRA_OK;
}

petra_status petra_schedule_record(const petra_program_ops *program, const petra_program_options *options,
                                   petra_schedule **out) {
  /* An undrained run may end before the last stages begin. */
  petra_schedule_builder b = {.schedule = {.locked = program->locked, .stages = options->stages}};
  petra_status status;
  if (!program->next)
    return petra_fail(PETRA_UNSUPPORTED, "program %s has no order of its own: a stage takes what arrives first",
                      program->name);
  PETRA_TRY(petra_program_check(program, options));
  for (int32_t d = 1; d <= petra_program_devices(options); d++)
    PETRA_TRY_GOTO(status, record_device(&b, program, options, d), done);
  PETRA_TRY_GOTO(status, petra_allocate(&b.schedule.device_of, (size_t)options->stages, sizeof(int32_t)), done);
  for (int32_t j = 0; j < options->stages; j++)
    b.schedule.device_of[j] = petra_program_device(options, j + 1);
done:
  PETRA_TRY(petra_schedule_finish(&b, status, program->name, out));
  (*out)->split_head = options->split_head;
  (*out)->local = options->local;
  (*out)->program.name = program->name;
  return PETRA_OK;
}

petra_status petra_schedule_print(const petra_schedule *schedule, FILE *out) {
  for (int32_t d = 0; d < schedule->devices; d++) {
    fprintf(out, "%d:", d + 1);
    int64_t round = 0;
    bool joined = false;
    for (int64_t i = schedule->first[d]; i < schedule->first[d + 1]; i++) {
      const petra_schedule_entry *entry = &schedule->entries[i];
      char text[40];
      petra_action_print(&entry->action, text, sizeof text);
      for (; schedule->locked && round < entry->round; round++)
        fputs(" ||", out);
      fprintf(out, "%s%c%s", i > schedule->first[d] && round < entry->round ? " |" : "", joined ? '+' : ' ', text);
      round = entry->round;
      joined = entry->joined;
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

const char *petra_schedule_action_text(const petra_schedule *schedule, const petra_action *action, char *text,
                                       size_t size) {
  petra_action_print(action, text, size);
  if (schedule->torch)
    snprintf(text, size, "%d%c%lld", action->stage - 1,
             schedule->split_backward && action->kind == PETRA_ACTION_BACKWARD ? 'I'
                                                                               : petra_action_letter(action->kind),
             (long long)action->microbatch);
  return text;
}

petra_status petra_schedule_refuse(const petra_schedule *schedule, const char *name, int64_t entry, const char *format,
                                   ...) {
  const int32_t device = petra_schedule_device(schedule, entry);
  char reason[200], text[40];
  va_list arguments;
  va_start(arguments, format);
  vsnprintf(reason, sizeof reason, format, arguments);
  va_end(arguments);
  petra_schedule_action_text(schedule, &schedule->entries[entry].action, text, sizeof text);
  if (schedule->torch)
    return petra_fail(PETRA_SCHEDULE, "%s:%d: %s: %s", name, device, text, reason);
  return petra_fail(PETRA_SCHEDULE, "%s: device %d, action %lld (%s): %s", name, device,
                    (long long)(entry - schedule->first[device - 1] + 1), text, reason);
}

petra_program_options petra_schedule_options(const petra_schedule *schedule) {
  int64_t updates = 0;
  for (int64_t i = 0; i < schedule->first[schedule->devices]; i++)
    updates += schedule->entries[i].action.stage == 1 && schedule->entries[i].action.kind == PETRA_ACTION_UPDATE;
  int64_t accumulate = updates ? schedule->microbatches / updates : schedule->microbatches;
  return (petra_program_options){.stages = schedule->stages,
                                 .device_of = schedule->device_of,
                                 .devices = schedule->devices,
                                 .microbatches = schedule->microbatches,
                                 .accumulate = accumulate > 0 ? accumulate : 1,
                                 .drain = true,
                                 .batches = schedule->microbatches > 0 ? schedule->microbatches : 1,
                                 .split_head = schedule->split_head,
                                 .local = schedule->local,
                                 .data = schedule};
}

void petra_schedule_destroy(petra_schedule *schedule) {
  if (schedule)
    free_parts(schedule);
  petra_free(schedule);
}
