/* SPDX-License-Identifier: Apache-2.0 */
#include "data/data_sets.h"

#include "base/hdf5.h"
#include "base/log.h"
#include "base/mem.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* Files of tokens, of which windows are read as they are needed. Private to src/data.
 *
 * Forms, of which a file says itself which one it has:
 *   bytes   (data.set: text) each byte is a token; vocabulary 256
 *   raw     whole numbers of 16 bits, little-endian, from the first byte to the last: train.bin and val.bin of nanoGPT
 *   header  256 whole numbers of 32 bits (20240520, 1, count, 0 ...), then count tokens as above: llm.c
 *   HDF5    /train/tokens, /eval/tokens of unsigned 16 bits in one piece, attribute vocabulary (docs/hdf5-schema.md) */

enum { PETRA_TOKEN_BYTES = 256 }; /* vocabulary of bytes */

typedef struct token_set {
  petra_dataset base;
  petra_file file;
  int token_bytes;    /* 1 or 2 */
  int64_t offset;     /* of the first token, bytes */
  int64_t tokens;     /* number of tokens in the file, or in the split of an HDF5 file */
  int64_t first;      /* first token of the split in the file */
  int32_t vocabulary; /* tokens are 0 .. vocabulary - 1; 0: the file does not state it */
} token_set;

/* The header of llm.c (github.com/karpathy/llm.c, dev/data/data_common.py: write_datafile). */
enum { HEADER_BYTES = 256 * 4, HEADER_READ = 12, MAGIC = 20240520, MAGIC_WIDE = 20240801, VERSION = 1 };

static uint32_t word_at(const uint8_t *bytes) {
  return bytes[0] | (uint32_t)bytes[1] << 8 | (uint32_t)bytes[2] << 16 | (uint32_t)bytes[3] << 24;
}

/* A file that begins with the magic number of llm.c has llm.c's header, which must fit the file. */
static petra_status read_header(token_set *set) {
  uint8_t head[HEADER_READ];
  const int64_t size = set->file.bytes;
  if (size < HEADER_READ)
    return PETRA_OK;
  PETRA_TRY(petra_file_read_at(&set->file, 0, head, sizeof head));
  const uint32_t magic = word_at(head), version = word_at(head + 4), count = word_at(head + 8);
  if (magic == MAGIC_WIDE)
    return petra_fail(PETRA_DATA,
                      "%s: begins with %d, the header of llm.c for tokens of 32 bits; expected tokens of 16 bits",
                      set->file.path, MAGIC_WIDE);
  if (magic != MAGIC)
    return PETRA_OK;
  if (version != VERSION)
    return petra_fail(PETRA_DATA, "%s: begins with %d, the header of llm.c, of version %" PRIu32 "; expected %d",
                      set->file.path, MAGIC, version, VERSION);
  if (size != HEADER_BYTES + 2 * (int64_t)count)
    return petra_fail(PETRA_DATA,
                      "%s: its header says %" PRIu32 " tokens, so that the file should have %" PRId64
                      " bytes, but it has %" PRId64,
                      set->file.path, count, HEADER_BYTES + 2 * (int64_t)count, size);
  set->offset = HEADER_BYTES;
  return PETRA_OK;
}

/* The first bytes of other types of files that are mistaken for tokens. */
static const struct {
  const char *start;
  size_t length;
  const char *name;
} others[] = {{"\x93NUMPY", 6, "a NumPy file (.npy)"}, {"PK\3\4", 4, "a ZIP archive (.npz?)"},
              {"\x1f\x8b\x08", 3, "a gzip archive"},   {"\x28\xb5\x2f\xfd", 4, "a Zstandard archive"},
              {"PAR1", 4, "a Parquet file"},           {"MMIDIDX\0", 8, "an index of Megatron"}};

/* Returns true for integers of 32 or 64 bits: every second 16-bit half is 0 (or at most 3, next to larger ones, as in a
 * vocabulary of more than 65,536). With this many tokens of 16 bits this happens only in a file that was made to look
 * like wider integers. */
static bool is_wide(const uint8_t *bytes, size_t size) {
  enum { FEWEST = 16, HIGH_MAX = 3, LOW_LEAST = 16 };
  int largest[2] = {0, 0};
  for (size_t i = 0; i + 1 < size; i += 2) {
    const int value = bytes[i] | bytes[i + 1] << 8;
    if (value > largest[i / 2 % 2])
      largest[i / 2 % 2] = value;
  }
  const bool little = largest[1] == 0 && largest[0] > 0, big = largest[0] == 0 && largest[1] > 0;
  return size >= 4 * FEWEST && (little || big || (largest[1] <= HIGH_MAX && largest[0] >= LOW_LEAST));
}

