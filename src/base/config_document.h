/* The file of a config or a grid, and its YAML document as they allow it: one document of UTF-8, of bounded length and
 * depth, without anchors, aliases and tags. Private to the config and the grid. libyaml's types stay incomplete here. */
#ifndef PETRA_BASE_CONFIG_DOCUMENT_H
#define PETRA_BASE_CONFIG_DOCUMENT_H

#include "base/config_value.h"

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

#endif
