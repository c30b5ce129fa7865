/* SPDX-License-Identifier: Apache-2.0 */
#include "data/token_file.h"

#include "base/hdf5.h"
#include "base/log.h"
#include "base/mem.h"
#include "data/file_bytes.h"
#include "data/hdf5_layout.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

/* The header of llm.c (github.com/karpathy/llm.c, dev/data/data_common.py: write_datafile). */
enum { HEADER_BYTES = 256 * 4, HEADER_READ = 12, MAGIC = 20240520, MAGIC_WIDE = 20240801, VERSION = 1 };

static uint32_t word_at(const uint8_t *bytes) {
  return bytes[0] | (uint32_t)bytes[1] << 8 | (uint32_t)bytes[2] << 16 | (uint32_t)bytes[3] << 24;
}

/* A file that begins with the number of llm.c has its header, all of which has to fit. */
static petra_status read_header(petra_token_file *file, int64_t size) {
  uint8_t head[HEADER_READ];
  if (size < HEADER_READ)
    return PETRA_OK;
  PETRA_TRY(petra_file_read_at(file->fd, file->path, 0, head, sizeof head));
  const uint32_t magic = word_at(head), version = word_at(head + 4), count = word_at(head + 8);
  if (magic == MAGIC_WIDE)
    return petra_fail(PETRA_DATA,
                      "%s: begins with %d, the header of llm.c for tokens of 32 bits; expected tokens of 16 bits",
                      file->path, MAGIC_WIDE);
  if (magic != MAGIC)
    return PETRA_OK;
  if (version != VERSION)
    return petra_fail(PETRA_DATA, "%s: begins with %d, the header of llm.c, of version %" PRIu32 "; expected %d",
                      file->path, MAGIC, version, VERSION);
  if (size != HEADER_BYTES + 2 * (int64_t)count)
    return petra_fail(PETRA_DATA,
                      "%s: its header says %" PRIu32 " tokens, so that the file should have %" PRId64
                      " bytes, but it has %" PRId64,
                      file->path, count, HEADER_BYTES + 2 * (int64_t)count, size);
  file->offset = HEADER_BYTES;
  return PETRA_OK;
}

/* What other files begin with that are taken for tokens. */
static const struct {
  const char *start;
  size_t length;
  const char *name;
} others[] = {{"\x93NUMPY", 6, "a NumPy file (.npy)"}, {"PK\3\4", 4, "a ZIP archive (.npz?)"},
              {"\x1f\x8b\x08", 3, "a gzip archive"},   {"\x28\xb5\x2f\xfd", 4, "a Zstandard archive"},
              {"PAR1", 4, "a Parquet file"},           {"MMIDIDX\0", 8, "an index of Megatron"}};

/* Integers of 32 or 64 bits: of their 16-bit halves every second one is 0 (or at most 3, beside larger ones, as of a vocabulary
 * of more than 65,536). Of so many tokens of 16 bits that is so only in a file that was made to look like it. */
static bool is_wide(const uint8_t *bytes, size_t size) {
  enum { FEWEST = 16, HIGH_MOST = 3, LOW_LEAST = 16 };
  int largest[2] = {0, 0};
  for (size_t i = 0; i + 1 < size; i += 2) {
    const int value = bytes[i] | bytes[i + 1] << 8;
    if (value > largest[i / 2 % 2])
      largest[i / 2 % 2] = value;
  }
  const bool little = largest[1] == 0 && largest[0] > 0, big = largest[0] == 0 && largest[1] > 0;
  return size >= 4 * FEWEST && (little || big || (largest[1] <= HIGH_MOST && largest[0] >= LOW_LEAST));
}

