/* SPDX-License-Identifier: Apache-2.0 */
#include "base/seal.h"

#include "base/log.h"

#include <endian.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <xxhash.h>

enum { MAGIC_BYTES = 8, VERSION = 1, CHUNK_BYTES = 1 << 16 };

/* The contents of the seal in the order of the file. `bytes` is the length of the file, including the seal. */
typedef struct seal {
  uint64_t version, state, bytes, digest, count;
  struct {
    uint64_t offset, bytes, digest;
  } part[PETRA_SEAL_PARTS];
} seal;

/* The layout: 64-bit words, little-endian, after the magic number. The seal's own digest covers everything before
 * it. */
enum {
  WORDS = sizeof(seal) / sizeof(uint64_t),
  AT_TEXT = MAGIC_BYTES + sizeof(seal),
  AT_OWN_DIGEST = PETRA_SEAL_BYTES - 16,
  AT_END = PETRA_SEAL_BYTES - MAGIC_BYTES
};

static const char magic[MAGIC_BYTES] = {'P', 'E', 'T', 'R', 'A', '-', 'H', '5'};
static const char hdf5_signature[8] = {'\211', 'H', 'D', 'F', '\r', '\n', '\032', '\n'};

static uint64_t get_word(const unsigned char *bytes) {
  uint64_t word;
  memcpy(&word, bytes, sizeof word);
  return le64toh(word);
}

static void put_word(unsigned char *bytes, uint64_t word) {
  word = htole64(word);
  memcpy(bytes, &word, sizeof word);
}

static void pack(const seal *s, unsigned char *out) {
  uint64_t words[WORDS];
  memcpy(words, s, sizeof words);
  memset(out, 0, PETRA_SEAL_BYTES);
  memcpy(out, magic, MAGIC_BYTES);
  for (int i = 0; i < WORDS; i++)
    put_word(out + MAGIC_BYTES + 8 * i, words[i]);
  snprintf((char *)out + AT_TEXT, AT_OWN_DIGEST - AT_TEXT,
           "\nA file of petra: length and digest (XXH64); the HDF5 file begins at byte %d.\n", PETRA_SEAL_BYTES);
  put_word(out + AT_OWN_DIGEST, XXH64(out, AT_OWN_DIGEST, 0));
  memcpy(out + AT_END, magic, MAGIC_BYTES);
}

static petra_status damaged(const char *name, const char *what) {
  return petra_fail(PETRA_DATA, "%s: damaged or truncated file: %s; expected the file as petra wrote it", name, what);
}

/* Finds the seal in the first `got` bytes of a file; its state is NONE if there is none. Returns false if it is
 * invalid. One of the two magic numbers suffices: the other one may have been changed. */
static bool find_seal(const unsigned char *in, size_t got, seal *out) {
  bool begins = got >= MAGIC_BYTES && memcmp(in, magic, MAGIC_BYTES) == 0;
  bool ends = got >= PETRA_SEAL_BYTES && memcmp(in + AT_END, magic, MAGIC_BYTES) == 0;
  *out = (seal){.state = PETRA_SEAL_NONE};
  if ((!begins && !ends) || memcmp(in, hdf5_signature, sizeof hdf5_signature) == 0)
    return true;
  if (got < PETRA_SEAL_BYTES || !begins || !ends || get_word(in + AT_OWN_DIGEST) != XXH64(in, AT_OWN_DIGEST, 0))
    return false;
  uint64_t words[WORDS];
  for (int i = 0; i < WORDS; i++)
    words[i] = get_word(in + MAGIC_BYTES + 8 * i);
  memcpy(out, words, sizeof words);
  return true;
}

static petra_status unpack(const char *name, const unsigned char *in, size_t got, seal *out) {
  if (!find_seal(in, got, out))
    return damaged(name, "its seal does not match");
  if (out->state == PETRA_SEAL_NONE)
    return PETRA_OK;
  if (out->version != VERSION || out->count > PETRA_SEAL_PARTS)
    return petra_fail(PETRA_DATA, "%s: its seal is of version %" PRIu64 "; expected %d: it is a later petra's", name,
                      out->version, VERSION);
  if (out->state != PETRA_SEAL_WHOLE)
    out->state = PETRA_SEAL_OPEN;
  return PETRA_OK;
}

/* --- in memory --- */

