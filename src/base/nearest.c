/* SPDX-License-Identifier: Apache-2.0 */
#include "base/nearest.h"

#include <ctype.h>
#include <stdio.h>
#include <string.h>

enum { LONGEST = PETRA_NEAREST_LONGEST };

static int least(int a, int b) {
  return a < b ? a : b;
}

int petra_edit_distance(const char *a, const char *b) {
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

static void lower(char *out, const char *text) {
  size_t i = 0;
  for (; text[i]; i++)
    out[i] = (char)tolower((unsigned char)text[i]);
  out[i] = 0;
}

char *petra_nearest_hint(char *out, size_t size, const char *before, const char *word, const char *const *names) {
  char given[LONGEST + 1], name[LONGEST + 1];
  const char *found = NULL;
  out[0] = 0;
  if (strlen(word) > LONGEST || strlen(word) < 2)
    return out;
  lower(given, word);
  int best = 2 + (int)(strlen(word) - 1) / 4; /* the first that is too far: one mistake in four letters, two in five */
  for (; *names; names++) {
    if (strlen(*names) > LONGEST)
      continue;
    lower(name, *names);
    const int distance = strncmp(name, given, strlen(given)) == 0 ? 1 : petra_edit_distance(given, name);
    if (distance < best)
      best = distance, found = *names;
  }
  if (found)
    snprintf(out, size, "; did you mean %s%s?", before, found);
  return out;
}
