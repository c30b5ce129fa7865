/* SPDX-License-Identifier: Apache-2.0 */
/* Reads files by their bytes, and lists the image files below a folder of class folders (ROOT/CLASS/FILE). Private to
 * src/data. */
#pragma once

#include "base/status.h"

#include <stddef.h>
#include <stdint.h>

/* Names, each once, stored one after the other. */
typedef struct petra_names {
  char *bytes;
  size_t used;
  int64_t room;
  size_t *start; /* offset of each name in `bytes` */
  int64_t count, start_room;
} petra_names;

/* Lists the classes: the folders in `root` that do not begin with a dot, numbered from 0 in the order of strcmp of
 * their names. Links are followed. Counts files beside them in *left_out. Errors: PETRA_IO: unreadable; PETRA_DATA:
 * none. */
petra_status petra_folder_classes(const char *root, petra_names *out, int64_t *left_out);

typedef struct petra_folder_file {
  int32_t label;
  size_t name; /* in petra_folder_list.names.bytes */
} petra_folder_file;

typedef struct petra_folder_list {
  petra_names names;
  petra_folder_file *files;
  int64_t count;
} petra_folder_list;

/* Lists the files of `root` whose names end in .jpg or .jpeg, in small or capital letters, in this order: the first
 * file of every class, the second of every class, and so on, classes by number, files of a class by strcmp. So any
 * first part of the list covers all classes. Skips files that begin with a dot, and files with other names, with a
 * warning that counts the latter. Every folder of `root` must be one of `classes`. Errors: PETRA_DATA: a class without
 * images, one that is not in `classes`, an image name that is not a file. `problems` as in
 * petra_dataset_open_counting. */
petra_status petra_folder_files(const char *root, const petra_names *classes, int64_t *problems,
                                petra_folder_list *out);

const char *petra_names_get(const petra_names *names, int64_t index);
void petra_names_fini(petra_names *names);
void petra_folder_list_fini(petra_folder_list *list);

/* Joins names to "a/b" or "a/b/c" (c may be NULL), with one slash between. Free with petra_free. */
petra_status petra_folder_path(const char *a, const char *b, const char *c, char **out);

/* Opens the file at `path`, which should be `what` ("a JPEG image"), for reading, and gets its size. Errors: PETRA_IO:
 * missing, unreadable, not a regular file. Thread-safe. */
petra_status petra_file_open(const char *path, const char *what, int *fd, int64_t *size);

/* Reads the whole file at `path`, which should be `what`. Errors: PETRA_IO: as above; PETRA_DATA: empty, or larger than
 * 1 GiB. Thread-safe. Free with petra_free. */
petra_status petra_file_bytes(const char *path, const char *what, uint8_t **out, size_t *size);

/* Reads exactly `size` bytes at `offset`. Errors: PETRA_IO: `path` and the reason. Thread-safe. */
petra_status petra_file_read_at(int fd, const char *path, int64_t offset, void *out, size_t size);
