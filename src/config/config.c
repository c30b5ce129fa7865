/* SPDX-License-Identifier: Apache-2.0 */
#include "config/config_private.h"

#include "base/log.h"
#include "base/mem.h"
#include "base/text.h"
#include "base/utf8.h"
#include "config/optimiser.h"

#include <string.h>
#include <yaml.h>

enum { PATH_BYTES = 160 };

static petra_config_scalar scalar_of(const yaml_node_t *node) {
  return (petra_config_scalar){.text = (const char *)node->data.scalar.value,
                               .length = node->data.scalar.length,
                               .quoted = node->data.scalar.style != YAML_PLAIN_SCALAR_STYLE,
                               .line = petra_config_line(node)};
}

static petra_status load_list(const petra_config_loader *in, const petra_config_key *key, const yaml_node_t *node) {
  PETRA_FREED petra_config_scalar *items = NULL;
  size_t count = (size_t)(node->data.sequence.items.top - node->data.sequence.items.start);
  PETRA_TRY(petra_allocate(&items, count, sizeof *items));
  for (size_t i = 0; i < count; i++) {
    const yaml_node_t *item = yaml_document_get_node(in->document, node->data.sequence.items.start[i]);
    if (item->type != YAML_SCALAR_NODE)
      return petra_config_fail_value(in->origin, petra_config_line(item), key,
                                     item->type == YAML_MAPPING_NODE ? "an item is itself a mapping"
                                                                     : "an item is itself a list");
    items[i] = scalar_of(item);
  }
  return petra_config_store_list(in->config, key, in->origin, items, count);
}

/* Loads the value of the key with this index. */
static petra_status apply_key(const petra_config_loader *in, int index, const yaml_node_t *node) {
  int line = petra_config_line(node);
  const petra_config_key *key = &petra_config_keys[index];
  if (node->type == YAML_MAPPING_NODE)
    return petra_config_fail_value(in->origin, line, key, "a mapping");
  if (node->type == YAML_SEQUENCE_NODE) {
    if (key->type != PETRA_KEY_INTEGER_LIST && key->type != PETRA_KEY_REAL_LIST && key->type != PETRA_KEY_FLAG_LIST)
      return petra_config_fail_value(in->origin, line, key, "a list");
    PETRA_TRY(load_list(in, key, node));
  } else {
    petra_config_scalar value = scalar_of(node);
    PETRA_TRY(petra_config_store(in->config, key, in->origin, &value));
  }
  in->config->fresh[index] = true;
  return petra_config_remember(in->config, index, in->origin, line);
}

static const char *last_name(const char *path) {
  const char *dot = strrchr(path, '.');
  return dot ? dot + 1 : path;
}

/* Returns twice the number of spelling mistakes. A wrong section counts as slightly more than one mistake. */
static int path_distance(const char *a, const char *b) {
  const int whole = 2 * petra_edit_distance(a, b), last = 2 * petra_edit_distance(last_name(a), last_name(b)) + 3;
  return whole < last ? whole : last;
}

/* Finds the key or section that a misspelled path most likely means and copies it to `out`; returns false if none is
 * similar. */
static bool find_nearest(const char *path, char *out, size_t size) {
  if (strlen(path) > PETRA_NEAREST_LONGEST || *last_name(path) == 0)
    return false;
  int best = 2 * (2 + (int)strlen(last_name(path)) / 4); /* the first distance that is too large */
  bool found = false;
  for (int i = 0; i < petra_config_key_count; i++) {
    char candidate[PETRA_NEAREST_LONGEST + 1];
    snprintf(candidate, sizeof candidate, "%s", petra_config_keys[i].path);
    for (;;) { /* the key, then the sections that contain it */
      int distance = path_distance(path, candidate);
      if (distance < best) {
        best = distance, found = true;
        snprintf(out, size, "%s", candidate);
      }
      char *dot = strrchr(candidate, '.');
      if (!dot)
        break;
      *dot = 0;
    }
  }
  return found;
}

