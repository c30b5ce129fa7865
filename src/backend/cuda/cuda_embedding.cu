/* SPDX-License-Identifier: Apache-2.0 */
/* Embeddings of tokens and positions. For each row of the table, its gradient needs the positions at which the row's
 * token occurs, in their order. Every position counts the positions that come before it by token and then by number;
 * the count is its index in the sorted list. The cost is quadratic in the number of positions, but for tens of
 * thousands of positions far smaller than the cost of the network. It needs no atomics and no size that depends on the
 * tokens. */
#include "backend/cuda/cuda_device.h"

#include <math.h>

enum { CUDA_EMBED_COLUMNS = 32, CUDA_EMBED_ROWS = 8, CUDA_EMBED_THREADS = CUDA_EMBED_COLUMNS * CUDA_EMBED_ROWS };

/* Returns the row of the table; returns `rows`, the index behind the last row, if the value is not a token. */
PETRA_DEVICE int32_t cuda_embed_token(float token, int32_t rows) {
  return token >= 0 && token < (float)rows ? (int32_t)token : rows;
}

PETRA_KERNEL(cuda_embed_kernel, const cuda_embed_args a) {
  const int64_t count = (int64_t)a.n * a.t * a.c;
  for (int64_t i = cuda_grid_first(); i < count; i += cuda_grid_step()) {
    const int64_t place = i / a.c, column = i % a.c;
    const int32_t token = cuda_embed_token(a.tokens[place], a.rows);
    float value = token < a.rows ? a.table[token * (int64_t)a.c + column] : NAN;
    if (a.positions)
      value += a.positions[place % a.t * a.c + column];
    a.y[i] = value;
  }
}

CUDA_GRID_LAUNCH(embed, (int64_t)a->n * a->t * a->c)

/* --- backward --- */

typedef struct cuda_embed_work {
  cuda_embed_backward_args a;
  int32_t places;  /* n t */
  int32_t *tokens; /* sorted */
  int32_t *order;  /* the position of each */
} cuda_embed_work;

size_t cuda_embed_scratch(int32_t n, int32_t t) {
  return 2 * (size_t)n * (size_t)t * sizeof(int32_t);
}

PETRA_KERNEL(cuda_embed_sort_kernel, const cuda_embed_work a) {
  PETRA_SHARED int32_t tokens[CUDA_EMBED_THREADS];
  const int32_t place = (int32_t)(PETRA_BLOCK * CUDA_EMBED_THREADS) + PETRA_THREAD;
  const int32_t token = place < a.places ? cuda_embed_token(a.a.tokens[place], a.a.rows) : 0;
  int32_t before = 0;
  for (int32_t first = 0; first < a.places; first += CUDA_EMBED_THREADS) {
    if (first + PETRA_THREAD < a.places)
      tokens[PETRA_THREAD] = cuda_embed_token(a.a.tokens[first + PETRA_THREAD], a.a.rows);
    PETRA_SYNC();
    const int32_t end = a.places - first < CUDA_EMBED_THREADS ? a.places - first : CUDA_EMBED_THREADS;
    PETRA_UNROLL_SOME for (int32_t i = 0; i < end; i++) before +=
        tokens[i] < token || (tokens[i] == token && first + i < place);
    PETRA_SYNC();
  }
  if (place >= a.places)
    return;
  a.tokens[before] = token;
  a.order[before] = place;
}

/* Returns the first index in the sorted list whose token is not less. */
PETRA_DEVICE int32_t cuda_embed_find(const cuda_embed_work a, int32_t token) {
  int32_t low = 0, high = a.places;
  while (low < high) {
    const int32_t middle = low + (high - low) / 2;
    if (a.tokens[middle] < token)
      low = middle + 1;
    else
      high = middle;
  }
  return low;
}

/* A block sums CUDA_EMBED_COLUMNS columns for one row of the table, CUDA_EMBED_ROWS threads per column. */
PETRA_KERNEL(cuda_embed_table_kernel, const cuda_embed_work a) {
  PETRA_SHARED double shared[CUDA_EMBED_THREADS];
  const int32_t chunks = (a.a.c + CUDA_EMBED_COLUMNS - 1) / CUDA_EMBED_COLUMNS;
  const int32_t token = (int32_t)(PETRA_BLOCK / chunks), row = PETRA_THREAD / CUDA_EMBED_COLUMNS;
  const int32_t column = (int32_t)(PETRA_BLOCK % chunks) * CUDA_EMBED_COLUMNS + PETRA_THREAD % CUDA_EMBED_COLUMNS;
  const int32_t end = cuda_embed_find(a, token + 1);
  double sum = 0;
  if (column < a.a.c)
    PETRA_UNROLL_SOME for (int32_t i = cuda_embed_find(a, token) + row; i < end; i += CUDA_EMBED_ROWS) sum +=
        a.a.dy[(int64_t)a.order[i] * a.a.c + column];
  sum = cuda_column_sum(shared, CUDA_EMBED_THREADS, CUDA_EMBED_COLUMNS, sum);
  if (row == 0 && column < a.a.c)
    a.a.dtable[(int64_t)token * a.a.c + column] = (float)sum;
}

PETRA_KERNEL(cuda_embed_positions_kernel, const cuda_embed_work a) {
  const int64_t used = (int64_t)a.a.t * a.a.c, count = (int64_t)a.a.positions * a.a.c;
  for (int64_t i = cuda_grid_first(); i < count; i += cuda_grid_step()) {
    double sum = 0;
    if (i < used)
      PETRA_UNROLL_SOME for (int32_t n = 0; n < a.a.n; n++) sum += a.a.dy[n * used + i];
    a.a.dpositions[i] = (float)sum;
  }
}

petra_status cuda_embed_backward_launch(const cuda_lane *lane, const void *arguments) {
  const cuda_embed_backward_args *a = (const cuda_embed_backward_args *)arguments;
  const int32_t places = a->n * a->t;
  int32_t *scratch = (int32_t *)lane->scratch;
  const cuda_embed_work work = {*a, places, scratch, scratch + places};
  const int64_t chunks = (a->c + CUDA_EMBED_COLUMNS - 1) / CUDA_EMBED_COLUMNS;
  PETRA_LAUNCH_BLOCK(lane, cuda_embed_sort_kernel, (places + CUDA_EMBED_THREADS - 1) / CUDA_EMBED_THREADS,
                     CUDA_EMBED_THREADS, work);
  PETRA_LAUNCH_BLOCK(lane, cuda_embed_table_kernel, a->rows * chunks, CUDA_EMBED_THREADS, work);
  if (a->dpositions)
    PETRA_LAUNCH_FLAT(lane, cuda_embed_positions_kernel, cuda_grid_blocks((int64_t)a->positions * a->c),
                      CUDA_GRID_THREADS, work);
  return cuda_launched("embed_backward");
}
