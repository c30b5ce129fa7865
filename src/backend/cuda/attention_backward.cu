/* SPDX-License-Identifier: Apache-2.0 */
/* Attention backward. The weights p = exp(s - log_sum) are computed again, tile by tile. With ds = p (dp - delta) / sqrt(d), dp the
 * products of dy and v, delta the sum of dy y over a head's features: dq = ds k, dk = ds^T q, dv = p^T dy. Blocks of queries sum over
 * keys, and blocks of keys over queries, each in their order. */
#include "backend/cuda/attention_tile.h"

#include "backend/cuda/grid.h"

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

/* What the forward left of a query: log_sum and delta. */
typedef struct cuda_attention_query {
  float log_sum, delta;
} cuda_attention_query;

PETRA_DEVICE cuda_attention_query cuda_attention_query_of(const cuda_attention_work a, const cuda_attention_place place,
                                                          int32_t position) {
  cuda_attention_query query;
  const int64_t i = (place.sample * a.a.t + position) * a.a.heads + place.head;
  const bool there = position < a.a.t;
  query.log_sum = there ? a.a.log_sum[i] : 0;
  query.delta = there ? a.delta[i] : 0;
  return query;
}

/* From a score and a dp to their weight p and ds; 0 where the pair is left out. */
PETRA_DEVICE void cuda_attention_gradient(const cuda_attention_work a, const cuda_attention_query query, bool taken,
                                          float *score, float *dp) {
  const float p = taken ? expf(a.scale * *score - query.log_sum) : 0;
  *score = p;
  *dp = taken ? p * (*dp - query.delta) * a.scale : 0;
}

PETRA_KERNEL(cuda_attention_queries_kernel, const cuda_attention_work a) {
  cuda_attention_place place = cuda_attention_place_of(a);
  if (a.a.causal) /* those that have the most keys first */
    place.tile = a.tiles - 1 - place.tile;
  const int32_t first = place.tile * CUDA_ATTENTION_TILE;
  const cuda_attention_rows queries = cuda_attention_from(cuda_attention_rows_of(a, place, a.a.qkv, 3, 0), first);
  const cuda_attention_rows keys = cuda_attention_rows_of(a, place, a.a.qkv, 3, 1);
  const cuda_attention_rows values = cuda_attention_rows_of(a, place, a.a.qkv, 3, 2);
  const cuda_attention_rows gradients = cuda_attention_from(cuda_attention_rows_of(a, place, a.a.dy, 1, 0), first);
  cuda_attention_query query[CUDA_ATTENTION_EACH];
  cuda_attention_values sum, scores, products;
  cuda_attention_clear(&sum);
  PETRA_UNROLL for (int r = 0; r < CUDA_ATTENTION_EACH; r++)
    query[r] = cuda_attention_query_of(a, place, first + place.y + r * CUDA_ATTENTION_SIDE);
  for (int32_t key = 0; key < (a.a.causal ? first + 1 : a.a.t); key += CUDA_ATTENTION_TILE) {
    const cuda_attention_part part = a.a.causal && key == first ? CUDA_ATTENTION_UP_TO : CUDA_ATTENTION_ALL;
    cuda_attention_scores(place, queries, cuda_attention_from(keys, key), &scores);
    cuda_attention_scores(place, gradients, cuda_attention_from(values, key), &products);
    PETRA_UNROLL for (int r = 0; r < CUDA_ATTENTION_EACH; r++)
      PETRA_UNROLL for (int c = 0; c < CUDA_ATTENTION_EACH; c++) {
        const int row = place.y + r * CUDA_ATTENTION_SIDE, column = place.x + c * CUDA_ATTENTION_SIDE;
        const bool taken = key + column < a.a.t && cuda_attention_takes(part, row, column);
        cuda_attention_gradient(a, query[r], taken, &scores.at[r][c], &products.at[r][c]);
      }
    cuda_attention_set_weights(place, &products);
    cuda_attention_add(place, part, cuda_attention_from(keys, key), &sum);
  }
  cuda_attention_store(a, place, &sum, a.a.dqkv, 3, 0);
}

PETRA_KERNEL(cuda_attention_keys_kernel, const cuda_attention_work a) {
  const cuda_attention_place place = cuda_attention_place_of(a);
  const int32_t first = place.tile * CUDA_ATTENTION_TILE;
  const cuda_attention_rows queries = cuda_attention_rows_of(a, place, a.a.qkv, 3, 0);
  const cuda_attention_rows keys = cuda_attention_from(cuda_attention_rows_of(a, place, a.a.qkv, 3, 1), first);
  const cuda_attention_rows values = cuda_attention_from(cuda_attention_rows_of(a, place, a.a.qkv, 3, 2), first);
  const cuda_attention_rows gradients = cuda_attention_rows_of(a, place, a.a.dy, 1, 0);
  cuda_attention_values dk, dv, scores, products;
  cuda_attention_clear(&dk);
  cuda_attention_clear(&dv);
  for (int32_t query = a.a.causal ? first : 0; query < a.a.t; query += CUDA_ATTENTION_TILE) {
    const cuda_attention_part part = a.a.causal && query == first ? CUDA_ATTENTION_FROM : CUDA_ATTENTION_ALL;
    cuda_attention_scores(place, keys, cuda_attention_from(queries, query), &scores);
    cuda_attention_scores(place, values, cuda_attention_from(gradients, query), &products);
    PETRA_UNROLL for (int c = 0; c < CUDA_ATTENTION_EACH; c++) {
      const int column = place.x + c * CUDA_ATTENTION_SIDE;
      const cuda_attention_query of_query = cuda_attention_query_of(a, place, query + column);
      PETRA_UNROLL for (int r = 0; r < CUDA_ATTENTION_EACH; r++) {
        const int row = place.y + r * CUDA_ATTENTION_SIDE;
        const bool taken = query + column < a.a.t && cuda_attention_takes(part, row, column);
        cuda_attention_gradient(a, of_query, taken, &scores.at[r][c], &products.at[r][c]);
      }
    }
    cuda_attention_set_weights(place, &scores);
    cuda_attention_add(place, part, cuda_attention_from(gradients, query), &dv);
    cuda_attention_set_weights(place, &products);
    cuda_attention_add(place, part, cuda_attention_from(queries, query), &dk);
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
