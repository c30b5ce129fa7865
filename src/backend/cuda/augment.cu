/* SPDX-License-Identifier: Apache-2.0 */
/* Images as bytes to normalised, augmented activations: numbers bit-identical to those of data/augment.c. */
#include "backend/cuda/grid.h"
#include "backend/cuda/narrow.h"

/* v[c]; with a number that is not known to the compiler the device would copy the vector to its slow memory first. */
PETRA_DEVICE double cuda_component(double v0, double v1, double v2, int c) {
  return c == 0 ? v0 : c == 1 ? v1 : v2;
}

PETRA_KERNEL(cuda_augment_kernel, const cuda_augment_args a) {
  const int64_t count = (int64_t)a.n * a.h * a.w * 3;
  for (int64_t i = cuda_grid_first(); i < count; i += cuda_grid_step()) {
    const int c = (int)(i % 3);
    const int32_t x = (int32_t)(i / 3 % a.w), y = (int32_t)(i / 3 / a.w % a.h);
    const int64_t n = i / 3 / a.w / a.h;
    const petra_augment_choice choice = a.choices[n];
    const int32_t row = y + choice.shift_y, column = (choice.flip ? a.w - 1 - x : x) + choice.shift_x;
    const bool inside = row >= 0 && row < a.h && column >= 0 && column < a.w;
    const int value = inside ? a.pixels[((n * 3 + c) * a.h + row) * a.w + column] : 0;
    const double mean = cuda_component(a.mean[0], a.mean[1], a.mean[2], c);
    const double deviation = cuda_component(a.deviation[0], a.deviation[1], a.deviation[2], c);
    a.y[i] = (float)((value / 255.0 - mean) / deviation);
    if (a.rounded)
      a.rounded[i] = cuda_bf16_of(a.y[i]);
  }
}

petra_status cuda_augment_launch(const cuda_lane *lane, const void *arguments) {
  const cuda_augment_args *a = (const cuda_augment_args *)arguments;
  const int64_t count = (int64_t)a->n * a->h * a->w * 3;
  PETRA_LAUNCH_FLAT(lane, cuda_augment_kernel, cuda_grid_blocks(count), CUDA_GRID_THREADS, *a);
  return cuda_launched("augment");
}
