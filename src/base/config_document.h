/* A YAML document as configs and grids allow it: one document of UTF-8, of bounded depth, without anchors,
 * aliases and tags. Private to the config and the grid. libyaml's types stay incomplete here. */
#ifndef PETRA_BASE_CONFIG_DOCUMENT_H
#define PETRA_BASE_CONFIG_DOCUMENT_H

#include "base/config_value.h"

struct yaml_document_s;

/* Parses `text`. *out is the caller's memory, to be released with yaml_document_delete; after a failure
 * (PETRA_CONFIG, PETRA_NO_MEMORY) nothing is to be released. */
petra_status petra_config_document_load(const petra_config_origin *origin, const char *text, size_t length,
                                        struct yaml_document_s *out);

#endif
