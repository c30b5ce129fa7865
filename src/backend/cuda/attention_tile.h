/* SPDX-License-Identifier: Apache-2.0 */
/* Tiles of attention: CUDA_ATTENTION_TILE queries by as many keys, of one head of one sample. A block of SIDE x SIDE threads is
 * on one tile at a time; the thread at (x, y) of it has the rows y + SIDE r and the columns x + SIDE c, r and c below EACH.
 *
 * All sums are in f32, in an order that depends on shapes alone. What attention leaves out (where it is causal, a key after its
 * query; what lies beyond the end of a sequence) is never multiplied with anything but 0: a NaN there reaches nothing. */
#pragma once

#include "backend/cuda/device.h"

#include <math.h>

enum {
  CUDA_ATTENTION_TILE = 64, /* queries, keys, and features of a result, that a block processes at once */
  CUDA_ATTENTION_SIDE = 16,
  CUDA_ATTENTION_EACH = CUDA_ATTENTION_TILE / CUDA_ATTENTION_SIDE,
  CUDA_ATTENTION_THREADS = CUDA_ATTENTION_SIDE * CUDA_ATTENTION_SIDE,
  CUDA_ATTENTION_STEP = 32, /* features, or rows, that lie in shared memory at once */
  /* Stride of rows in shared memory: one more than needed, so that neighbours read different banks. */
  CUDA_ATTENTION_STEP_STRIDE = CUDA_ATTENTION_STEP + 1,
  CUDA_ATTENTION_TILE_STRIDE = CUDA_ATTENTION_TILE + 1,
  CUDA_ATTENTION_SIDE_STRIDE = CUDA_ATTENTION_SIDE + 1
};

/* --- arguments and positions --- */

/* The argument of the kernels. */
typedef struct cuda_attention_work {
  cuda_attention_args a;
  int32_t tiles;  /* along the positions */
  int32_t chunks; /* along the features of a head */
  float scale;    /* 1 / sqrt(d) */
  float *delta;   /* backward: sum of dy y over the features of a head, by position and head */
} cuda_attention_work;

static inline cuda_attention_work cuda_attention_work_of(const cuda_attention_args *a, float *delta) {
  cuda_attention_work work;
  work.a = *a;
  work.tiles = (a->t + CUDA_ATTENTION_TILE - 1) / CUDA_ATTENTION_TILE;
  work.chunks = (a->d + CUDA_ATTENTION_TILE - 1) / CUDA_ATTENTION_TILE;
  work.scale = (float)(1 / sqrt((double)a->d));
  work.delta = delta;
  return work;
}

static inline int64_t cuda_attention_blocks(const cuda_attention_work *work) {
  return (int64_t)work->a.n * work->a.heads * work->tiles * work->chunks;
}

/* The position of a block and its thread. */
typedef struct cuda_attention_place {
  int32_t sample, head;
  int32_t tile;    /* tile of the rows of its result, which begin at tile * CUDA_ATTENTION_TILE */
  int32_t feature; /* first feature of the result, within the head */
  int x, y;
} cuda_attention_place;

PETRA_DEVICE cuda_attention_place cuda_attention_place_of(const cuda_attention_work work) {
  cuda_attention_place place;
  const int64_t head = PETRA_BLOCK / work.chunks / work.tiles; /* of all samples */
  place.sample = (int32_t)(head / work.a.heads);
  place.head = (int32_t)(head % work.a.heads);
  place.tile = (int32_t)(PETRA_BLOCK / work.chunks % work.tiles);
  place.feature = (int32_t)(PETRA_BLOCK % work.chunks) * CUDA_ATTENTION_TILE;
  place.x = PETRA_THREAD % CUDA_ATTENTION_SIDE;
  place.y = PETRA_THREAD / CUDA_ATTENTION_SIDE;
  return place;
}

/* Rows of d features each: one head's part of a tensor of sequences. */
typedef struct cuda_attention_rows {
  const float *data;
  int32_t stride; /* elements from one to the next */
  int32_t count, d;
} cuda_attention_rows;

/* Gets where the block's sample and head begin in a tensor that has `parts` times the features of all heads, in part
 * `part` of it, and the number of elements from one position to the next. */
PETRA_DEVICE int32_t cuda_attention_stride(const cuda_attention_work work, int parts) {
  return parts * work.a.heads * work.a.d;
}

PETRA_DEVICE int64_t cuda_attention_start(const cuda_attention_work work, const cuda_attention_place place, int parts,
                                          int part) {
  return (int64_t)place.sample * work.a.t * cuda_attention_stride(work, parts) +
         ((int64_t)part * work.a.heads + place.head) * work.a.d;
}

PETRA_DEVICE cuda_attention_rows cuda_attention_rows_of(const cuda_attention_work work,
                                                        const cuda_attention_place place, const float *data, int parts,
                                                        int part) {
  cuda_attention_rows rows;
  rows.data = data + cuda_attention_start(work, place, parts, part);
  rows.stride = cuda_attention_stride(work, parts);
  rows.count = work.a.t;
  rows.d = work.a.d;
  return rows;
}

