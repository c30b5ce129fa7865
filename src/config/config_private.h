/* SPDX-License-Identifier: Apache-2.0 */
/* The declarations that the files of this folder share: the table of keys (keys.c), values of keys (value.c), and
 * documents (document.c). Private to the config, to the requests of petra inspect and to the fuzzer. */
#pragma once

#include "config/config.h" /* circle: a key is a member of petra_config */

#include <stddef.h>

/* --- the table of keys --- */

/* The one table of config keys. Type, default, range, choices, role and help of each member of petra_config are in
 * keys.c and nowhere else. */

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
  const char *path; /* "section.key", the same as the path of the member in petra_config */
  petra_config_type type;
  size_t offset;              /* offset of the member in petra_config */
  const char *default_value;  /* as YAML */
  const char *const *choices; /* NULL-terminated; also for strings that allow only a few values */
  int64_t min, max;           /* limits of integers and of items of integer lists */
  double real_min, real_max;  /* limits of reals, of items of real lists and of the number of a period */
  petra_config_rule rule;
  petra_config_role role;
  const char *help; /* one sentence without a full stop */
} petra_config_key;

/* All keys. The keys of a section are adjacent. The order is the order in which they are printed. */
extern const petra_config_key petra_config_keys[];
extern const int petra_config_key_count;

/* The words of periods, by petra_period_unit. A word follows the number; for epochs the word may be omitted. */
extern const char *const petra_period_words[];
/* Returns the number of letters of `word` that form its singular or plural, as `count` requires. */
int petra_period_letters(const char *word, double count);

/* Returns the index of a key in the table, or -1. */
int petra_config_key_find(const char *path);

/* Returns true if `path` names a section ("" is the whole config). */
bool petra_config_is_section(const char *path);

/* Prints the value of a key as YAML. */
void petra_config_print_value(const petra_config_key *key, const petra_config *config, FILE *out);

/* Returns true if the key has the same value in two configs. */
bool petra_config_same_value(const petra_config_key *key, const petra_config *left, const petra_config *right);

/* Returns the memory that a config owns for the key, and its size; NULL if it owns none. */
const void *petra_config_memory(const petra_config_key *key, const petra_config *config, size_t *bytes);

/* Returns true if the config's file (or its base) or a --set sets the key with this index. */
bool petra_config_is_set(const petra_config *config, int key);

/* Describes the values of the key: "an integer, 1 .. 65536". Returns `out`. */
char *petra_config_expected(const petra_config_key *key, char *out, size_t size);

/* Lists the names in a section, "name, seed, ...". Returns `out`. */
char *petra_config_children(const char *section, char *out, size_t size);

/* --- values --- */

/* Conversion of the text of a value to the member of petra_config, with all checks. It does not depend on YAML. */

/* The origin of values: a file (`set` is NULL), one --set argument, or the table of defaults (both are NULL). */
typedef struct petra_config_origin {
  const char *file; /* name of the file in messages; with `set`: origin of the setting (NULL: --set) */
  const char *set;  /* the setting, "key.path=value" */
  int before;       /* number of lines of the file that precede the text */
} petra_config_origin;

/* A scalar, as it is written in the text. */
typedef struct petra_config_scalar {
  const char *text; /* terminated, but may contain further NUL bytes */
  size_t length;
  bool quoted; /* quoted, or a block scalar: certainly a string */
  int line;    /* from 1 */
} petra_config_scalar;

enum {
  PETRA_CONFIG_SHOWN = 48,
  PETRA_CONFIG_QUOTED = 128,
  PETRA_CONFIG_LABEL = 512,
  PETRA_CONFIG_TEXT = 512
}; /* sizes of buffers, in bytes */

/* Logs "FILE:LINE: path: message", or "--set key=value: message"; `path` may be "". Returns PETRA_CONFIG. */
petra_status petra_config_fail_at(const petra_config_origin *origin, int line, const char *path, const char *format,
                                  ...) __attribute__((format(printf, 4, 5)));

/* Describes how to quote the value of a setting, for the end of a message; "" if the key is not a string, or for a
 * file. Returns `out`. */