/* Checks whether a file without a header is something other than tokens of 16 bits. */
static petra_status check_contents(const token_set *set) {
  uint8_t start[4096];
  const char *path = set->file.path;
  const int64_t left = set->file.bytes - set->offset;
  const size_t count = left < (int64_t)sizeof start ? (size_t)left : sizeof start;
  PETRA_TRY(petra_file_read_at(&set->file, set->offset, start, count));
  for (size_t i = 0; i < sizeof others / sizeof *others && set->offset == 0; i++)
    if (count >= others[i].length && memcmp(start, others[i].start, others[i].length) == 0)
      return petra_fail(PETRA_DATA,
                        "%s: is %s, expected tokens of 16 bits without a header (numpy: astype('<u2').tofile)", path,
                        others[i].name);
  if (petra_hdf5_is_file(path))
    return petra_fail(
        PETRA_DATA,
        "%s: is an HDF5 file, expected tokens of 16 bits without a header (an HDF5 file with both splits is "
        "given by data.path)",
        path);
  if (is_wide(start, count))
    return petra_fail(
        PETRA_DATA,
        "%s: seems to hold integers of 32 or 64 bits, as every second number of 16 bits is nearly 0; expected "
        "tokens of 16 bits (numpy: astype('<u2').tofile)",
        path);
  return PETRA_OK;
}

/* Opens the file of key `key`. `bytes`: each byte is a token. Close the file even after a failure. Errors: PETRA_IO:
 * missing, unreadable; PETRA_DATA: empty, an odd number of bytes, a header that does not fit the file; for HDF5 the
 * errors of petra_hdf5_set_open. */
static petra_status token_file_open(const char *path, const char *key, bool bytes, token_set *out) {
  char what[64];
  out->token_bytes = bytes ? 1 : 2;
  out->vocabulary = bytes ? PETRA_TOKEN_BYTES : 0;
  snprintf(what, sizeof what, "a file of %s (%s)", bytes ? "text" : "tokens", key);
  PETRA_TRY(petra_file_open(path, what, &out->file));
  const int64_t size = out->file.bytes;
  if (size == 0)
    return petra_fail(PETRA_DATA, "%s: the file is empty, expected %s", path, what);
  if (!bytes)
    PETRA_TRY(read_header(out));
  if (size % out->token_bytes != 0)
    return petra_fail(PETRA_DATA, "%s: %" PRId64 " bytes, an odd number; expected tokens of two bytes", path, size);
  if (!bytes)
    PETRA_TRY(check_contents(out));
  out->tokens = (size - out->offset) / out->token_bytes;
  return PETRA_OK;
}

/* Opens the split of an HDF5 file. Errors: PETRA_CONFIG: it has no evaluation split. */
static petra_status token_file_open_hdf5(const char *path, petra_split split, token_set *out) {
  petra_hdf5_tokens tokens;
  PETRA_TRY(petra_hdf5_layout_tokens(path, split, &out->file, &tokens));
  out->token_bytes = 2;
  out->offset = tokens.offset;
  out->tokens = tokens.count;
  out->vocabulary = tokens.vocabulary;
  return PETRA_OK;
}

/* The bytes are read into the end of the buffer and expanded from its beginning: each number is written in front of the
 * bytes that are still to be expanded. */
static petra_status token_set_read(const petra_dataset *set, int64_t first, int64_t count, int32_t *tokens) {
  const token_set *self = (const token_set *)set;
  const int64_t size = count * self->token_bytes;
  const uint8_t *bytes = (const uint8_t *)tokens + count * (int64_t)sizeof *tokens - size;
  PETRA_TRY(petra_file_read_at(&self->file, self->offset + (self->first + first) * self->token_bytes, (uint8_t *)bytes,
                               (size_t)size));
  for (int64_t i = 0; i < count; i++, bytes += self->token_bytes) {
    const int32_t token = self->token_bytes == 1 ? bytes[0] : bytes[0] | bytes[1] << 8;
    if (token >= set->classes)
      return petra_fail(PETRA_DATA, "%s: token %" PRId64 " (from 0) is %" PRId32 ", expected 0 to %" PRId32,
                        self->file.path, self->first + first + i, token, set->classes - 1);
    tokens[i] = token;
  }
  return PETRA_OK;
}

static void token_set_destroy(petra_dataset *set) {
  petra_file_close(&((token_set *)set)->file);
  petra_free(set);
}

static const petra_dataset_ops token_set_ops = {.destroy = token_set_destroy, .read_tokens = token_set_read};

/* --- which file --- */

typedef enum token_source { SOURCE_FILE, SOURCE_FOLDER, SOURCE_HDF5 } token_source;

