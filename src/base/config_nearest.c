/* SPDX-License-Identifier: Apache-2.0 */
/* The suggestion in the error line of an unknown key. */
#include "base/config_keys.h"

#include <string.h>

enum { LONGEST = 63 };

static int least(int a, int b) {
  return a < b ? a : b;
}

/* The least number of insertions, deletions, replacements and swaps of neighbours that turn a into b. */
static int edit_distance(const char *a, const char *b) {
  int cost[LONGEST + 1][LONGEST + 1]; /* of the first i characters of a and the first j of b */
  int rows = (int)strlen(a), columns = (int)strlen(b);
  for (int i = 0; i <= rows; i++)
    cost[i][0] = i;
  for (int j = 0; j <= columns; j++)
    cost[0][j] = j;
  for (int i = 1; i <= rows; i++)
    for (int j = 1; j <= columns; j++) {
      int moved = least(cost[i - 1][j], cost[i][j - 1]) + 1;
      cost[i][j] = least(moved, cost[i - 1][j - 1] + (a[i - 1] != b[j - 1]));
      if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1])
        cost[i][j] = least(cost[i][j], cost[i - 2][j - 2] + 1);
    }
  return cost[rows][columns];
}

static const char *last_name(const char *path) {
  const char *dot = strrchr(path, '.');
  return dot ? dot + 1 : path;
}

/* Twice the number of mistakes. A wrong section is one mistake, and a little worse than one in the spelling. */
static int path_distance(const char *a, const char *b) {
  return least(2 * edit_distance(a, b), 2 * edit_distance(last_name(a), last_name(b)) + 3);
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
