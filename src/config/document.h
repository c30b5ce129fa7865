/* SPDX-License-Identifier: Apache-2.0 */
/* The file of a config or a grid, its YAML document as they allow it (one of UTF-8, of bounded length and depth, without
 * anchors, aliases and tags), and the steps from there to a config. Private to the config and the grid. libyaml's types
 * stay incomplete here. */
#ifndef PETRA_CONFIG_DOCUMENT_H
#define PETRA_CONFIG_DOCUMENT_H

#include "config/value.h"

struct yaml_document_s;
struct yaml_node_pair_s;
struct yaml_node_s;

/* Reads a whole file, pipe or ("-") standard input, of which no more than a document may have. *text is terminated; free
 * it with petra_free. PETRA_IO if it cannot be read. */
petra_status petra_config_read(const char *path, const petra_config_origin *origin, char **text, size_t *length);

/* Parses `text`, of at most 1 MiB. *out is the caller's memory, to be released with yaml_document_delete; after a failure
 * (PETRA_CONFIG, PETRA_NO_MEMORY) nothing is to be released. */
petra_status petra_config_document_load(const petra_config_origin *origin, const char *text, size_t length,
                                        struct yaml_document_s *out);

/* Where a node begins, from 1. */
int petra_config_line(const struct yaml_node_s *node);

/* PETRA_CONFIG unless the key of `pair`, shown as `path`, is that of none of the pairs before it. */
petra_status petra_config_check_duplicate(const petra_config_origin *origin, struct yaml_document_s *document,
                                          const struct yaml_node_s *mapping, const struct yaml_node_pair_s *pair,
                                          const char *path);

/* --- a config put together step by step, each overriding what came before; errors are those of petra_config_load --- */

/* All defaults. */
petra_status petra_config_create(petra_config **out);

/* A file ("-": standard input), or its text, after its base if it names one; --set arguments in order. */
petra_status petra_config_apply_text(petra_config *config, const petra_config_text *text);
petra_status petra_config_apply_sets(petra_config *config, const char *const *sets, int count);

/* Where a config comes from a YAML document. */
typedef struct petra_config_loader {
  petra_config *config;
  const petra_config_origin *origin;
  struct yaml_document_s *document;
} petra_config_loader;

/* A mapping of sections, or of the keys of `section` ("": the whole config), inside the document; `line` is where it
 * begins. */
petra_status petra_config_apply_section(const petra_config_loader *in, const char *section,
                                        const struct yaml_node_s *node, int line);

/* A file that is read, and the one that names it as its base. */
typedef struct petra_config_file {
  const char *path;                     /* "-": standard input */
  const struct petra_config_file *from; /* NULL: none does */
} petra_config_file;

/* The whole of a config, from the root of `file`'s document or a part of it that begins in `line`: its base, if it names one,
 * then its own keys. A layer (petra_config_end_layer). */
petra_status petra_config_apply_root(const petra_config_loader *in, const petra_config_file *file,
                                     const struct yaml_node_s *root, int line);

/* *out: the file that `root` names as its base, as a path to be freed; NULL where it names none. PETRA_CONFIG where that file
 * cannot be read, or is `file` or one of those that led to it (config_base.c). */
petra_status petra_config_find_base(const petra_config_loader *in, const petra_config_file *file,
                                    const struct yaml_node_s *root, char **out);

/* Ends a layer of keys: a file, all of --set, a cell's overrides. Where the layer has a preset of links, the keys that this
 * stands for and that the layer has not become the preset's; where it has another optimiser than before, the same of the
 * optimiser's keys (config/optimiser.h), and PETRA_CONFIG without its rate. */
petra_status petra_config_end_layer(petra_config *config);

/* The value of the key with this index. */
petra_status petra_config_apply_key(const petra_config_loader *in, int index, const struct yaml_node_s *node);

/* The index of the key with this dotted path; PETRA_CONFIG with the names to choose from where there is none. */
petra_status petra_config_resolve(const petra_config_origin *origin, int line, const char *path, int *out);

#endif
