/* SPDX-License-Identifier: Apache-2.0 */
/* Operations that move elements and compute nothing. */
#include "backend/cuda/cuda_device.h"

/* --- permute: the transpose of a matrix for each image --- */

enum { CUDA_TURN = 32, CUDA_TURN_ROWS = 8, CUDA_TURN_BLOCKS = 2048 };

typedef struct cuda_turn_args {
  const void *x;
  void *y;
  int64_t rows, columns; /* of a matrix of x */
  int64_t down, across;  /* squares of CUDA_TURN in a matrix */
  int64_t squares;       /* in all matrices */
  bool narrow_x, narrow_y;
} cuda_turn_args;

/* A square is read row by row and written row by row, both coalesced, and transposed in shared memory in between. An
 * additional column there keeps the elements of a column in different banks. */
PETRA_KERNEL(cuda_permute_kernel, const cuda_turn_args a) {
  PETRA_SHARED float square[CUDA_TURN][CUDA_TURN + 1];
  const int lane = PETRA_THREAD % CUDA_TURN, line = PETRA_THREAD / CUDA_TURN;
  for (int64_t s = PETRA_BLOCK; s < a.squares; s += PETRA_BLOCKS) {
    const int64_t matrix = s / (a.down * a.across) * a.rows * a.columns;
    const int64_t top = s / a.across % a.down * CUDA_TURN, left = s % a.across * CUDA_TURN;
    for (int i = line; i < CUDA_TURN; i += CUDA_TURN_ROWS)
      if (top + i < a.rows && left + lane < a.columns)
        cuda_load(a.x, a.narrow_x, matrix + (top + i) * a.columns + left + lane, 1, &square[i][lane]);
    PETRA_SYNC();
    for (int i = line; i < CUDA_TURN; i += CUDA_TURN_ROWS)
      if (left + i < a.columns && top + lane < a.rows)
        cuda_store(a.y, a.narrow_y, matrix + (left + i) * a.rows + top + lane, 1, &square[lane][i]);
    PETRA_SYNC();
  }
}

petra_status cuda_permute_launch(const cuda_lane *lane, const void *arguments) {
  const cuda_permute_args *a = (const cuda_permute_args *)arguments;
  const int64_t rows = a->to_channels_last ? a->c : a->plane, columns = a->to_channels_last ? a->plane : a->c;
  const int64_t down = (rows + CUDA_TURN - 1) / CUDA_TURN, across = (columns + CUDA_TURN - 1) / CUDA_TURN;
  const cuda_turn_args kernel = {a->x,
                                 a->y,
                                 rows,
                                 columns,
                                 down,
                                 across,
                                 a->n * down * across,
                                 a->narrow && !a->to_channels_last,
                                 a->narrow && a->to_channels_last};
  const int64_t blocks = kernel.squares < CUDA_TURN_BLOCKS ? kernel.squares : (int64_t)CUDA_TURN_BLOCKS;
  PETRA_LAUNCH_BLOCK(lane, cuda_permute_kernel, blocks, CUDA_TURN * CUDA_TURN_ROWS, kernel);
  return cuda_launched("permute");
}

/* --- split and join --- */

typedef struct cuda_split_kernel_args {
  cuda_tile tile; /* over x */
  cuda_split_args split;
} cuda_split_kernel_args;

PETRA_KERNEL(cuda_split_kernel, const cuda_split_kernel_args a) {
  const cuda_place place = cuda_tile_place(a.tile);
  if (!place.active)
    return;
  const bool first = place.channel < a.split.c1;
  float *part = first ? a.split.x1 + place.channel : a.split.x2 + (place.channel - a.split.c1);
  const int64_t stride = first ? a.split.c1 : a.split.c2;
  float *whole = a.split.x + place.channel;
  const float *from = a.split.join ? part : whole;
  float *to = a.split.join ? whole : part;
  const int64_t from_stride = a.split.join ? stride : a.tile.c, to_stride = a.split.join ? a.tile.c : stride;
  for (int64_t p = place.pixel; p < a.tile.pixels; p += CUDA_TILE_BATCH * place.step) {
    float value[CUDA_TILE_BATCH];
    PETRA_UNROLL for (int k = 0; k < CUDA_TILE_BATCH; k++) value[k] =
        p + k * place.step < a.tile.pixels ? from[(p + k * place.step) * from_stride] : 0;
    PETRA_UNROLL for (int k = 0; k < CUDA_TILE_BATCH; k++) if (p + k * place.step < a.tile.pixels)
        to[(p + k * place.step) * to_stride] = value[k];
  }
}

CUDA_TILE_LAUNCH(split, cuda_split_kernel_args, cuda_split_args, a->pixels, a->c1 + a->c2)

/* --- space to depth --- */

typedef struct cuda_depth_args {
  cuda_tile tile; /* over y */
  cuda_space_to_depth_args depth;
} cuda_depth_args;

PETRA_KERNEL(cuda_space_to_depth_kernel, const cuda_depth_args a) {
  const cuda_place place = cuda_tile_place(a.tile);
  if (!place.active)
    return;
  const int32_t c = place.channel / 4, i = place.channel % 4 / 2, j = place.channel % 2;
  const int64_t width = a.depth.w / 2; /* of y; rows of y, like rows of x, are numbered through all images */
  PETRA_UNROLL_SOME for (int64_t p = place.pixel; p < a.tile.pixels; p += place.step) {
    const int64_t row = p / width, column = p % width;
    float *wide = a.depth.x + ((2 * row + i) * a.depth.w + 2 * column + j) * a.depth.c + c;
    float *deep = a.depth.y + p * a.tile.c + place.channel;
    if (a.depth.inverse)
      *wide = *deep;
    else
      *deep = *wide;
  }
}

CUDA_TILE_LAUNCH(space_to_depth, cuda_depth_args, cuda_space_to_depth_args, (int64_t)a->n *(a->h / 2) * (a->w / 2),
                 4 * a->c)

/* Images as sequences of patches. */

PETRA_KERNEL(cuda_patches_kernel, const cuda_patches_args a) {
  const int64_t count = (int64_t)a.n * a.h * a.w * 3, square = (int64_t)a.size * a.size;
  for (int64_t i = cuda_grid_first(); i < count; i += cuda_grid_step()) {
    const int64_t feature = i % (3 * square), patch = i / (3 * square);                             /* of all images */
    const int64_t across = a.w / a.size, row = patch / across * a.size + feature % square / a.size; /* of all images */
    const int64_t column = patch % across * a.size + feature % a.size;
    a.y[i] = a.x[(row * a.w + column) * 3 + feature / square];
  }
}

CUDA_GRID_LAUNCH(patches, (int64_t)a->n * a->h * a->w * 3)