static petra_status fail_unknown(const petra_config_origin *origin, int line, const char *section, const char *path) {
  char near[PATH_BYTES], names[PETRA_CONFIG_TEXT];
  bool found = find_nearest(path, near, sizeof near);
  return petra_config_fail_at(origin, line, path, "unknown key; expected one of %s%s%s%s%s",
                              petra_config_children(section, names, sizeof names),
                              origin->file && !origin->set && !*section ? " (or base)" : "",
                              found ? "; did you mean " : "", found ? near : "", found ? "?" : "");
}

static petra_status pair_path(const petra_config_loader *in, const char *section, const yaml_node_t *key, char *path,
                              size_t size) {
  int line = petra_config_line(key);
  if (key->type != YAML_SCALAR_NODE)
    return petra_config_fail_at(in->origin, line, section, "a key that is a list or a mapping; expected a name");
  char name[PETRA_CONFIG_SHOWN];
  const char *text = (const char *)key->data.scalar.value;
  petra_utf8_show(name, sizeof name, text, key->data.scalar.length);
  snprintf(path, size, "%s%s%s", section, *section ? "." : "", *text || key->data.scalar.length ? name : "''");
  if (strcmp(name, text) != 0)
    return fail_unknown(in->origin, line, section, path);
  if (strchr(name, '.'))
    return petra_config_fail_at(in->origin, line, path,
                                "a key with a dot; expected nested mappings, 'section: {key: value}'");
  return PETRA_OK;
}

/* Loads a mapping of sections, or of the keys of `section` ("": the whole config), inside the document. `line` is the
 * line in which it begins. */
static petra_status apply_section(const petra_config_loader *in, const char *section, const yaml_node_t *node,
                                  int line) {
  char names[PETRA_CONFIG_TEXT];
  if (node->type != YAML_MAPPING_NODE)
    return petra_config_fail_at(in->origin, line, section, "%s; expected a mapping with any of %s",
                                node->type == YAML_SEQUENCE_NODE ? "a list"
                                : node->data.scalar.length == 0  ? "no value"
                                                                 : "a single value",
                                petra_config_children(section, names, sizeof names));
  for (const yaml_node_pair_t *pair = node->data.mapping.pairs.start; pair < node->data.mapping.pairs.top; pair++) {
    const yaml_node_t *key = yaml_document_get_node(in->document, pair->key);
    const yaml_node_t *value = yaml_document_get_node(in->document, pair->value);
    char path[PATH_BYTES];
    PETRA_TRY(pair_path(in, section, key, path, sizeof path));
    const bool base = !*section && strcmp(path, "base") == 0; /* apply_root has read it */
    int index = petra_config_key_find(path);
    if (!base && index < 0 && (!*path || !petra_config_is_section(path)))
      return fail_unknown(in->origin, petra_config_line(key), section, path);
    PETRA_TRY(petra_config_check_duplicate(in->origin, in->document, node, pair, path));
    if (index >= 0 && (!in->config->takes || in->config->takes(path)))
      PETRA_TRY(apply_key(in, index, value));
    else if (index < 0 && !base)
      PETRA_TRY(apply_section(in, path, value, petra_config_line(key)));
  }
  return PETRA_OK;
}

static bool is_empty(const yaml_node_t *root) {
  return !root || (root->type == YAML_SCALAR_NODE && root->data.scalar.length == 0 &&
                   root->data.scalar.style == YAML_PLAIN_SCALAR_STYLE);
}

/* Returns PETRA_CONFIG if a string in a setting begins or ends with blanks, which YAML drops. */
static petra_status check_ends(const petra_config_origin *origin, int index, const char *text,
                               const yaml_node_t *root) {
  const bool string = petra_config_keys[index].type == PETRA_KEY_STRING && root->type == YAML_SCALAR_NODE &&
                      root->data.scalar.style == YAML_PLAIN_SCALAR_STYLE;
  return origin->set && string && root->data.scalar.length != strlen(text)
             ? petra_config_fail_value(origin, 1, &petra_config_keys[index],
                                       "begins or ends with a space, which YAML drops")
             : PETRA_OK;
}

static petra_status load_value(petra_config *config, const petra_config_origin *origin, int index, const char *text) {
  PETRA_FINISHED(yaml_document_delete) yaml_document_t document = {0};
  PETRA_TRY(petra_config_document_load(origin, text, strlen(text), &document));
  const petra_config_loader in = {config, origin, &document};
  const yaml_node_t *root = yaml_document_get_root_node(&document);
  if (is_empty(root))
    return petra_config_fail_value(origin, 1, &petra_config_keys[index], "no value");
  PETRA_TRY(check_ends(origin, index, text, root));
  return apply_key(&in, index, root);
}

