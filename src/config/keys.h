/* SPDX-License-Identifier: Apache-2.0 */
/* The one table of config keys. Type, default, range, choices, role and help of each member of petra_config are in
 * keys.c and nowhere else. Private to the config and its fuzzer. */
#pragma once

#include "config/config.h" /* circle: a key is a place in petra_config */

#include <stddef.h>

typedef enum petra_config_type {
  PETRA_KEY_STRING,       /* char *, owned */
  PETRA_KEY_INTEGER,      /* int64_t */
  PETRA_KEY_REAL,         /* double */
  PETRA_KEY_BOOLEAN,      /* bool */
  PETRA_KEY_CHOICE,       /* an enum: index into choices */
  PETRA_KEY_PERIOD,       /* petra_period: "2" (epochs), "500 microbatches", "10 minutes" */
  PETRA_KEY_INTEGER_LIST, /* petra_int_list, owned */
  PETRA_KEY_REAL_LIST,    /* petra_real_list, owned */
  PETRA_KEY_FLAG_LIST     /* unsigned: bit i is choices[i] */
} petra_config_type;

/* A condition on a string or list in addition to its type. */
typedef enum petra_config_rule {
  PETRA_RULE_NONE,
  PETRA_RULE_NOT_EMPTY, /* string */
  PETRA_RULE_FILE_NAME, /* string: one component of a path */
  PETRA_RULE_RISING,    /* integer list: strictly rising */
  PETRA_RULE_OR_ONE,    /* integer list: a single number is a list of one */
  PETRA_RULE_BELOW_MAX  /* real: the upper bound itself is excluded */
} petra_config_rule;

typedef struct petra_config_key {
  const char *path; /* "section.key", the same as the member of petra_config */
  petra_config_type type;
  size_t offset;              /* in petra_config */
  const char *default_value;  /* as YAML */
  const char *const *choices; /* NULL-terminated; also for strings that allow only a few values */
  int64_t min, max;           /* integers and items of integer lists */
  double real_min, real_max;  /* reals, items of real lists and the number of a period */
  petra_config_rule rule;
  petra_config_role role;
  const char *help; /* one sentence without a full stop */
} petra_config_key;

/* All keys. Those of a section are adjacent, in the order in which they are printed. */
extern const petra_config_key petra_config_keys[];
extern const int petra_config_key_count;

/* The words of periods by petra_period_unit. They follow the number; epochs may omit theirs. */
extern const char *const petra_period_words[];
/* Returns how many letters of `word` form its singular or plural, as `count` requires. */
int petra_period_letters(const char *word, double count);

/* Returns the index of a key in the table, or -1. */
int petra_config_key_find(const char *path);

/* Returns true if `path` names a section ("" is the whole config). */
bool petra_config_is_section(const char *path);

/* Prints the value of a key as YAML. */
void petra_config_print_value(const petra_config_key *key, const petra_config *config, FILE *out);

/* Orders two values of the key: returns a negative number, 0 or a positive number. */
int petra_config_compare_value(const petra_config_key *key, const petra_config *left, const petra_config *right);

/* Describes the values of the key: "an integer, 1 .. 65536". Returns `out`. */
char *petra_config_expected(const petra_config_key *key, char *out, size_t size);

/* Lists the names in a section, "name, seed, ...". Returns `out`. */
char *petra_config_children(const char *section, char *out, size_t size);
