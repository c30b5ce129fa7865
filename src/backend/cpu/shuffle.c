/* SPDX-License-Identifier: Apache-2.0 */
/* Space to depth and back, straight between the blocked layouts: two channels of a 2 x 2 square of the wide
 * tensor are eight lanes of one pixel of the deep one. */
#include "backend/cpu/cpu.h"

#include <string.h>

enum { TAPS = 4, PAIR = 2, LANES = TAPS * PAIR };

/* A stretch of both tensors: the rows of one image, from the first channel of the pair (or the only channel) on. */
typedef struct stretch {
  float *wide, *deep;
  int64_t rows, columns;        /* of the deep tensor */
  int64_t wide_pixel, wide_row; /* floats from a pixel, a row of the wide tensor to the next */
  int64_t deep_pixel;
} stretch;

/* All reads come before the writes: in turns they wait for each other where the tensors lie a multiple of 4
 * KiB apart. Lanes that are padding are 0 on both sides and move with the others. */
static void pair_to_deep(const stretch *s) {
  for (int64_t h = 0; h < s->rows; h++)
    for (int64_t w = 0; w < s->columns; w++) {
      const float *square = s->wide + 2 * (h * s->wide_row + w * s->wide_pixel);
      float in[LANES];
      memcpy(in, square, PAIR * sizeof(float));
      memcpy(in + PAIR, square + s->wide_pixel, PAIR * sizeof(float));
      memcpy(in + 2 * PAIR, square + s->wide_row, PAIR * sizeof(float));
      memcpy(in + 3 * PAIR, square + s->wide_row + s->wide_pixel, PAIR * sizeof(float));
      const float out[LANES] = {in[0], in[2], in[4], in[6], in[1], in[3], in[5], in[7]};
      memcpy(s->deep + (h * s->columns + w) * s->deep_pixel, out, sizeof out);
    }
}

static void pair_to_wide(const stretch *s) {
  for (int64_t h = 0; h < s->rows; h++)
    for (int64_t w = 0; w < s->columns; w++) {
      float *square = s->wide + 2 * (h * s->wide_row + w * s->wide_pixel);
      float in[LANES];
      memcpy(in, s->deep + (h * s->columns + w) * s->deep_pixel, sizeof in);
      const float out[LANES] = {in[0], in[4], in[1], in[5], in[2], in[6], in[3], in[7]};
      memcpy(square, out, PAIR * sizeof(float));
      memcpy(square + s->wide_pixel, out + PAIR, PAIR * sizeof(float));
      memcpy(square + s->wide_row, out + 2 * PAIR, PAIR * sizeof(float));
      memcpy(square + s->wide_row + s->wide_pixel, out + 3 * PAIR, PAIR * sizeof(float));
    }
}

/* One channel of the deep tensor: where one of the layouts is plain (3 channels). */
static void single(const stretch *s, int tap, bool to_deep) {
  float *corner = s->wide + tap / 2 * s->wide_row + tap % 2 * s->wide_pixel;
  for (int64_t h = 0; h < s->rows; h++)
    for (int64_t w = 0; w < s->columns; w++) {
      float *wide = corner + 2 * (h * s->wide_row + w * s->wide_pixel);
      float *deep = s->deep + (h * s->columns + w) * s->deep_pixel;
      if (to_deep)
        *deep = *wide;
      else
        *wide = *deep;
    }
}

/* One of the two data pointers is only read, as `to_deep` says. */
static void shuffle(petra_backend *backend, float *wide_data, const petra_tensor *wide, float *deep_data,
                    const petra_tensor *deep, bool to_deep) {
  const cpu_layout *l = cpu_layout_of(wide), *d = cpu_layout_of(deep);
  bool pairs = l->block % LANES == 0 && d->block % LANES == 0;
  int64_t count = pairs ? (int64_t)d->channel_blocks * d->block / LANES : deep->shape[1];
#pragma omp parallel for collapse(2) schedule(static) num_threads(cpu_threads(backend, d->count))
  for (int64_t n = 0; n < deep->shape[0]; n++)
    for (int64_t i = 0; i < count; i++) {
      int64_t channel = pairs ? i * LANES : i; /* of the deep tensor */
      const stretch s = {.wide = wide_data + cpu_channel_offset(l, n, channel / TAPS),
                         .deep = deep_data + cpu_channel_offset(d, n, channel),
                         .rows = deep->shape[2],
                         .columns = deep->shape[3],
                         .wide_pixel = l->block,
                         .wide_row = (int64_t)wide->shape[3] * l->block,
                         .deep_pixel = d->block};
      if (!pairs)
        single(&s, (int)(channel % TAPS), to_deep);
      else if (to_deep)
        pair_to_deep(&s);
      else
        pair_to_wide(&s);
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
