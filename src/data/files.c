/* SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE /* d_type, qsort_r */
#include "data/data_sets.h"

#include "base/log.h"
#include "base/mem.h"
#include "data/dataset.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>
#include <unistd.h>

/* --- names --- */

const char *petra_names_get(const petra_names *names, int64_t index) {
  return names->bytes + names->start[index];
}

void petra_names_fini(petra_names *names) {
  petra_free(names->bytes);
  petra_free(names->start);
  *names = (petra_names){0};
}

static petra_status add_name(petra_names *names, const char *text) {
  size_t length = strlen(text) + 1;
  PETRA_TRY(petra_array_reserve(&names->bytes, &names->room, (int64_t)(names->used + length), 1));
  PETRA_TRY(petra_array_reserve(&names->start, &names->start_room, names->count + 1, sizeof *names->start));
  memcpy(names->bytes + names->used, text, length);
  names->start[names->count++] = names->used;
  names->used += length;
  return PETRA_OK;
}

static int compare_names(const void *a, const void *b, void *bytes) {
  return strcmp((const char *)bytes + *(const size_t *)a, (const char *)bytes + *(const size_t *)b);
}

static void sort_names(petra_names *names, int64_t from) {
  if (names->count - from > 1)
    qsort_r(names->start + from, (size_t)(names->count - from), sizeof *names->start, compare_names, names->bytes);
}

/* Returns the number of a name among sorted ones, or -1. */
static int64_t find_name(const petra_names *names, const char *text) {
  int64_t low = 0, high = names->count;
  while (low < high) {
    int64_t middle = (low + high) / 2;
    int order = strcmp(petra_names_get(names, middle), text);
    if (order == 0)
      return middle;
    if (order < 0)
      low = middle + 1;
    else
      high = middle;
  }
  return -1;
}

petra_status petra_folder_path(const char *a, const char *b, const char *c, char **out) {
  size_t length = strlen(a), size = length + strlen(b) + (c ? strlen(c) : 0) + 3;
  char *path = NULL;
  PETRA_TRY(petra_allocate_raw(&path, size, 1));
  snprintf(path, size, "%s%s%s%s%s", a, length && a[length - 1] == '/' ? "" : "/", b, c ? "/" : "", c ? c : "");
  *out = path;
  return PETRA_OK;
}

/* --- folders --- */

typedef enum entry_kind { ENTRY_FOLDER, ENTRY_FILE, ENTRY_OTHER } entry_kind;

/* Returns what `entry` is, following links; a link that leads nowhere is neither. */
static petra_status kind_of(const char *folder, const struct dirent *entry, entry_kind *out) {
  struct stat about;
  char *path = NULL;
  if (entry->d_type == DT_DIR || entry->d_type == DT_REG) {
    *out = entry->d_type == DT_DIR ? ENTRY_FOLDER : ENTRY_FILE;
    return PETRA_OK;
  }
  PETRA_TRY(petra_folder_path(folder, entry->d_name, NULL, &path));
  bool there = stat(path, &about) == 0;
  petra_free(path);
  *out = !there                   ? ENTRY_OTHER
         : S_ISDIR(about.st_mode) ? ENTRY_FOLDER
         : S_ISREG(about.st_mode) ? ENTRY_FILE
                                  : ENTRY_OTHER;
  return PETRA_OK;
}

typedef petra_status (*take_entry)(void *context, const char *folder, const char *name, entry_kind kind);

/* Calls `take` for every entry of the folder that does not begin with a dot. */
static petra_status walk(const char *folder, take_entry take, void *context) {
  DIR *stream = opendir(folder);
  if (!stream)
    return petra_fail(PETRA_IO, "%s: cannot be read: %s, expected a folder (data.path)", folder, strerror(errno));
  petra_status status = PETRA_OK;
  while (status == PETRA_OK) {
    entry_kind kind;
    errno = 0;
    const struct dirent *entry = readdir(stream);
    if (!entry) {
      if (errno)
        status = petra_fail(PETRA_IO, "%s: cannot be read: %s", folder, strerror(errno));
      break;
    }
    if (entry->d_name[0] == '.')
      continue;
    status = kind_of(folder, entry, &kind);
    if (status == PETRA_OK)
      status = take(context, folder, entry->d_name, kind);
  }
  closedir(stream);
  return status;
}

