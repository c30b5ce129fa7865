/* SPDX-License-Identifier: Apache-2.0 */
/* What a function prints, as a string. */
#ifndef PETRA_BASE_TEXT_H
#define PETRA_BASE_TEXT_H

#include "base/status.h"

#include <stddef.h>
#include <stdio.h>

typedef petra_status (*petra_text_printer)(const void *context, FILE *out);

/* Stores what `print` prints in *text, with a NUL behind it, and its bytes without that in *size. Free with petra_free.
 * PETRA_NO_MEMORY, logged with `what` it was for, where not all of it has room; on failure *text is left as it was. */
petra_status petra_text_print(petra_text_printer print, const void *context, const char *what, char **text,
                              size_t *size);

#endif
