/* SPDX-License-Identifier: Apache-2.0 */
/* Attention forward: a block for 64 queries of a head processes the keys tile by tile. It keeps the maximum of the
 * scores so far and the sums that belong to this maximum (Milakov, Gimelshein 2018, arXiv 1805.02867; Dao et al. 2022,
 * arXiv 2205.14135). */
#include "backend/cuda/cuda_device.h"

#include <math.h>

/* Tiles of attention: CUDA_ATTENTION_TILE queries by CUDA_ATTENTION_TILE keys, of one head of one sample. A block of
 * SIDE x SIDE threads processes one tile at a time; its thread at (x, y) has the rows y + SIDE r and the columns
 * x + SIDE c, with r and c below EACH.
 *
 * All sums are in f32, in an order that depends on shapes alone. What attention leaves out (if it is causal, a key
 * after its query; what lies beyond the end of a sequence) is never multiplied with anything but 0: a NaN there reaches
 * nothing. */

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
  int32_t group;  /* heads of queries with the same keys and values */
  float scale;    /* 1 / sqrt(d) */
  float *delta;   /* backward: sum of dy y over the features of a head, by position and head */
} cuda_attention_work;

static inline cuda_attention_work cuda_attention_work_of(const cuda_attention_args *a, float *delta) {
  cuda_attention_work work;
  work.a = *a;
  work.tiles = (a->t + CUDA_ATTENTION_TILE - 1) / CUDA_ATTENTION_TILE;
  work.chunks = (a->d + CUDA_ATTENTION_TILE - 1) / CUDA_ATTENTION_TILE;
  work.group = a->heads / a->kv_heads;
  work.scale = (float)(1 / sqrt((double)a->d));
  work.delta = delta;
  return work;
}

/* Returns the number of blocks for `heads` heads of every sample. */
static inline int64_t cuda_attention_blocks(const cuda_attention_work *work, int32_t heads) {
  return (int64_t)work->a.n * heads * work->tiles * work->chunks;
}

/* The position of a block and its thread. */
typedef struct cuda_attention_place {
  int32_t sample, head; /* head: of the queries */
  int32_t tile;         /* tile of the rows of its result, which begin at tile * CUDA_ATTENTION_TILE */
  int32_t feature;      /* first feature of the result, within the head */
  int x, y;
} cuda_attention_place;

/* There are blocks for `heads` heads of every sample. If these are heads of keys and values, the place has the first of
 * the heads of queries that share them. */
PETRA_DEVICE cuda_attention_place cuda_attention_place_of(const cuda_attention_work work, int32_t heads) {
  cuda_attention_place place;
  const int64_t head = PETRA_BLOCK / work.chunks / work.tiles; /* of all samples */
  place.sample = (int32_t)(head / heads);
  place.head = (int32_t)(head % heads) * (work.a.heads / heads);
  place.tile = (int32_t)(PETRA_BLOCK / work.chunks % work.tiles);
  place.feature = (int32_t)(PETRA_BLOCK % work.chunks) * CUDA_ATTENTION_TILE;
  place.x = PETRA_THREAD % CUDA_ATTENTION_SIDE;
  place.y = PETRA_THREAD / CUDA_ATTENTION_SIDE;
  return place;
}

/* Rows of d features each: one head's part of a tensor of sequences. */
typedef struct cuda_attention_rows {
  const float *data;
  int32_t stride; /* elements from one row to the next */
  int32_t count, d;
} cuda_attention_rows;

/* What a tensor holds of a head. */
typedef enum cuda_attention_share {
  CUDA_ATTENTION_Y, /* in y and dy */
  CUDA_ATTENTION_Q, /* in qkv and dqkv, as the others */
  CUDA_ATTENTION_K,
  CUDA_ATTENTION_V
} cuda_attention_share;

/* Return the number of elements from one position to the next, and where the block's sample and head begin. */
PETRA_DEVICE int32_t cuda_attention_stride(const cuda_attention_work work, cuda_attention_share share) {
  return (share == CUDA_ATTENTION_Y ? work.a.heads : work.a.heads + 2 * work.a.kv_heads) * work.a.d;
}