/* --- classes --- */

/* The result of a walk. */
typedef struct findings {
  petra_names *names;
  int64_t left_out, *problems;
  char first_left_out[512]; /* cut if it is longer */
} findings;

static petra_status take_class(void *context, const char *folder, const char *name, entry_kind kind) {
  findings *at = context;
  (void)folder;
  if (kind == ENTRY_FOLDER)
    return add_name(at->names, name);
  at->left_out++;
  return PETRA_OK;
}

petra_status petra_folder_classes(const char *root, petra_names *out, int64_t *left_out) {
  petra_names names = {0};
  findings at = {.names = &names};
  petra_status status = walk(root, take_class, &at);
  if (status == PETRA_OK && names.count == 0)
    status = petra_fail(PETRA_DATA, "%s: contains no folders, expected one for each class, with its images", root);
  if (status == PETRA_OK && names.count > INT32_MAX)
    status = petra_fail(PETRA_DATA, "%s: holds %" PRId64 " folders, at most %d classes are possible", root, names.count,
                        INT32_MAX);
  if (status != PETRA_OK) {
    petra_names_fini(&names);
    return status;
  }
  sort_names(&names, 0);
  *out = names;
  *left_out = at.left_out;
  return PETRA_OK;
}

/* --- files --- */

static bool is_image_name(const char *name) {
  const char *dot = strrchr(name, '.');
  return dot && (strcasecmp(dot, ".jpg") == 0 || strcasecmp(dot, ".jpeg") == 0);
}

static petra_status take_file(void *context, const char *folder, const char *name, entry_kind kind) {
  findings *at = context;
  if (!is_image_name(name)) {
    if (at->left_out++ == 0)
      snprintf(at->first_left_out, sizeof at->first_left_out, "%s", name);
    return PETRA_OK;
  }
  if (kind != ENTRY_FILE)
    return petra_dataset_problem(at->problems,
                                 petra_fail(PETRA_DATA, "%s/%s: is %s, expected a JPEG file", folder, name,
                                            kind == ENTRY_FOLDER ? "a folder" : "neither a file nor a link to one"));
  return add_name(at->names, name);
}

/* Appends the sorted files of one class folder to the names. */
static petra_status list_class(const char *root, const char *class, findings *at) {
  char *folder = NULL;
  int64_t before = at->names->count;
  PETRA_TRY(petra_folder_path(root, class, NULL, &folder));
  petra_status status = petra_dataset_problem(at->problems, walk(folder, take_file, at));
  if (status == PETRA_OK && at->names->count == before)
    status = petra_dataset_problem(
        at->problems,
        petra_fail(PETRA_DATA, "%s: a class without images, expected at least one file named .jpg or .jpeg", folder));
  petra_free(folder);
  sort_names(at->names, before);
  return status;
}

typedef struct split_class {
  int32_t label;
  int64_t next, end; /* names that are not placed yet */
} split_class;

/* Places the first file of every class, the second of every class, and so on. Classes without more files are
 * dropped. */
static petra_status interleave(petra_folder_list *list, split_class *classes, int64_t count) {
  PETRA_TRY(petra_allocate_raw(&list->files, (size_t)list->names.count, sizeof *list->files));
  list->count = 0;
  while (count > 0) {
    int64_t left = 0;
    for (int64_t i = 0; i < count; i++) {
      split_class at = classes[i];
      if (at.next == at.end)
        continue;
      list->files[list->count++] = (petra_folder_file){at.label, list->names.start[at.next++]};
      classes[left++] = at;
    }
    count = left;
  }
  return PETRA_OK;
}

static petra_status list_folders(const char *root, const petra_names *folders, const petra_names *classes, findings *at,
                                 split_class *out, int64_t *count) {
  for (int64_t i = 0; i < folders->count; i++) {
    const char *name = petra_names_get(folders, i);
    int64_t label = find_name(classes, name), before = at->names->count;
    if (label < 0) {
      PETRA_TRY(petra_dataset_problem(
          at->problems,
          petra_fail(PETRA_DATA,
                     "%s/%s: a class that the training split has no folder for, expected one of its %" PRId64
                     " classes",
                     root, name, classes->count)));
      continue;
    }
    PETRA_TRY(list_class(root, name, at));
    out[(*count)++] = (split_class){(int32_t)label, before, at->names->count};
  }
  return PETRA_OK;
}