/* Copies the label of key `from` to key `to`, whose value has the same origin. */
static petra_status share_label(petra_config *config, int from, int to) {
  char *label = NULL;
  if (config->labels[from])
    PETRA_TRY(petra_duplicate_string(&label, config->labels[from]));
  petra_free(config->labels[to]);
  config->labels[to] = label;
  return PETRA_OK;
}

/* Handles a layer that sets another optimiser: the keys of the optimiser that the layer does not set get their
 * defaults. */
static petra_status apply_optimiser(petra_config *config) {
  const petra_optimiser_kind kind = petra_optimiser_find(config->optim.name);
  const int name = petra_config_key_find("optim.name"), lr = petra_config_key_find("optim.lr");
  if ((int)kind == config->optimiser)
    return PETRA_OK;
  if (kind != PETRA_OPTIMISER_SGD && !config->fresh[lr])
    return petra_config_fail(
        config, "optim.name",
        "%s without optim.lr, which has no default for this optimiser; expected optim.lr beside it",
        config->optim.name);
  for (int i = 0; i < petra_config_key_count; i++) {
    const petra_config_key *key = &petra_config_keys[i];
    bool known;
    const char *value = petra_optimiser_default(kind, key->path, &known);
    if (config->fresh[i] || (!known && i != lr))
      continue;
    PETRA_TRY(load_value(config, &(petra_config_origin){.file = "default"}, i, value ? value : key->default_value));
    PETRA_TRY(share_label(config, name, i));
  }
  config->optimiser = (int)kind;
  return PETRA_OK;
}

/* Handles a layer that changes the kind of samples: tokens have no augmentation, images the default one, unless the
 * layer sets it. */
static petra_status end_layer_augment(petra_config *config) {
  const petra_config_origin origin = {.file = "default"};
  const int set = petra_config_key_find("data.set"), augment = petra_config_key_find("data.augment");
  const bool tokens = petra_sample_kind_of(config) == PETRA_SAMPLE_TOKENS;
  if (tokens == config->of_tokens)
    return PETRA_OK;
  config->of_tokens = tokens;
  if (config->fresh[augment])
    return PETRA_OK;
  PETRA_TRY(load_value(config, &origin, augment, tokens ? "[]" : petra_config_keys[augment].default_value));
  return share_label(config, set, augment);
}

/* Handles a layer that sets the preset of a link, whose key is number `preset` of the table; the keys of its latency
 * and bandwidth follow. */
static petra_status apply_preset(petra_config *config, int preset, const petra_link_preset *link, double *latency_s,
                                 double *bandwidth_Bps) {
  const int latency = preset + 1, bandwidth = preset + 2;
  if (!config->fresh[preset])
    return PETRA_OK;
  if (!config->fresh[latency]) {
    *latency_s = link->latency_s;
    PETRA_TRY(share_label(config, preset, latency));
  }
  if (!config->fresh[bandwidth]) {
    *bandwidth_Bps = link->bandwidth_Bps;
    PETRA_TRY(share_label(config, preset, bandwidth));
  }
  return PETRA_OK;
}

/* A layer that sets only the latency or the bandwidth means a link of these figures. */
static petra_status end_layer_node_link(petra_config *config) {
  const int preset = petra_config_key_find("cluster.node_link.preset"), latency = preset + 1, bandwidth = preset + 2;
  const bool same = config->cluster.node_link.preset == PETRA_NODE_LINK_SAME;
  if (same && !config->fresh[preset] && (config->fresh[latency] || config->fresh[bandwidth])) {
    config->cluster.node_link.preset = PETRA_LINK_NONE;
    PETRA_TRY(share_label(config, config->fresh[latency] ? latency : bandwidth, preset));
  }
  return apply_preset(config, preset,
                      petra_link_preset_of(same ? PETRA_LINK_NONE : (int)config->cluster.node_link.preset),
                      &config->cluster.node_link.latency_s, &config->cluster.node_link.bandwidth_Bps);
}