PETRA_DEVICE int64_t cuda_attention_start(const cuda_attention_work work, const cuda_attention_place place,
                                          cuda_attention_share share) {
  int32_t head = place.head;
  if (share == CUDA_ATTENTION_K || share == CUDA_ATTENTION_V)
    head = work.a.heads + (share == CUDA_ATTENTION_V ? work.a.kv_heads : 0) + place.head / work.group;
  return (int64_t)place.sample * work.a.t * cuda_attention_stride(work, share) + (int64_t)head * work.a.d;
}

PETRA_DEVICE cuda_attention_rows cuda_attention_rows_of(const cuda_attention_work work,
                                                        const cuda_attention_place place, const float *data,
                                                        cuda_attention_share share) {
  cuda_attention_rows rows;
  rows.data = data + cuda_attention_start(work, place, share);
  rows.stride = cuda_attention_stride(work, share);
  rows.count = work.a.t;
  rows.d = work.a.d;
  return rows;
}

/* Returns the same rows from row `first` on. */
PETRA_DEVICE cuda_attention_rows cuda_attention_from(const cuda_attention_rows rows, int32_t first) {
  cuda_attention_rows rest = rows;
  rest.data += (int64_t)first * rows.stride;
  rest.count -= first;
  return rest;
}

/* The operands of a block of queries: its queries, from position `first` on, and all keys and values of the
 * head. */
typedef struct cuda_attention_queries {
  int32_t first;
  int32_t keys_end; /* tiles of keys begin below this position */
  cuda_attention_rows queries, keys, values;
} cuda_attention_queries;

/* If attention is causal, the tiles that have the most keys come first: sets place->tile to the tile of the block. */
PETRA_DEVICE cuda_attention_queries cuda_attention_queries_of(const cuda_attention_work work,
                                                              cuda_attention_place *place) {
  cuda_attention_queries q;
  if (work.a.causal)
    place->tile = work.tiles - 1 - place->tile;
  q.first = place->tile * CUDA_ATTENTION_TILE;
  q.keys_end = work.a.causal ? q.first + 1 : work.a.t;
  q.queries = cuda_attention_from(cuda_attention_rows_of(work, *place, work.a.qkv, CUDA_ATTENTION_Q), q.first);
  q.keys = cuda_attention_rows_of(work, *place, work.a.qkv, CUDA_ATTENTION_K);
  q.values = cuda_attention_rows_of(work, *place, work.a.qkv, CUDA_ATTENTION_V);
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
  float left[CUDA_ATTENTION_TILE * CUDA_ATTENTION_STEP_STRIDE];  /* rows of one matrix: a part of their features */
  float right[CUDA_ATTENTION_TILE * CUDA_ATTENTION_STEP_STRIDE]; /* the same for another matrix, or some of its rows */
  float weights[CUDA_ATTENTION_TILE * CUDA_ATTENTION_TILE_STRIDE]; /* weights of the tile */
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

/* The columns of a tile that row r uses: all columns; columns up to r; columns from r on. */
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
    if (part == CUDA_ATTENTION_ALL) /* with a constant the loop needs no check */
      cuda_attention_add_step(place, CUDA_ATTENTION_ALL, first, sum);
    else
      cuda_attention_add_step(place, part, first, sum);
    PETRA_SYNC();
  }
}

/* Returns the block's features of its rows, in a tensor as above. */
PETRA_DEVICE void cuda_attention_store(const cuda_attention_work work, const cuda_attention_place place,
                                       const cuda_attention_values *result, float *data, cuda_attention_share share) {
  const int64_t start = cuda_attention_start(work, place, share), stride = cuda_attention_stride(work, share);
  PETRA_UNROLL for (int r = 0; r < CUDA_ATTENTION_EACH; r++)
      PETRA_UNROLL for (int c = 0; c < CUDA_ATTENTION_EACH; c++) {
    const int32_t row = place.tile * CUDA_ATTENTION_TILE + place.y + r * CUDA_ATTENTION_SIDE;
    const int32_t feature = place.feature + place.x + c * CUDA_ATTENTION_SIDE;
    if (row < work.a.t && feature < work.a.d)
      data[start + row * stride + feature] = result->at[r][c];
  }
}

