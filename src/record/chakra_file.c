/* SPDX-License-Identifier: Apache-2.0 */
#include "record/chakra_file.h"

#include "base/log.h"
#include "base/mem.h"
#include "io/file.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <protobuf-c/protobuf-c.h>
#include <src/record/chakra.pb-c.h> /* made by make, see local.mk */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* A simulation may have more devices than a process may have open files. So nodes wait in memory, and a file is open
 * only while they are appended to it. The buffers of all devices together have about BUFFERS bytes. */
enum { BUFFERS = 1 << 26, BUFFER_MIN = 1 << 10, BUFFER_MAX = 1 << 16, LENGTH_BYTES = 10 };

struct petra_chakra_files {
  char *directory;
  char *path, *temporary; /* for the names of files, so that the end of a run needs no memory */
  size_t path_size;
  int32_t devices, created;
  size_t size;     /* of a buffer */
  uint8_t *buffer; /* `devices` of them, one after the other */
  size_t *used;    /* bytes in each buffer */
  bool overwrite;
};

typedef Petra__Chakra__Attribute attribute;

/* --- names --- */

/* Writes DIR/petra.N.et to files->path, and its temporary name to files->temporary. */
static void name_file(petra_chakra_files *files, int32_t device) {
  snprintf(files->path, files->path_size, "%s/petra.%d.et", files->directory, device);
  snprintf(files->temporary, files->path_size, "%s/.petra.%d.et.tmp", files->directory, device);
}

/* Returns the device of a name petra.N.et; -1: the name is another one. */
static int32_t device_of_name(const char *name) {
  char same[40];
  const int device = strncmp(name, "petra.", 6) == 0 ? (int)strtol(name + 6, NULL, 10) : -1;
  snprintf(same, sizeof same, "petra.%d.et", device);
  return strcmp(name, same) == 0 ? device : -1;
}

/* Refuses a file of an earlier command without --overwrite, and what cannot be replaced. */
static petra_status check_name(petra_chakra_files *files, int32_t device) {
  struct stat about;
  name_file(files, device);
  if (lstat(files->path, &about) == 0 && !S_ISREG(about.st_mode))
    return petra_fail(PETRA_IO, "%s: cannot replace: not a regular file; expected another folder", files->path);
  if (files->overwrite)
    return PETRA_OK;
  return petra_fail(PETRA_USAGE,
                    "--chakra: %s already exists; expected --overwrite to replace the files of an earlier simulation, "
                    "or another folder",
                    files->path);
}

/* Calls `visit` for the device of each file petra.N.et in the folder. */
static petra_status visit_files(petra_chakra_files *files,
                                petra_status (*visit)(petra_chakra_files *files, int32_t device)) {
  petra_status status = PETRA_OK;
  DIR *folder = opendir(files->directory);
  if (!folder)
    return petra_fail(PETRA_IO, "%s: cannot be read: %s", files->directory, strerror(errno));
  for (const struct dirent *entry; status == PETRA_OK && (entry = readdir(folder));) {
    const int32_t device = device_of_name(entry->d_name);
    if (device >= 0)
      status = visit(files, device);
  }
  closedir(folder);
  return status;
}

/* Removes a file of a device that this simulation does not have: ASTRA-sim reads as many files as its network has
 * devices. */
static petra_status remove_left(petra_chakra_files *files, int32_t device) {
  name_file(files, device);
  if (device < files->devices || unlink(files->path) == 0)
    return PETRA_OK;
  return petra_fail(PETRA_IO, "%s: cannot be removed: %s", files->path, strerror(errno));
}

/* --- content --- */

/* Appends the buffer to its file; `create`: to a new file. */
static petra_status flush(petra_chakra_files *files, int32_t device, bool create) {
  struct stat about;
  name_file(files, device);
  int failure = 0,
      fd = open(files->temporary, O_WRONLY | O_NOFOLLOW | O_CLOEXEC | (create ? O_CREAT | O_TRUNC : 0), 0666);
  if (fd < 0 || fstat(fd, &about) != 0)
    failure = errno;
  else
    failure = petra_file_write_at(fd, files->buffer + (size_t)device * files->size, files->used[device], about.st_size);
  if (fd >= 0 && close(fd) != 0 && !failure)
    failure = errno;
  if (failure)
    return petra_fail(PETRA_IO, "%s: cannot be written: %s", files->path, strerror(failure));
  files->used[device] = 0;
  return PETRA_OK;
}

/* Adds a message to the buffer of a device, after its length. */
static petra_status append(petra_chakra_files *files, int32_t device, const ProtobufCMessage *message) {
  size_t length = protobuf_c_message_get_packed_size(message);
  if (length + LENGTH_BYTES > files->size)
    return petra_fail(PETRA_INTERNAL, "a node of %zu bytes is larger than the buffer", length);
  if (files->used[device] + length + LENGTH_BYTES > files->size)
    PETRA_TRY(flush(files, device, false));
  uint8_t *at = files->buffer + (size_t)device * files->size + files->used[device];
  const uint8_t *start = at;
  for (size_t rest = length; rest > 0 || at == start; rest >>= 7)
    *at++ = (uint8_t)(rest & 0x7f) | (rest > 0x7f ? 0x80 : 0);
  at += protobuf_c_message_pack(message, at);
  files->used[device] += (size_t)(at - start);
  return PETRA_OK;
}

static attribute new_attribute(const char *name, Petra__Chakra__Attribute__ValueCase kind) {
  attribute new = PETRA__CHAKRA__ATTRIBUTE__INIT;
  new.name = (char *)name;
  new.value_case = kind;
  return new;
}