/* Ends a layer of keys: a file or all of --set. If the layer sets a link preset, the keys of the preset that the layer
 * does not set take the values of the preset. If it sets another optimiser than the previous layers, the same applies
 * to the keys of the optimiser (config/optimiser.h); without a learning rate this is PETRA_CONFIG. */
static petra_status end_layer(petra_config *config) {
  PETRA_TRY(apply_preset(config, petra_config_key_find("cluster.link.preset"),
                         petra_link_preset_of((int)config->cluster.link.preset), &config->cluster.link.latency_s,
                         &config->cluster.link.bandwidth_Bps));
  PETRA_TRY(end_layer_node_link(config));
  PETRA_TRY(apply_optimiser(config));
  PETRA_TRY(end_layer_augment(config));
  memset(config->fresh, 0, (size_t)petra_config_key_count * sizeof *config->fresh);
  return PETRA_OK;
}

/* Loads a whole config from the root of a document: its base, if it names one, then its own keys. This is one layer. */
static petra_status apply_root(const petra_config_loader *in, const petra_config_file *file, const yaml_node_t *root) {
  PETRA_FREED char *base = NULL;
  PETRA_TRY(petra_config_find_base(in, file, root, &base));
  if (base)
    PETRA_TRY(petra_config_apply_text(in->config, &(petra_config_text){.path = base}, file));
  PETRA_TRY(apply_section(in, "", root, petra_config_line(root)));
  return end_layer(in->config);
}

petra_status petra_config_apply_text(petra_config *config, const petra_config_text *text,
                                     const petra_config_file *from) {
  const petra_config_file file = {text->path, from};
  const bool is_stdin = strcmp(text->path, "-") == 0;
  const petra_config_origin origin = {.file = is_stdin ? "standard input" : text->path};
  PETRA_FINISHED(yaml_document_delete) yaml_document_t document = {0};
  PETRA_FREED char *read = NULL;
  size_t size = text->size;
  if (!text->text)
    PETRA_TRY(petra_config_read(text->path, &origin, &read, &size));
  for (int i = 0; !from && i < petra_config_key_count; i++) /* line 0: keys that no file sets keep their defaults */
    if (!config->labels[i])
      PETRA_TRY(petra_config_remember(config, i, &origin, 0));
  PETRA_TRY(petra_config_document_load(&origin, read ? read : text->text, size, &document));
  const petra_config_loader in = {config, &origin, &document};
  const yaml_node_t *root = yaml_document_get_root_node(&document);
  if (!is_empty(root))
    return apply_root(&in, &file, root);
  /* petra COMMAND - </dev/null requests the defaults */
  if (config->takes || strcmp(origin.file, "standard input") == 0)
    return PETRA_OK;
  return petra_fail(PETRA_CONFIG, "%s: contains no key; expected a config, or - with an empty input for the defaults",
                    origin.file);
}

static petra_status load_defaults(petra_config *config) {
  const petra_config_origin origin = {.file = "default"};
  for (int i = 0; i < petra_config_key_count; i++) {
    PETRA_TRY(load_value(config, &origin, i, petra_config_keys[i].default_value));
    petra_free(config->labels[i]); /* a default was not set in any file */
    config->labels[i] = NULL;
  }
  return end_layer(config);
}

/* Finds the index of the key with this dotted path. Errors: PETRA_CONFIG, with the possible names. */
static petra_status resolve(const petra_config_origin *origin, int line, const char *path, int *out) {
  char section[PATH_BYTES];
  int index = petra_config_key_find(path);
  if (index < 0 && *path && petra_config_is_section(path)) {
    char names[PETRA_CONFIG_TEXT];
    return petra_config_fail_at(origin, line, path, "a section; expected a key in it, one of %s",
                                petra_config_children(path, names, sizeof names));
  }
  if (index < 0) { /* the possible names are the names in the innermost section that exists */
    snprintf(section, sizeof section, "%s", path);
    do {
      char *dot = strrchr(section, '.');
      *(dot ? dot : section) = 0;
    } while (*section && !petra_config_is_section(section));
    return fail_unknown(origin, line, section, path);
  }
  *out = index;
  return PETRA_OK;
}