/* The state of a thread for its rows, which is the same in every thread of a row. */
typedef struct cuda_attention_state {
  float largest[CUDA_ATTENTION_EACH]; /* largest score so far; -infinity: none */
  float total[CUDA_ATTENTION_EACH];   /* sum of exp(score - largest) */
} cuda_attention_state;

/* Returns the number to subtract from the scores: 0 if all are -infinity, so that exp gives 0 and not NaN. */
PETRA_DEVICE float cuda_attention_base(float largest) {
  return largest == -INFINITY ? 0 : largest;
}

/* Returns the larger number; ignores a NaN, which reaches the result through the exponentials. */
PETRA_DEVICE float cuda_attention_larger(float a, float b) {
  return b > a ? b : a;
}

PETRA_DEVICE float *cuda_attention_partial(const cuda_attention_place place, int r) {
  return cuda_attention_shared()->partial + (place.y + r * CUDA_ATTENTION_SIDE) * CUDA_ATTENTION_SIDE_STRIDE;
}

/* Includes the scores of a tile in the largest scores, and scales the totals and the sums to match. Waits for the
 * block. */
PETRA_DEVICE void cuda_attention_raise(const cuda_attention_place place, const cuda_attention_values *scores,
                                       cuda_attention_state *state, cuda_attention_values *sum) {
  PETRA_UNROLL for (int r = 0; r < CUDA_ATTENTION_EACH; r++) {
    float largest = -INFINITY;
    PETRA_UNROLL for (int c = 0; c < CUDA_ATTENTION_EACH; c++) largest =
        cuda_attention_larger(largest, scores->at[r][c]);
    cuda_attention_partial(place, r)[place.x] = largest;
  }
  PETRA_SYNC();
  PETRA_UNROLL for (int r = 0; r < CUDA_ATTENTION_EACH; r++) {
    float largest = state->largest[r];
    for (int i = 0; i < CUDA_ATTENTION_SIDE; i++)
      largest = cuda_attention_larger(largest, cuda_attention_partial(place, r)[i]);
    const float factor = expf(state->largest[r] - cuda_attention_base(largest));
    state->largest[r] = largest;
    state->total[r] *= factor;
    PETRA_UNROLL for (int c = 0; c < CUDA_ATTENTION_EACH; c++) sum->at[r][c] *= factor;
  }
  PETRA_SYNC();
}

/* Computes the tile's weights exp(score - largest) and adds them to the totals. Waits for the block. */
PETRA_DEVICE void cuda_attention_weigh(const cuda_attention_place place, const cuda_attention_values *scores,
                                       cuda_attention_state *state) {
  PETRA_UNROLL for (int r = 0; r < CUDA_ATTENTION_EACH; r++) {
    const float base = cuda_attention_base(state->largest[r]);
    float total = 0;
    PETRA_UNROLL for (int c = 0; c < CUDA_ATTENTION_EACH; c++) {
      const float weight = expf(scores->at[r][c] - base);
      *cuda_attention_weight(place, r, c) = weight;
      total += weight;
    }
    cuda_attention_partial(place, r)[place.x] = total;
  }
  PETRA_SYNC();
  PETRA_UNROLL for (int r = 0; r < CUDA_ATTENTION_EACH; r++) for (int i = 0; i < CUDA_ATTENTION_SIDE; i++)
      state->total[r] += cuda_attention_partial(place, r)[i];
}

/* Scales the scores; a score becomes -infinity if the row does not use the column. */
PETRA_DEVICE void cuda_attention_mask(const cuda_attention_place place, cuda_attention_part part, int32_t count,
                                      float scale, cuda_attention_values *scores) {
  PETRA_UNROLL for (int r = 0; r < CUDA_ATTENTION_EACH; r++)
      PETRA_UNROLL for (int c = 0; c < CUDA_ATTENTION_EACH; c++) {
    const int row = place.y + r * CUDA_ATTENTION_SIDE, column = place.x + c * CUDA_ATTENTION_SIDE;
    const bool taken = column < count && cuda_attention_takes(part, row, column);
    scores->at[r][c] = taken ? scale * scores->at[r][c] : -INFINITY;
  }
}