petra_status petra_folder_files(const char *root, const petra_names *classes, int64_t *problems,
                                petra_folder_list *out) {
  petra_folder_list list = {0};
  petra_names folders = {0};
  split_class *split = NULL;
  int64_t beside = 0, count = 0;
  findings at = {.names = &list.names, .problems = problems};
  petra_status status;
  PETRA_TRY_GOTO(status, petra_folder_classes(root, &folders, &beside), done);
  PETRA_TRY_GOTO(status, petra_allocate(&split, (size_t)folders.count, sizeof *split), done);
  PETRA_TRY_GOTO(status, list_folders(root, &folders, classes, &at, split, &count), done);
  PETRA_TRY_GOTO(status, interleave(&list, split, count), done);
  int64_t left_out = beside + at.left_out;
  if (left_out > 0)
    petra_log(PETRA_LOG_WARNING, "%s: %" PRId64 " entr%s not named .jpg or .jpeg %s left out%s%s", root, left_out,
              left_out == 1 ? "y" : "ies", left_out == 1 ? "is" : "are", at.first_left_out[0] ? ", such as " : "",
              at.first_left_out);
  *out = list;
done:
  petra_free(split);
  petra_names_fini(&folders);
  if (status != PETRA_OK)
    petra_folder_list_fini(&list);
  return status;
}

void petra_folder_list_fini(petra_folder_list *list) {
  petra_free(list->files);
  petra_names_fini(&list->names);
  *list = (petra_folder_list){0};
}

static const int64_t size_max = INT64_C(1) << 30;

petra_status petra_file_read_at(int fd, const char *path, int64_t offset, void *out, size_t size) {
  uint8_t *bytes = out;
  while (size > 0) {
    ssize_t got = pread(fd, bytes, size, offset);
    if (got < 0 && errno == EINTR)
      continue;
    if (got <= 0)
      return petra_fail(PETRA_IO, "%s: byte %" PRId64 " cannot be read: %s", path, offset,
                        got < 0 ? strerror(errno) : "the file became shorter");
    bytes += got;
    offset += got;
    size -= (size_t)got;
  }
  return PETRA_OK;
}

petra_status petra_file_open(const char *path, const char *what, int *fd, int64_t *size) {
  struct stat about;
  *fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK); /* opening a pipe would wait for its writer */
  if (*fd < 0)
    return petra_fail(PETRA_IO, "%s: %s, expected %s", path, strerror(errno), what);
  bool known = fstat(*fd, &about) == 0;
  if (known && S_ISREG(about.st_mode)) {
    *size = about.st_size;
    return PETRA_OK;
  }
  close(*fd);
  return petra_fail(PETRA_IO, "%s: is %s, expected %s", path,
                    known && S_ISDIR(about.st_mode) ? "a folder" : "no regular file", what);
}

static petra_status read_whole(int fd, int64_t size, const char *path, const char *what, uint8_t **out) {
  if (size == 0)
    return petra_fail(PETRA_DATA, "%s: the file is empty, expected %s", path, what);
  if (size > size_max)
    return petra_fail(PETRA_DATA, "%s: the file has %" PRId64 " bytes, expected %s of at most %" PRId64, path, size,
                      what, size_max);
  PETRA_TRY(petra_allocate_raw(out, (size_t)size, 1));
  return petra_file_read_at(fd, path, 0, *out, (size_t)size);
}

petra_status petra_file_bytes(const char *path, const char *what, uint8_t **out, size_t *size) {
  uint8_t *bytes = NULL;
  int64_t length = 0;
  int fd;
  PETRA_TRY(petra_file_open(path, what, &fd, &length));
  petra_status status = read_whole(fd, length, path, what, &bytes);
  close(fd);
  if (status != PETRA_OK) {
    petra_free(bytes);
    return status;
  }
  *out = bytes;
  *size = (size_t)length;
  return PETRA_OK;
}
