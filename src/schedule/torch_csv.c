/* SPDX-License-Identifier: Apache-2.0 */
/* The CSV of torch.distributed.pipelining (PyTorch 2.15): one line per rank, one cell per action. An action is the
 * stage, from 0, a word and the microbatch: F is a forward, B a backward, I its input gradient and W its weight
 * gradient. If a file has an I or a W, a B of that file is a step of B and W in petra. (0F3;7B0)OVERLAP_F_B is a step
 * of a forward and a backward. The file is the order of one flush: updates come at its end. Empty cells are times at
 * which a rank waits. */
#include "schedule/schedule.h"

#include "base/log.h"
#include "base/utf8.h"

#include <ctype.h>
#include <string.h>

/* The words of cells that petra skips: communication follows from the actions. */
static const char *const skipped[] = {"UNSHARD", "RESHARD",     "SEND_F",      "RECV_F",      "SEND_B",
                                      "RECV_B",  "WAIT_SEND_F", "WAIT_SEND_B", "REDUCE_GRAD", "WAIT_REDUCE_GRAD"};

static const char overlap[] = "OVERLAP_F_B";
static const char an_action[] = "a stage, F, B, I or W, and a microbatch, such as 0F3";

typedef struct reader {
  const char *name, *at, *end;
  int64_t line;
  bool split; /* the file has an I or a W */
} reader;

typedef struct cell {
  const char *text; /* not NUL-terminated */
  size_t length;
} cell;

/* Returns the text from `text` to `end` without blanks around it and then without quotes around it. */
static cell trim(const char *text, const char *end) {
  while (text < end && isspace((unsigned char)*text))
    text++;
  while (end > text && isspace((unsigned char)end[-1]))
    end--;
  if (end - text >= 2 && *text == '"' && end[-1] == '"')
    text++, end--;
  return (cell){text, (size_t)(end - text)};
}

/* Takes the next cell of the line at *at, which ends at '\n' or `end`. In quotes it may contain commas. *first: true at
 * the beginning of a line, then false. Returns false, past the line, if there is no other cell. */
static bool next_cell(const char **at, const char *end, bool *first, cell *out) {
  if (*at == end || **at == '\n') {
    *at += *at < end;
    return false;
  }
  if (!*first)
    ++*at; /* the comma */
  const char *start = *at;
  for (bool quoted = false; *at < end && **at != '\n' && (quoted || **at != ','); ++*at)
    quoted ^= **at == '"';
  *first = false;
  *out = trim(start, *at);
  return true;
}

static petra_status fail(const reader *r, const cell *c, const char *expected) {
  char shown[60];
  return petra_fail(PETRA_SCHEDULE, "%s:%lld: '%s' is not an action; expected %s", r->name, (long long)r->line,
                    petra_utf8_show(shown, sizeof shown, c->text, c->length), expected);
}

/* Reads a number of at most 12 digits; *at advances past it. Returns false if there is none. */
static bool read_number(const char **at, const char *end, int64_t *out) {
  const char *start = *at;
  *out = 0;
  while (*at < end && isdigit((unsigned char)**at) && *at - start < 12)
    *out = 10 * *out + *(*at)++ - '0';
  return *at > start;
}

/* An action of a cell. */
typedef struct action {
  int64_t stage, microbatch;
  char letter; /* F, B, I, W; 0: skipped */
} action;

static bool is_skipped(const char *word, size_t length) {
  for (size_t i = 0; i < sizeof skipped / sizeof *skipped; i++)
    if (strlen(skipped[i]) == length && memcmp(skipped[i], word, length) == 0)
      return true;
  return false;
}