static petra_status apply_set(petra_config *config, const petra_config_sets *layer, int number) {
  const char *set = layer->sets[number], *equals = strchr(set, '=');
  const bool in_line = layer->lines != NULL;
  petra_config_origin origin = {.file = layer->where, .set = in_line ? NULL : set};
  char path[PATH_BYTES];
  int index = 0;
  if (in_line)
    origin.before = (int)layer->lines[number] - 1;
  else if (!equals)
    return petra_config_fail_at(&origin, 0, "", "no '='; expected --set key.path=value");
  petra_utf8_show(path, sizeof path, set, equals ? (size_t)(equals - set) : strlen(set));
  PETRA_TRY(resolve(&origin, in_line, path, &index));
  if (!equals)
    return PETRA_OK;
  if (!in_line && equals[1] == 0 && petra_config_keys[index].type == PETRA_KEY_STRING) {
    const petra_config_scalar empty = {.text = "", .quoted = true};
    PETRA_TRY(petra_config_store(config, &petra_config_keys[index], &origin, &empty));
    return petra_config_remember(config, index, &origin, 0);
  }
  return load_value(config, &origin, index, equals + 1);
}

static petra_status apply_all(petra_config *config, const petra_config_sets *layer) {
  for (int i = 0; i < layer->count; i++)
    PETRA_TRY(apply_set(config, layer, i));
  return PETRA_OK;
}

petra_status petra_config_apply_sets(petra_config *config, const petra_config_sets *layer) {
  PETRA_TRY(apply_all(config, layer));
  return end_layer(config);
}

petra_status petra_config_check_sets(const petra_config_sets *sets) {
  PETRA_DESTROYED(petra_config_destroy) petra_config *config = NULL;
  PETRA_TRY(petra_config_create(&config));
  return apply_all(config, sets);
}

petra_status petra_config_check_yaml(const petra_config_text *text) {
  const petra_config_origin origin = {.file = strcmp(text->path, "-") == 0 ? "standard input" : text->path};
  PETRA_FINISHED(yaml_document_delete) yaml_document_t document = {0};
  return petra_config_document_load(&origin, text->text, text->size, &document);
}

static petra_status hand_on(petra_config **config, petra_config **out) {
  *out = *config;
  *config = NULL;
  return PETRA_OK;
}

/* Creates a config of zeros, which is not yet a usable config. */
static petra_status create_empty(petra_config **out) {
  PETRA_DESTROYED(petra_config_destroy) petra_config *config = NULL;
  PETRA_TRY(petra_allocate(&config, 1, sizeof *config));
  PETRA_TRY(petra_allocate(&config->labels, (size_t)petra_config_key_count, sizeof *config->labels));
  PETRA_TRY(petra_allocate(&config->fresh, (size_t)petra_config_key_count, sizeof *config->fresh));
  return hand_on(&config, out);
}

petra_status petra_config_create(petra_config **out) {
  PETRA_DESTROYED(petra_config_destroy) petra_config *config = NULL;
  PETRA_TRY(create_empty(&config));
  PETRA_TRY(load_defaults(config));
  return hand_on(&config, out);
}

petra_status petra_config_changed(const petra_config *config, const char *path, bool *out) {
  const int index = petra_config_key_find(path);
  const petra_config_key *key = &petra_config_keys[index];
  PETRA_DESTROYED(petra_config_destroy) petra_config *plain = NULL;
  PETRA_TRY(create_empty(&plain));
  PETRA_TRY(load_value(plain, &(petra_config_origin){.file = "default"}, index, key->default_value));
  *out = !petra_config_same_value(key, config, plain);
  return PETRA_OK;
}

petra_status petra_config_load(const char *path, const char *const *sets, int set_count, petra_config **out) {
  return petra_config_load_text(&(petra_config_text){.path = path}, sets, set_count, out);
}

petra_status petra_config_load_text(const petra_config_text *text, const char *const *sets, int set_count,
                                    petra_config **out) {
  const petra_config_sets settings = {.sets = sets, .count = set_count};
  PETRA_DESTROYED(petra_config_destroy) petra_config *config = NULL;
  PETRA_TRY(petra_config_create(&config));
  if (text->path)
    PETRA_TRY(petra_config_apply_text(config, text, NULL));
  PETRA_TRY(petra_config_apply_sets(config, &settings));
  return hand_on(&config, out);
}