/* Computes y and log_sum from the sums. */
PETRA_DEVICE void cuda_attention_finish(const cuda_attention_work a, const cuda_attention_place place,
                                        const cuda_attention_state *state, cuda_attention_values *sum) {
  PETRA_UNROLL for (int r = 0; r < CUDA_ATTENTION_EACH; r++) {
    const int64_t row = (int64_t)place.tile * CUDA_ATTENTION_TILE + place.y + r * CUDA_ATTENTION_SIDE;
    PETRA_UNROLL for (int c = 0; c < CUDA_ATTENTION_EACH; c++) sum->at[r][c] /= state->total[r];
    const float log_sum = state->largest[r] == -INFINITY ? NAN : state->largest[r] + logf(state->total[r]); /* as y */
    if (place.x == 0 && place.feature == 0 && row < a.a.t)
      a.a.log_sum[((int64_t)place.sample * a.a.t + row) * a.a.heads + place.head] = log_sum;
  }
  cuda_attention_store(a, place, sum, a.a.y, CUDA_ATTENTION_Y);
}

PETRA_KERNEL(cuda_attention_forward_kernel, const cuda_attention_work a) {
  cuda_attention_place place = cuda_attention_place_of(a, a.a.heads);
  const cuda_attention_queries q = cuda_attention_queries_of(a, &place);
  cuda_attention_state state;
  cuda_attention_values sum, scores;
  cuda_attention_clear(&sum);
  PETRA_UNROLL for (int r = 0; r < CUDA_ATTENTION_EACH; r++) {
    state.largest[r] = -INFINITY;
    state.total[r] = 0;
  }
  for (int32_t key = 0; key < q.keys_end; key += CUDA_ATTENTION_TILE) {
    const cuda_attention_part part = a.a.causal && key == q.first ? CUDA_ATTENTION_UP_TO : CUDA_ATTENTION_ALL;
    cuda_attention_scores(place, q.queries, cuda_attention_from(q.keys, key), &scores);
    cuda_attention_mask(place, part, a.a.t - key, a.scale, &scores);
    cuda_attention_raise(place, &scores, &state, &sum);
    cuda_attention_weigh(place, &scores, &state);
    cuda_attention_add(place, part, cuda_attention_from(q.values, key), &sum);
  }
  cuda_attention_finish(a, place, &state, &sum);
}

petra_status cuda_attention_forward_launch(const cuda_lane *lane, const void *arguments) {
  const cuda_attention_work work = cuda_attention_work_of((const cuda_attention_args *)arguments, NULL);
  PETRA_LAUNCH_BLOCK(lane, cuda_attention_forward_kernel, cuda_attention_blocks(&work, work.a.heads),
                     CUDA_ATTENTION_THREADS, work);
  return cuda_launched("attention_forward");
}

/* Attention backward. The weights p = exp(s - log_sum) are computed again, tile by tile. With ds = p (dp - delta) /
 * sqrt(d), dp the products of dy and v, delta the sum of dy y over a head's features: dq = ds k, dk = ds^T q, dv = p^T
 * dy. Blocks of queries sum over keys, and blocks of keys over queries, each in their order. */

size_t cuda_attention_backward_scratch(int32_t n, int32_t t, int32_t heads) {
  return (size_t)n * (size_t)t * (size_t)heads * sizeof(float);
}

/* Computes delta, with a thread for each position and head. */
PETRA_KERNEL(cuda_attention_delta_kernel, const cuda_attention_work a) {
  const int64_t count = (int64_t)a.a.n * a.a.t * a.a.heads;
  for (int64_t i = cuda_grid_first(); i < count; i += cuda_grid_step()) {
    const float *y = a.a.y + i * a.a.d, *dy = a.a.dy + i * a.a.d;
    double sum = 0;
    PETRA_UNROLL_SOME for (int32_t c = 0; c < a.a.d; c++) sum += (double)y[c] * dy[c];
    a.delta[i] = (float)sum;
  }
}