void petra_seal_image(void *image, size_t size) {
  const char *content = (const char *)image + PETRA_SEAL_BYTES;
  const seal s = {VERSION, PETRA_SEAL_WHOLE, .bytes = size, .digest = XXH64(content, size - PETRA_SEAL_BYTES, 0)};
  pack(&s, image);
}

petra_status petra_seal_check_image(const char *name, const void *image, size_t size) {
  seal s;
  PETRA_TRY(unpack(name, image, size, &s));
  if (s.state != PETRA_SEAL_WHOLE || s.bytes != size || s.count != 0 ||
      s.digest != XXH64((const char *)image + PETRA_SEAL_BYTES, size - PETRA_SEAL_BYTES, 0))
    return damaged(name, "its seal does not match");
  return PETRA_OK;
}

/* --- on the disk --- */

typedef struct range {
  uint64_t from, to; /* bytes from .. to - 1 of the file */
} range;

/* Adds the bytes of the range. Returns 0 or an errno value, EIO at the end of the file. */
static int add_range(int fd, range r, XXH64_state_t *hash) {
  char chunk[CHUNK_BYTES];
  while (r.from < r.to) {
    size_t wanted = r.to - r.from < CHUNK_BYTES ? (size_t)(r.to - r.from) : CHUNK_BYTES;
    ssize_t got = pread(fd, chunk, wanted, (off_t)r.from);
    if (got < 0 && errno == EINTR)
      continue;
    if (got <= 0)
      return got < 0 ? errno : EIO;
    XXH64_update(hash, chunk, (size_t)got);
    r.from += (uint64_t)got;
  }
  return 0;
}

static int digest_ranges(int fd, const range *ranges, uint64_t count, uint64_t *out) {
  XXH64_state_t *hash = XXH64_createState();
  if (!hash)
    return ENOMEM;
  int failure = 0;
  XXH64_reset(hash, 0);
  for (uint64_t i = 0; i < count && !failure; i++)
    failure = add_range(fd, ranges[i], hash);
  *out = XXH64_digest(hash);
  XXH64_freeState(hash);
  return failure;
}

static int digest_part(int fd, const seal *s, int i, uint64_t *out) {
  const range part = {s->part[i].offset, s->part[i].offset + s->part[i].bytes};
  return digest_ranges(fd, &part, 1, out);
}

/* Computes the digest of everything but the seal and the parts. */
static int digest_rest(int fd, const seal *s, uint64_t *out) {
  range rest[PETRA_SEAL_PARTS + 1] = {{.from = PETRA_SEAL_BYTES}};
  for (uint64_t i = 0; i < s->count; i++) {
    rest[i].to = s->part[i].offset;
    rest[i + 1].from = s->part[i].offset + s->part[i].bytes;
  }
  rest[s->count].to = s->bytes;
  return digest_ranges(fd, rest, s->count + 1, out);
}

static int write_seal(int fd, const seal *s) {
  unsigned char block[PETRA_SEAL_BYTES];
  pack(s, block);
  ssize_t put = pwrite(fd, block, sizeof block, 0);
  if (put < 0)
    return errno;
  return put == (ssize_t)sizeof block ? 0 : ENOSPC;
}

int petra_seal_begin(int fd) {
  return write_seal(fd, &(seal){VERSION, .state = PETRA_SEAL_OPEN});
}

int petra_seal_finish(int fd, const petra_seal_part *parts, int count) {
  struct stat about;
  if (fsync(fd) != 0 || fstat(fd, &about) != 0)
    return errno;
  seal s = {VERSION, PETRA_SEAL_WHOLE, .bytes = (uint64_t)about.st_size, .count = (uint64_t)count};
  int failure = 0;
  for (int i = 0; i < count && !failure; i++) {
    s.part[i].offset = (uint64_t)parts[i].offset;
    s.part[i].bytes = (uint64_t)parts[i].bytes;
    failure = digest_part(fd, &s, i, &s.part[i].digest);
  }
  if (!failure)
    failure = digest_rest(fd, &s, &s.digest);
  if (!failure)
    failure = write_seal(fd, &s);
  return failure || fsync(fd) == 0 ? failure : errno;
}

static petra_status cannot_read(const char *path, int failure) {
  return petra_fail(PETRA_IO, "%s: cannot read: %s", path, strerror(failure));
}

static void close_file(int *fd) {
  if (*fd >= 0)
    close(*fd);
}

