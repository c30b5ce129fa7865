/* SPDX-License-Identifier: Apache-2.0 */
/* Attention forward: a block for 64 queries of a head goes through the keys tile by tile, with the maximum of the scores so far
 * and the sums that belong to it (Milakov, Gimelshein 2018, arXiv 1805.02867; Dao et al. 2022, arXiv 2205.14135). */
#include "backend/cuda/attention_tile.h"
#include "backend/cuda/grid.h"

/* The state of a thread about its rows, which is the same in every thread of a row. */
typedef struct cuda_attention_state {
  float largest[CUDA_ATTENTION_EACH]; /* score so far; -infinity: none */
  float total[CUDA_ATTENTION_EACH];   /* of exp(score - largest) */
} cuda_attention_state;

/* Returns what is subtracted from the scores: nothing if all are -infinity, so that they become 0 and not NaN. */
PETRA_DEVICE float cuda_attention_base(float largest) {
  return largest == -INFINITY ? 0 : largest;
}

/* The larger of two; a NaN is passed over: it comes through the exponentials. */
PETRA_DEVICE float cuda_attention_larger(float a, float b) {
  return b > a ? b : a;
}

PETRA_DEVICE float *cuda_attention_partial(const cuda_attention_place place, int r) {
  return cuda_attention_shared()->partial + (place.y + r * CUDA_ATTENTION_SIDE) * CUDA_ATTENTION_SIDE_STRIDE;
}

/* Takes the scores of a tile into the largest ones; the totals and the sums are made to fit. Waits for the block. */
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

/* The tile's weights exp(score - largest), and their part of the totals. Waits for the block. */
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

/* Scaled; -infinity where the row does not take the column. */
PETRA_DEVICE void cuda_attention_mask(const cuda_attention_place place, cuda_attention_part part, int32_t count,
                                      float scale, cuda_attention_values *scores) {
  PETRA_UNROLL for (int r = 0; r < CUDA_ATTENTION_EACH; r++)
      PETRA_UNROLL for (int c = 0; c < CUDA_ATTENTION_EACH; c++) {
    const int row = place.y + r * CUDA_ATTENTION_SIDE, column = place.x + c * CUDA_ATTENTION_SIDE;
    const bool taken = column < count && cuda_attention_takes(part, row, column);
    scores->at[r][c] = taken ? scale * scores->at[r][c] : -INFINITY;
  }
}

/* y and log_sum from the sums. */
PETRA_DEVICE void cuda_attention_finish(const cuda_attention_work a, const cuda_attention_place place,
                                        const cuda_attention_state *state, cuda_attention_values *sum) {
  PETRA_UNROLL for (int r = 0; r < CUDA_ATTENTION_EACH; r++) {
    const int64_t row = (int64_t)place.tile * CUDA_ATTENTION_TILE + place.y + r * CUDA_ATTENTION_SIDE;
    PETRA_UNROLL for (int c = 0; c < CUDA_ATTENTION_EACH; c++) sum->at[r][c] /= state->total[r];
    const float log_sum = state->largest[r] == -INFINITY ? NAN : state->largest[r] + logf(state->total[r]); /* as y */
    if (place.x == 0 && place.feature == 0 && row < a.a.t)
      a.a.log_sum[((int64_t)place.sample * a.a.t + row) * a.a.heads + place.head] = log_sum;
  }
  cuda_attention_store(a, place, sum, a.a.y, 1, 0);
}

PETRA_KERNEL(cuda_attention_forward_kernel, const cuda_attention_work a) {
  cuda_attention_place place = cuda_attention_place_of(a);
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
  PETRA_LAUNCH_BLOCK(lane, cuda_attention_forward_kernel, cuda_attention_blocks(&work), CUDA_ATTENTION_THREADS, work);
  return cuda_launched("attention_forward");
}

/* Attention backward. The weights p = exp(s - log_sum) are computed again, tile by tile. With ds = p (dp - delta) / sqrt(d), dp the
 * products of dy and v, delta the sum of dy y over a head's features: dq = ds k, dk = ds^T q, dv = p^T dy. Blocks of queries sum over
 * keys, and blocks of keys over queries, each in their order. */

size_t cuda_attention_backward_scratch(int32_t n, int32_t t, int32_t heads) {
  return (size_t)n * (size_t)t * (size_t)heads * sizeof(float);
}

/* delta: a thread for each position and head. */
PETRA_KERNEL(cuda_attention_delta_kernel, const cuda_attention_work a) {
  const int64_t count = (int64_t)a.a.n * a.a.t * a.a.heads;
  for (int64_t i = cuda_grid_first(); i < count; i += cuda_grid_step()) {
    const float *y = a.a.y + i * a.a.d, *dy = a.a.dy + i * a.a.d;
    double sum = 0;
    PETRA_UNROLL_SOME for (int32_t c = 0; c < a.a.d; c++) sum += (double)y[c] * dy[c];
    a.delta[i] = (float)sum;
  }
}

