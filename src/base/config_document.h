/* A YAML document as configs and grids allow it: one document of UTF-8, of bounded depth, without anchors,
 * aliases and tags. Private to the config and the grid. libyaml's types stay incomplete here. */
#ifndef PETRA_BASE_CONFIG_DOCUMENT_H
#define PETRA_BASE_CONFIG_DOCUMENT_H

#include "base/config_value.h"

struct yaml_document_s;
struct yaml_node_pair_s;
struct yaml_node_s;

/* Parses `text`. *out is the caller's memory, to be released with yaml_document_delete; after a failure
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
