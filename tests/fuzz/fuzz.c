/* SPDX-License-Identifier: Apache-2.0 */
#include "fuzz.h"

#include "base/log.h"
#include "base/utf8.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int lines;

void petra_fuzz_fail(const char *what) {
  fprintf(stderr, "fuzz: %s\n", what);
  abort();
}

static void listen_line(void *context, petra_log_level level, const char *line) {
  (void)context;
  (void)level;
  lines++;
  if (!*line)
    petra_fuzz_fail("an error without a message");
  for (size_t at = 0, length = strlen(line); at < length;) {
    uint32_t character = 0;
    int bytes = petra_utf8_decode(line + at, length - at, &character);
    if (bytes == 0)
      petra_fuzz_fail("an error line that is not UTF-8");
    if (character < 0x20 || !petra_utf8_is_printable(character))
      petra_fuzz_fail("an error line with a control character");
    at += (size_t)bytes;
  }
}

void petra_fuzz_listen(void) {
  lines = 0;
  petra_log_set_sink(listen_line, NULL);
}

int petra_fuzz_lines(void) {
  return lines;
}