const char *petra_config_quoted(const petra_config_origin *origin, char *out, size_t size);

/* Does the same as petra_config_fail_at for a value that the key does not accept: "...: WHAT; expected EXPECTED". */
petra_status petra_config_fail_value(const petra_config_origin *origin, int line, const petra_config_key *key,
                                     const char *what);

/* Stores the value of a key that is not a list. Releases the old value. */
petra_status petra_config_store(petra_config *config, const petra_config_key *key, const petra_config_origin *origin,
                                const petra_config_scalar *value);

/* Stores the value of a list. */
petra_status petra_config_store_list(petra_config *config, const petra_config_key *key,
                                     const petra_config_origin *origin, const petra_config_scalar *items, size_t count);

/* Records the file and the line in which a key was set. */
petra_status petra_config_remember(petra_config *config, int key, const petra_config_origin *origin, int line);

/* --- documents --- */

/* Loading of a config file as a YAML document within the limits that petra sets (one document in UTF-8, of bounded
 * length and depth, without anchors, aliases and tags), and conversion to a config step by step. The types of libyaml
 * are incomplete in this header. */

struct yaml_document_s;
struct yaml_node_pair_s;
struct yaml_node_s;

/* Reads a whole file, pipe or standard input ("-"), up to the maximum length of a document. *text is terminated; free
 * it with petra_free. Errors: PETRA_IO if it cannot be read. */
petra_status petra_config_read(const char *path, const petra_config_origin *origin, char **text, size_t *length);

/* Parses `text`, of at most 1 MiB. *out is memory of the caller, to be released with yaml_document_delete. After a
 * failure (PETRA_CONFIG, PETRA_NO_MEMORY) nothing has to be released. */
petra_status petra_config_document_load(const petra_config_origin *origin, const char *text, size_t length,
                                        struct yaml_document_s *out);

/* Returns the line in which a node begins, from 1. */
int petra_config_line(const struct yaml_node_s *node);

/* Returns PETRA_CONFIG if a pair before `pair` has the same key, shown as `path`. */
petra_status petra_config_check_duplicate(const petra_config_origin *origin, struct yaml_document_s *document,
                                          const struct yaml_node_s *mapping, const struct yaml_node_pair_s *pair,
                                          const char *path);

/* --- a config that is assembled step by step; each step overrides the previous steps; errors: as for petra_config_load
 * --- */

/* Sets all defaults. */
petra_status petra_config_create(petra_config **out);

/* A file that is being read, and the file that names it as its base. */
typedef struct petra_config_file {
  const char *path;                     /* "-": standard input */
  const struct petra_config_file *from; /* NULL: no file names it */
} petra_config_file;

/* The first function loads a file ("-": standard input) or its text, after its base if it names one. The second
 * function loads settings in order. The third function loads the keys of a file and its bases that `takes` accepts. */
petra_status petra_config_apply_text(petra_config *config, const petra_config_text *text,
                                     const petra_config_file *from);
petra_status petra_config_apply_sets(petra_config *config, const petra_config_sets *sets);
petra_status petra_config_apply_part(petra_config *config, const char *path, bool (*takes)(const char *key));

/* The first function checks settings without a config, one after the other, so that a key may have several values. The
 * second function checks the YAML of a text that is not a config, such as a grid. */
petra_status petra_config_check_sets(const petra_config_sets *sets);
petra_status petra_config_check_yaml(const petra_config_text *text);

/* The YAML document from which a config is loaded. */
typedef struct petra_config_loader {
  petra_config *config;
  const petra_config_origin *origin;
  struct yaml_document_s *document;
} petra_config_loader;

/* Sets *out to the path of the file that `root` names as its base, to be freed (also after an error), or to NULL if it
 * names none. Errors: PETRA_IO if that file cannot be read, PETRA_CONFIG if it is `file` or one of the files through
 * which `file` was found. */
petra_status petra_config_find_base(const petra_config_loader *in, const petra_config_file *file,
                                    const struct yaml_node_s *root, char **out);
