/* SPDX-License-Identifier: Apache-2.0 */
/* Attention forward: a block for 64 queries of a head goes through the keys tile by tile, with the maximum of the scores so far
 * and the sums that belong to it (Milakov, Gimelshein 2018, arXiv 1805.02867; Dao et al. 2022, arXiv 2205.14135). */
#include "backend/cuda/attention_tile.h"

/* What a thread knows of its rows, as every other thread of the row does. */
typedef struct cuda_attention_state {
  float largest[CUDA_ATTENTION_EACH]; /* score so far; -infinity: none */
  float total[CUDA_ATTENTION_EACH];   /* of exp(score - largest) */
} cuda_attention_state;

/* What is taken off the scores: nothing where all are -infinity, so that they come to 0 and not to NaN. */
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
