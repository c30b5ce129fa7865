/* SPDX-License-Identifier: Apache-2.0 */
#include "base/csv.h"

#include <ctype.h>

petra_csv_cell petra_csv_trim(const char *text, const char *end) {
  while (text < end && isspace((unsigned char)*text))
    text++;
  while (end > text && isspace((unsigned char)end[-1]))
    end--;
  if (end - text >= 2 && *text == '"' && end[-1] == '"')
    text++, end--;
  return (petra_csv_cell){text, (size_t)(end - text)};
}

bool petra_csv_next(const char **at, const char *end, bool *first, petra_csv_cell *out) {
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
  *out = petra_csv_trim(start, *at);
  return true;
}
