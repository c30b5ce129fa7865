/* The suggestion in the error line of an unknown key. */
#include "base/config_keys.h"

#include <string.h>

enum { LONGEST = 63 };

/* Levenshtein's distance: the least number of insertions, deletions and replacements that turn a into b. */
static int edit_distance(const char *a, const char *b) {
  int row[LONGEST + 1];
  int columns = (int)strlen(b);
  for (int j = 0; j <= columns; j++)
    row[j] = j;
  for (int i = 1; a[i - 1]; i++) {
    int diagonal = row[0];
    row[0] = i;
    for (int j = 1; j <= columns; j++) {
      int replaced = diagonal + (a[i - 1] != b[j - 1]);
      int moved = (row[j] < row[j - 1] ? row[j] : row[j - 1]) + 1;
      diagonal = row[j];
      row[j] = replaced < moved ? replaced : moved;
    }
  }
  return row[columns];
}

static const char *last_name(const char *path) {
  const char *dot = strrchr(path, '.');
  return dot ? dot + 1 : path;
}

/* A right name in a wrong section counts as one mistake. */
static int path_distance(const char *a, const char *b) {
  int whole = edit_distance(a, b);
  int name = edit_distance(last_name(a), last_name(b)) + 1;
  return whole < name ? whole : name;
}

bool petra_config_nearest(const char *path, char *out, size_t size) {
  if (strlen(path) > LONGEST)
    return false;
  int count = 0, best = 1 + (int)strlen(last_name(path)) / 4 + 1; /* the first distance that is too far */
  const petra_config_key *keys = petra_config_keys(&count);
  bool found = false;
  for (int i = 0; i < count; i++) {
    char candidate[LONGEST + 1];
    snprintf(candidate, sizeof candidate, "%s", keys[i].path);
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
