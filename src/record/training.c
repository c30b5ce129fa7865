/* SPDX-License-Identifier: Apache-2.0 */
#include "record/training.h"

#include "base/mem.h"

#include <string.h>

static const char *text_of(const petra_run_h5_summary *run) {
  return run->training ? run->training : "";
}

static const char *next_line(const char *line) {
  line += strcspn(line, "\n");
  return *line ? line + 1 : line;
}

static size_t key_length(const char *line) {
  const size_t length = strcspn(line, "\n");
  const char *colon = memchr(line, ':', length);
  return colon ? (size_t)(colon - line) : length;
}

/* Returns the line of a key; NULL: there is none. */
static const char *find(const char *text, const char *key, size_t length) {
  while (*text && !(key_length(text) == length && strncmp(text, key, length) == 0))
    text = next_line(text);
  return *text ? text : NULL;
}

/* Copies the value of a line; NULL: there is no line. */
static petra_status copy_value(const char *line, size_t key, char **out) {
  *out = NULL;
  if (!line)
    return PETRA_OK;
  line += key;
  line += *line == ':';
  line += *line == ' ';
  const size_t length = strcspn(line, "\n");
  PETRA_TRY(petra_allocate(out, length + 1, 1));
  memcpy(*out, line, length);
  return PETRA_OK;
}

static bool is_equal(const char *a, const char *b) {
  return a && b ? strcmp(a, b) == 0 : a == b;
}

static petra_status report_key(const petra_run_h5_summary *const *runs, int count, const char *line,
                               petra_config_reporter report, void *context) {
  const size_t length = key_length(line);
  char **values, *key = NULL;
  bool differ = false;
  PETRA_TRY(petra_allocate(&values, (size_t)count, sizeof *values));
  petra_status status = petra_allocate(&key, length + 1, 1);
  for (int i = 0; i < count && status == PETRA_OK; i++) {
    status = copy_value(find(text_of(runs[i]), line, length), length, &values[i]);
    differ = differ || !is_equal(values[0], values[i]);
  }
  if (status == PETRA_OK && differ) {
    memcpy(key, line, length);
    status = report(context, key, PETRA_ROLE_RESULT, values);
  }
  for (int i = 0; i < count; i++)
    petra_free(values[i]);
  petra_free(values);
  petra_free(key);
  return status;
}

petra_status petra_training_report_differences(const petra_run_h5_summary *const *runs, int count,
                                               petra_config_reporter report, void *context) {
  for (int i = 0; i < count; i++)
    for (const char *line = text_of(runs[i]); *line; line = next_line(line)) {
      bool seen = false;
      for (int other = 0; other < i && !seen; other++)
        seen = find(text_of(runs[other]), line, key_length(line)) != NULL;
      if (!seen && key_length(line) > 0)
        PETRA_TRY(report_key(runs, count, line, report, context));
    }
  return PETRA_OK;
}

bool petra_training_has_key(const petra_run_h5_summary *run, const char *key) {
  static const char *const sections[] = {"model.", "optim.", "device."};
  bool found = true;
  for (size_t i = 0; run->training && i < sizeof sections / sizeof *sections; i++)
    found = found && strncmp(key, sections[i], strlen(sections[i])) != 0;
  return found;
}

bool petra_training_is_missing(const petra_run_h5_summary *run) {
  return petra_run_h5_of_pytorch(run) && !run->training;
}
