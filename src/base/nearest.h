/* SPDX-License-Identifier: Apache-2.0 */
/* Suggestions for a misspelled name, for the end of an error line. */
#pragma once

#include <stddef.h>

enum { PETRA_NEAREST_LONGEST = 63 }; /* maximum number of bytes of a word that is compared */

/* Returns the minimum number of insertions, deletions, replacements and swaps of neighbours that turn a into b. Both
 * have at most PETRA_NEAREST_LONGEST bytes. */
int petra_edit_distance(const char *a, const char *b);

/* Writes "; did you mean NAME?", with `before` in front of the name, for the name that is similar to `word`, ignoring
 * case, or that `word` begins; "" if there is none. `names` end with NULL. Returns `out`. */
char *petra_nearest_hint(char *out, size_t size, const char *before, const char *word, const char *const *names);
