/* SPDX-License-Identifier: Apache-2.0 */
/* Images as sequences of patches. */
#include "backend/cuda/grid.h"

PETRA_KERNEL(cuda_patches_kernel, const cuda_patches_args a) {
  const int64_t count = (int64_t)a.n * a.h * a.w * 3, square = (int64_t)a.size * a.size;
  for (int64_t i = cuda_grid_first(); i < count; i += cuda_grid_step()) {
    const int64_t feature = i % (3 * square), patch = i / (3 * square);                             /* of all images */
    const int64_t across = a.w / a.size, row = patch / across * a.size + feature % square / a.size; /* of all images */
    const int64_t column = patch % across * a.size + feature % a.size;
    a.y[i] = a.x[(row * a.w + column) * 3 + feature / square];
  }
}

petra_status cuda_patches_launch(const cuda_lane *lane, const void *arguments) {
  const cuda_patches_args *a = (const cuda_patches_args *)arguments;
  PETRA_LAUNCH_FLAT(lane, cuda_patches_kernel, cuda_grid_blocks((int64_t)a->n * a->h * a->w * 3), CUDA_GRID_THREADS,
                    *a);
  return cuda_launched("patches");
}
