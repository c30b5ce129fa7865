/* SPDX-License-Identifier: Apache-2.0 */
/* What a word that is none of the names was likely meant to be, for the end of an error line. */
#ifndef PETRA_BASE_NEAREST_H
#define PETRA_BASE_NEAREST_H

#include <stddef.h>

enum { PETRA_NEAREST_LONGEST = 63 }; /* bytes of a word that is compared */

/* The least number of insertions, deletions, replacements and swaps of neighbours that turn a into b, neither longer than the
 * longest. */
int petra_edit_distance(const char *a, const char *b);

/* "; did you mean NAME?", with `before` in front of it, of the name that `word` is near to, whatever its case, or begins; "" where there is none. `names` end
 * with NULL. Returns `out`. */
char *petra_nearest_hint(char *out, size_t size, const char *before, const char *word, const char *const *names);

#endif
