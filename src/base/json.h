/* SPDX-License-Identifier: Apache-2.0 */
/* The policy for JSON on stdout: one object, reals with 17 digits, null for what is not finite,
 * \u escapes for what a terminal does not show. Commands
 * build their objects with jansson and include <jansson.h> in their .c files. */
#ifndef PETRA_BASE_JSON_H
#define PETRA_BASE_JSON_H

#include "base/status.h"

#include <stdio.h>

struct json_t; /* jansson's */

/* A new number, or null where the value is not finite; NULL without memory, as jansson's own constructors. */
struct json_t *petra_json_real(double value);

/* A new string; bytes that are not UTF-8 (a file name may hold any) are \x1b, as in texts that are shown. */
struct json_t *petra_json_string(const char *text);

/* Set a member, append an element; they take over the reference to `value`. Where it is NULL (a constructor had no
 * memory) or memory runs out, *object, *list becomes NULL, as from json_pack with such a value: nothing needs a check of
 * its own before the whole is printed. */
void petra_json_set(struct json_t **object, const char *key, struct json_t *value);
void petra_json_append(struct json_t **list, struct json_t *value);

/* Writes the object, indented, and a line end. PETRA_IO if that fails, PETRA_NO_MEMORY if `object` is NULL. */
petra_status petra_json_print(const struct json_t *object, FILE *out);

/* The same on standard output; lets go of the object. */
petra_status petra_json_print_new(struct json_t *object);

#endif
