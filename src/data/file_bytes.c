#include "data/file_bytes.h"

#include "base/log.h"
#include "base/mem.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static const off_t size_max = (off_t)1 << 30;

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

static petra_status read_whole(int fd, const char *path, const char *what, uint8_t **out, size_t *size) {
  struct stat about;
  uint8_t *bytes = NULL;
  if (fstat(fd, &about) != 0)
    return petra_fail(PETRA_IO, "%s: cannot be read: %s", path, strerror(errno));
  if (!S_ISREG(about.st_mode))
    return petra_fail(PETRA_IO, "%s: is %s, expected %s", path, S_ISDIR(about.st_mode) ? "a folder" : "no regular file",
                      what);
  if (about.st_size == 0)
    return petra_fail(PETRA_DATA, "%s: the file is empty, expected %s", path, what);
  if (about.st_size > size_max)
    return petra_fail(PETRA_DATA, "%s: the file has %lld bytes, expected %s of at most %lld", path,
                      (long long)about.st_size, what, (long long)size_max);
  PETRA_TRY(petra_allocate_raw(&bytes, (size_t)about.st_size, 1));
  petra_status status = petra_file_read_at(fd, path, 0, bytes, (size_t)about.st_size);
  if (status != PETRA_OK) {
    petra_free(bytes);
    return status;
  }
  *out = bytes;
  *size = (size_t)about.st_size;
  return PETRA_OK;
}

petra_status petra_file_bytes(const char *path, const char *what, uint8_t **out, size_t *size) {
  int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK); /* opening a pipe would wait for its writer */
  if (fd < 0)
    return petra_fail(PETRA_IO, "%s: cannot be opened: %s, expected %s", path, strerror(errno), what);
  petra_status status = read_whole(fd, path, what, out, size);
  close(fd);
  return status;
}
