/* SPDX-License-Identifier: Apache-2.0 */
#include "config/config_private.h"

#include "base/log.h"
#include "base/mem.h"
#include "base/text.h"
#include "base/utf8.h"

#include <errno.h>
#include <math.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

/* Returns true if the file is binary. A user cannot look up the lines of a config in a log. */
static bool is_binary(const char *file) {
  const size_t length = strlen(file);
  return length > 3 && strcmp(file + length - 3, ".h5") == 0;
}

static char *make_label(char *out, size_t size, const petra_config_origin *origin, int line, const char *path) {
  char shown[160];
  if (origin->set) {
    petra_utf8_show(shown, sizeof shown, origin->set, strlen(origin->set));
    if (origin->file)
      snprintf(out, size, "%s: %s", origin->file, shown);
    else
      snprintf(out, size, "--set %s", shown);
  } else if (origin->file) {
    char file[256];
    petra_utf8_show(file, sizeof file, origin->file, strlen(origin->file));
    petra_utf8_show(shown, sizeof shown, path, strlen(path));
    if (line == 0 && *path)
      snprintf(out, size, "%s: %s (default)", file, shown);
    else if (is_binary(origin->file))
      snprintf(out, size, "%s%s%s", file, *path ? ": " : "", shown);
    else
      snprintf(out, size, "%s:%d%s%s", file, origin->before + line, *path ? ": " : "", shown);
  } else {
    snprintf(out, size, "default: %s", path);
  }
  return out;
}

petra_status petra_config_fail_at(const petra_config_origin *origin, int line, const char *path, const char *format,
                                  ...) {
  char label[PETRA_CONFIG_LABEL], text[1024];
  va_list arguments;
  va_start(arguments, format);
  vsnprintf(text, sizeof text, format, arguments);
  va_end(arguments);
  return petra_fail(PETRA_CONFIG, "%s: %s", make_label(label, sizeof label, origin, line, path), text);
}

const char *petra_config_quoted(const petra_config_origin *origin, char *out, size_t size) {
  const size_t length = origin->set ? strcspn(origin->set, "=") : 0;
  const char *path = NULL;
  for (int i = 0; i < petra_config_key_count && length > 0; i++)
    if (petra_config_keys[i].type == PETRA_KEY_STRING && strlen(petra_config_keys[i].path) == length &&
        memcmp(petra_config_keys[i].path, origin->set, length) == 0)
      path = petra_config_keys[i].path;
  snprintf(out, size, path ? " (in quotes if it belongs to the value: --set '%s=\"...\"')" : "%s", path ? path : "");
  return out;
}

petra_status petra_config_fail_value(const petra_config_origin *origin, int line, const petra_config_key *key,
                                     const char *what) {
  char expected[PETRA_CONFIG_TEXT], quoted[PETRA_CONFIG_QUOTED];
  return petra_config_fail_at(origin, line, key->path, "%s; expected %s%s", what,
                              petra_config_expected(key, expected, sizeof expected),
                              petra_config_quoted(origin, quoted, sizeof quoted));
}

petra_status petra_config_remember(petra_config *config, int key, const petra_config_origin *origin, int line) {
  char text[PETRA_CONFIG_LABEL];
  char *label = NULL;
  PETRA_TRY(petra_duplicate_string(&label, make_label(text, sizeof text, origin, line, petra_config_keys[key].path)));
  petra_free(config->labels[key]);
  config->labels[key] = label;
  return PETRA_OK;
}

petra_status petra_config_fail(const petra_config *config, const char *key, const char *format, ...) {
  char text[1024];
  va_list arguments;
  va_start(arguments, format);
  vsnprintf(text, sizeof text, format, arguments);
  va_end(arguments);
  int index = petra_config_key_find(key);
  const char *known = index >= 0 && config->labels ? config->labels[index] : NULL;
  const size_t length = known ? strlen(known) : 0, value = strcspn(text, ":");
  const bool repeated = length > value && text[value] &&
                        known[length - value - 1] == '=' && /* --set KEY=VALUE: VALUE: */
                        memcmp(known + length - value, text, value) == 0;
  return petra_fail(PETRA_CONFIG, "%s%s: %s", known ? "" : "default: ", known ? known : key,
                    repeated ? text + value + strlen(": ") : text);
}