/* The type of data.path. */
static petra_status source_of(const petra_config *config, token_source *out) {
  struct stat info;
  if (!*config->data.path)
    return petra_config_fail(config, "data.path", "is empty, expected a file of %s",
                             config->data.set == PETRA_SET_TEXT ? "text" : "tokens");
  *out = SOURCE_FILE;
  if (config->data.set == PETRA_SET_TEXT)
    return PETRA_OK;
  const bool found = stat(config->data.path, &info) == 0;
  if (found && S_ISDIR(info.st_mode)) {
    *out = SOURCE_FOLDER;
    return PETRA_OK;
  }
  const bool hdf5 = found && S_ISREG(info.st_mode) && petra_hdf5_is_file(config->data.path);
  if (hdf5 && *config->data.eval_path)
    return petra_config_fail(config, "data.eval_path",
                             "%s, but data.path is an HDF5 file, which has its own evaluation split; expected \"\"",
                             config->data.eval_path);
  *out = hdf5 ? SOURCE_HDF5 : SOURCE_FILE;
  return PETRA_OK;
}

static petra_status open_in_folder(const petra_config *config, petra_split split, token_set *out) {
  PETRA_FREED char *path = NULL;
  PETRA_TRY(petra_folder_path(config->data.path, split == PETRA_SPLIT_TRAIN ? "train.bin" : "val.bin", NULL, &path));
  return token_file_open(path, "data.path", false, out);
}

/* `alone`: the file belongs to this split only. */
static petra_status open_file(const petra_config *config, petra_split split, token_set *out, bool *alone) {
  const bool bytes = config->data.set == PETRA_SET_TEXT, beside = *config->data.eval_path != '\0';
  token_source source = SOURCE_FILE;
  PETRA_TRY(source_of(config, &source));
  *alone = source != SOURCE_FILE || beside;
  if (source == SOURCE_HDF5)
    return token_file_open_hdf5(config->data.path, split, out);
  if (split == PETRA_SPLIT_EVAL && beside)
    return token_file_open(config->data.eval_path, "data.eval_path", bytes, out);
  if (source == SOURCE_FOLDER)
    return open_in_folder(config, split, out);
  return token_file_open(config->data.path, "data.path", bytes, out);
}

/* --- the content of the file --- */

static petra_status part_of(const petra_config *config, petra_split split, bool alone, int64_t tokens, int64_t *first,
                            int64_t *count) {
  const int64_t train = (int64_t)((double)tokens * (1 - config->data.eval_share));
  const bool is_train = split == PETRA_SPLIT_TRAIN;
  if (!alone && !is_train && config->data.eval_share == 0)
    return petra_config_fail(config, "data.eval_share",
                             "0, so that there is no evaluation split; set run.eval_every: 0, or data.eval_path");
  *first = alone || is_train ? 0 : train;
  *count = alone ? tokens : is_train ? train : tokens - train;
  return PETRA_OK;
}

static petra_status fill(const petra_config *config, petra_split split, token_set *self) {
  bool alone;
  int32_t vocabulary = 0;
  int64_t count = 0;
  PETRA_TRY(open_file(config, split, self, &alone));
  PETRA_TRY(petra_windows_vocabulary(config, self->file.path, self->vocabulary, &vocabulary));
  PETRA_TRY(part_of(config, split, alone, self->tokens, &self->first, &count));
  return petra_windows_init(config, split, self->file.path, count, vocabulary, &self->base);
}

petra_status petra_token_set_open(const petra_config *config, petra_split split, petra_dataset **out) {
  token_set *self;
  PETRA_TRY(petra_allocate(&self, 1, sizeof *self));
  self->base.ops = &token_set_ops;
  return petra_dataset_opened(&self->base, fill(config, split, self), out);
}

petra_status petra_token_set_has_eval(const petra_config *config, bool *out) {
  token_source source = SOURCE_FILE;
  PETRA_TRY(source_of(config, &source));
  if (source == SOURCE_HDF5)
    return petra_hdf5_layout_has_eval(config->data.path, out);
  *out = source == SOURCE_FOLDER || *config->data.eval_path || config->data.eval_share > 0;
  return PETRA_OK;
}

petra_status petra_token_set_in_hdf5(const petra_config *config, bool *out) {
  token_source source = SOURCE_FILE;
  PETRA_TRY(source_of(config, &source));
  *out = source == SOURCE_HDF5;
  return PETRA_OK;
}