/* Returns log_sum or delta of a query; 0 if there is no such query. */
PETRA_DEVICE float cuda_attention_of_query(const cuda_attention_work a, const cuda_attention_place place,
                                           const float *values, int32_t query) {
  return query < a.a.t ? values[((int64_t)place.sample * a.a.t + query) * a.a.heads + place.head] : 0;
}

/* The pairs of a tile, of which a block has the queries as rows and the keys as columns, or the reverse. */
typedef struct cuda_attention_pairs {
  cuda_attention_part part;
  int32_t query, key; /* the first query and key of the tile */
  bool queries;       /* the rows are queries; else keys */
} cuda_attention_pairs;

PETRA_DEVICE int32_t cuda_attention_query(const cuda_attention_place place, const cuda_attention_pairs pairs, int r,
                                          int c) {
  return pairs.query + (pairs.queries ? place.y + r * CUDA_ATTENTION_SIDE : place.x + c * CUDA_ATTENTION_SIDE);
}

PETRA_DEVICE bool cuda_attention_paired(const cuda_attention_work a, const cuda_attention_place place,
                                        const cuda_attention_pairs pairs, int r, int c) {
  const int row = place.y + r * CUDA_ATTENTION_SIDE, column = place.x + c * CUDA_ATTENTION_SIDE;
  const int32_t last = (pairs.queries ? pairs.key : pairs.query) + column; /* a row too many is never stored */
  return last < a.a.t && cuda_attention_takes(pairs.part, row, column);
}

/* Sets the tile's weights to p, or to 0 if the pair is left out. */
PETRA_DEVICE void cuda_attention_weigh_again(const cuda_attention_work a, const cuda_attention_place place,
                                             const cuda_attention_pairs pairs, const cuda_attention_values *scores) {
  PETRA_UNROLL for (int r = 0; r < CUDA_ATTENTION_EACH; r++)
      PETRA_UNROLL for (int c = 0; c < CUDA_ATTENTION_EACH; c++) {
    const float log_sum = cuda_attention_of_query(a, place, a.a.log_sum, cuda_attention_query(place, pairs, r, c));
    *cuda_attention_weight(place, r, c) =
        cuda_attention_paired(a, place, pairs, r, c) ? expf(a.scale * scores->at[r][c] - log_sum) : 0;
  }
}

/* Turns the weights from p into ds. A thread changes only weights that it has set itself. */
PETRA_DEVICE void cuda_attention_weigh_gradients(const cuda_attention_work a, const cuda_attention_place place,
                                                 const cuda_attention_pairs pairs, const cuda_attention_values *dp) {
  PETRA_UNROLL for (int r = 0; r < CUDA_ATTENTION_EACH; r++)
      PETRA_UNROLL for (int c = 0; c < CUDA_ATTENTION_EACH; c++) {
    const float delta = cuda_attention_of_query(a, place, a.delta, cuda_attention_query(place, pairs, r, c));
    float *weight = cuda_attention_weight(place, r, c);
    if (cuda_attention_paired(a, place, pairs, r, c)) /* otherwise the weight is 0 and remains 0 */
      *weight *= (dp->at[r][c] - delta) * a.scale;
  }
}

