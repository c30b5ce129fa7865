/* SPDX-License-Identifier: Apache-2.0 */
/* Element-wise operations, dot, split, concat, space to depth. */
#include "backend/cpu/cpu.h"
#include "backend/cpu/cpu_kernels.h"

#include <math.h>
#include <string.h>

static int64_t chunks_of(int64_t count) {
  return (count + CPU_CHUNK - 1) / CPU_CHUNK;
}

static int64_t chunk_length(int64_t count, int64_t chunk) {
  return cpu_minimum(CPU_CHUNK, count - chunk * CPU_CHUNK);
}

static void copy_chunk(const petra_tensor *x, petra_tensor *y, int64_t first, int64_t count) {
  const bool from_narrow = cpu_layout_of(x)->narrow, to_narrow = cpu_layout_of(y)->narrow;
  const void *from = cpu_element(x, first);
  void *to = cpu_write(y, first);
  if (from_narrow == to_narrow)
    memcpy(to, from, (size_t)count * (to_narrow ? sizeof(uint16_t) : sizeof(float)));
  else if (to_narrow)
    cpu_kernel_to_bf16(from, to, count);
  else
    cpu_kernel_from_bf16(from, to, count);
}

/* Activations and inner tensors of one shape have the same layout. */
petra_status cpu_copy(petra_backend *backend, const petra_tensor *x, petra_tensor *y) {
  int64_t count = cpu_layout_of(x)->count;
#pragma omp parallel for schedule(static) num_threads(cpu_threads(backend, count))
  for (int64_t i = 0; i < chunks_of(count); i++)
    copy_chunk(x, y, i * CPU_CHUNK, chunk_length(count, i));
  return PETRA_OK;
}

petra_status cpu_fill(petra_backend *backend, petra_tensor *y, double value) {
  int64_t count = cpu_layout_of(y)->count;
  const float single = (float)value;
  const uint16_t half = cpu_to_bf16(single);
  const bool narrow = cpu_layout_of(y)->narrow;
  void *data = cpu_write(y, 0);
#pragma omp parallel for schedule(static) num_threads(cpu_threads(backend, count))
  for (int64_t i = 0; i < count; i++)
    if (narrow)
      ((uint16_t *)data)[i] = half;
    else
      ((float *)data)[i] = single;
  cpu_clear_padding(y);
  return PETRA_OK;
}

petra_status cpu_axpy(petra_backend *backend, double alpha, const petra_tensor *x, petra_tensor *y) {
  int64_t count = cpu_layout_of(x)->count;
#pragma omp parallel for schedule(static) num_threads(cpu_threads(backend, count))
  for (int64_t i = 0; i < chunks_of(count); i++)
    cpu_kernel_axpy((float)alpha, cpu_read(x) + i * CPU_CHUNK, cpu_data(y) + i * CPU_CHUNK, chunk_length(count, i));
  if (!isfinite((float)alpha))
    cpu_clear_padding(y);
  return PETRA_OK;
}

petra_status cpu_scale(petra_backend *backend, double alpha, petra_tensor *y) {
  const int64_t count = cpu_layout_of(y)->count;
  const float factor = (float)alpha;
  float *data = cpu_data(y);
#pragma omp parallel for simd schedule(static) num_threads(cpu_threads(backend, count))
  for (int64_t i = 0; i < count; i++)
    data[i] *= factor;
  if (!isfinite(factor))
    cpu_clear_padding(y);
  return PETRA_OK;
}

petra_status cpu_add(petra_backend *backend, const petra_tensor *a, const petra_tensor *b, petra_tensor *y) {
  int64_t count = cpu_layout_of(a)->count;
#pragma omp parallel for schedule(static) num_threads(cpu_threads(backend, count))
  for (int64_t i = 0; i < chunks_of(count); i++)
    cpu_kernel_add(cpu_read(a) + i * CPU_CHUNK, cpu_read(b) + i * CPU_CHUNK, cpu_data(y) + i * CPU_CHUNK,
                   chunk_length(count, i));
  return PETRA_OK;
}

static double dot_chunk(const petra_tensor *a, const petra_tensor *b, int64_t first, int64_t count) {
  float wide_a[CPU_CHUNK], wide_b[CPU_CHUNK];
  if (!cpu_layout_of(a)->narrow)
    return cpu_kernel_dot(cpu_element(a, first), cpu_element(b, first), count);
  cpu_kernel_from_bf16(cpu_element(a, first), wide_a, count);
  cpu_kernel_from_bf16(cpu_element(b, first), wide_b, count);
  return cpu_kernel_dot(wide_a, wide_b, count);
}

/* There is one partial sum per chunk, added in order, so that the result does not depend on the number of threads. */
petra_status cpu_dot(petra_backend *backend, const petra_tensor *a, const petra_tensor *b, double *out) {
  int64_t count = cpu_layout_of(a)->count, chunks = chunks_of(count);
  void *memory;
  PETRA_TRY(cpu_scratch(backend, (size_t)chunks * sizeof(double), &memory));
  double *partials = memory, sum = 0;
#pragma omp parallel for schedule(static) num_threads(cpu_threads(backend, count))
  for (int64_t i = 0; i < chunks; i++)
    partials[i] = dot_chunk(a, b, i * CPU_CHUNK, chunk_length(count, i));
  for (int64_t i = 0; i < chunks; i++)
    sum += partials[i];
  *out = sum;
  return PETRA_OK;
}

