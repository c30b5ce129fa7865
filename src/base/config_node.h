/* A config put together step by step, each step overriding what came before. Private to the config and the
 * grid. libyaml's types stay incomplete here. Errors are those of petra_config_load. */
#ifndef PETRA_BASE_CONFIG_NODE_H
#define PETRA_BASE_CONFIG_NODE_H

#include "base/config_value.h"

struct yaml_document_s;
struct yaml_node_s;

/* All defaults. */
petra_status petra_config_create(petra_config **out);

/* A file ("-": standard input), or its text; one --set argument. */
petra_status petra_config_apply_text(petra_config *config, const petra_config_text *text);
petra_status petra_config_apply_set(petra_config *config, const char *set);

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

/* The value of the key with this index. */
petra_status petra_config_apply_key(const petra_config_loader *in, int index, const struct yaml_node_s *node);

/* The index of the key with this dotted path; PETRA_CONFIG with the names to choose from where there is none. */
petra_status petra_config_resolve(const petra_config_origin *origin, int line, const char *path, int *out);

#endif
