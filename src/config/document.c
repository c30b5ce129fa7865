/* SPDX-License-Identifier: Apache-2.0 */
#include "config/config_private.h"

#include "base/log.h"
#include "base/mem.h"
#include "base/utf8.h"

#include <errno.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <yaml.h>

/* MAX_DEPTH exceeds the depth of any key; the walk over the document is recursive, so that depth must be bounded. No
 * config is nearly as long as MAX_BYTES; the limit prevents an endless pipe from filling the memory. */
enum { MAX_DEPTH = 8, MAX_BYTES = 1 << 20 };

static petra_status fail_read(const petra_config_origin *origin, int error) {
  return petra_fail(PETRA_IO, "%s: cannot be read: %s; expected a config file in YAML", origin->file, strerror(error));
}

petra_status petra_config_read(const char *path, const petra_config_origin *origin, char **text, size_t *length) {
  FILE *stream = strcmp(path, "-") == 0 ? stdin : fopen(path, "rb");
  PETRA_FREED char *buffer = NULL;
  if (!stream)
    return fail_read(origin, errno);
  petra_status status = petra_allocate_raw(&buffer, MAX_BYTES + 2, 1);
  errno = 0;
  *length = status == PETRA_OK ? fread(buffer, 1, MAX_BYTES + 1, stream) : 0;
  if (ferror(stream))
    status = fail_read(origin, errno);
  if (stream != stdin)
    fclose(stream);
  PETRA_TRY(status);
  buffer[*length] = 0;
  *text = buffer;
  buffer = NULL;
  return PETRA_OK;
}

/* Fails because a text contains something that is not a plain value. For a setting, the message explains how to quote
 * the value. */
static petra_status fail_unquoted(const petra_config_origin *origin, int line, const char *what) {
  char quoted[PETRA_CONFIG_QUOTED];
  return petra_config_fail_at(origin, line, "", "%s%s", what, petra_config_quoted(origin, quoted, sizeof quoted));
}

static int line_of(yaml_mark_t mark) {
  return (int)mark.line + 1;
}

static petra_status start_parser(yaml_parser_t *parser, const char *text, size_t length) {
  if (!yaml_parser_initialize(parser))
    return petra_fail(PETRA_NO_MEMORY, "out of memory: no YAML parser");
  yaml_parser_set_encoding(parser, YAML_UTF8_ENCODING);
  yaml_parser_set_input_string(parser, (const unsigned char *)text, length);
  return PETRA_OK;
}

/* libyaml reports an error at the end of the text in an extra line, which the reader would not find. */
static int line_of_problem(const yaml_parser_t *parser, const char *text, size_t length) {
  int lines = 1;
  for (size_t i = 0; i + 1 < length; i++)
    lines += text[i] == '\n';
  int line = line_of(parser->problem_mark);
  return line < lines ? line : lines;
}

static petra_status fail_syntax(const petra_config_origin *origin, const yaml_parser_t *parser, const char *text,
                                size_t length) {
  if (parser->error == YAML_MEMORY_ERROR || parser->error == YAML_NO_ERROR) /* the copy of a string failed */
    return petra_fail(PETRA_NO_MEMORY, "out of memory: the YAML parser has none");
  char quoted[PETRA_CONFIG_QUOTED];
  return petra_config_fail_at(origin, line_of_problem(parser, text, length), "", "not YAML: %s%s%s; expected %s%s",
                              parser->problem ? parser->problem : "unreadable", parser->context ? " " : "",
                              parser->context ? parser->context : "", origin->set ? "YAML" : "'key: value' lines",
                              petra_config_quoted(origin, quoted, sizeof quoted));
}

/* Refuses elements that are valid in YAML but not in a config, because they would be lost, or expanded, in the
 * document. */
static petra_status check_event(const petra_config_origin *origin, const yaml_event_t *event, int *documents,
                                int *depth) {
  const yaml_char_t *anchor = NULL, *tag = NULL;
  int line = line_of(event->start_mark);
  switch (event->type) {
  case YAML_DOCUMENT_START_EVENT:
    if (++*documents > 1)
      return petra_config_fail_at(origin, line, "", "a second document; expected one");
    return PETRA_OK;
  case YAML_ALIAS_EVENT:
    return fail_unquoted(origin, line, "an alias; expected the value itself");
  case YAML_SCALAR_EVENT:
    anchor = event->data.scalar.anchor, tag = event->data.scalar.tag;
    break;
  case YAML_SEQUENCE_START_EVENT:
    anchor = event->data.sequence_start.anchor, tag = event->data.sequence_start.tag;
    ++*depth;
    break;
  case YAML_MAPPING_START_EVENT:
    anchor = event->data.mapping_start.anchor, tag = event->data.mapping_start.tag;
    ++*depth;
    break;
  case YAML_SEQUENCE_END_EVENT:
  case YAML_MAPPING_END_EVENT:
    --*depth;
    break;
  default:
    break;
  }
  if (anchor)
    return fail_unquoted(origin, line, "an anchor; expected a plain value");
  if (tag)
    return fail_unquoted(origin, line, "a tag; expected a plain value");
  if (*depth > MAX_DEPTH)
    return petra_config_fail_at(origin, line, "", "nested too deeply; expected at most %d levels", MAX_DEPTH);
  return PETRA_OK;
}

