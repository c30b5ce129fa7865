/* SPDX-License-Identifier: Apache-2.0 */
/* The suggestion in the error line of an unknown key. */
#include "config/keys.h"
#include "base/nearest.h"

#include <string.h>

enum { LONGEST = PETRA_NEAREST_LONGEST };

static const char *last_name(const char *path) {
  const char *dot = strrchr(path, '.');
  return dot ? dot + 1 : path;
}

/* Twice the number of mistakes. A wrong section is one mistake, and a little worse than one in the spelling. */
static int path_distance(const char *a, const char *b) {
  const int whole = 2 * petra_edit_distance(a, b), last = 2 * petra_edit_distance(last_name(a), last_name(b)) + 3;
  return whole < last ? whole : last;
}

bool petra_config_nearest(const char *path, char *out, size_t size) {
  if (strlen(path) > LONGEST || *last_name(path) == 0)
    return false;
  int best = 2 * (2 + (int)strlen(last_name(path)) / 4); /* the first that is too far */
  bool found = false;
  for (int i = 0; i < petra_config_key_count; i++) {
    char candidate[LONGEST + 1];
    snprintf(candidate, sizeof candidate, "%s", petra_config_keys[i].path);
    for (;;) { /* the key, then the sections around it */
      int distance = path_distance(path, candidate);
      if (distance < best) {
        best = distance, found = true;
        snprintf(out, size, "%s", candidate);
      }
      char *dot = strrchr(candidate, '.');
      if (!dot)
        break;
      *dot = 0;
    }
  }
  return found;
}
