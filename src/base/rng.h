/* SPDX-License-Identifier: Apache-2.0 */
/* Counter-based random streams over Philox4x32-10 (Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", SC'11;
 * Random123). A stream is named by (seed, purpose, epoch, index). Its values depend on nothing else, so that results do
 * not depend on the number of threads or on the order of execution. */
#pragma once

#include <stdint.h>

/* The purpose of a stream. Values are part of the format: never renumber. */
typedef enum petra_rng_purpose {
  PETRA_RNG_INIT = 1,    /* initial weights; index: block * 256 + tensor */
  PETRA_RNG_SHUFFLE = 2, /* order of an epoch */
  PETRA_RNG_AUGMENT = 3, /* crop, window and flip; index: record */
  PETRA_RNG_SHAPES = 4,  /* the generated data set; epoch: 0 training, 1 evaluation; index: record */
  PETRA_RNG_TEST = 5,    /* tests */
  PETRA_RNG_JITTER = 6,  /* durations; epoch: kind of action; index: stage + 2^17 * microbatch */
  PETRA_RNG_WINDOW = 7,  /* offset of an epoch's token windows */
  PETRA_RNG_GRAMMAR = 8, /* the generated tokens; epoch: 0 training, 1 evaluation */
  PETRA_RNG_ROUND = 9,   /* stochastic rounding; epoch and index: backend/quantise.h */
  PETRA_RNG_PROFILE = 16 /* images of `petra profile`; 10 to 15 are free */
} petra_rng_purpose;

typedef struct petra_rng {
  uint32_t key[2];
  uint32_t counter[4]; /* block number, purpose and index high, epoch, index low */
  uint32_t block[4];   /* the 128 bits of the current block */
  int used;            /* number of words of the block that were returned */
} petra_rng;

/* Starts the stream (seed, purpose, epoch, index); index < 2^56. */
void petra_rng_init(petra_rng *rng, uint64_t seed, petra_rng_purpose purpose, uint32_t epoch, uint64_t index);

/* Returns 32 uniform bits. */
uint32_t petra_rng_u32(petra_rng *rng);

/* Returns a uniform number in [0, 1), a multiple of 2^-53; consumes two words. */
double petra_rng_uniform(petra_rng *rng);

/* Returns a uniform integer in [0, bound), bound >= 1, without bias (rejection). */
uint32_t petra_rng_below(petra_rng *rng, uint32_t bound);

/* Returns a standard normal number (Box-Muller); consumes four words. */
double petra_rng_normal(petra_rng *rng);

/* Fills order[0..count-1] with a uniform permutation of 0..count-1 (Fisher-Yates). */
void petra_rng_permutation(petra_rng *rng, uint32_t *order, uint32_t count);