petra_status petra_token_set_is_missing(const petra_config *config, bool *out) {
  token_source source = SOURCE_FILE;
  PETRA_FREED char *path = NULL;
  *out = access(config->data.path, F_OK) != 0;
  if (*out)
    return PETRA_OK;
  PETRA_TRY(source_of(config, &source));
  if (source != SOURCE_FOLDER)
    return PETRA_OK;
  PETRA_TRY(petra_folder_path(config->data.path, "train.bin", NULL, &path));
  *out = access(path, F_OK) != 0;
  return PETRA_OK;
}

/* Returns the vocabulary of a data.set: tokens whose file is missing. */
static petra_status vocabulary_without_file(const petra_config *config, int32_t *out) {
  *out = (int32_t)config->data.vocabulary;
  return *out > 0 ? PETRA_OK
                  : petra_fail(PETRA_IO,
                               "%s%s: %s, expected a file of tokens (data.path); a command that computes nothing, such "
                               "as simulate, needs no file if data.vocabulary is set (GPT-2: 50257)",
                               config->data.path, access(config->data.path, F_OK) == 0 ? "/train.bin" : "",
                               strerror(ENOENT));
}

petra_status petra_token_set_vocabulary(const petra_config *config, int32_t *out) {
  token_set set = {0};
  bool alone, missing;
  if (config->data.set == PETRA_SET_TEXT)
    return petra_windows_vocabulary(config, "data.set: text", PETRA_TOKEN_BYTES, out);
  PETRA_TRY(petra_token_set_is_missing(config, &missing));
  if (missing)
    return vocabulary_without_file(config, out);
  petra_status status = open_file(config, PETRA_SPLIT_TRAIN, &set, &alone);
  if (status == PETRA_OK)
    status = petra_windows_vocabulary(config, set.file.path, set.vocabulary, out);
  petra_file_close(&set.file);
  return status;
}

/* Returns the number of tokens before the last position where a window may begin: T - 1 are reserved for the offset. */
int64_t petra_windows_count(int64_t tokens, int32_t context, petra_split split) {
  const int64_t room = split == PETRA_SPLIT_TRAIN ? tokens - context : tokens - 1;
  return room > 0 ? room / context : 0;
}

int32_t petra_windows_offset(uint64_t seed, uint32_t epoch, int32_t context) {
  petra_rng rng;
  petra_rng_init(&rng, seed, PETRA_RNG_WINDOW, epoch, 0);
  return (int32_t)petra_rng_below(&rng, (uint32_t)context);
}

petra_status petra_windows_check(const petra_config *config) {
  enum { CONTEXT_MAX = 65536 };
  const char *set = petra_config_choice_name("data.set", (int)config->data.set);
  if (config->data.augment)
    return petra_config_fail(config, "data.augment", "changes images, but data.set: %s has tokens; expected []", set);
  if (config->model.context > CONTEXT_MAX)
    return petra_config_fail(config, "model.context", "%lld tokens; expected at most %d with data.set: %s",
                             (long long)config->model.context, CONTEXT_MAX, set);
  return PETRA_OK;
}

petra_status petra_windows_vocabulary(const petra_config *config, const char *where, int32_t stated, int32_t *out) {
  const int32_t given = (int32_t)config->data.vocabulary;
  if (!given && !stated)
    return petra_config_fail(config, "data.vocabulary",
                             "0, but %s does not state how many different tokens there can be; expected that number "
                             "(GPT-2's: 50257)",
                             where);
  if (given && stated && given != stated)
    return petra_config_fail(config, "data.vocabulary", "%d, but %s has %d different tokens; expected that number or 0",
                             given, where, stated);
  *out = given ? given : stated;
  return PETRA_OK;
}

petra_status petra_windows_init(const petra_config *config, petra_split split, const char *where, int64_t tokens,
                                int32_t vocabulary, petra_dataset *set) {
  const int32_t context = (int32_t)config->model.context;
  const int64_t count = petra_windows_count(tokens, context, split);
  const int64_t limit = split == PETRA_SPLIT_TRAIN ? config->data.limit : config->data.eval_limit;
  PETRA_TRY(petra_windows_check(config));
  if (count < 1)
    return petra_fail(PETRA_DATA,
                      "%s: %" PRId64 " %s tokens are too few for a window of model.context: %" PRId32
                      ", expected at least %" PRId64,
                      where, tokens, split == PETRA_SPLIT_TRAIN ? "training" : "evaluation", context,
                      split == PETRA_SPLIT_TRAIN ? 2 * (int64_t)context : (int64_t)context + 1);
  set->samples = PETRA_SAMPLE_TOKENS;
  const bool limited = limit > 0 && limit < count;
  set->count = limited ? limit : count;
  set->classes = vocabulary;
  set->context = context;
  set->tokens = !limited ? tokens : limit * context + (split == PETRA_SPLIT_TRAIN ? context : 1);
  return PETRA_OK;
}