const void *petra_config_memory(const petra_config_key *key, const petra_config *config, size_t *bytes) {
  const void *member = (const char *)config + key->offset;
  const char *const *text = member;
  const petra_int_list *integers = member;
  const petra_real_list *reals = member;
  *bytes = 0;
  if (key->type == PETRA_KEY_STRING) {
    *bytes = *text ? strlen(*text) + 1 : 0;
    return *text;
  }
  if (key->type == PETRA_KEY_INTEGER_LIST) {
    *bytes = (size_t)integers->count * sizeof *integers->values;
    return integers->values;
  }
  if (key->type == PETRA_KEY_REAL_LIST) {
    *bytes = (size_t)reals->count * sizeof *reals->values;
    return reals->values;
  }
  return NULL;
}

/* Gives a config, which has the addresses of another config, its own memory for a key. The address is NULL after a
 * failure. */
static petra_status own_value(petra_config *config, const petra_config_key *key) {
  size_t bytes;
  void *own = NULL;
  const void *shared = petra_config_memory(key, config, &bytes);
  if (!shared)
    return PETRA_OK;
  petra_status status = petra_allocate_raw(&own, bytes, 1);
  if (status == PETRA_OK)
    memcpy(own, shared, bytes);
  memcpy((char *)config + key->offset, &own, sizeof own); /* the address is the first member of a list */
  return status;
}

petra_status petra_config_copy(const petra_config *config, petra_config **out) {
  PETRA_DESTROYED(petra_config_destroy) petra_config *copy = NULL;
  PETRA_TRY(create_empty(&copy));
  char **labels = copy->labels;
  bool *fresh = copy->fresh;
  petra_status status = PETRA_OK;
  *copy = *config;
  copy->labels = labels;
  copy->fresh = fresh;
  /* this also runs after a failure, so that no memory stays shared */
  for (int i = 0; i < petra_config_key_count; i++) {
    const petra_status owned = own_value(copy, &petra_config_keys[i]);
    status = status == PETRA_OK ? owned : status;
    if (status == PETRA_OK && config->labels[i])
      status = petra_duplicate_string(&labels[i], config->labels[i]);
  }
  return status == PETRA_OK ? hand_on(&copy, out) : status;
}

static bool takes_all(const char *key) {
  (void)key;
  return true;
}

/* A key that no file sets has the label of line 0, and a key that follows from another key has the label of the other
 * key. */
bool petra_config_is_set(const petra_config *config, int key) {
  static const char ending[] = " (default)";
  const char *label = config->labels[key];
  const size_t length = label ? strlen(label) : 0, end = strlen(ending);
  return label && strstr(label, petra_config_keys[key].path) &&
         (length < end || strcmp(label + length - end, ending) != 0);
}

/* Returns PETRA_CONFIG if the file sets no key of the part. */
static petra_status check_part(const petra_config *alone, const char *path, bool (*takes)(const char *key)) {
  const char *example = NULL;
  bool one_section = true;
  for (int i = petra_config_key_count - 1; i >= 0; i--) {
    const char *key = petra_config_keys[i].path;
    if (!takes(key))
      continue;
    if (petra_config_is_set(alone, i))
      return PETRA_OK;
    one_section = one_section && (!example || strncmp(example, key, strcspn(key, ".") + 1) == 0);
    example = key;
  }
  if (one_section)
    return petra_fail(PETRA_CONFIG, "%s: sets no key of the section %.*s that is read from it, such as %s", path,
                      (int)strcspn(example, "."), example, example);
  return petra_fail(PETRA_CONFIG, "%s: sets no key that is read from it, such as %s", path, example);
}

/* Also loads the file alone, to check all its keys. */
petra_status petra_config_apply_part(petra_config *config, const char *path, bool (*takes)(const char *key)) {
  const petra_config_text text = {.path = path};
  PETRA_DESTROYED(petra_config_destroy) petra_config *alone = NULL;
  config->takes = takes;
  petra_status status = petra_config_apply_text(config, &text, &(petra_config_file){.path = path});
  config->takes = NULL;
  PETRA_TRY(status);
  PETRA_TRY(petra_config_create(&alone));
  alone->takes = takes_all;
  PETRA_TRY(petra_config_apply_text(alone, &text, NULL));
  return check_part(alone, path, takes);
}

