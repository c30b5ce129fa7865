/* SPDX-License-Identifier: Apache-2.0 */
/* Prints the config as YAML, and the table of keys as help. */
#include "config/config_private.h"
#include "base/log.h"
#include "base/utf8.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

/* Strings are always double-quoted, so that none can be taken for a number, a boolean, null or another YAML construct.
 * Characters that YAML does not allow in a file, and all kinds of line breaks, are escaped. */
static void print_string(FILE *out, const char *text) {
  size_t length = strlen(text);
  putc('"', out);
  for (size_t at = 0; at < length;) {
    uint32_t c = 0;
    int bytes = petra_utf8_decode(text + at, length - at, &c); /* the loader accepts only UTF-8 */
    if (bytes == 0)
      bytes = 1, c = 0xfffd;
    if (c == '"' || c == '\\')
      fprintf(out, "\\%c", (int)c);
    else if (c == '\n' || c == '\t')
      fputs(c == '\n' ? "\\n" : "\\t", out);
    else if (!petra_utf8_is_shown(c))
      fprintf(out, "\\u%04" PRIX32, c); /* no character that is escaped is above U+FFFF */
    else
      fwrite(text + at, 1, (size_t)bytes, out);
    at += (size_t)bytes;
  }
  putc('"', out);
}

/* Prints the shortest of 15 to 17 digits that reads back to the same number. The program never leaves the C locale. */
static void print_real(FILE *out, double value) {
  char text[40];
  for (int digits = 15; digits <= 17; digits++) {
    snprintf(text, sizeof text, "%.*g", digits, value);
    if (strtod(text, NULL) == value)
      break;
  }
  fputs(text, out);
}

static void print_flags(FILE *out, const petra_config_key *key, unsigned flags) {
  const char *separator = "";
  putc('[', out);
  for (int i = 0; key->choices[i]; i++) {
    if (!(flags & 1u << i))
      continue;
    fprintf(out, "%s%s", separator, key->choices[i]);
    separator = ", ";
  }
  putc(']', out);
}

void petra_config_print_value(const petra_config_key *key, const petra_config *config, FILE *out) {
  const void *member = (const char *)config + key->offset;
  const petra_int_list *list = member;
  const petra_real_list *reals = member;
  const petra_period *period = member;
  unsigned bits = 0;
  switch (key->type) {
  case PETRA_KEY_STRING:
    print_string(out, *(char *const *)member);
    break;
  case PETRA_KEY_INTEGER:
    fprintf(out, "%" PRId64, *(const int64_t *)member);
    break;
  case PETRA_KEY_REAL:
    print_real(out, *(const double *)member);
    break;
  case PETRA_KEY_BOOLEAN:
    fputs(*(const bool *)member ? "true" : "false", out);
    break;
  case PETRA_KEY_CHOICE:
    memcpy(&bits, member, sizeof bits);
    fputs(key->choices[bits], out);
    break;
  case PETRA_KEY_PERIOD:
    print_real(out, period->count);
    if (period->unit != PETRA_PERIOD_EPOCHS) {
      const char *word = petra_period_words[period->unit];
      fprintf(out, " %.*s", petra_period_letters(word, period->count), word);
    }
    break;
  case PETRA_KEY_INTEGER_LIST:
    if (list->word > 0) {
      fputs(key->choices[list->word - 1], out);
      break;
    }
    putc('[', out);
    for (int64_t i = 0; i < list->count; i++)
      fprintf(out, "%s%" PRId64, i == 0 ? "" : ", ", list->values[i]);
    putc(']', out);
    break;
  case PETRA_KEY_REAL_LIST:
    putc('[', out);
    for (int64_t i = 0; i < reals->count; i++) {
      fputs(i == 0 ? "" : ", ", out);
      print_real(out, reals->values[i]);
    }
    putc(']', out);
    break;
  case PETRA_KEY_FLAG_LIST:
    memcpy(&bits, member, sizeof bits);
    print_flags(out, key, bits);
    break;
  }
}

/* Prints the section headings of `path` that `previous` does not have, and the name of the key. */
static void print_name(FILE *out, const char *path, const char *previous) {
  size_t start = 0;
  int depth = 0;
  for (;;) {
    size_t length = strcspn(path + start, ".");
    bool is_key = path[start + length] == 0;
    bool is_new = strncmp(path, previous, start + length + 1) != 0;
    if (is_key || is_new)
      fprintf(out, "%*s%.*s:%s", 2 * depth, "", (int)length, path + start, is_key ? " " : "\n");
    if (is_key)
      return;
    start += length + 1;
    depth++;
  }
}

petra_status petra_config_print(const petra_config *config, FILE *out) {
  errno = 0;
  for (int i = 0; i < petra_config_key_count; i++) {
    print_name(out, petra_config_keys[i].path, i ? petra_config_keys[i - 1].path : "");
    petra_config_print_value(&petra_config_keys[i], config, out);
    putc('\n', out);
  }
  if (fflush(out) != 0 || ferror(out))
    return petra_fail(PETRA_IO, "the config could not be written: %s", strerror(errno));
  return PETRA_OK;
}