static petra_status fail_scalar(const petra_config_origin *origin, const petra_config_key *key,
                                const petra_config_scalar *value, const char *what) {
  char shown[PETRA_CONFIG_SHOWN], text[PETRA_CONFIG_TEXT];
  if (value->length == 0 && !value->quoted)
    return petra_config_fail_value(origin, value->line, key, "no value");
  petra_utf8_show(shown, sizeof shown, value->text, value->length);
  snprintf(text, sizeof text, value->quoted ? "\"%s\" %s" : "'%s' %s", shown, what);
  return petra_config_fail_value(origin, value->line, key, text);
}

static petra_status fail_choice(const petra_config_origin *origin, const petra_config_key *key,
                                const petra_config_scalar *value) {
  char shown[PETRA_CONFIG_SHOWN], expected[PETRA_CONFIG_TEXT], near[PETRA_CONFIG_SHOWN];
  if (value->length == 0 && !value->quoted)
    return petra_config_fail_value(origin, value->line, key, "no value");
  petra_utf8_show(shown, sizeof shown, value->text, value->length);
  return petra_config_fail_at(origin, value->line, key->path,
                              value->quoted ? "\"%s\" is unknown; expected %s%s" : "'%s' is unknown; expected %s%s",
                              shown, petra_config_expected(key, expected, sizeof expected),
                              petra_nearest_hint(near, sizeof near, "", shown, key->choices));
}

/* Advances *text past digits, without superfluous leading zeros. */
static bool skip_digits(const char **text, bool leading_zeros) {
  const char *start = *text;
  while (**text >= '0' && **text <= '9')
    ++*text;
  return *text > start && (leading_zeros || *start != '0' || *text == start + 1);
}

/* Matches [-+]?(0|[1-9][0-9]*). */
static bool is_integer(const petra_config_scalar *value) {
  const char *text = value->text;
  text += *text == '-' || *text == '+';
  return !value->quoted && skip_digits(&text, false) && text == value->text + value->length;
}

/* Matches an integer, or an integer with a fraction (digits on at least one side of the point), an exponent or both. */
static bool is_real(const petra_config_scalar *value) {
  const char *text = value->text;
  text += *text == '-' || *text == '+';
  bool digits = *text != '.';
  if (digits && !skip_digits(&text, false))
    return false;
  if (*text == '.') {
    text++;
    digits |= skip_digits(&text, true);
  }
  if (digits && (*text == 'e' || *text == 'E')) {
    text++;
    text += *text == '-' || *text == '+';
    digits = skip_digits(&text, true);
  }
  return !value->quoted && digits && text == value->text + value->length;
}

static petra_status parse_integer(const petra_config_key *key, const petra_config_origin *origin,
                                  const petra_config_scalar *value, int64_t *out) {
  if (!is_integer(value))
    return fail_scalar(origin, key, value, value->quoted ? "is a string" : "is not an integer");
  errno = 0;
  long long parsed = strtoll(value->text, NULL, 10);
  if (errno != 0 || parsed < key->min || parsed > key->max)
    return fail_scalar(origin, key, value, "is out of range");
  *out = parsed;
  return PETRA_OK;
}

/* Returns true if all digits before the exponent are 0. */
static bool is_written_as_zero(const char *text) {
  return text[strcspn(text, "123456789eE")] < '1' || text[strcspn(text, "123456789eE")] > '9';
}

static petra_status parse_real(const petra_config_key *key, const petra_config_origin *origin,
                               const petra_config_scalar *value, double *out) {
  if (!is_real(value))
    return fail_scalar(origin, key, value, value->quoted ? "is a string" : "is not a finite number");
  double parsed = strtod(value->text, NULL) + 0.0; /* the sum turns -0 into 0 */
  bool above = key->rule == PETRA_RULE_BELOW_MAX ? parsed >= key->real_max : parsed > key->real_max;
  bool lost = parsed == 0 && !is_written_as_zero(value->text);
  if (!isfinite(parsed) || parsed < key->real_min || above || lost)
    return fail_scalar(origin, key, value, "is out of range");
  *out = parsed;
  return PETRA_OK;
}

/* Returns the index of a scalar among the choices, or -1. */
static int find_choice(const petra_config_key *key, const petra_config_scalar *value) {
  for (int i = 0; key->choices[i]; i++)
    if (strlen(key->choices[i]) == value->length && memcmp(key->choices[i], value->text, value->length) == 0)
      return i;
  return -1;
}

static bool is_null(const petra_config_scalar *value) {
  return !value->quoted && (value->length == 0 || strcmp(value->text, "~") == 0 || strcmp(value->text, "null") == 0 ||
                            strcmp(value->text, "Null") == 0 || strcmp(value->text, "NULL") == 0);
}

