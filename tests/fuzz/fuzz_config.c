/* SPDX-License-Identifier: Apache-2.0 */
#include "fuzz.h"

#include "config/config.h"
#include "config/config_private.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { SETS_MAX = 8, SEPARATOR = 0x1e };

/* As `petra COMMAND - --set ...` loads it: the text comes by standard input. */
static petra_status load(const char *text, size_t size, const char *const *sets, int set_count, petra_config **out) {
  FILE *terminal = stdin;
  if (size == 0)
    return petra_config_load(NULL, sets, set_count, out);
  FILE *stream = fmemopen((void *)(uintptr_t)text, size, "rb");
  if (!stream)
    petra_fuzz_fail("no stream for the text");
  stdin = stream;
  petra_status status = petra_config_load("-", sets, set_count, out);
  stdin = terminal;
  fclose(stream);
  return status;
}

static char *print(const petra_config *config, size_t *size) {
  char *text = NULL;
  FILE *stream = open_memstream(&text, size);
  if (!stream || petra_config_print(config, stream) != PETRA_OK || fclose(stream) != 0)
    petra_fuzz_fail("a config cannot be printed");
  return text;
}

/* Numbers are in the range of their key. */
static void check_ranges(const petra_config *config) {
  for (int i = 0; i < petra_config_key_count; i++) {
    const void *member = (const char *)config + petra_config_keys[i].offset;
    if (petra_config_keys[i].type == PETRA_KEY_INTEGER && !petra_config_keys[i].choices) {
      int64_t value = *(const int64_t *)member;
      if (value < petra_config_keys[i].min || value > petra_config_keys[i].max)
        petra_fuzz_fail("an integer out of range was taken");
    } else if (petra_config_keys[i].type == PETRA_KEY_REAL) {
      double value = *(const double *)member;
      if (!(value >= petra_config_keys[i].real_min && value <= petra_config_keys[i].real_max))
        petra_fuzz_fail("a number out of range was taken");
    }
  }
}

/* What was printed loads to the same. */
static void check_round_trip(const petra_config *config) {
  petra_config *again = NULL;
  size_t size, again_size;
  char *text = print(config, &size);
  if (load(text, size, NULL, 0, &again) != PETRA_OK)
    petra_fuzz_fail("a config that was printed does not load");
  char *again_text = print(again, &again_size);
  if (size != again_size || memcmp(text, again_text, size) != 0)
    petra_fuzz_fail("a config that was printed and loaded prints differently");
  petra_config_destroy(again);
  free(again_text);
  free(text);
}

int petra_fuzz_config(const uint8_t *data, size_t size) {
  const char *sets[SETS_MAX];
  int set_count = 0;
  char *text = malloc(size + 1);
  if (!text)
    return 0;
  if (size)
    memcpy(text, data, size);
  text[size] = 0; /* a --set argument is a string, and ends with its first NUL */
  char *mark = size ? memchr(text, SEPARATOR, size) : NULL;
  const size_t length = mark ? (size_t)(mark - text) : size;
  while (mark && set_count < SETS_MAX) {
    *mark = 0;
    sets[set_count++] = mark + 1;
    mark = memchr(mark + 1, SEPARATOR, size - (size_t)(mark + 1 - text));
  }
  if (mark)
    *mark = 0;
  petra_config *config = NULL;
  petra_fuzz_listen();
  petra_status status = load(text, length, sets, set_count, &config);
  if (petra_fuzz_lines() != (status != PETRA_OK))
    petra_fuzz_fail("an error that is not one line");
  if ((status == PETRA_OK) != (config != NULL))
    petra_fuzz_fail("a config without success, or none with it");
  if (config) {
    check_ranges(config);
    check_round_trip(config);
  }
  petra_config_destroy(config);
  free(text);
  return 0;
}
