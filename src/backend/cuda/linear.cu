/* SPDX-License-Identifier: Apache-2.0 */
/* The linear layer beside its matrix products: what they start from, and the gradient of the bias. */
#include "backend/cuda/grid.h"
#include "backend/cuda/sums.h"

PETRA_KERNEL(cuda_bias_kernel, const cuda_bias_args a) {
  for (int64_t i = cuda_grid_first(); i < a.n * a.o; i += cuda_grid_step()) {
    const float b = a.b ? a.b[i % a.o] : 0;
    a.y[i] = !a.addend ? b : !a.b ? a.addend[i] : a.subtract ? a.addend[i] - b : a.addend[i] + b;
  }
}

CUDA_GRID_LAUNCH(bias, a->n * a->o)

/* --- backward, few rows: a block sums CUDA_BIAS_COLUMNS columns, with CUDA_BIAS_ROWS threads for each --- */

enum { CUDA_BIAS_COLUMNS = 8, CUDA_BIAS_ROWS = 32, CUDA_BIAS_THREADS = CUDA_BIAS_COLUMNS * CUDA_BIAS_ROWS };

PETRA_KERNEL(cuda_bias_backward_kernel, const cuda_bias_backward_args a) {
  PETRA_SHARED double shared[CUDA_BIAS_THREADS];
  const int row = PETRA_THREAD / CUDA_BIAS_COLUMNS;
  const int64_t column = PETRA_BLOCK * CUDA_BIAS_COLUMNS + PETRA_THREAD % CUDA_BIAS_COLUMNS;
  double sum = 0;
  if (column < a.o)
    PETRA_UNROLL_SOME for (int64_t n = row; n < a.n; n += CUDA_BIAS_ROWS) sum += a.dy[n * a.o + column];
  sum = cuda_column_sum(shared, CUDA_BIAS_THREADS, CUDA_BIAS_COLUMNS, sum);
  if (row == 0 && column < a.o)
    a.db[column] = (float)sum;
}

/* --- backward, many rows --- */

typedef struct cuda_bias_sums_args {
  cuda_tile tile;
  const float *dy;
  double *partial;
} cuda_bias_sums_args;

size_t cuda_bias_scratch(int64_t n, int32_t o) {
  const cuda_tile tile = cuda_tile_of(n, o);
  return cuda_sums_scratch(&tile);
}

PETRA_KERNEL(cuda_bias_sums_kernel, const cuda_bias_sums_args a) {
  const cuda_place place = cuda_tile_place(a.tile);
  cuda_sums sums = {0, 0};
  if (place.active)
    PETRA_UNROLL_SOME for (int64_t row = place.pixel; row < a.tile.pixels; row += place.step) sums.first +=
        a.dy[row * a.tile.c + place.channel];
  cuda_sums_store(a.tile, place, sums, a.partial);
}

petra_status cuda_bias_backward_launch(const cuda_lane *lane, const void *arguments) {
  const cuda_bias_backward_args *a = (const cuda_bias_backward_args *)arguments;
  if (a->levels) {
    const cuda_bias_sums_args kernel = {cuda_tile_of(a->n, a->o), a->dy, (double *)lane->scratch};
    PETRA_LAUNCH_BLOCK(lane, cuda_bias_sums_kernel, cuda_tile_blocks(&kernel.tile), CUDA_TILE_THREADS, kernel);
    cuda_sums_finish(lane, &kernel.tile, kernel.partial, a->db, NULL);
  } else {
    PETRA_LAUNCH_BLOCK(lane, cuda_bias_backward_kernel, (a->o + CUDA_BIAS_COLUMNS - 1) / CUDA_BIAS_COLUMNS,
                       CUDA_BIAS_THREADS, *a);
  }
  return cuda_launched("bias_backward");
}