static bool is_file_name(const petra_config_scalar *value) {
  return value->length >= 1 && value->length <= 255 && !strchr(value->text, '/') && strcmp(value->text, ".") != 0 &&
         strcmp(value->text, "..") != 0;
}

/* If a string is expected, a plain scalar such as 2024 or true is taken as it is written: the type of the key makes its
 * meaning clear. */
static petra_status check_string(const petra_config_key *key, const petra_config_origin *origin,
                                 const petra_config_scalar *value) {
  if (is_null(value))
    return fail_scalar(origin, key, value, "is not a string (the empty string is \"\")");
  if (memchr(value->text, 0, value->length))
    return fail_scalar(origin, key, value, "holds a NUL character");
  if (key->choices && find_choice(key, value) < 0)
    return fail_choice(origin, key, value);
  if (key->rule == PETRA_RULE_NOT_EMPTY && value->length == 0)
    return fail_scalar(origin, key, value, "is empty");
  if (key->rule == PETRA_RULE_FILE_NAME && !is_file_name(value))
    return fail_scalar(origin, key, value, "is not a file name");
  return PETRA_OK;
}

static petra_status store_string(const petra_config_key *key, const petra_config_origin *origin,
                                 const petra_config_scalar *value, char **member) {
  char *copy = NULL;
  PETRA_TRY(check_string(key, origin, value));
  PETRA_TRY(petra_duplicate_string(&copy, value->text));
  petra_free(*member);
  *member = copy;
  return PETRA_OK;
}

static petra_status store_boolean(const petra_config_key *key, const petra_config_origin *origin,
                                  const petra_config_scalar *value, bool *member) {
  bool yes = strcmp(value->text, "true") == 0;
  if (value->quoted || (!yes && strcmp(value->text, "false") != 0))
    return fail_scalar(origin, key, value, value->quoted ? "is a string" : "is not a boolean");
  *member = yes;
  return PETRA_OK;
}

/* Returns the unit of the word after a number, or PETRA_PERIOD_UNITS. */
static petra_period_unit find_unit(const char *word) {
  int unit = *word ? 0 : PETRA_PERIOD_EPOCHS;
  for (; *word && unit < PETRA_PERIOD_UNITS; unit++) {
    const char *plural = petra_period_words[unit];
    const size_t singular = (size_t)petra_period_letters(plural, 1);
    if (strcmp(word, plural) == 0 || (strlen(word) == singular && strncmp(word, plural, singular) == 0))
      break;
  }
  return (petra_period_unit)unit;
}

/* Stores a period: "2", "2 epochs", "500 microbatches", "1 minute", "0.5 minutes". */
static petra_status store_period(const petra_config_key *key, const petra_config_origin *origin,
                                 const petra_config_scalar *value, petra_period *member) {
  char digits[32];
  const size_t length = strcspn(value->text, " "), blanks = strspn(value->text + length, " ");
  snprintf(digits, sizeof digits, "%.*s", (int)(length < sizeof digits ? length : 0), value->text);
  const petra_config_scalar number = {.text = digits, .length = strlen(digits)};
  const petra_period_unit unit = find_unit(value->text + length + blanks);
  const bool whole = unit != PETRA_PERIOD_MINUTES;
  if (strlen(value->text) != value->length || unit == PETRA_PERIOD_UNITS || !(whole ? is_integer : is_real)(&number))
    return fail_scalar(origin, key, value, "is not a period");
  const double count = strtod(digits, NULL) + 0.0;
  if (!(count >= 0 && count <= key->real_max) || (count == 0 && !is_written_as_zero(digits)))
    return fail_scalar(origin, key, value, "is out of range");
  *member = (petra_period){count, unit};
  return PETRA_OK;
}

static petra_status store_choice(const petra_config_key *key, const petra_config_origin *origin,
                                 const petra_config_scalar *value, void *member) {
  const int index = find_choice(key, value);
  petra_int_list *list = member;
  if (index < 0)
    return fail_choice(origin, key, value);
  if (key->type == PETRA_KEY_CHOICE) {
    memcpy(member, &index, sizeof index);
    return PETRA_OK;
  }
  petra_free(list->values);
  *list = (petra_int_list){.word = index + 1};
  return PETRA_OK;
}

