/* Space to depth and back, straight between the blocked layouts: the lanes of one block of the deep tensor come from (go
 * to) a fixed set of places around a 2 x 2 square of the wide one. */
#include "backend/cpu/cpu.h"

/* One block of channels of one image of the deep tensor: its lanes in use, and the place of each in the wide
 * tensor, counted from the first pixel of the wide image. */
typedef struct lanes {
  int count;
  int64_t place[CPU_BLOCK_MAX];
} lanes;

static void find_lanes(const petra_tensor *wide, const petra_tensor *deep, int64_t n, int first, lanes *out) {
  const cpu_layout *l = cpu_layout_of(wide);
  out->count = (int)cpu_minimum(cpu_layout_of(deep)->block, deep->shape[1] - first);
  for (int lane = 0; lane < out->count; lane++) {
    int channel = first + lane, i = channel % 4 / 2, j = channel % 2;
    out->place[lane] = cpu_channel_offset(l, n, channel / 4) + ((int64_t)i * wide->shape[3] + j) * l->block;
  }
}

/* One of the two data pointers is only read, as `to_deep` says. */
static void shuffle(petra_backend *backend, float *wide_data, const petra_tensor *wide, float *deep_data,
                    const petra_tensor *deep, bool to_deep) {
  const cpu_layout *l = cpu_layout_of(wide), *d = cpu_layout_of(deep);
  int64_t row_step = 2 * (int64_t)wide->shape[3] * l->block, step = 2 * (int64_t)l->block;
#pragma omp parallel for collapse(2) schedule(static) num_threads(cpu_threads(backend, d->count))
  for (int64_t n = 0; n < deep->shape[0]; n++)
    for (int b = 0; b < d->channel_blocks; b++) {
      lanes used;
      find_lanes(wide, deep, n, b * d->block, &used);
      float *pixel = deep_data + cpu_channel_offset(d, n, (int64_t)b * d->block);
      for (int64_t h = 0; h < deep->shape[2]; h++)
        for (int64_t w = 0; w < deep->shape[3]; w++, pixel += d->block) {
          float *square = wide_data + h * row_step + w * step;
          if (to_deep)
            for (int lane = 0; lane < used.count; lane++)
              pixel[lane] = square[used.place[lane]];
          else
            for (int lane = 0; lane < used.count; lane++)
              square[used.place[lane]] = pixel[lane];
        }
    }
}

petra_status cpu_space_to_depth(petra_backend *backend, const petra_tensor *x, petra_tensor *y) {
  shuffle(backend, x->data, x, cpu_data(y), y, true);
  return PETRA_OK;
}

petra_status cpu_depth_to_space(petra_backend *backend, const petra_tensor *y, petra_tensor *x) {
  shuffle(backend, cpu_data(x), x, y->data, y, false);
  return PETRA_OK;
}
