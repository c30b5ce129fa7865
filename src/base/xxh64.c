/* SPDX-License-Identifier: Apache-2.0 */
#include "base/xxh64.h"

#include <string.h>

static const uint64_t P1 = 0x9E3779B185EBCA87u, P2 = 0xC2B2AE3D27D4EB4Fu, P3 = 0x165667B19E3779F9u,
                      P4 = 0x85EBCA77C2B2AE63u, P5 = 0x27D4EB2F165667C5u;

enum { STRIPE = 32 };

uint64_t petra_load_le64(const unsigned char *bytes) {
  uint64_t value = 0;
  for (int i = 0; i < 8; i++)
    value |= (uint64_t)bytes[i] << 8 * i;
  return value;
}

void petra_store_le64(unsigned char *bytes, uint64_t value) {
  for (int i = 0; i < 8; i++)
    bytes[i] = (unsigned char)(value >> 8 * i);
}

static uint64_t rotate(uint64_t x, int bits) {
  return x << bits | x >> (64 - bits);
}

static uint64_t round_of(uint64_t lane, uint64_t input) {
  return rotate(lane + input * P2, 31) * P1;
}

void petra_xxh64_init(petra_xxh64 *hash) {
  *hash = (petra_xxh64){.lane = {P1 + P2, P2, 0, 0 - P1}};
}

static void add_stripe(petra_xxh64 *hash, const unsigned char *bytes) {
  for (int i = 0; i < 4; i++)
    hash->lane[i] = round_of(hash->lane[i], petra_load_le64(bytes + 8 * i));
}

void petra_xxh64_add(petra_xxh64 *hash, const void *bytes, size_t count) {
  const unsigned char *at = bytes;
  size_t have = hash->bytes % STRIPE;
  hash->bytes += count;
  if (have > 0) {
    size_t some = count < STRIPE - have ? count : STRIPE - have;
    memcpy(hash->waiting + have, at, some);
    at += some;
    count -= some;
    if (have + some < STRIPE)
      return;
    add_stripe(hash, hash->waiting);
  }
  for (; count >= STRIPE; at += STRIPE, count -= STRIPE)
    add_stripe(hash, at);
  if (count > 0)
    memcpy(hash->waiting, at, count);
}

uint64_t petra_xxh64_value(const petra_xxh64 *hash) {
  const uint64_t *v = hash->lane;
  const unsigned char *at = hash->waiting;
  size_t left = hash->bytes % STRIPE;
  uint64_t h = P5;
  if (hash->bytes >= STRIPE) {
    h = rotate(v[0], 1) + rotate(v[1], 7) + rotate(v[2], 12) + rotate(v[3], 18);
    for (int i = 0; i < 4; i++)
      h = (h ^ round_of(0, v[i])) * P1 + P4;
  }
  h += hash->bytes;
  for (; left >= 8; at += 8, left -= 8)
    h = rotate(h ^ round_of(0, petra_load_le64(at)), 27) * P1 + P4;
  if (left >= 4) {
    uint64_t word = (uint64_t)at[0] | (uint64_t)at[1] << 8 | (uint64_t)at[2] << 16 | (uint64_t)at[3] << 24;
    h = rotate(h ^ word * P1, 23) * P2 + P3;
    at += 4;
    left -= 4;
  }
  for (; left > 0; at++, left--)
    h = rotate(h ^ *at * P5, 11) * P1;
  h = (h ^ h >> 33) * P2;
  h = (h ^ h >> 29) * P3;
  return h ^ h >> 32;
}