/* A file without a header is looked at for what it would be if it was not tokens of 16 bits. */
static petra_status check_contents(const petra_token_file *file, int64_t size) {
  uint8_t start[4096];
  const int64_t left = size - file->offset;
  const size_t count = left < (int64_t)sizeof start ? (size_t)left : sizeof start;
  PETRA_TRY(petra_file_read_at(file->fd, file->path, file->offset, start, count));
  for (size_t i = 0; i < sizeof others / sizeof *others && file->offset == 0; i++)
    if (count >= others[i].length && memcmp(start, others[i].start, others[i].length) == 0)
      return petra_fail(PETRA_DATA,
                        "%s: is %s, expected tokens of 16 bits without a header (numpy: astype('<u2').tofile)",
                        file->path, others[i].name);
  if (petra_hdf5_is_file(file->path))
    return petra_fail(
        PETRA_DATA,
        "%s: is an HDF5 file, expected tokens of 16 bits without a header (an HDF5 file with both splits is "
        "given by data.path)",
        file->path);
  if (is_wide(start, count))
    return petra_fail(
        PETRA_DATA,
        "%s: seems to hold integers of 32 or 64 bits, as every second number of 16 bits is nearly 0; expected "
        "tokens of 16 bits (numpy: astype('<u2').tofile)",
        file->path);
  return PETRA_OK;
}

petra_status petra_token_file_open(const char *path, const char *key, bool bytes, petra_token_file *out) {
  int64_t size;
  char what[64];
  *out = (petra_token_file){.fd = -1, .token_bytes = bytes ? 1 : 2, .vocabulary = bytes ? PETRA_TOKEN_BYTES : 0};
  snprintf(what, sizeof what, "a file of %s (%s)", bytes ? "text" : "tokens", key);
  PETRA_TRY(petra_duplicate_string(&out->path, path));
  PETRA_TRY(petra_file_open(path, what, &out->fd, &size));
  if (size == 0)
    return petra_fail(PETRA_DATA, "%s: the file is empty, expected %s", path, what);
  if (!bytes)
    PETRA_TRY(read_header(out, size));
  if (size % out->token_bytes != 0)
    return petra_fail(PETRA_DATA, "%s: %" PRId64 " bytes, an odd number; expected tokens of two bytes", path, size);
  if (!bytes)
    PETRA_TRY(check_contents(out, size));
  out->tokens = (size - out->offset) / out->token_bytes;
  return PETRA_OK;
}

petra_status petra_token_file_open_hdf5(const char *path, petra_split split, petra_token_file *out) {
  int64_t size;
  petra_hdf5_tokens tokens;
  *out = (petra_token_file){.fd = -1, .token_bytes = 2};
  PETRA_TRY(petra_duplicate_string(&out->path, path));
  PETRA_TRY(petra_hdf5_layout_tokens(path, split, &tokens));
  out->offset = tokens.offset;
  out->tokens = tokens.count;
  out->vocabulary = tokens.vocabulary;
  return petra_file_open(path, "an HDF5 file of tokens (data.path)", &out->fd, &size);
}

void petra_token_file_close(petra_token_file *file) {
  if (file->fd >= 0)
    close(file->fd);
  petra_free(file->path);
}

/* The bytes are read to the end of the room and spread from there to its beginning, where each number lies before the bytes that
 * are still to be read. */
petra_status petra_token_file_read(const petra_token_file *file, int32_t vocabulary, int64_t first, int64_t count,
                                   int32_t *tokens) {
  const int64_t size = count * file->token_bytes;
  const uint8_t *bytes = (const uint8_t *)tokens + count * (int64_t)sizeof *tokens - size;
  PETRA_TRY(petra_file_read_at(file->fd, file->path, file->offset + first * file->token_bytes, (uint8_t *)bytes,
                               (size_t)size));
  for (int64_t i = 0; i < count; i++, bytes += file->token_bytes) {
    const int32_t token = file->token_bytes == 1 ? bytes[0] : bytes[0] | bytes[1] << 8;
    if (token >= vocabulary)
      return petra_fail(PETRA_DATA, "%s: token %" PRId64 " (from 0) is %" PRId32 ", expected 0 to %" PRId32, file->path,
                        first + i, token, vocabulary - 1);
    tokens[i] = token;
  }
  return PETRA_OK;
}