/* Opens the file and reads its seal. Close the file even after a failure. */
static petra_status open_sealed(const char *path, int *fd, seal *out) {
  unsigned char block[PETRA_SEAL_BYTES];
  struct stat about;
  *fd = open(path, O_RDONLY | O_NONBLOCK | O_CLOEXEC);
  if (*fd < 0)
    return petra_fail(PETRA_IO, "%s: cannot open: %s", path, strerror(errno));
  if (fstat(*fd, &about) != 0 || !S_ISREG(about.st_mode))
    return petra_fail(PETRA_IO, "%s: cannot open: expected a regular file", path);
  const ssize_t got = pread(*fd, block, sizeof block, 0);
  if (got < 0)
    return cannot_read(path, errno);
  PETRA_TRY(unpack(path, block, (size_t)got, out));
  if (out->state == PETRA_SEAL_WHOLE && out->bytes != (uint64_t)about.st_size)
    return petra_fail(PETRA_DATA, "%s: damaged or truncated file: %lld bytes, and it was written with %" PRIu64, path,
                      (long long)about.st_size, out->bytes);
  return PETRA_OK;
}

petra_status petra_seal_check(const char *path, petra_seal *out) {
  seal s = {0};
  PETRA_FINISHED(close_file) int fd = -1;
  PETRA_TRY(open_sealed(path, &fd, &s));
  uint64_t found = s.digest;
  int failure = s.state == PETRA_SEAL_WHOLE ? digest_rest(fd, &s, &found) : 0;
  if (failure)
    return cannot_read(path, failure);
  if (found != s.digest)
    return damaged(path, "its content was changed");
  *out = (petra_seal)s.state;
  return PETRA_OK;
}

bool petra_seal_is_damaged(const char *path) {
  unsigned char block[PETRA_SEAL_BYTES];
  struct stat about;
  seal s;
  PETRA_FINISHED(close_file) int fd = open(path, O_RDONLY | O_NONBLOCK | O_CLOEXEC);
  if (fd < 0)
    return errno != ENOENT;
  const ssize_t got = fstat(fd, &about) == 0 && S_ISREG(about.st_mode) ? pread(fd, block, sizeof block, 0) : -1;
  if (got < 0 || !find_seal(block, (size_t)got, &s) || s.state == PETRA_SEAL_NONE)
    return true;
  if (s.state != PETRA_SEAL_WHOLE || s.version != VERSION || s.count > PETRA_SEAL_PARTS)
    return false;
  uint64_t found;
  return s.bytes != (uint64_t)about.st_size || digest_rest(fd, &s, &found) != 0 || found != s.digest;
}

petra_status petra_seal_get_digest(const char *path, uint64_t *out) {
  seal s = {0};
  PETRA_FINISHED(close_file) int fd = -1;
  PETRA_TRY(open_sealed(path, &fd, &s));
  if (s.state != PETRA_SEAL_WHOLE)
    return petra_fail(PETRA_DATA, "%s: it has no seal", path);
  *out = s.digest;
  return PETRA_OK;
}

petra_status petra_seal_check_parts(const char *path) {
  seal s = {0};
  PETRA_FINISHED(close_file) int fd = -1;
  PETRA_TRY(open_sealed(path, &fd, &s));
  for (uint64_t i = 0; i < s.count; i++) {
    uint64_t found = 0;
    int failure = digest_part(fd, &s, (int)i, &found);
    if (failure)
      return cannot_read(path, failure);
    if (found != s.part[i].digest)
      return petra_fail(PETRA_DATA,
                        "%s: records were changed since petra wrote them: bytes %" PRIu64 " to %" PRIu64
                        " have another digest",
                        path, s.part[i].offset, s.part[i].offset + s.part[i].bytes - 1);
  }
  return PETRA_OK;
}

bool petra_seal_begins_hdf5(const char *start, size_t size) {
  return (size >= MAGIC_BYTES && memcmp(start, magic, MAGIC_BYTES) == 0) ||
         (size >= sizeof hdf5_signature && memcmp(start, hdf5_signature, sizeof hdf5_signature) == 0) ||
         (size >= PETRA_SEAL_BEGIN_BYTES &&
          memcmp(start + PETRA_SEAL_BYTES, hdf5_signature, sizeof hdf5_signature) == 0);
}

petra_status petra_xxh64_create(XXH64_state_t **out) {
  XXH64_state_t *state = XXH64_createState();
  if (!state)
    return petra_fail(PETRA_NO_MEMORY, "out of memory: xxHash");
  XXH64_reset(state, 0);
  *out = state;
  return PETRA_OK;
}
