/* SPDX-License-Identifier: Apache-2.0 */
/* JSON on stdout: one object, reals with 17 digits, null for a number that is not finite, \u escapes for characters
 * that a terminal does not show. Commands build their objects with jansson and include <jansson.h> in their .c
 * files. */
#pragma once

#include "base/status.h"

#include <stdio.h>

struct json_t; /* jansson's */

/* Returns a new number, or null if the value is not finite; NULL without memory, like jansson's constructors. */
struct json_t *petra_json_real(double value);

/* Returns a new string. Bytes that are not UTF-8 (a file name may hold any) become \x1b, as in texts for the
 * terminal. */
struct json_t *petra_json_string(const char *text);

/* Set a member and append an element; both take over the reference to `value`. If it is NULL (a constructor had no
 * memory) or memory runs out, *object or *list becomes NULL, as from json_pack with such a value. So only the final
 * print needs a check. */
void petra_json_set(struct json_t **object, const char *key, struct json_t *value);
void petra_json_append(struct json_t **list, struct json_t *value);

/* Writes the object, indented, and a line end. Errors: PETRA_IO; PETRA_NO_MEMORY if `object` is NULL. */
petra_status petra_json_print(const struct json_t *object, FILE *out);

/* Writes the object to standard output and releases it. */
petra_status petra_json_print_new(struct json_t *object);

/* For an object that is too large for memory: writes one value of it on one line, without an end, and releases it. */
petra_status petra_json_put_new(struct json_t *value, FILE *out);

/* Writes out what is still in the buffer of `out`. PETRA_IO if that, or anything before it, could not be written. */
petra_status petra_json_end(FILE *out);