static const char *read_action(const cell *c, action *out) {
  const char *at = c->text, *end = at + c->length, *word;
  *out = (action){0};
  if (!read_number(&at, end, &out->stage))
    return an_action;
  word = at;
  while (at < end && (isupper((unsigned char)*at) || *at == '_'))
    at++;
  const size_t length = (size_t)(at - word);
  const bool numbered = read_number(&at, end, &out->microbatch);
  if (at == end && is_skipped(word, length))
    return NULL;
  if (at < end || !numbered || length != 1 || !strchr("FBIW", *word))
    return an_action;
  out->letter = *word;
  return petra_action_check(out->stage + 1, PETRA_ACTION_FORWARD, out->microbatch);
}

static petra_status add(petra_schedule_builder *b, const action *a, petra_action_kind kind, bool joined) {
  return petra_schedule_add(b,
                            (petra_schedule_entry){{(int32_t)a->stage + 1, kind, a->microbatch}, 0, .joined = joined});
}

/* Adds an action. `joined` means that it is in one step with the actions that follow in its cell. */
static petra_status add_action(const reader *r, petra_schedule_builder *b, const action *a, bool joined) {
  const bool whole = a->letter == 'B' && r->split;
  if (a->letter == 0)
    return PETRA_OK;
  PETRA_TRY(add(b, a,
                a->letter == 'F'   ? PETRA_ACTION_FORWARD
                : a->letter == 'W' ? PETRA_ACTION_WEIGHT_GRADIENT
                                   : PETRA_ACTION_BACKWARD,
                whole || joined));
  return whole ? add(b, a, PETRA_ACTION_WEIGHT_GRADIENT, joined) : PETRA_OK;
}

/* Reads a pair, "(0F3;7B0)OVERLAP_F_B". */
static petra_status read_pair(const reader *r, petra_schedule_builder *b, const cell *c) {
  const char *end = memchr(c->text, ')', c->length), *at = c->text + 1;
  const char *const expected = "a pair such as (0F3;7B0)OVERLAP_F_B";
  if (!end || (size_t)(c->text + c->length - end - 1) != sizeof overlap - 1 ||
      memcmp(end + 1, overlap, sizeof overlap - 1) != 0)
    return fail(r, c, expected);
  for (int parts = 1;; parts++) {
    const char *semicolon = memchr(at, ';', (size_t)(end - at));
    const char *stop = semicolon ? semicolon : end;
    const cell part = trim(at, stop);
    action a;
    const char *wrong = read_action(&part, &a);
    if (wrong || a.letter == 0 || (!semicolon && parts == 1))
      return fail(r, c, expected);
    PETRA_TRY(add_action(r, b, &a, semicolon != NULL));
    if (!semicolon)
      return PETRA_OK;
    at = stop + 1;
  }
}

static petra_status read_lines(reader *r, petra_schedule_builder *b) {
  for (r->line = 1; r->at < r->end; r->line++) {
    bool first = true;
    cell c;
    PETRA_TRY(petra_schedule_add_device(b));
    while (next_cell(&r->at, r->end, &first, &c)) {
      action a;
      if (c.length > 0 && *c.text == '(') {
        PETRA_TRY(read_pair(r, b, &c));
        continue;
      }
      const char *expected = c.length > 0 ? read_action(&c, &a) : NULL;
      if (expected)
        return fail(r, &c, expected);
      if (c.length > 0)
        PETRA_TRY(add_action(r, b, &a, false));
    }
    const int32_t d = b->schedule.devices;
    if (b->schedule.first[d] == b->schedule.first[d - 1])
      return petra_fail(PETRA_SCHEDULE, "%s:%lld: rank %d has no F, B, I or W", r->name, (long long)r->line, d - 1);
  }
  return PETRA_OK;
}

/* Returns true if the text has an I or a W; the W of WAIT does not count. */
static bool has_split(const char *text, const char *end) {
  for (; text + 1 < end; text++)
    if (isdigit((unsigned char)*text) && (text[1] == 'I' || (text[1] == 'W' && text + 2 < end && text[2] != 'A')))
      return true;
  return false;
}