PETRA_KERNEL(cuda_attention_queries_kernel, const cuda_attention_work a) {
  cuda_attention_place place = cuda_attention_place_of(a, a.a.heads);
  const cuda_attention_queries q = cuda_attention_queries_of(a, &place);
  const cuda_attention_rows gradients =
      cuda_attention_from(cuda_attention_rows_of(a, place, a.a.dy, CUDA_ATTENTION_Y), q.first);
  cuda_attention_values dq, products;
  cuda_attention_clear(&dq);
  for (int32_t key = 0; key < q.keys_end; key += CUDA_ATTENTION_TILE) {
    const bool diagonal = a.a.causal && key == q.first;
    const cuda_attention_pairs pairs = {diagonal ? CUDA_ATTENTION_UP_TO : CUDA_ATTENTION_ALL, q.first, key, true};
    cuda_attention_scores(place, q.queries, cuda_attention_from(q.keys, key), &products);
    cuda_attention_weigh_again(a, place, pairs, &products);
    cuda_attention_scores(place, gradients, cuda_attention_from(q.values, key), &products);
    cuda_attention_weigh_gradients(a, place, pairs, &products);
    cuda_attention_add(place, pairs.part, cuda_attention_from(q.keys, key), &dq);
  }
  cuda_attention_store(a, place, &dq, a.a.dqkv, CUDA_ATTENTION_Q);
}

/* Sums over the heads of queries that share the block's keys, one head after the other. */
PETRA_KERNEL(cuda_attention_keys_kernel, const cuda_attention_work a) {
  cuda_attention_place place = cuda_attention_place_of(a, a.a.kv_heads);
  const int32_t first = place.tile * CUDA_ATTENTION_TILE;
  const cuda_attention_rows keys =
      cuda_attention_from(cuda_attention_rows_of(a, place, a.a.qkv, CUDA_ATTENTION_K), first);
  const cuda_attention_rows values =
      cuda_attention_from(cuda_attention_rows_of(a, place, a.a.qkv, CUDA_ATTENTION_V), first);
  cuda_attention_values dk, dv, products;
  cuda_attention_clear(&dk);
  cuda_attention_clear(&dv);
  cuda_attention_rows queries = cuda_attention_rows_of(a, place, a.a.qkv, CUDA_ATTENTION_Q);
  cuda_attention_rows gradients = cuda_attention_rows_of(a, place, a.a.dy, CUDA_ATTENTION_Y);
  for (int32_t head = 0; head < a.group; head++) {
    for (int32_t query = a.a.causal ? first : 0; query < a.a.t; query += CUDA_ATTENTION_TILE) {
      const bool diagonal = a.a.causal && query == first;
      const cuda_attention_pairs pairs = {diagonal ? CUDA_ATTENTION_FROM : CUDA_ATTENTION_ALL, query, first, false};
      cuda_attention_scores(place, keys, cuda_attention_from(queries, query), &products);
      cuda_attention_weigh_again(a, place, pairs, &products);
      cuda_attention_add(place, pairs.part, cuda_attention_from(gradients, query), &dv);
      cuda_attention_scores(place, values, cuda_attention_from(gradients, query), &products);
      cuda_attention_weigh_gradients(a, place, pairs, &products);
      cuda_attention_add(place, pairs.part, cuda_attention_from(queries, query), &dk);
    }
    queries.data += a.a.d;
    gradients.data += a.a.d;
    place.head++;
  }
  place.head--; /* back to a head of the group */
  cuda_attention_store(a, place, &dk, a.a.dqkv, CUDA_ATTENTION_K);
  cuda_attention_store(a, place, &dv, a.a.dqkv, CUDA_ATTENTION_V);
}

petra_status cuda_attention_backward_launch(const cuda_lane *lane, const void *arguments) {
  const cuda_attention_args *a = (const cuda_attention_args *)arguments;
  const cuda_attention_work work = cuda_attention_work_of(a, (float *)lane->scratch);
  PETRA_LAUNCH_FLAT(lane, cuda_attention_delta_kernel, cuda_grid_blocks((int64_t)a->n * a->t * a->heads),
                    CUDA_GRID_THREADS, work);
  PETRA_LAUNCH_BLOCK(lane, cuda_attention_queries_kernel, cuda_attention_blocks(&work, a->heads),
                     CUDA_ATTENTION_THREADS, work);
  PETRA_LAUNCH_BLOCK(lane, cuda_attention_keys_kernel, cuda_attention_blocks(&work, a->kv_heads),
                     CUDA_ATTENTION_THREADS, work);
  return cuda_launched("attention_backward");
}
