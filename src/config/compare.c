/* SPDX-License-Identifier: Apache-2.0 */
/* Compares two configs key by key. */
#include "config/config_private.h"
#include "base/mem.h"
#include "base/text.h"

#include <string.h>

/* The bytes of a value that are compared, in addition to the memory that the value owns. Every number has only one
 * representation, because no number is NaN or -0. */
static const struct {
  size_t begin, end;
} compared[] = {
    [PETRA_KEY_STRING] = {0, 0},
    [PETRA_KEY_INTEGER] = {0, sizeof(int64_t)},
    [PETRA_KEY_REAL] = {0, sizeof(double)},
    [PETRA_KEY_BOOLEAN] = {0, sizeof(bool)},
    [PETRA_KEY_CHOICE] = {0, sizeof(unsigned)},
    [PETRA_KEY_PERIOD] = {0, offsetof(petra_period, unit) + sizeof(petra_period_unit)},
    [PETRA_KEY_INTEGER_LIST] = {offsetof(petra_int_list, count), offsetof(petra_int_list, word) + sizeof(int)},
    [PETRA_KEY_REAL_LIST] = {offsetof(petra_real_list, count), sizeof(petra_real_list)},
    [PETRA_KEY_FLAG_LIST] = {0, sizeof(unsigned)}};

bool petra_config_same_value(const petra_config_key *key, const petra_config *left, const petra_config *right) {
  const size_t begin = compared[key->type].begin, end = compared[key->type].end;
  const char *a = (const char *)left + key->offset, *b = (const char *)right + key->offset;
  size_t a_bytes, b_bytes;
  const void *a_memory = petra_config_memory(key, left, &a_bytes),
             *b_memory = petra_config_memory(key, right, &b_bytes);
  return memcmp(a + begin, b + begin, end - begin) == 0 && a_bytes == b_bytes &&
         (a_bytes == 0 || memcmp(a_memory, b_memory, a_bytes) == 0);
}

/* Prints as much of the value as fits; "" if memory ran out. */
static void print_start(const petra_config_key *key, const petra_config *config, char out[PETRA_CONFIG_VALUE]) {
  memset(out, 0, PETRA_CONFIG_VALUE);
  FILE *stream = fmemopen(out, PETRA_CONFIG_VALUE - 1, "w");
  if (!stream)
    return;
  petra_config_print_value(key, config, stream);
  fclose(stream);
}

bool petra_config_differs(const petra_config *a, const petra_config *b, petra_config_role last,
                          petra_config_difference *difference) {
  for (const petra_config_key *key = petra_config_keys; key < petra_config_keys + petra_config_key_count; key++) {
    if (key->role > last || petra_config_same_value(key, a, b))
      continue;
    difference->key = key->path;
    print_start(key, a, difference->a);
    print_start(key, b, difference->b);
    return true;
  }
  return false;
}

typedef struct setting {
  const petra_config_key *key;
  const petra_config *config;
} setting;

static petra_status print_setting(const void *context, FILE *out) {
  const setting *s = context;
  fprintf(out, "%s=", s->key->path);
  if (s->key->type == PETRA_KEY_STRING)
    fputs(*(char *const *)((const char *)s->config + s->key->offset), out);
  else
    petra_config_print_value(s->key, s->config, out);
  return PETRA_OK;
}

petra_status petra_config_report_settings(const petra_config *from, const petra_config *to,
                                          petra_status (*report)(void *context, const char *setting), void *context) {
  for (const petra_config_key *key = petra_config_keys; key < petra_config_keys + petra_config_key_count; key++) {
    PETRA_FREED char *text = NULL;
    size_t size;
    if (petra_config_same_value(key, from, to))
      continue;
    PETRA_TRY(petra_text_print(print_setting, &(setting){key, to}, "a setting", &text, &size));
    PETRA_TRY(report(context, text));
  }
  return PETRA_OK;
}

petra_status petra_config_plain(const petra_config *config, petra_config **out) {
  char text[64];
  const int length = snprintf(text, sizeof text, "optim: {name: %s, lr: 0.1}", config->optim.name);
  return petra_config_load_text(&(petra_config_text){"defaults", text, (size_t)length}, NULL, 0, out);
}

petra_status petra_config_print_changes(const petra_config *config, const char *prefix, const char *const *listed,
                                        const char *before, FILE *out) {
  PETRA_DESTROYED(petra_config_destroy) petra_config *plain = NULL;
  PETRA_TRY(petra_config_plain(config, &plain));
  for (int i = 0; i < petra_config_key_count; i++) {
    const petra_config_key *key = &petra_config_keys[i];
    if (strncmp(key->path, prefix, strlen(prefix)) != 0 || petra_text_is_in(listed, key->path) ||
        petra_config_same_value(key, config, plain))
      continue;
    fprintf(out, "%s%s: ", before, key->path);
    petra_config_print_value(key, config, out);
    before = ", ";
  }
  return PETRA_OK;
}

petra_status petra_config_compare_text(const char *path, const char *text, const petra_config *b,
                                       petra_config_role last, bool *differs, petra_config_difference *difference) {
  PETRA_DESTROYED(petra_config_destroy) petra_config *a = NULL;
  PETRA_TRY(petra_config_load_text(&(petra_config_text){path, text, strlen(text)}, NULL, 0, &a));
  *differs = petra_config_differs(a, b, last, difference);
  return PETRA_OK;
}
