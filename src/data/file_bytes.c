/* SPDX-License-Identifier: Apache-2.0 */
#include "data/file_bytes.h"

#include "base/log.h"
#include "base/mem.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdbool.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

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
