/* SPDX-License-Identifier: Apache-2.0 */
/* Loads the file of a config or grid as a YAML document within the limits that petra sets (one document in UTF-8, of
 * bounded length and depth, without anchors, aliases and tags), and turns it into a config step by step. Private to the
 * config and the grid. libyaml's types stay incomplete here. */
#pragma once

#include "config/value.h"

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

/* --- a config assembled step by step, each step overriding those before; errors are those of petra_config_load --- */

/* Sets all defaults. */
petra_status petra_config_create(petra_config **out);

/* Load a file ("-": standard input) or its text, after its base if it names one; settings in order; the keys of a file
 * that a part takes. */
petra_status petra_config_apply_text(petra_config *config, const petra_config_text *text);
petra_status petra_config_apply_sets(petra_config *config, const petra_config_sets *sets);
petra_status petra_config_apply_part(petra_config *config, const petra_config_part *part);

/* Check settings alone, one after the other, so that a key may have several values; the YAML of a text that is no
 * config, such as a grid. */
petra_status petra_config_check_sets(const petra_config_sets *sets);
petra_status petra_config_check_yaml(const petra_config_text *text);

/* The YAML document that a config is loaded from. */
typedef struct petra_config_loader {
  petra_config *config;
  const petra_config_origin *origin;
  struct yaml_document_s *document;
} petra_config_loader;

/* A file that is being read, and the file that names it as its base. */
typedef struct petra_config_file {
  const char *path;                     /* "-": standard input */
  const struct petra_config_file *from; /* NULL: no file names it */
} petra_config_file;

/* Loads a whole config from the root of `file`'s document, or from a part of it that begins in `line`: its base, if it
 * names one, then its own keys. This is one layer (petra_config_end_layer). */
petra_status petra_config_apply_root(const petra_config_loader *in, const petra_config_file *file,
                                     const struct yaml_node_s *root, int line);

/* Sets *out to the path of the file that `root` names as its base, to be freed, or to NULL if it names none. Errors:
 * PETRA_IO if that file cannot be read, PETRA_CONFIG if it is `file` or one of the files that led to it. */
petra_status petra_config_find_base(const petra_config_loader *in, const petra_config_file *file,
                                    const struct yaml_node_s *root, char **out);

/* Ends a layer of keys: a file, all of --set, or the overrides of a cell. If the layer sets a link preset, the keys of
 * the preset that the layer does not set take the values of the preset. If it sets another optimiser than before, the
 * same applies to the optimiser's keys (config/optimiser.h); without a learning rate this is PETRA_CONFIG. */
petra_status petra_config_end_layer(petra_config *config);

/* Loads the value of the key with this index. */
petra_status petra_config_apply_key(const petra_config_loader *in, int index, const struct yaml_node_s *node);

/* Finds the index of the key with this dotted path. Errors: PETRA_CONFIG, with the names to choose from. */
petra_status petra_config_resolve(const petra_config_origin *origin, int line, const char *path, int *out);