static petra_status check_characters(const petra_config_origin *origin, const char *text, size_t length) {
  int line = 1;
  for (size_t at = 0; at < length;) {
    uint32_t character = 0;
    int bytes = petra_utf8_decode(text + at, length - at, &character);
    if (bytes == 0)
      return petra_config_fail_at(origin, line, "", "byte 0x%02x is not UTF-8; expected YAML in UTF-8",
                                  (unsigned char)text[at]);
    if (!petra_utf8_is_printable(character))
      return petra_config_fail_at(origin, line, "",
                                  "holds the character U+%04X; expected YAML, which allows no such character",
                                  (unsigned)character);
    line += character == '\n';
    at += (size_t)bytes;
  }
  return PETRA_OK;
}

static petra_status check_events(const petra_config_origin *origin, const char *text, size_t length) {
  PETRA_FINISHED(yaml_parser_delete) yaml_parser_t parser;
  int documents = 0, depth = 0;
  PETRA_TRY(start_parser(&parser, text, length));
  for (bool at_end = false; !at_end;) {
    PETRA_FINISHED(yaml_event_delete) yaml_event_t event;
    if (!yaml_parser_parse(&parser, &event))
      return fail_syntax(origin, &parser, text, length);
    PETRA_TRY(check_event(origin, &event, &documents, &depth));
    at_end = event.type == YAML_STREAM_END_EVENT;
  }
  return PETRA_OK;
}

/* --- a setting of the command line, no part of which may be lost --- */

/* A position in a text, by characters, as libyaml counts, and by bytes. */
typedef struct place {
  size_t index, byte;
} place;

/* Advances to character number `index`, which is not before the current position. */
static void move_to(place *at, const char *text, size_t length, size_t index) {
  for (uint32_t character; at->index < index && at->byte < length; at->index++)
    at->byte += (size_t)petra_utf8_decode(text + at->byte, length - at->byte, &character);
}

static bool has_line_break(const char *text, size_t length) {
  for (size_t at = 0; at < length;) {
    uint32_t c = 0;
    at += (size_t)petra_utf8_decode(text + at, length - at, &c);
    if (c == '\n' || c == '\r' || c == 0x85 || c == 0x2028 || c == 0x2029)
      return true;
  }
  return false;
}

/* Checks the gap between two tokens: anything but blanks would be dropped by YAML. */
static petra_status check_gap(const petra_config_origin *origin, const char *text, size_t length) {
  char shown[PETRA_CONFIG_SHOWN], quoted[PETRA_CONFIG_QUOTED];
  size_t at = 0;
  while (at < length && strchr(" \t\r\n", text[at]))
    at++;
  if (at == length)
    return PETRA_OK;
  return petra_config_fail_at(origin, 1, "", "'%s' is %s and would be lost; expected a value without it%s",
                              petra_utf8_show(shown, sizeof shown, text + at, length - at),
                              text[at] == '#' ? "a comment of YAML" : "dropped by YAML",
                              petra_config_quoted(origin, quoted, sizeof quoted));
}

static petra_status check_token(const petra_config_origin *origin, const yaml_token_t *token, const char *text,
                                size_t length) {
  const bool scalar = token->type == YAML_SCALAR_TOKEN;
  if (token->type == YAML_DOCUMENT_START_TOKEN || token->type == YAML_DOCUMENT_END_TOKEN ||
      token->type == YAML_VERSION_DIRECTIVE_TOKEN || token->type == YAML_TAG_DIRECTIVE_TOKEN)
    return fail_unquoted(origin, 1, "a document marker of YAML; expected a value without it");
  if (scalar && token->data.scalar.style == YAML_LITERAL_SCALAR_STYLE)
    return fail_unquoted(origin, 1, "'|' begins a block of YAML and would be lost; expected a value without it");
  if (scalar && token->data.scalar.style == YAML_FOLDED_SCALAR_STYLE)
    return fail_unquoted(origin, 1, "'>' begins a block of YAML and would be lost; expected a value without it");
  if (scalar && has_line_break(text, length))
    return fail_unquoted(origin, 1, "a line break, which YAML would turn into a space; expected a value of one line");
  return PETRA_OK;
}

