/* SPDX-License-Identifier: Apache-2.0 */
#include "base/rng.h"

#include <math.h>
#include <Random123/philox.h>

void petra_rng_init(petra_rng *rng, uint64_t seed, petra_rng_purpose purpose, uint32_t epoch, uint64_t index) {
  rng->key[0] = (uint32_t)seed;
  rng->key[1] = (uint32_t)(seed >> 32);
  rng->counter[0] = 0;
  rng->counter[1] = (uint32_t)purpose << 24 | ((uint32_t)(index >> 32) & 0xffffffu);
  rng->counter[2] = epoch;
  rng->counter[3] = (uint32_t)index;
  rng->used = 4;
}

uint32_t petra_rng_u32(petra_rng *rng) {
  if (rng->used == 4) {
    philox4x32_ctr_t counter = {{rng->counter[0], rng->counter[1], rng->counter[2], rng->counter[3]}};
    philox4x32_key_t key = {{rng->key[0], rng->key[1]}};
    philox4x32_ctr_t out = philox4x32(counter, key);
    for (int i = 0; i < 4; i++)
      rng->block[i] = out.v[i];
    rng->counter[0]++;
    rng->used = 0;
  }
  return rng->block[rng->used++];
}

double petra_rng_uniform(petra_rng *rng) {
  uint64_t high = petra_rng_u32(rng);
  uint64_t bits = high << 32 | petra_rng_u32(rng);
  return (double)(bits >> 11) * 0x1p-53;
}

uint32_t petra_rng_below(petra_rng *rng, uint32_t bound) {
  uint32_t threshold = -bound % bound; /* 2^32 mod bound */
  uint32_t word;
  do
    word = petra_rng_u32(rng);
  while (word < threshold);
  return word % bound;
}

double petra_rng_normal(petra_rng *rng) {
  double radius = sqrt(-2.0 * log(1.0 - petra_rng_uniform(rng)));
  return radius * cos(2.0 * M_PI * petra_rng_uniform(rng));
}

void petra_rng_permutation(petra_rng *rng, uint32_t *order, uint32_t count) {
  for (uint32_t i = 0; i < count; i++)
    order[i] = i;
  for (uint32_t i = count; i > 1; i--) {
    uint32_t j = petra_rng_below(rng, i);
    uint32_t swap = order[i - 1];
    order[i - 1] = order[j];
    order[j] = swap;
  }
}