petra_status petra_config_store(petra_config *config, const petra_config_key *key, const petra_config_origin *origin,
                                const petra_config_scalar *value) {
  void *member = (char *)config + key->offset;
  switch (key->type) {
  case PETRA_KEY_STRING:
    return store_string(key, origin, value, member);
  case PETRA_KEY_INTEGER:
    return parse_integer(key, origin, value, member);
  case PETRA_KEY_REAL:
    return parse_real(key, origin, value, member);
  case PETRA_KEY_BOOLEAN:
    return store_boolean(key, origin, value, member);
  case PETRA_KEY_PERIOD:
    return store_period(key, origin, value, member);
  case PETRA_KEY_CHOICE:
    return store_choice(key, origin, value, member);
  case PETRA_KEY_INTEGER_LIST:
    if (key->rule == PETRA_RULE_OR_ONE)
      return petra_config_store_list(config, key, origin, value, 1);
    if (key->choices)
      return store_choice(key, origin, value, member);
    break;
  case PETRA_KEY_REAL_LIST:
  case PETRA_KEY_FLAG_LIST:
    break;
  }
  return fail_scalar(origin, key, value, "is not a list");
}

static petra_status parse_numbers(const petra_config_key *key, const petra_config_origin *origin,
                                  const petra_config_scalar *items, size_t count, void *values) {
  int64_t *integers = values;
  double *reals = values;
  for (size_t i = 0; i < count; i++) {
    if (key->type == PETRA_KEY_REAL_LIST) {
      PETRA_TRY(parse_real(key, origin, &items[i], &reals[i]));
      continue;
    }
    PETRA_TRY(parse_integer(key, origin, &items[i], &integers[i]));
    if (key->rule == PETRA_RULE_RISING && i > 0 && integers[i] <= integers[i - 1])
      return fail_scalar(origin, key, &items[i], "is not above the item before it");
  }
  return PETRA_OK;
}

static petra_status store_numbers(const petra_config_key *key, const petra_config_origin *origin,
                                  const petra_config_scalar *items, size_t count, void *member) {
  const bool real = key->type == PETRA_KEY_REAL_LIST;
  petra_int_list *integers = member;
  petra_real_list *reals = member;
  PETRA_FREED void *values = NULL;
  PETRA_TRY(petra_allocate(&values, count, real ? sizeof(double) : sizeof(int64_t)));
  PETRA_TRY(parse_numbers(key, origin, items, count, values));
  void *old = real ? (void *)reals->values : integers->values;
  if (real)
    *reals = (petra_real_list){values, (int64_t)count};
  else
    *integers = (petra_int_list){.values = values, .count = (int64_t)count};
  values = old;
  return PETRA_OK;
}

static petra_status store_flags(const petra_config_key *key, const petra_config_origin *origin,
                                const petra_config_scalar *items, size_t count, unsigned *member) {
  unsigned flags = 0;
  for (size_t i = 0; i < count; i++) {
    int index = find_choice(key, &items[i]);
    if (index < 0)
      return fail_choice(origin, key, &items[i]);
    if (flags & 1u << index)
      return fail_scalar(origin, key, &items[i], "is there twice");
    flags |= 1u << index;
  }
  *member = flags;
  return PETRA_OK;
}

petra_status petra_config_store_list(petra_config *config, const petra_config_key *key,
                                     const petra_config_origin *origin, const petra_config_scalar *items,
                                     size_t count) {
  void *member = (char *)config + key->offset;
  return key->type == PETRA_KEY_FLAG_LIST ? store_flags(key, origin, items, count, member)
                                          : store_numbers(key, origin, items, count, member);
}

petra_status petra_config_number(const petra_config *config, const char *key, double *out) {
  static const char *const types[] = {
      [PETRA_KEY_STRING] = "a string",  [PETRA_KEY_INTEGER] = "an integer", [PETRA_KEY_BOOLEAN] = "true or false",
      [PETRA_KEY_CHOICE] = "a word",    [PETRA_KEY_PERIOD] = "a period",    [PETRA_KEY_INTEGER_LIST] = "a list",
      [PETRA_KEY_REAL_LIST] = "a list", [PETRA_KEY_FLAG_LIST] = "a list"};
  const int index = petra_config_key_find(key);
  if (index < 0 && *key && petra_config_is_section(key)) {
    char names[PETRA_CONFIG_TEXT];
    return petra_fail(PETRA_CONFIG, "%s is a section; expected a real number in it, of %s", key,
                      petra_config_children(key, names, sizeof names));
  }
  if (index < 0)
    return petra_fail(PETRA_CONFIG, "%s: no such key; expected one of petra train --help-config", key);
  const petra_config_key *found = &petra_config_keys[index];
  const void *member = (const char *)config + found->offset;
  if (found->type != PETRA_KEY_REAL)
    return petra_fail(PETRA_CONFIG, "%s is %s; expected a real number", key, types[found->type]);
  *out = *(const double *)member;
  return PETRA_OK;
}