static attribute new_int32(const char *name, int32_t value) {
  attribute new = new_attribute(name, PETRA__CHAKRA__ATTRIBUTE__VALUE_INT32_VAL);
  new.int32_val = value;
  return new;
}

petra_status petra_chakra_files_add(petra_chakra_files *files, int32_t device, const petra_chakra_node *node) {
  static const Petra__Chakra__NodeType types[] = {[PETRA_CHAKRA_COMPUTE] = PETRA__CHAKRA__NODE_TYPE__COMPUTE,
                                                  [PETRA_CHAKRA_SEND] = PETRA__CHAKRA__NODE_TYPE__SEND,
                                                  [PETRA_CHAKRA_RECEIVE] = PETRA__CHAKRA__NODE_TYPE__RECEIVE};
  Petra__Chakra__Node message = PETRA__CHAKRA__NODE__INIT;
  uint64_t after[PETRA_CHAKRA_AFTER_MAX];
  /* Readers take these types: is_cpu_op as a bool, comm_size as an int64, the others as int32. A reader without
   * is_cpu_op takes the node for one of the host. */
  attribute bytes = new_attribute("comm_size", PETRA__CHAKRA__ATTRIBUTE__VALUE_INT64_VAL),
            on_host = new_attribute("is_cpu_op", PETRA__CHAKRA__ATTRIBUTE__VALUE_BOOL_VAL),
            from = new_int32("comm_src", node->from), to = new_int32("comm_dst", node->to),
            tag = new_int32("comm_tag", node->tag);
  attribute *all[] = {&on_host, &bytes, &tag, &from, &to};
  bytes.int64_val = node->bytes;
  for (int i = 0; i < node->after_count; i++)
    after[i] = (uint64_t)node->after[i];
  message.id = (uint64_t)node->id;
  message.name = (char *)node->name;
  message.type = types[node->kind];
  message.data_deps = after;
  message.n_data_deps = (size_t)node->after_count;
  message.duration_micros = (uint64_t)node->duration_us;
  message.attr = all;
  message.n_attr = node->kind == PETRA_CHAKRA_COMPUTE ? 1 : sizeof all / sizeof *all;
  return append(files, device, &message.base);
}

static petra_status begin_file(petra_chakra_files *files, int32_t device, const char *method) {
  Petra__Chakra__GlobalMetadata message = PETRA__CHAKRA__GLOBAL_METADATA__INIT;
  attribute name = new_attribute("method", PETRA__CHAKRA__ATTRIBUTE__VALUE_STRING_VAL), *all[] = {&name};
  name.string_val = (char *)method;
  message.version = (char *)"0.0.4";
  message.attr = all;
  message.n_attr = 1;
  PETRA_TRY(append(files, device, &message.base));
  return flush(files, device, true);
}

/* --- the files --- */

petra_status petra_chakra_files_create(const char *directory, int32_t devices, const char *method, bool overwrite,
                                       petra_chakra_files **out) {
  petra_chakra_files *files;
  petra_status status;
  PETRA_TRY(petra_allocate(&files, 1, sizeof *files));
  files->devices = devices;
  files->overwrite = overwrite;
  files->size = (size_t)(BUFFERS / devices);
  files->size = files->size < BUFFER_MIN ? BUFFER_MIN : files->size > BUFFER_MAX ? BUFFER_MAX : files->size;
  PETRA_TRY_GOTO(status, petra_duplicate_string(&files->directory, directory), fail);
  files->path_size = strlen(directory) + 40;
  PETRA_TRY_GOTO(status, petra_allocate(&files->path, 1, files->path_size), fail);
  PETRA_TRY_GOTO(status, petra_allocate(&files->temporary, 1, files->path_size), fail);
  PETRA_TRY_GOTO(status, petra_allocate_raw(&files->buffer, (size_t)devices, files->size), fail);
  PETRA_TRY_GOTO(status, petra_allocate(&files->used, (size_t)devices, sizeof *files->used), fail);
  PETRA_TRY_GOTO(status, petra_make_folder(directory), fail);
  PETRA_TRY_GOTO(status, visit_files(files, check_name), fail);
  for (int32_t d = 0; d < devices; d++) {
    files->created = d + 1;
    PETRA_TRY_GOTO(status, begin_file(files, d, method), fail);
  }
  *out = files;
  return PETRA_OK;
fail:
  petra_chakra_files_destroy(files);
  return status;
}

petra_status petra_chakra_files_finish(petra_chakra_files *files) {
  for (int32_t d = 0; d < files->devices; d++)
    PETRA_TRY(flush(files, d, false));
  for (int32_t d = 0; d < files->devices; d++) {
    name_file(files, d);
    if (rename(files->temporary, files->path) != 0)
      return petra_fail(PETRA_IO, "%s: cannot be written: %s", files->path, strerror(errno));
  }
  files->created = 0;
  return visit_files(files, remove_left);
}

void petra_chakra_files_destroy(petra_chakra_files *files) {
  if (!files)
    return;
  for (int32_t d = 0; d < files->created; d++) {
    name_file(files, d);
    unlink(files->temporary);
  }
  petra_free(files->directory);
  petra_free(files->path);
  petra_free(files->temporary);
  petra_free(files->buffer);
  petra_free(files->used);
  petra_free(files);
}

const char *petra_chakra_library(void) {
  return "protobuf-c " PROTOBUF_C_VERSION;
}