/* The same from row `first` on. */
PETRA_DEVICE cuda_attention_rows cuda_attention_from(const cuda_attention_rows rows, int32_t first) {
  cuda_attention_rows rest = rows;
  rest.data += (int64_t)first * rows.stride;
  rest.count -= first;
  return rest;
}

/* The operands of a block of queries: its own queries, from position `first` on, and all keys and values of the
 * head. */
typedef struct cuda_attention_queries {
  int32_t first;
  int32_t keys_end; /* tiles of keys begin below it */
  cuda_attention_rows queries, keys, values;
} cuda_attention_queries;

/* If attention is causal, the tiles that have the most keys come first: sets place->tile to that of the block. */
PETRA_DEVICE cuda_attention_queries cuda_attention_queries_of(const cuda_attention_work work,
                                                              cuda_attention_place *place) {
  cuda_attention_queries q;
  if (work.a.causal)
    place->tile = work.tiles - 1 - place->tile;
  q.first = place->tile * CUDA_ATTENTION_TILE;
  q.keys_end = work.a.causal ? q.first + 1 : work.a.t;
  q.queries = cuda_attention_from(cuda_attention_rows_of(work, *place, work.a.qkv, 3, 0), q.first);
  q.keys = cuda_attention_rows_of(work, *place, work.a.qkv, 3, 1);
  q.values = cuda_attention_rows_of(work, *place, work.a.qkv, 3, 2);
  return q;
}

/* A value for each of the thread's rows and columns. */
typedef struct cuda_attention_values {
  float at[CUDA_ATTENTION_EACH][CUDA_ATTENTION_EACH];
} cuda_attention_values;

PETRA_DEVICE void cuda_attention_clear(cuda_attention_values *values) {
  PETRA_UNROLL for (int r = 0; r < CUDA_ATTENTION_EACH; r++) PETRA_UNROLL for (int c = 0; c < CUDA_ATTENTION_EACH; c++)
      values->at[r][c] = 0;
}

/* --- the shared memory of a block --- */

typedef struct cuda_attention_memory {
  float left[CUDA_ATTENTION_TILE * CUDA_ATTENTION_STEP_STRIDE];    /* rows of one matrix, some of their features */
  float right[CUDA_ATTENTION_TILE * CUDA_ATTENTION_STEP_STRIDE];   /* of another, or some rows of it */
  float weights[CUDA_ATTENTION_TILE * CUDA_ATTENTION_TILE_STRIDE]; /* of the tile */
  float partial[CUDA_ATTENTION_TILE * CUDA_ATTENTION_SIDE_STRIDE]; /* for each row, the contributions of its threads */
} cuda_attention_memory;

PETRA_DEVICE cuda_attention_memory *cuda_attention_shared(void) {
  PETRA_SHARED cuda_attention_memory memory;
  return &memory;
}

/* Returns the weight at the thread's row r and column c. */
PETRA_DEVICE float *cuda_attention_weight(const cuda_attention_place place, int r, int c) {
  return cuda_attention_shared()->weights + (place.y + r * CUDA_ATTENTION_SIDE) * CUDA_ATTENTION_TILE_STRIDE + place.x +
         c * CUDA_ATTENTION_SIDE;
}

/* Loads the features from `feature` on of the first rows, as many as fit: `width` in a row, a divisor of the threads. 0
 * beyond the data. */
PETRA_DEVICE void cuda_attention_load(float *shared, int shared_stride, int width, const cuda_attention_rows rows,
                                      int32_t feature) {
  const int column = PETRA_THREAD % width, row = PETRA_THREAD / width, step = CUDA_ATTENTION_THREADS / width;
  const int32_t count = feature + column < rows.d ? rows.count : 0;
  int32_t at = row * rows.stride + feature + column; /* a tile's extent is below 2^31 elements */
  PETRA_UNROLL_SOME for (int i = 0; i < CUDA_ATTENTION_TILE * CUDA_ATTENTION_STEP; i += CUDA_ATTENTION_THREADS) {
    shared[(row + i / width) * shared_stride + column] = row + i / width < count ? rows.data[at] : 0;
    at += step * rows.stride;
  }
}

/* --- the two products --- */