void petra_config_help(FILE *out) {
  fputs("Keys of a config. In the file, 'run.epochs' is the key 'epochs' of the section 'run'. On the command line,\n"
        "--set run.epochs=5 sets it. 'base: other.yaml' at the top of the file reads all keys of that file first; the\n"
        "path is relative to this file, and a base can have a base.\n",
        out);
  for (int i = 0; i < petra_config_key_count; i++) {
    char expected[PETRA_CONFIG_TEXT];
    size_t section = strcspn(petra_config_keys[i].path, ".") + 1;
    if (i == 0 || strncmp(petra_config_keys[i].path, petra_config_keys[i - 1].path, section) != 0)
      putc('\n', out);
    fprintf(out, "%s: %s\n", petra_config_keys[i].path, petra_config_keys[i].help);
    fprintf(out, "    %s (default %s)\n", petra_config_expected(&petra_config_keys[i], expected, sizeof expected),
            petra_config_keys[i].default_value);
  }
}

static const char *const type_names[] = {[PETRA_KEY_STRING] = "string",
                                         [PETRA_KEY_INTEGER] = "integer",
                                         [PETRA_KEY_REAL] = "number",
                                         [PETRA_KEY_BOOLEAN] = "boolean",
                                         [PETRA_KEY_CHOICE] = "choice",
                                         [PETRA_KEY_PERIOD] = "period",
                                         [PETRA_KEY_INTEGER_LIST] = "list of integers",
                                         [PETRA_KEY_REAL_LIST] = "list of numbers",
                                         [PETRA_KEY_FLAG_LIST] = "list of choices"};

/* Prints the keys of the roles from `first` to `last`: "`run.name`, `run.output`". */
static void print_keys(FILE *out, petra_config_role first, petra_config_role last) {
  int printed = 0;
  for (int i = 0; i < petra_config_key_count; i++)
    if (petra_config_keys[i].role >= first && petra_config_keys[i].role <= last) {
      fprintf(out, "%s`%s`", printed == 0 ? "" : printed % 4 == 0 ? ",\n" : ", ", petra_config_keys[i].path);
      printed++;
    }
}

void petra_config_help_markdown(FILE *out) {
  fputs("# Keys of a config\n"
        "\n"
        "`petra train --help-config-markdown` prints this page.\n"
        "\n"
        "A config is a YAML file with sections: `run.epochs` is the key `epochs` of the section `run`.\n"
        "Every key has a default, so a config contains only the keys that it changes.\n"
        "\n"
        "On the command line, `--set run.epochs=5` overrides a key. The value is YAML on one line. petra\n"
        "refuses a comment in the value, a space at either end of a string, and a string that begins with\n"
        "`|` or `>`, because YAML would drop them. Quotes preserve them:\n"
        "`--set 'data.path=\"/data/my #1 set\"'`.\n"
        "\n"
        "An unknown key, a repeated key, a value of another type and a value out of range are errors; the\n"
        "message names the line. Types are strict: `1.5`, `010` and `\"1\"` are not integers. Anchors,\n"
        "aliases, tags and a second document are not allowed.\n"
        "\n"
        "`base: other.yaml`, at the level of the sections, reads all keys of that file first. Its path is\n"
        "relative to the folder of the file that contains it. The keys of the file override those of its\n"
        "base one by one. A base can have a base. Errors name the file and the line of the key. The\n"
        "`config.yaml` of a run contains all keys and no base.\n"
        "\n",
        out);
  fputs("A run resumes (`petra train --resume`) only with the values that its checkpoint was written with.\n"
        "The exceptions are these keys, which do not change what was computed before:\n",
        out);
  print_keys(out, PETRA_ROLE_LENGTH, PETRA_ROLE_PLACE);
  fputs(".\n\nFor a sweep, two configs are equal if they differ only in these keys, which determine\nwhere files go:\n",
        out);
  print_keys(out, PETRA_ROLE_PLACE, PETRA_ROLE_PLACE);
  fputs(".\n\n", out);
  fputs("| key | type | default | allowed | meaning |\n|---|---|---|---|---|\n", out);
  for (int i = 0; i < petra_config_key_count; i++) {
    char expected[PETRA_CONFIG_TEXT];
    fprintf(out, "| `%s` | %s | `%s` | %s | %s |\n", petra_config_keys[i].path, type_names[petra_config_keys[i].type],
            petra_config_keys[i].default_value, petra_config_expected(&petra_config_keys[i], expected, sizeof expected),
            petra_config_keys[i].help);
  }
}

void petra_config_help_words(FILE *out, bool (*print_names)(FILE *out, const char *path)) {
  static const char *const booleans[] = {"true", "false", NULL};
  for (const petra_config_key *key = petra_config_keys; key < petra_config_keys + petra_config_key_count; key++) {
    const char *const *words = key->type == PETRA_KEY_BOOLEAN     ? booleans
                               : key->type == PETRA_KEY_FLAG_LIST ? NULL
                                                                  : key->choices;
    fprintf(out, "key %s", key->path);
    for (int i = 0; words && words[i]; i++)
      fprintf(out, " %s", words[i]);
    if (key->type == PETRA_KEY_STRING && !words && !print_names(out, key->path))
      fputs(" FILE", out);
    putc('\n', out);
  }
}
