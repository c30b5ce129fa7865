/* SPDX-License-Identifier: Apache-2.0 */
/* Operations that go element by element, and the dot product. */
#include "backend/cuda/cuda_device.h"

#include "backend/element.h"

#include <string.h>

PETRA_KERNEL(cuda_fill_kernel, const cuda_fill_args a) {
  for (int64_t i = cuda_grid_first(); i < a.count; i += cuda_grid_step())
    cuda_store(a.y, a.narrow, i, 1, &a.value);
}

CUDA_GRID_LAUNCH(fill, a->count)

/* Defines the kernel `name` and its launch function: a thread loads CUDA_GRID_BATCH elements i of one array and another
 * (0: there is none), then stores as many: `to` at i becomes `result`, from `one` and `other`. Outputs may be inputs,
 * so that the compiler could not move a load over a store by itself. */
#define CUDA_BATCH_KERNEL(name, one_at_i, other_at_i, to, result)                                                      \
  PETRA_KERNEL(cuda_##name##_kernel, const cuda_##name##_args a) {                                                     \
    const int64_t step = cuda_grid_step();                                                                             \
    for (int64_t first = cuda_grid_first(); first < a.count; first += CUDA_GRID_BATCH * step) {                        \
      float ones[CUDA_GRID_BATCH], others[CUDA_GRID_BATCH];                                                            \
      PETRA_UNROLL for (int k = 0; k < CUDA_GRID_BATCH; k++) {                                                         \
        const int64_t i = first + k * step;                                                                            \
        ones[k] = i < a.count ? (one_at_i) : 0;                                                                        \
        others[k] = i < a.count ? (other_at_i) : 0;                                                                    \
      }                                                                                                                \
      PETRA_UNROLL for (int k = 0; k < CUDA_GRID_BATCH; k++) {                                                         \
        const int64_t i = first + k * step;                                                                            \
        const float one = ones[k], other = others[k];                                                                  \
        (void)other;                                                                                                   \
        if (i < a.count)                                                                                               \
          (to)[i] = (result);                                                                                          \
      }                                                                                                                \
    }                                                                                                                  \
  }                                                                                                                    \
  CUDA_GRID_LAUNCH(name, a->count)

CUDA_STEPS_ARGS(axpy, CUDA_AXPY_TENSORS)

PETRA_KERNEL(cuda_axpy_kernel, const cuda_axpy_kernel_args a) {
  const cuda_steps_place place = cuda_steps_place_of(a.first);
  const void *from = a.axpy.tensor[place.tensor].x;
  float *to = a.axpy.tensor[place.tensor].y;
  const int64_t count = a.axpy.tensor[place.tensor].count, step = place.step;
  const bool narrow = a.axpy.tensor[place.tensor].narrow;
  for (int64_t first = place.first; first < count; first += CUDA_GRID_BATCH * step) {
    float x[CUDA_GRID_BATCH], y[CUDA_GRID_BATCH];
    PETRA_UNROLL for (int k = 0; k < CUDA_GRID_BATCH; k++) {
      int64_t i = first + k * step;
      x[k] = i < count ? cuda_element(from, narrow, i) : 0;
      y[k] = i < count ? to[i] : 0;
    }
    PETRA_UNROLL for (int k = 0; k < CUDA_GRID_BATCH; k++) if (first + k * step < count) to[first + k * step] =
        (float)(y[k] + a.axpy.alpha * x[k]);
  }
}

CUDA_STEPS_LAUNCH(axpy, CUDA_AXPY_TENSORS)

PETRA_KERNEL(cuda_scale_kernel, const cuda_scale_args a) {
  const double alpha = *a.alpha;
  const int64_t step = cuda_grid_step();
  for (int64_t first = cuda_grid_first(); first < a.count; first += CUDA_GRID_BATCH * step) {
    float y[CUDA_GRID_BATCH];
    PETRA_UNROLL for (int k = 0; k < CUDA_GRID_BATCH; k++) y[k] =
        first + k * step < a.count ? a.y[first + k * step] : 0;
    PETRA_UNROLL for (int k = 0; k < CUDA_GRID_BATCH; k++) if (first + k * step < a.count) a.y[first + k * step] =
        (float)(alpha * y[k]);
  }
}

