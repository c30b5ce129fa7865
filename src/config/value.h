/* SPDX-License-Identifier: Apache-2.0 */
/* Converts the text of a value to the member of petra_config, with all checks. Knows no YAML. Private to the config. */
#pragma once

#include "config/keys.h"

/* The origin of values: a file (`set` is NULL), one --set argument, or the table of defaults (both are NULL). */
typedef struct petra_config_origin {
  const char *file; /* name in messages; with `set`: origin of the setting, NULL: --set */
  const char *set;  /* the setting, "key.path=value" */
  int before;       /* number of lines of the file before the text that is read */
} petra_config_origin;

/* One scalar as it was written. */
typedef struct petra_config_scalar {
  const char *text; /* terminated, but may hold further NUL bytes */
  size_t length;
  bool quoted; /* quoted, or a block scalar: certainly a string */
  int line;    /* from 1 */
} petra_config_scalar;

enum {
  PETRA_CONFIG_SHOWN = 48,
  PETRA_CONFIG_QUOTED = 128,
  PETRA_CONFIG_LABEL = 512,
  PETRA_CONFIG_TEXT = 512
}; /* bytes of buffers */

/* Logs "FILE:LINE: path: message", or "--set key=value: message"; `path` may be "". Returns PETRA_CONFIG. */
petra_status petra_config_fail_at(const petra_config_origin *origin, int line, const char *path, const char *format,
                                  ...) __attribute__((format(printf, 4, 5)));

/* Describes how to quote the value of a setting, for the end of a message; "" if the key is not a string, or for a
 * file. Returns `out`. */
const char *petra_config_quoted(const petra_config_origin *origin, char *out, size_t size);

/* Like petra_config_fail_at, for a value that the key does not accept: "...: WHAT; expected EXPECTED". */
petra_status petra_config_fail_value(const petra_config_origin *origin, int line, const petra_config_key *key,
                                     const char *what);

/* Stores the value of a key that is not a list. Releases the old value. */
petra_status petra_config_store(petra_config *config, const petra_config_key *key, const petra_config_origin *origin,
                                const petra_config_scalar *value);

/* Stores the value of a list. */
petra_status petra_config_store_list(petra_config *config, const petra_config_key *key,
                                     const petra_config_origin *origin, const petra_config_scalar *items, size_t count);

/* Records where a key was set. */
petra_status petra_config_remember(petra_config *config, int key, const petra_config_origin *origin, int line);

/* Finds the key or section that a misspelled path most likely means and copies it to `out`; returns false if none is
 * similar. */
bool petra_config_nearest(const char *path, char *out, size_t size);
