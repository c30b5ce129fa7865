/* SPDX-License-Identifier: Apache-2.0 */
#include "base/json.h"

#include "base/log.h"
#include "base/mem.h"
#include "base/utf8.h"

#include <errno.h>
#include <jansson.h>
#include <math.h>
#include <string.h>

json_t *petra_json_real(double value) {
  return isfinite(value) ? json_real(value) : json_null();
}

json_t *petra_json_string(const char *text) {
  PETRA_FREED char *clean = NULL;
  size_t length = strlen(text), used = 0;
  if (petra_allocate_raw(&clean, 4 * length + 1, 1) != PETRA_OK) /* a byte may become "\x1b" */
    return NULL;
  for (size_t at = 0; at < length;) {
    uint32_t character = 0;
    int bytes = petra_utf8_decode(text + at, length - at, &character);
    if (bytes)
      memcpy(clean + used, text + at, (size_t)bytes);
    else
      snprintf(clean + used, 5, "\\x%02x", (unsigned char)text[at]);
    used += bytes ? (size_t)bytes : 4;
    at += bytes ? (size_t)bytes : 1;
  }
  return json_stringn(clean, used);
}

static void lose(json_t **value) {
  json_decref(*value);
  *value = NULL;
}

void petra_json_set(json_t **object, const char *key, json_t *value) {
  if (json_object_set_new(*object, key, value) != 0)
    lose(object);
}

void petra_json_append(json_t **list, json_t *value) {
  if (json_array_append_new(*list, value) != 0)
    lose(list);
}

/* Writes whole characters of the text of an object; characters that a terminal does not show occur only in strings. */
static int write_shown(const char *text, size_t size, void *out) {
  for (size_t at = 0; at < size;) {
    uint32_t character = 0;
    int bytes = petra_utf8_decode(text + at, size - at, &character);
    if (bytes == 0)
      return -1;
    if (petra_utf8_is_shown(character) || character == '\n')
      fwrite(text + at, 1, (size_t)bytes, out);
    else
      fprintf(out, "\\u%04x", (unsigned)character); /* none is above U+FFFF */
    at += (size_t)bytes;
  }
  return 0;
}

static petra_status dump(const json_t *value, size_t flags, const char *end, FILE *out) {
  if (!value)
    return petra_fail(PETRA_NO_MEMORY, "out of memory: the JSON output could not be made");
  errno = 0;
  int failed = json_dump_callback(value, write_shown, out, flags | JSON_REAL_PRECISION(17));
  fputs(end, out);
  return failed ? petra_fail(PETRA_IO, "the JSON output could not be written: %s", strerror(errno))
                : petra_json_end(out);
}

petra_status petra_json_end(FILE *out) {
  if (fflush(out) != 0 || ferror(out))
    return petra_fail(PETRA_IO, "the JSON output could not be written: %s", strerror(errno));
  return PETRA_OK;
}

petra_status petra_json_print(const json_t *object, FILE *out) {
  return dump(object, JSON_INDENT(2), "\n", out);
}

petra_status petra_json_put_new(json_t *value, FILE *out) {
  petra_status status = dump(value, JSON_ENCODE_ANY, "", out);
  json_decref(value);
  return status;
}

petra_status petra_json_print_new(json_t *object) {
  petra_status status = petra_json_print(object, stdout);
  json_decref(object);
  return status;
}