CUDA_GRID_LAUNCH(scale, a->count)

CUDA_BATCH_KERNEL(add, cuda_element(a.a, a.narrow_a, i), cuda_element(a.b, a.narrow_b, i), a.y, one + other)
CUDA_BATCH_KERNEL(relu_backward, a.y[i], a.dy[i], a.dx, (float)petra_element_relu_backward(one, other))
CUDA_BATCH_KERNEL(to_bf16, a.x[i], 0, a.y, cuda_bf16_of(one))
CUDA_BATCH_KERNEL(from_bf16, cuda_float_of(a.x[i]), 0, a.y, one)
CUDA_BATCH_KERNEL(gelu, a.x[i], a.dy ? a.dy[i] : 0, a.out,
                  (float)(a.dy ? petra_element_gelu_derivative((petra_gelu)a.form, one) * other
                               : petra_element_gelu((petra_gelu)a.form, one)))

/* --- dot --- */

enum { CUDA_DOT_BLOCKS = 1024 };

typedef struct cuda_dot_kernel_args {
  const void *a, *b;
  double *partial, *out;
  int64_t count, partials;
  bool narrow;
} cuda_dot_kernel_args;

static int64_t cuda_dot_partials(int64_t count) {
  int64_t blocks = cuda_grid_blocks(count);
  return blocks < CUDA_DOT_BLOCKS ? blocks : (int64_t)CUDA_DOT_BLOCKS;
}

size_t cuda_dot_scratch(int64_t count) {
  return (size_t)cuda_dot_partials(count) * sizeof(double);
}

PETRA_KERNEL(cuda_dot_kernel, const cuda_dot_kernel_args a) {
  PETRA_SHARED double shared[CUDA_GRID_THREADS];
  double sum = 0;
  PETRA_UNROLL_SOME for (int64_t i = cuda_grid_first(); i < a.count; i += cuda_grid_step()) {
    sum += (double)cuda_element(a.a, a.narrow, i) * cuda_element(a.b, a.narrow, i);
  }
  sum = cuda_block_sum(shared, sum);
  if (PETRA_THREAD == 0)
    a.partial[PETRA_BLOCK] = sum;
}

PETRA_KERNEL(cuda_dot_finish_kernel, const cuda_dot_kernel_args a) {
  PETRA_SHARED double shared[CUDA_GRID_THREADS];
  double sum = 0;
  PETRA_UNROLL_SOME for (int64_t i = PETRA_THREAD; i < a.partials; i += PETRA_THREADS) sum += a.partial[i];
  sum = cuda_block_sum(shared, sum);
  if (PETRA_THREAD == 0)
    *a.out = sum;
}

petra_status cuda_dot_launch(const cuda_lane *lane, const void *arguments) {
  const cuda_dot_args *a = (const cuda_dot_args *)arguments;
  const int64_t partials = cuda_dot_partials(a->count);
  const cuda_dot_kernel_args kernel = {a->a, a->b, (double *)lane->scratch, a->out, a->count, partials, a->narrow};
  PETRA_LAUNCH_BLOCK(lane, cuda_dot_kernel, partials, CUDA_GRID_THREADS, kernel);
  PETRA_LAUNCH_BLOCK(lane, cuda_dot_finish_kernel, 1, CUDA_GRID_THREADS, kernel);
  return cuda_launched("dot");
}

/* SwiGLU and its backward. A thread stays with one feature and goes through rows (tile.h). */

typedef struct cuda_swiglu_work {
  cuda_tile tile;
  cuda_swiglu_args a;
} cuda_swiglu_work;