/* log_sum or delta of a query; 0 where there is none. */
PETRA_DEVICE float cuda_attention_of_query(const cuda_attention_work a, const cuda_attention_place place,
                                           const float *values, int32_t query) {
  return query < a.a.t ? values[((int64_t)place.sample * a.a.t + query) * a.a.heads + place.head] : 0;
}

/* Adds a block's contributions from a tile of which it holds the queries as rows and the keys as columns, or the
 * reverse. */
typedef struct cuda_attention_pairs {
  cuda_attention_part part;
  int32_t query, key; /* the first of the tile */
  bool queries;       /* are the rows */
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

/* The tile's weights are p from now on; 0 where a pair is left out. */
PETRA_DEVICE void cuda_attention_weigh_again(const cuda_attention_work a, const cuda_attention_place place,
                                             const cuda_attention_pairs pairs, const cuda_attention_values *scores) {
  PETRA_UNROLL for (int r = 0; r < CUDA_ATTENTION_EACH; r++)
      PETRA_UNROLL for (int c = 0; c < CUDA_ATTENTION_EACH; c++) {
    const float log_sum = cuda_attention_of_query(a, place, a.a.log_sum, cuda_attention_query(place, pairs, r, c));
    *cuda_attention_weight(place, r, c) =
        cuda_attention_paired(a, place, pairs, r, c) ? expf(a.scale * scores->at[r][c] - log_sum) : 0;
  }
}

/* They were p and are ds. A thread changes those that it has set itself. */
PETRA_DEVICE void cuda_attention_weigh_gradients(const cuda_attention_work a, const cuda_attention_place place,
                                                 const cuda_attention_pairs pairs, const cuda_attention_values *dp) {
  PETRA_UNROLL for (int r = 0; r < CUDA_ATTENTION_EACH; r++)
      PETRA_UNROLL for (int c = 0; c < CUDA_ATTENTION_EACH; c++) {
    const float delta = cuda_attention_of_query(a, place, a.delta, cuda_attention_query(place, pairs, r, c));
    float *weight = cuda_attention_weight(place, r, c);
    if (cuda_attention_paired(a, place, pairs, r, c)) /* elsewhere it is 0 and stays it */
      *weight *= (dp->at[r][c] - delta) * a.scale;
  }
}

PETRA_KERNEL(cuda_attention_queries_kernel, const cuda_attention_work a) {
  cuda_attention_place place = cuda_attention_place_of(a);
  const cuda_attention_queries q = cuda_attention_queries_of(a, &place);
  const cuda_attention_rows gradients = cuda_attention_from(cuda_attention_rows_of(a, place, a.a.dy, 1, 0), q.first);
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
  cuda_attention_store(a, place, &dq, a.a.dqkv, 3, 0);
}

PETRA_KERNEL(cuda_attention_keys_kernel, const cuda_attention_work a) {
  const cuda_attention_place place = cuda_attention_place_of(a);
  const int32_t first = place.tile * CUDA_ATTENTION_TILE;
  const cuda_attention_rows queries = cuda_attention_rows_of(a, place, a.a.qkv, 3, 0);
  const cuda_attention_rows keys = cuda_attention_from(cuda_attention_rows_of(a, place, a.a.qkv, 3, 1), first);
  const cuda_attention_rows values = cuda_attention_from(cuda_attention_rows_of(a, place, a.a.qkv, 3, 2), first);
  const cuda_attention_rows gradients = cuda_attention_rows_of(a, place, a.a.dy, 1, 0);
  cuda_attention_values dk, dv, products;
  cuda_attention_clear(&dk);
  cuda_attention_clear(&dv);
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
  cuda_attention_store(a, place, &dk, a.a.dqkv, 3, 1);
  cuda_attention_store(a, place, &dv, a.a.dqkv, 3, 2);
}

petra_status cuda_attention_backward_launch(const cuda_lane *lane, const void *arguments) {
  const cuda_attention_args *a = (const cuda_attention_args *)arguments;
  const cuda_attention_work work = cuda_attention_work_of(a, (float *)lane->scratch);
  PETRA_LAUNCH_FLAT(lane, cuda_attention_delta_kernel, cuda_grid_blocks((int64_t)a->n * a->t * a->heads),
                    CUDA_GRID_THREADS, work);
  PETRA_LAUNCH_BLOCK(lane, cuda_attention_queries_kernel, cuda_attention_blocks(&work), CUDA_ATTENTION_THREADS, work);
  PETRA_LAUNCH_BLOCK(lane, cuda_attention_keys_kernel, cuda_attention_blocks(&work), CUDA_ATTENTION_THREADS, work);
  return cuda_launched("attention_backward");
}