bool petra_torch_csv_recognise(const char *text, size_t size) {
  const char *at = text, *end = text + size;
  action a;
  while (at < end && (isspace((unsigned char)*at) || *at == ','))
    at++;
  const char *start = at;
  while (at < end && *at != ',' && *at != '\n')
    at++;
  const cell c = trim(start, at);
  return c.length > 0 && (*c.text == '(' ? isdigit((unsigned char)c.text[c.length > 1]) != 0 : !read_action(&c, &a));
}

petra_status petra_torch_csv_parse(const char *name, const char *text, size_t size, petra_schedule **out) {
  petra_schedule_builder b = {.schedule = {.flush = true, .torch = true}};
  reader r = {.name = name, .at = text, .end = text + size, .split = has_split(text, text + size)};
  while (r.end > text && isspace((unsigned char)r.end[-1])) /* blank lines at the end are not ranks */
    r.end--;
  return petra_schedule_finish(&b, read_lines(&r, &b), name, out);
}

/* --- writing --- */

static void print_action(const petra_action *a, char letter, FILE *out) {
  fprintf(out, "%d%c%lld", a->stage - 1, letter, (long long)a->microbatch);
}

/* Prints the step that begins with entry `i`; returns the entry after it. The F of a fused last stage is printed as
 * well. */
static int64_t print_step(const petra_schedule *s, int64_t i, FILE *out) {
  const petra_schedule_entry *e = &s->entries[i];
  int64_t end = i;
  bool forward = false, weights = false;
  do {
    const petra_action *a = &s->entries[end].action;
    forward |= a->kind == PETRA_ACTION_FORWARD;
    weights |= a->kind == PETRA_ACTION_WEIGHT_GRADIENT;
    if (a->kind == PETRA_ACTION_BACKWARD && petra_head_is_fused(a->stage, s->stages, s->split_head)) {
      print_action(a, 'F', out);
      fputc(',', out);
    }
  } while (s->entries[end++].joined);
  const bool pair = forward && end > i + 1;
  const char back = weights || !s->split_backward ? 'B' : 'I';
  if (pair)
    fputc('(', out);
  for (bool begun = false; i < end; i++) {
    const petra_action *a = &s->entries[i].action;
    if (a->kind == PETRA_ACTION_WEIGHT_GRADIENT && e->joined)
      continue; /* this W is part of a B */
    if (begun)
      fputc(';', out);
    print_action(a, a->kind == PETRA_ACTION_FORWARD ? 'F' : a->kind == PETRA_ACTION_WEIGHT_GRADIENT ? 'W' : back, out);
    begun = true;
  }
  if (pair)
    fprintf(out, ")%s", overlap);
  return end;
}

static petra_status check_flush(const petra_schedule *s) {
  for (int32_t d = 0; d < s->devices; d++) {
    bool updated = false;
    for (int64_t i = s->first[d]; i < s->first[d + 1]; i++) {
      updated |= s->entries[i].action.kind == PETRA_ACTION_UPDATE;
      if (updated && s->entries[i].action.kind <= PETRA_ACTION_WEIGHT_GRADIENT)
        return petra_schedule_refuse(
            s, "--format torch-csv", i,
            "it comes after an update; the CSV has the order of one flush, with updates at its "
            "end");
    }
  }
  return PETRA_OK;
}

petra_status petra_torch_csv_print(const petra_schedule *schedule, FILE *out) {
  PETRA_TRY(check_flush(schedule));
  for (int32_t d = 0; d < schedule->devices; d++) {
    bool begun = false;
    for (int64_t i = schedule->first[d]; i < schedule->first[d + 1];) {
      if (schedule->entries[i].action.kind > PETRA_ACTION_WEIGHT_GRADIENT) {
        i++;
        continue;
      }
      if (begun)
        fputc(',', out);
      begun = true;
      i = print_step(schedule, i, out);
    }
    fputc('\n', out);
  }
  return ferror(out) ? petra_fail(PETRA_IO, "the schedule could not be written") : PETRA_OK;
}
