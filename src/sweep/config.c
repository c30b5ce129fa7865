/* Whether two expanded configs ask for the same run. Both are what petra_config_print wrote, so that equal
 * configs are equal line by line; the lines of run.name and run.output are skipped, for they only say where
 * the results go. */
#include "sweep/sweep.h"

#include <string.h>

typedef struct reader {
  const char *next;
  const char *section; /* the last line without an indent */
  const char *line;
  int length;
} reader;

static bool begins(const reader *at, const char *text) {
  return strncmp(at->line, text, strlen(text)) == 0;
}

/* The next line that counts; false at the end. */
static bool advance(reader *at) {
  while (*at->next) {
    at->line = at->next;
    at->length = (int)strcspn(at->line, "\n");
    at->next = at->line + at->length + (at->line[at->length] == '\n');
    if (*at->line != ' ')
      at->section = at->line;
    bool in_run = at->section && strncmp(at->section, "run:", 4) == 0;
    if (!in_run || (!begins(at, "  name:") && !begins(at, "  output:")))
      return true;
  }
  at->length = 0;
  return false;
}

static const char *trimmed(const reader *at, int *length) {
  int blanks = 0;
  while (blanks < at->length && at->line[blanks] == ' ')
    blanks++;
  *length = at->length - blanks;
  return at->line + blanks;
}

bool petra_sweep_same_config(const char *found, const char *asked, char *difference, size_t size) {
  reader a = {.next = found}, b = {.next = asked};
  for (;;) {
    bool more_a = advance(&a), more_b = advance(&b);
    if (!more_a && !more_b)
      return true;
    if (more_a && more_b && a.length == b.length && memcmp(a.line, b.line, (size_t)a.length) == 0)
      continue;
    int length_a = 0, length_b = 0;
    const char *line_a = more_a ? trimmed(&a, &length_a) : "", *line_b = more_b ? trimmed(&b, &length_b) : "";
    int section = b.section ? (int)strcspn(b.section, ":\n") : 0;
    snprintf(difference, size, "in section %.*s '%.*s' in place of '%.*s'", section, b.section ? b.section : "",
             length_a, line_a, length_b, line_b);
    return false;
  }
}

/* FNV-1a */
uint64_t petra_sweep_config_hash(const char *config) {
  uint64_t hash = UINT64_C(14695981039346656037);
  reader at = {.next = config};
  while (advance(&at))
    for (int i = 0; i <= at.length; i++) {
      hash ^= i < at.length ? (unsigned char)at.line[i] : '\n';
      hash *= UINT64_C(1099511628211);
    }
  return hash;
}
