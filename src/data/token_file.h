/* SPDX-License-Identifier: Apache-2.0 */
/* Files of tokens, of which windows are read as they are needed. Private to src/data.
 *
 * Forms, of which a file says itself which one it has:
 *   bytes   (data.set: text) each byte is a token; vocabulary 256
 *   raw     whole numbers of 16 bits, little-endian, from the first byte to the last: train.bin and val.bin of nanoGPT
 *   header  256 whole numbers of 32 bits (20240520, 1, count, 0 ...), then count tokens as above: llm.c
 *   HDF5    /train/tokens, /eval/tokens of unsigned 16 bits in one piece, attribute vocabulary (docs/hdf5-schema.md) */
#ifndef PETRA_DATA_TOKEN_FILE_H
#define PETRA_DATA_TOKEN_FILE_H

#include "data/dataset.h"

enum { PETRA_TOKEN_BYTES = 256 }; /* vocabulary of bytes */

typedef struct petra_token_file {
  char *path;
  int fd;
  int token_bytes;    /* 1 or 2 */
  int64_t offset;     /* of the first token, bytes */
  int64_t tokens;     /* in the file, or in the split of one in HDF5 */
  int32_t vocabulary; /* tokens are 0 .. vocabulary - 1; 0: the file does not state it */
} petra_token_file;

/* Opens the file of key `key`. `bytes`: each byte is a token. PETRA_IO: missing, unreadable; PETRA_DATA: empty, an odd number of bytes, a
 * header that does not fit the file; of HDF5 as petra_hdf5_set_open. *out is to be closed whatever comes back. */
petra_status petra_token_file_open(const char *path, const char *key, bool bytes, petra_token_file *out);

/* The split of a file in HDF5; PETRA_CONFIG: it has no evaluation split. */
petra_status petra_token_file_open_hdf5(const char *path, petra_split split, petra_token_file *out);

void petra_token_file_close(petra_token_file *file);

/* Tokens first .. first + count - 1. PETRA_IO; PETRA_DATA: a token that is not below `vocabulary`: its place, its value. Thread-safe. */
petra_status petra_token_file_read(const petra_token_file *file, int32_t vocabulary, int64_t first, int64_t count,
                                   int32_t *tokens);

#endif