PETRA_DEVICE void cuda_swiglu(const cuda_swiglu_work a, bool backward) {
  const cuda_place place = cuda_tile_place(a.tile);
  const int64_t features = a.a.features, rows = place.active ? a.a.rows : 0;
  const float *x = a.a.x + place.channel;
  float *out = a.a.out + place.channel;
  for (int64_t first = place.pixel; first < rows; first += CUDA_TILE_BATCH * place.step) {
    float gate[CUDA_TILE_BATCH], up[CUDA_TILE_BATCH], dy[CUDA_TILE_BATCH];
    PETRA_UNROLL for (int k = 0; k < CUDA_TILE_BATCH; k++) {
      const int64_t row = first + k * place.step;
      gate[k] = row < rows ? x[2 * row * features] : 0;
      up[k] = row < rows ? x[(2 * row + 1) * features] : 0;
      dy[k] = backward && row < rows ? a.a.dy[row * features + place.channel] : 0;
    }
    PETRA_UNROLL for (int k = 0; k < CUDA_TILE_BATCH; k++) {
      const int64_t row = first + k * place.step;
      const double sigmoid = petra_element_sigmoid(gate[k]);
      if (row >= rows)
        continue;
      if (!backward) {
        out[row * features] = (float)(gate[k] * sigmoid * up[k]);
        continue;
      }
      out[2 * row * features] = (float)((double)dy[k] * up[k] * petra_element_silu_derivative(gate[k], sigmoid));
      out[(2 * row + 1) * features] = (float)((double)dy[k] * gate[k] * sigmoid);
    }
  }
}

PETRA_KERNEL(cuda_swiglu_kernel, const cuda_swiglu_work a) {
  cuda_swiglu(a, false);
}

PETRA_KERNEL(cuda_swiglu_backward_kernel, const cuda_swiglu_work a) {
  cuda_swiglu(a, true);
}

petra_status cuda_swiglu_launch(const cuda_lane *lane, const void *arguments) {
  const cuda_swiglu_args *a = (const cuda_swiglu_args *)arguments;
  const cuda_swiglu_work work = {cuda_tile_flat(a->rows, a->features, CUDA_TILE_BATCH), *a};
  const int64_t blocks = cuda_tile_blocks(&work.tile);
  if (a->dy)
    PETRA_LAUNCH_FLAT(lane, cuda_swiglu_backward_kernel, blocks, CUDA_TILE_THREADS, work);
  else
    PETRA_LAUNCH_FLAT(lane, cuda_swiglu_kernel, blocks, CUDA_TILE_THREADS, work);
  return cuda_launched("swiglu");
}

/* Rotary positions. A thread computes the angle of a pair of features of a row, and turns that pair of every head.
 * Neighbouring threads have neighbouring pairs. It copies its share of the other columns. */
PETRA_KERNEL(cuda_rotary_kernel, const cuda_rotary_args a) {
  const int32_t half = a.width / 2, turned = a.heads * a.width;
  for (int64_t k = cuda_grid_first(); k < a.rows * half; k += cuda_grid_step()) {
    const int32_t pair = (int32_t)(k % half);
    const float *x = a.x + k / half * a.columns;
    float *y = a.y + k / half * a.columns;
    const double angle = (double)(k / half % a.t) * petra_element_turn(pair, a.width, a.base);
    const double cosine = cos(angle), sine = a.back ? -sin(angle) : sin(angle);
    for (int32_t first = 0; first < a.heads; first += CUDA_GRID_BATCH) {
      float low[CUDA_GRID_BATCH], high[CUDA_GRID_BATCH];
      PETRA_UNROLL for (int b = 0; b < CUDA_GRID_BATCH; b++) {
        const int64_t at = (int64_t)(first + b) * a.width + pair;
        low[b] = first + b < a.heads ? x[at] : 0;
        high[b] = first + b < a.heads ? x[at + half] : 0;
      }
      PETRA_UNROLL for (int b = 0; b < CUDA_GRID_BATCH; b++) {
        const int64_t at = (int64_t)(first + b) * a.width + pair;
        if (first + b >= a.heads)
          continue;
        y[at] = (float)(low[b] * cosine - high[b] * sine);
        y[at + half] = (float)(high[b] * cosine + low[b] * sine);
      }
    }
    if (a.x != a.y)
      PETRA_UNROLL_SOME for (int64_t at = (int64_t)turned + pair; at < a.columns; at += half) y[at] = x[at];
  }
}

CUDA_GRID_LAUNCH(rotary, a->rows *(a->width / 2))

/* Converts images from bytes to normalised, augmented activations, bit-identical to the numbers of data/sampler.c. */

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

CUDA_GRID_LAUNCH(augment, (int64_t)a->n * a->h * a->w * 3)