petra_status cpu_relu_backward(petra_backend *backend, const petra_tensor *y, const petra_tensor *dy,
                               petra_tensor *dx) {
  int64_t count = cpu_layout_of(y)->count;
#pragma omp parallel for schedule(static) num_threads(cpu_threads(backend, count))
  for (int64_t i = 0; i < chunks_of(count); i++)
    cpu_kernel_relu_backward(cpu_read(y) + i * CPU_CHUNK, cpu_read(dy) + i * CPU_CHUNK, cpu_data(dx) + i * CPU_CHUNK,
                             chunk_length(count, i));
  return PETRA_OK;
}

/* --- split and concat --- */

/* Copies between a part, which contains the channels from `first` on, and the whole. Whole blocks are copied if both
 * tensors are divided into blocks in the same way. */
static bool aligned(const petra_tensor *whole, const petra_tensor *part, int first) {
  int block = cpu_layout_of(whole)->block;
  return block == cpu_layout_of(part)->block && first % block == 0 &&
         (part->shape[1] % block == 0 || first + part->shape[1] == whole->shape[1]);
}

static void move(float *to, int64_t to_step, const float *from, int64_t from_step, int64_t count) {
  for (int64_t i = 0; i < count; i++)
    to[i * to_step] = from[i * from_step];
}

/* Copies `channels` of every pixel between tensors whose channels come last, without a call per whole block. */
static void move_pixels(float *to, int64_t to_step, const float *from, int64_t from_step, int64_t pixels,
                        int channels) {
  for (int64_t p = 0; p < pixels; p++) {
    int c = 0;
    for (; c + CPU_BLOCK_MAX <= channels; c += CPU_BLOCK_MAX)
      memcpy(to + p * to_step + c, from + p * from_step + c, CPU_BLOCK_MAX * sizeof(float));
    for (; c < channels; c++)
      to[p * to_step + c] = from[p * from_step + c];
  }
}

static void move_part(petra_backend *backend, float *whole_data, const petra_tensor *whole, float *part_data,
                      const petra_tensor *part, int first, bool out_of_whole) {
  const cpu_layout *w = cpu_layout_of(whole), *p = cpu_layout_of(part);
  const bool blocks = aligned(whole, part, first), pixels = cpu_of(backend)->channels_last;
  const int64_t channels = pixels ? 1 : blocks ? p->channel_blocks : part->shape[1];
  int stride = blocks ? w->block : 1;
#pragma omp parallel for collapse(2) schedule(static) num_threads(cpu_threads(backend, p->count))
  for (int64_t n = 0; n < part->shape[0]; n++)
    for (int64_t c = 0; c < channels; c++) {
      float *in_whole = whole_data + cpu_channel_offset(w, n, first + c * stride);
      float *in_part = part_data + cpu_channel_offset(p, n, c * stride);
      if (pixels && out_of_whole)
        move_pixels(in_part, p->block, in_whole, w->block, p->plane, part->shape[1]);
      else if (pixels)
        move_pixels(in_whole, w->block, in_part, p->block, p->plane, part->shape[1]);
      else if (blocks)
        memcpy(out_of_whole ? in_part : in_whole, out_of_whole ? in_whole : in_part,
               (size_t)(w->plane * w->block) * sizeof(float));
      else if (out_of_whole)
        move(in_part, p->block, in_whole, w->block, p->plane);
      else
        move(in_whole, w->block, in_part, p->block, p->plane);
    }
}

petra_status cpu_split(petra_backend *backend, const petra_tensor *x, petra_tensor *x1, petra_tensor *x2) {
  move_part(backend, x->data, x, cpu_data(x1), x1, 0, true);
  move_part(backend, x->data, x, cpu_data(x2), x2, x1->shape[1], true);
  return PETRA_OK;
}

petra_status cpu_concat(petra_backend *backend, const petra_tensor *x1, const petra_tensor *x2, petra_tensor *x) {
  move_part(backend, cpu_data(x), x, x1->data, x1, 0, false);
  move_part(backend, cpu_data(x), x, x2->data, x2, x1->shape[1], false);
  return PETRA_OK;
}

/* Space to depth and back, directly between the blocked layouts: two channels of a 2 x 2 square of the wide tensor are
 * eight lanes of one pixel of the deep one. */

enum { TAPS = 4, PAIR = 2, LANES = TAPS * PAIR };

/* A part of both tensors: the rows of one image, from the first channel of the pair (or the only channel) on. */
typedef struct stretch {
  float *wide, *deep;
  int64_t rows, columns;        /* of the deep tensor */
  int64_t wide_pixel, wide_row; /* distance in floats from a pixel, and from a row of the wide tensor, to the next */
  int64_t deep_pixel;
} stretch;

/* All reads come before the writes: interleaved reads and writes would wait for each other if the tensors lie a
 * multiple of 4 KiB apart. Padding lanes are 0 on both sides and are moved like the other lanes. */
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

/* One channel of the deep tensor, if one of the layouts is plain (3 channels). */
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

/* Only one of the two data pointers is written, depending on `to_deep`. */
static void shuffle(petra_backend *backend, float *wide_data, const petra_tensor *wide, float *deep_data,
                    const petra_tensor *deep, bool to_deep) {
  const cpu_layout *l = cpu_layout_of(wide), *d = cpu_layout_of(deep);
  bool pairs = l->block % LANES == 0 && d->block % LANES == 0;
  int64_t count = pairs ? (int64_t)d->channel_blocks * d->block / LANES : deep->shape[1];
#pragma omp parallel for collapse(2) schedule(static) num_threads(cpu_threads(backend, d->count))
  for (int64_t n = 0; n < deep->shape[0]; n++)
    for (int64_t i = 0; i < count; i++) {
      int64_t channel = pairs ? i * LANES : i; /* channel of the deep tensor */
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
