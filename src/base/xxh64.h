/* SPDX-License-Identifier: Apache-2.0 */
/* XXH64, a hash of 64 bits for finding changes that nobody made on purpose, at several GB/s. Written from its public
 * specification (xxHash fast digest algorithm, section "XXH64 algorithm description"), with seed 0. */
#ifndef PETRA_BASE_XXH64_H
#define PETRA_BASE_XXH64_H

#include <stddef.h>
#include <stdint.h>

typedef struct petra_xxh64 {
  uint64_t lane[4];
  uint64_t bytes;            /* so far */
  unsigned char waiting[32]; /* the last bytes % 32 of them */
} petra_xxh64;

void petra_xxh64_init(petra_xxh64 *hash);
void petra_xxh64_add(petra_xxh64 *hash, const void *bytes, size_t count);

/* The hash of all bytes so far. */
uint64_t petra_xxh64_value(const petra_xxh64 *hash);

/* Numbers as the bytes of a file, little-endian whatever the machine. */
uint64_t petra_load_le64(const unsigned char *bytes);
void petra_store_le64(unsigned char *bytes, uint64_t value);

#endif