/* Checks that every character of the setting is blank or part of a token that counts. */
static petra_status check_setting(const petra_config_origin *origin, const char *text, size_t length) {
  PETRA_FINISHED(yaml_parser_delete) yaml_parser_t parser;
  place at = {0, 0};
  PETRA_TRY(start_parser(&parser, text, length));
  for (bool at_end = false; !at_end;) {
    PETRA_FINISHED(yaml_token_delete) yaml_token_t token;
    const bool found = yaml_parser_scan(&parser, &token);
    if (!found && (parser.error == YAML_MEMORY_ERROR || parser.error == YAML_NO_ERROR))
      return petra_fail(PETRA_NO_MEMORY, "out of memory while reading --set %s", origin->set);
    if (!found) /* check_events reports the error */
      return PETRA_OK;
    const size_t end = at.byte;
    move_to(&at, text, length, token.start_mark.index);
    const size_t start = at.byte;
    move_to(&at, text, length, token.end_mark.index);
    at_end = token.type == YAML_STREAM_END_TOKEN;
    PETRA_TRY(check_gap(origin, text + end, start - end));
    PETRA_TRY(check_token(origin, &token, text + start, at.byte - start));
  }
  return PETRA_OK;
}

petra_status petra_config_document_load(const petra_config_origin *origin, const char *text, size_t length,
                                        struct yaml_document_s *out) {
  if (length > MAX_BYTES)
    return petra_fail(PETRA_CONFIG, "%s: longer than %d bytes; expected a config file in YAML",
                      origin->file ? origin->file : "--set", MAX_BYTES);
  const size_t mark = origin->set ? 0 : petra_utf8_mark_bytes(text, length);
  text += mark, length -= mark;
  PETRA_TRY(check_characters(origin, text, length));
  if (origin->set)
    PETRA_TRY(check_setting(origin, text, length));
  PETRA_TRY(check_events(origin, text, length));
  PETRA_FINISHED(yaml_parser_delete) yaml_parser_t parser;
  PETRA_TRY(start_parser(&parser, text, length));
  return yaml_parser_load(&parser, out) ? PETRA_OK : fail_syntax(origin, &parser, text, length);
}

int petra_config_line(const yaml_node_t *node) {
  return line_of(node->start_mark);
}

petra_status petra_config_check_duplicate(const petra_config_origin *origin, yaml_document_t *document,
                                          const yaml_node_t *mapping, const yaml_node_pair_t *pair, const char *path) {
  const yaml_node_t *key = yaml_document_get_node(document, pair->key);
  for (const yaml_node_pair_t *p = mapping->data.mapping.pairs.start; p < pair; p++) {
    const yaml_node_t *other = yaml_document_get_node(document, p->key);
    if (strcmp((const char *)key->data.scalar.value, (const char *)other->data.scalar.value) == 0)
      return petra_config_fail_at(origin, petra_config_line(key), path,
                                  "a repeated key; expected it once (first in line %d)", petra_config_line(other));
  }
  return PETRA_OK;
}

/* --- `base: FILE` at the top of a config: the file whose keys it overrides --- */

enum { MAX_FILES = 16, SHOWN_PATH = 256 };

static const char key[] = "base";

/* Sets *value to the value of the key, or NULL if the root does not have it, and *line to the line of the key. Returns
 * PETRA_CONFIG if the key occurs twice. */
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

/* Joins `name`, which is relative to the folder of the file that names it, to that folder. */
static petra_status join(const char *from, const char *name, char **out) {
  const char *slash = *name == '/' || strcmp(from, "-") == 0 ? NULL : strrchr(from, '/');
  const size_t folder = slash ? (size_t)(slash - from) + 1 : 0;
  PETRA_TRY(petra_allocate(out, folder + strlen(name) + 1, 1));
  memcpy(*out, from, folder);
  memcpy(*out + folder, name, strlen(name) + 1);
  return PETRA_OK;
}

/* Prints "a.yaml -> b.yaml -> a.yaml", with the first file at the left, as far as it fits. */
static size_t print_chain(const petra_config_file *file, char *out, size_t size) {
  char shown[SHOWN_PATH];
  size_t used = file->from ? print_chain(file->from, out, size) : 0;
  const int more = used < size ? snprintf(out + used, size - used, "%s%s", file->from ? " -> " : "",
                                          petra_utf8_show(shown, sizeof shown, file->path, strlen(file->path)))
                               : 0;
  return used + (size_t)more;
}

/* Returns PETRA_CONFIG if the file at `path` is part of the chain that ends with `file`, or the chain is too long. */
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
    return petra_config_fail_at(in->origin, line, key, "%s: more than %d files; expected at most that many", chain,
                                MAX_FILES);
  }
  return PETRA_OK;
}

static petra_status check_file(const petra_config_loader *in, const petra_config_file *file, int line,
                               const char *path) {
  struct stat info;
  char shown[SHOWN_PATH];
  const bool there = stat(path, &info) == 0 && access(path, R_OK) == 0;
  if (!there || S_ISDIR(info.st_mode)) {
    petra_config_fail_at(in->origin, line, key, "%s cannot be read: %s; expected the file of a config",
                         petra_utf8_show(shown, sizeof shown, path, strlen(path)), strerror(there ? EISDIR : errno));
    return PETRA_IO; /* the same status as for a config that cannot be read */
  }
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
  return check_file(in, file, line, *out);
}
