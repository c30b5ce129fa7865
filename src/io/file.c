/* SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE /* fallocate, which does not write if the file system cannot reserve */
#include "io/file.h"

#include "base/log.h"
#include "base/mem.h"

#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

petra_status petra_file_temporary_name(const char *path, char **out) {
  const char *slash = strrchr(path, '/');
  size_t folder = slash ? (size_t)(slash - path) + 1 : 0;
  size_t size = strlen(path) + sizeof "..tmp";
  char *name = NULL;
  PETRA_TRY(petra_allocate_raw(&name, size, 1));
  snprintf(name, size, "%.*s.%s.tmp", (int)folder, path, path + folder);
  *out = name;
  return PETRA_OK;
}

static petra_status sync_folder(const char *path) {
  char *folder = NULL;
  PETRA_TRY(petra_duplicate_string(&folder, path));
  char *slash = strrchr(folder, '/');
  if (slash)
    slash[1] = 0;
  int fd = open(slash ? folder : ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  petra_free(folder);
  if (fd < 0)
    return PETRA_OK;
  bool lost = fsync(fd) != 0 && (errno == EIO || errno == ENOSPC || errno == EDQUOT);
  int reason = errno;
  close(fd);
  return lost ? petra_fail(PETRA_IO, "%s: cannot sync its folder: %s", path, strerror(reason)) : PETRA_OK;
}

petra_status petra_file_replace(const char *path, const char *temporary) {
  return rename(temporary, path) == 0 ? sync_folder(path)
                                      : petra_fail(PETRA_IO, "%s: cannot replace: %s", path, strerror(errno));
}

int petra_file_write_at(int fd, const void *bytes, size_t size, off_t offset) {
  const char *at = bytes;
  while (size > 0) {
    ssize_t written = pwrite(fd, at, size, offset);
    if (written < 0 && errno == EINTR)
      continue;
    if (written <= 0)
      return written < 0 ? errno : ENOSPC;
    at += written;
    offset += written;
    size -= (size_t)written;
  }
  return 0;
}

static int open_temporary(const char *name) {
  return open(name, O_WRONLY | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0666);
}

/* Creates the file `name` with these bytes and syncs it. It reuses the space of an existing file `name`. Returns 0 or
 * an errno value. */
static int write_synced(const char *name, const void *bytes, size_t size) {
  int fd = open_temporary(name);
  if (fd < 0)
    return errno;
  int failure = petra_file_write_at(fd, bytes, size, 0);
  if (!failure && ftruncate(fd, (off_t)size) != 0)
    failure = errno;
  if (!failure && fsync(fd) != 0)
    failure = errno;
  if (close(fd) != 0 && !failure)
    failure = errno;
  if (failure)
    unlink(name);
  return failure;
}

petra_status petra_file_check_replaceable(const char *path) {
  struct stat about;
  if (stat(path, &about) != 0 || S_ISREG(about.st_mode) ||
      S_ISDIR(about.st_mode)) /* if it is a folder, the rename fails */
    return PETRA_OK;
  return petra_fail(PETRA_IO, "%s: cannot replace: not a regular file; expected the name of a file", path);
}

petra_status petra_file_write_atomically(const char *path, const void *bytes, size_t size) {
  PETRA_FREED char *temporary = NULL;
  PETRA_TRY(petra_file_check_replaceable(path));
  PETRA_TRY(petra_file_temporary_name(path, &temporary));
  const int failure = write_synced(temporary, bytes, size);
  if (failure)
    return petra_fail(PETRA_IO, "%s: cannot write: %s", path, strerror(failure));
  const petra_status status = petra_file_replace(path, temporary);
  if (status != PETRA_OK)
    unlink(temporary);
  return status;
}

petra_status petra_file_hold(const char *path, off_t size) {
  PETRA_FREED char *name = NULL;
  PETRA_TRY(petra_file_temporary_name(path, &name));
  const int fd = open_temporary(name);
  int failure = fd < 0 || fallocate(fd, 0, 0, size) != 0 ? errno : 0;
  if (fd >= 0)
    close(fd);
  if (failure && fd >= 0)
    unlink(name);
  return !failure || failure == EOPNOTSUPP || failure == ENOSYS
             ? PETRA_OK
             : petra_fail(PETRA_IO, "%s: cannot reserve its %lld bytes: %s; expected room for it before the run begins",
                          path, (long long)size, strerror(failure));
}

void petra_file_release(const char *path) {
  PETRA_FREED char *name = NULL;
  if (petra_file_temporary_name(path, &name) == PETRA_OK)
    unlink(name);
}

int petra_file_reserve(int fd, off_t size) {
  struct stat about;
  if (fstat(fd, &about) != 0)
    return errno;
  if (about.st_size >= size)
    return 0;
  int failure;
  do
    failure = posix_fallocate(fd, about.st_size, size - about.st_size);
  while (failure == EINTR);
  if (failure == EOPNOTSUPP || failure == EINVAL || failure == ENOSYS)
    failure = ftruncate(fd, size) == 0 ? 0 : errno;
  return failure;
}

petra_status petra_join_path(const char *directory, const char *name, char **out) {
  size_t size = strlen(directory) + strlen(name) + 2;
  PETRA_TRY(petra_allocate(out, size, 1));
  size_t length = strlen(directory);
  snprintf(*out, size, "%s%s%s", directory, length && directory[length - 1] == '/' ? "" : "/", name);
  return PETRA_OK;
}

petra_status petra_make_folder(const char *path) {
  PETRA_FREED char *part = NULL;
  PETRA_TRY(petra_duplicate_string(&part, path));
  for (char *slash = part + 1, kept = 1; kept; slash++) {
    if (*slash != '/' && *slash != 0)
      continue;
    struct stat info;
    kept = *slash;
    *slash = 0;
    if (mkdir(part, 0777) != 0 && !(errno == EEXIST && stat(part, &info) == 0 && S_ISDIR(info.st_mode)))
      return petra_fail(PETRA_IO, "%s: cannot create this folder: %s", part,
                        errno == EEXIST ? "a file with that name exists" : strerror(errno));
    *slash = kept;
  }
  return PETRA_OK;
}
