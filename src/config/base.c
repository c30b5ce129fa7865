/* SPDX-License-Identifier: Apache-2.0 */
/* `base: FILE` at the top of a config: the file whose keys it overrides. */
#include "config/document.h"
#include "base/mem.h"
#include "base/utf8.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <yaml.h>

enum { MAX_FILES = 16, SHOWN_PATH = 256 };

static const char key[] = "base";

/* *value: of the key, NULL where the root has none; *line: where the key stands. PETRA_CONFIG where it is there twice. */
static petra_status find_value(const petra_config_loader *in, const yaml_node_t *root, const yaml_node_t **value,
                               int *line) {
  *value = NULL;
  if (root->type != YAML_MAPPING_NODE)
    return PETRA_OK;
  for (const yaml_node_pair_t *pair = root->data.mapping.pairs.start; pair < root->data.mapping.pairs.top; pair++) {
    const yaml_node_t *name = yaml_document_get_node(in->document, pair->key);
    if (name->type != YAML_SCALAR_NODE || strcmp((const char *)name->data.scalar.value, key) != 0)
      continue;
    if (*value)
      return petra_config_check_duplicate(in->origin, in->document, root, pair, key);
    *line = petra_config_line(name);
    *value = yaml_document_get_node(in->document, pair->value);
  }
  return PETRA_OK;
}

/* `name`, relative to the folder of the file that names it. */
static petra_status join(const char *from, const char *name, char **out) {
  const char *slash = *name == '/' || strcmp(from, "-") == 0 ? NULL : strrchr(from, '/');
  const size_t folder = slash ? (size_t)(slash - from) + 1 : 0;
  PETRA_TRY(petra_allocate(out, folder + strlen(name) + 1, 1));
  memcpy(*out, from, folder);
  memcpy(*out + folder, name, strlen(name) + 1);
  return PETRA_OK;
}

/* "a.yaml -> b.yaml -> a.yaml", the file that was named first at the left; as much as has room. */
static size_t print_chain(const petra_config_file *file, char *out, size_t size) {
  char shown[SHOWN_PATH];
  size_t used = file->from ? print_chain(file->from, out, size) : 0;
  const int more = used < size ? snprintf(out + used, size - used, "%s%s", file->from ? " -> " : "",
                                          petra_utf8_show(shown, sizeof shown, file->path, strlen(file->path)))
                               : 0;
  return used + (size_t)more;
}

/* PETRA_CONFIG if the file at `path` is one of the chain that ends with `file`, or there are too many. */
static petra_status check_chain(const petra_config_loader *in, const petra_config_file *file, int line,
                                const char *path, const struct stat *info) {
  const petra_config_file next = {path, file};
  char chain[1024];
  int files = 0;
  for (const petra_config_file *at = file; at; at = at->from) {
    struct stat other;
    const bool same = strcmp(at->path, "-") != 0 && stat(at->path, &other) == 0 && other.st_dev == info->st_dev &&
                      other.st_ino == info->st_ino;
    if (!same && ++files < MAX_FILES)
      continue;
    print_chain(&next, chain, sizeof chain);
    if (same)
      return petra_config_fail_at(in->origin, line, key, "a cycle: %s; expected a file that is not among them", chain);
    return petra_config_fail_at(in->origin, line, key, "%s: more than %d files; expected at most as many", chain,
                                MAX_FILES);
  }
  return PETRA_OK;
}

static petra_status check_file(const petra_config_loader *in, const petra_config_file *file, int line,
                               const char *path) {
  struct stat info;
  char shown[SHOWN_PATH];
  const bool there = stat(path, &info) == 0 && access(path, R_OK) == 0;
  if (!there || S_ISDIR(info.st_mode))
    return petra_config_fail_at(in->origin, line, key, "%s cannot be read: %s; expected the file of a config",
                                petra_utf8_show(shown, sizeof shown, path, strlen(path)),
                                strerror(there ? EISDIR : errno));
  return check_chain(in, file, line, path, &info);
}

petra_status petra_config_find_base(const petra_config_loader *in, const petra_config_file *file,
                                    const yaml_node_t *root, char **out) {
  int line = 0;
  const yaml_node_t *node;
  *out = NULL;
  PETRA_TRY(find_value(in, root, &node, &line));
  if (!node)
    return PETRA_OK;
  if (node->type != YAML_SCALAR_NODE)
    return petra_config_fail_at(in->origin, line, key, "%s; expected the file of a config",
                                node->type == YAML_MAPPING_NODE ? "a mapping" : "a list");
  const char *name = (const char *)node->data.scalar.value;
  if (!*name || strlen(name) != node->data.scalar.length)
    return petra_config_fail_at(in->origin, line, key, "%s; expected the file of a config",
                                *name ? "holds a NUL character" : "no value");
  if (strcmp(name, "-") == 0)
    return petra_config_fail_at(in->origin, line, key,
                                "standard input; expected the file of a config, which can be read again");
  PETRA_TRY(join(file->path, name, out));
  petra_status status = check_file(in, file, line, *out);
  if (status != PETRA_OK) {
    petra_free(*out);
    *out = NULL;
  }
  return status;
}