void petra_config_destroy(petra_config *config) {
  if (!config)
    return;
  for (int i = 0; i < petra_config_key_count; i++) {
    size_t bytes;
    petra_free((void *)(uintptr_t)petra_config_memory(&petra_config_keys[i], config, &bytes));
  }
  for (int i = 0; config->labels && i < petra_config_key_count; i++)
    petra_free(config->labels[i]);
  petra_free(config->labels);
  PETRA_FREE_ALL(config->fresh, config);
}

/* Bandwidths are from the standard or the data sheet, in each direction; a program may achieve less. No vendor states
 * the latency from program to program, so latencies without a source are assumptions, in round numbers. The order is
 * the order of the key's choices (keys.c). */
static const char assumed[] = "assumption";
static const petra_link_preset presets[] = {
    {"none", 0, 0, "ideal", "ideal"},
    {"nvlink3", 2e-6, 300e9, "NVIDIA A100, data sheet of June 2021: NVLink 600 GB/s, half in each direction", assumed},
    {"nvlink4", 2e-6, 450e9, "NVIDIA H100 SXM, data sheet: NVLink 900 GB/s, half in each direction", assumed},
    {"nvlink5", 2e-6, 900e9, "NVIDIA DGX B200, data sheet: NVLink 14.4 TB/s of 8 GPUs, half in each direction",
     assumed},
    {"xgmi", 2e-6, 64e9,
     "AMD Instinct MI300X, data sheet: 128 GB/s between two GPUs (one Infinity Fabric link), half in each direction",
     assumed},
    {"pcie4-x16", 5e-6, 31.5e9, "PCI Express 4.0: 16 lanes of 16 GT/s, 128 of 130 bits are data", assumed},
    {"pcie5-x16", 5e-6, 63e9, "PCI Express 5.0: 16 lanes of 32 GT/s, 128 of 130 bits are data", assumed},
    {"10gbe", 20e-6, 1.25e9, "IEEE 802.3ae: 10 Gbit/s",
     "Hurwitz and Feng, Hot Interconnects 11 (2003): measured between applications"},
    {"100gbe", 10e-6, 12.5e9, "IEEE 802.3ba: 100 Gbit/s", assumed},
    {"400gbe", 10e-6, 50e9, "IEEE 802.3bs (2017): 400 Gbit/s", assumed},
    {"800gbe", 10e-6, 100e9, "IEEE 802.3df (2024): 800 Gbit/s", assumed},
    {"ib-ndr", 2e-6, 50e9, "NVIDIA ConnectX-7, user manual: NDR 400 Gbit/s", assumed},
    {"ib-xdr", 2e-6, 100e9, "NVIDIA ConnectX-8 SuperNIC, user manual: XDR 800 Gbit/s", assumed},
    {"wan", 25e-3, 125e6, "assumption: 1 Gbit/s", "assumption: a few thousand kilometres of fibre"},
};

const petra_link_preset *petra_link_preset_of(int choice) {
  return &presets[choice];
}

int petra_link_preset_count(void) {
  return sizeof presets / sizeof *presets;
}

static const petra_sample_words words[] = {
    [PETRA_SAMPLE_IMAGE] = {"image", "images", "images", "images_per_s"},
    [PETRA_SAMPLE_TOKENS] = {"window", "windows", "tokens", "tokens_per_s"},
};

petra_sample_kind petra_sample_kind_of(const petra_config *config) {
  switch (config->data.set) {
  case PETRA_SET_TEXT:
  case PETRA_SET_TOKENS:
  case PETRA_SET_GRAMMAR:
    return PETRA_SAMPLE_TOKENS;
  case PETRA_SET_CIFAR10:
  case PETRA_SET_CIFAR100:
  case PETRA_SET_SHAPES:
  case PETRA_SET_IMAGEFOLDER:
  case PETRA_SET_HDF5:
    break;
  }
  return PETRA_SAMPLE_IMAGE;
}

const petra_sample_words *petra_sample_words_of(petra_sample_kind kind) {
  return &words[kind];
}

int64_t petra_sample_labels(const petra_config *config) {
  return petra_sample_kind_of(config) == PETRA_SAMPLE_TOKENS ? config->model.context : 1;
}