/* result[r][c] = sum over all features of left[row r] right[row c]. Synchronises the block before and after. */
PETRA_DEVICE void cuda_attention_scores(const cuda_attention_place place, const cuda_attention_rows left,
                                        const cuda_attention_rows right, cuda_attention_values *result) {
  cuda_attention_memory *memory = cuda_attention_shared();
  const float *at_left = memory->left + place.y * CUDA_ATTENTION_STEP_STRIDE;
  const float *at_right = memory->right + place.x * CUDA_ATTENTION_STEP_STRIDE;
  cuda_attention_clear(result);
  for (int32_t feature = 0; feature < left.d; feature += CUDA_ATTENTION_STEP) {
    cuda_attention_load(memory->left, CUDA_ATTENTION_STEP_STRIDE, CUDA_ATTENTION_STEP, left, feature);
    cuda_attention_load(memory->right, CUDA_ATTENTION_STEP_STRIDE, CUDA_ATTENTION_STEP, right, feature);
    PETRA_SYNC();
    PETRA_UNROLL_SOME for (int k = 0; k < CUDA_ATTENTION_STEP; k++) {
      float columns[CUDA_ATTENTION_EACH];
      PETRA_UNROLL for (int c = 0; c < CUDA_ATTENTION_EACH; c++) columns[c] =
          at_right[c * CUDA_ATTENTION_SIDE * CUDA_ATTENTION_STEP_STRIDE + k];
      PETRA_UNROLL for (int r = 0; r < CUDA_ATTENTION_EACH; r++) {
        const float row = at_left[r * CUDA_ATTENTION_SIDE * CUDA_ATTENTION_STEP_STRIDE + k];
        PETRA_UNROLL for (int c = 0; c < CUDA_ATTENTION_EACH; c++) result->at[r][c] += row * columns[c];
      }
    }
    PETRA_SYNC();
  }
}

/* The columns of a tile that a row of it uses: all; those up to its own number; those from its own number on. */
typedef enum cuda_attention_part { CUDA_ATTENTION_ALL, CUDA_ATTENTION_UP_TO, CUDA_ATTENTION_FROM } cuda_attention_part;

PETRA_DEVICE bool cuda_attention_takes(cuda_attention_part part, int row, int column) {
  return part == CUDA_ATTENTION_ALL || (part == CUDA_ATTENTION_UP_TO ? column <= row : column >= row);
}

/* sum[r][c] += over the columns that row r uses, of the weight in that column times feature c of that row of `rows`. */
PETRA_DEVICE void cuda_attention_add_step(const cuda_attention_place place, cuda_attention_part part, int first,
                                          cuda_attention_values *sum) {
  const cuda_attention_memory *memory = cuda_attention_shared();
  const float *weights = memory->weights + place.y * CUDA_ATTENTION_TILE_STRIDE + first;
  PETRA_UNROLL_SOME for (int k = 0; k < CUDA_ATTENTION_STEP; k++) {
    float features[CUDA_ATTENTION_EACH];
    PETRA_UNROLL for (int c = 0; c < CUDA_ATTENTION_EACH; c++) features[c] =
        memory->right[k * CUDA_ATTENTION_TILE + place.x + c * CUDA_ATTENTION_SIDE];
    PETRA_UNROLL for (int r = 0; r < CUDA_ATTENTION_EACH; r++) {
      if (!cuda_attention_takes(part, place.y + r * CUDA_ATTENTION_SIDE, first + k))
        continue;
      const float weight = weights[r * CUDA_ATTENTION_SIDE * CUDA_ATTENTION_TILE_STRIDE + k];
      PETRA_UNROLL for (int c = 0; c < CUDA_ATTENTION_EACH; c++) sum->at[r][c] += weight * features[c];
    }
  }
}

/* The same for the whole tile, from the features of the block's result on. Synchronises the block before, so that its
 * weights are there, and after. */
PETRA_DEVICE void cuda_attention_add(const cuda_attention_place place, cuda_attention_part part,
                                     const cuda_attention_rows rows, cuda_attention_values *sum) {
  float *shared = cuda_attention_shared()->right;
  for (int first = 0; first < CUDA_ATTENTION_TILE; first += CUDA_ATTENTION_STEP) {
    cuda_attention_load(shared, CUDA_ATTENTION_TILE, CUDA_ATTENTION_TILE, cuda_attention_from(rows, first),
                        place.feature);
    PETRA_SYNC();
    if (part == CUDA_ATTENTION_ALL) /* with a constant there is nothing to ask in the loop */
      cuda_attention_add_step(place, CUDA_ATTENTION_ALL, first, sum);
    else
      cuda_attention_add_step(place, part, first, sum);
    PETRA_SYNC();
  }
}

/* Returns the block's features of its rows, in a tensor as above. */
PETRA_DEVICE void cuda_attention_store(const cuda_attention_work work, const cuda_attention_place place,
                                       const cuda_attention_values *result, float *data, int parts, int part) {
  const int64_t start = cuda_attention_start(work, place, parts, part), stride = cuda_attention_stride(work, parts);
  PETRA_UNROLL for (int r = 0; r < CUDA_ATTENTION_EACH; r++)
      PETRA_UNROLL for (int c = 0; c < CUDA_ATTENTION_EACH; c++) {
    const int32_t row = place.tile * CUDA_ATTENTION_TILE + place.y + r * CUDA_ATTENTION_SIDE;
    const int32_t feature = place.feature + place.x + c * CUDA_ATTENTION_SIDE;
    if (row < work.a.t && feature < work.a.d)
      data[start + row * stride + feature] = result->at[r][c];
  }
}
