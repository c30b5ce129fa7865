/* SPDX-License-Identifier: Apache-2.0 */
#include "data/data_sets.h"

#include "base/log.h"
#include "base/mem.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

petra_status petra_folder_path(const char *a, const char *b, const char *c, char **out) {
  size_t length = strlen(a), size = length + strlen(b) + (c ? strlen(c) : 0) + 3;
  char *path = NULL;
  PETRA_TRY(petra_allocate_raw(&path, size, 1));
  snprintf(path, size, "%s%s%s%s%s", a, length && a[length - 1] == '/' ? "" : "/", b, c ? "/" : "", c ? c : "");
  *out = path;
  return PETRA_OK;
}

petra_status petra_file_read_at(const petra_file *file, int64_t offset, void *out, size_t size) {
  uint8_t *bytes = out;
  while (size > 0) {
    ssize_t got = pread(file->fd, bytes, size, offset);
    if (got < 0 && errno == EINTR)
      continue;
    if (got <= 0)
      return petra_fail(PETRA_IO, "%s: byte %" PRId64 " cannot be read: %s", file->path, offset,
                        got < 0 ? strerror(errno) : "the file became shorter");
    bytes += got;
    offset += got;
    size -= (size_t)got;
  }
  return PETRA_OK;
}

petra_status petra_file_open(const char *path, const char *what, petra_file *out) {
  struct stat about;
  PETRA_TRY(petra_duplicate_string(&out->path, path));
  out->fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK); /* opening a pipe would wait for its writer */
  if (out->fd < 0)
    return petra_fail(PETRA_IO, "%s: %s, expected %s", path, strerror(errno), what);
  bool known = fstat(out->fd, &about) == 0;
  if (!known || !S_ISREG(about.st_mode))
    return petra_fail(PETRA_IO, "%s: is %s, expected %s", path,
                      known && S_ISDIR(about.st_mode) ? "a folder" : "no regular file", what);
  out->bytes = about.st_size;
  return PETRA_OK;
}

void petra_file_close(petra_file *file) {
  if (file->path && file->fd >= 0)
    close(file->fd);
  petra_free(file->path);
}
