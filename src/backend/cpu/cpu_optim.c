/* SPDX-License-Identifier: Apache-2.0 */
/* The steps of the optimisers. */
#include "backend/cpu/cpu.h"
#include "backend/cpu/cpu_kernels.h"
#include "backend/element.h"

#include <cblas.h>
#include <math.h>

/* Updates elements [first, first + count) of tensor `t` of an optimiser's step. */
typedef void update_chunk(const void *step, int t, int64_t first, int64_t count);

/* Updates all elements of the parameters and of the optimiser's states; the threads share the chunks. */
static void update(const petra_backend *backend, petra_tensor *const *parameters, int count, update_chunk *chunk,
                   const void *step) {
  int64_t total = 0;
  for (int t = 0; t < count; t++)
    total += parameters[t]->elements;
#pragma omp parallel num_threads(cpu_threads(backend, total))
  for (int t = 0; t < count; t++) {
    const int64_t elements = cpu_layout_of(parameters[t])->count;
#pragma omp for schedule(static) nowait
    for (int64_t first = 0; first < elements; first += CPU_CHUNK)
      chunk(step, t, first, cpu_minimum(CPU_CHUNK, elements - first));
  }
}

static void update_sgd(const void *step, int t, int64_t first, int64_t count) {
  const petra_sgd_step *a = step;
  const cpu_sgd_rates rates = {(float)a->lr, (float)a->momentum, (float)a->weight_decay[t], a->nesterov, a->first};
  cpu_kernel_sgd(&rates, cpu_read(a->gradients[t]) + first, cpu_data(a->velocities[t]) + first,
                 cpu_data(a->parameters[t]) + first, count);
}

petra_status cpu_sgd_step(petra_backend *backend, const petra_sgd_step *a) {
  update(backend, a->parameters, a->count, update_sgd, a);
  for (int t = 0; t < a->count; t++)
    if (!isfinite((float)a->lr) || !isfinite((float)a->momentum) || !isfinite((float)a->weight_decay[t])) {
      cpu_clear_padding(a->parameters[t]);
      cpu_clear_padding(a->velocities[t]);
    }
  return PETRA_OK;
}

static void update_adam(const void *step, int t, int64_t first, int64_t count) {
  const petra_adam_step *a = step;
  const float *g = cpu_read(a->gradients[t]) + first;
  float *p = cpu_data(a->parameters[t]) + first, *m = cpu_data(a->means[t]) + first;
  const float keep = (float)(1 - a->lr * a->weight_decay[t]);
  if (!a->squares) {
    const cpu_lion_rates lion = {
        keep, (float)a->lr, (float)a->beta1, (float)(1 - a->beta1), (float)a->beta2, (float)(1 - a->beta2)};
    cpu_kernel_lion(&lion, g, m, p, count);
    return;
  }
  const cpu_adam_rates adam = {.keep = keep,
                               .new_mean = (float)(1 - a->beta1),
                               .beta2 = (float)a->beta2,
                               .new_square = (float)(1 - a->beta2),
                               .to_root = (float)(1 / sqrt(a->square_correction)),
                               .epsilon = (float)a->epsilon,
                               .gradient_rate = (float)a->gradient_rate,
                               .mean_rate = (float)a->mean_rate};
  cpu_kernel_adam(&adam, g, m, cpu_data(a->squares[t]) + first, p, count);
}

petra_status cpu_adam_step(petra_backend *backend, const petra_adam_step *a) {
  update(backend, a->parameters, a->count, update_adam, a);
  for (int t = 0; t < a->count; t++) { /* padding would become NaN: 0 over 0, or 0 times an infinite rate */
    cpu_clear_padding(a->parameters[t]);
    cpu_clear_padding(a->means[t]);
    if (a->squares)
      cpu_clear_padding(a->squares[t]);
  }
  return PETRA_OK;
}

/* petra_op_orthogonalize: products by CBLAS over dense matrices, into which filters are copied from their blocked
 * layout. */

/* Row-major. */
typedef struct matrix {
  float *at;
  int rows, columns;
} matrix;

/* c = a b; `turn_a`: a transposed, `turn_b`: b transposed. The rows of c are divided among the threads. */
static void product(petra_backend *backend, const matrix *a, bool turn_a, const matrix *b, bool turn_b,
                    const matrix *c) {
  const int m = c->rows, n = c->columns, k = turn_a ? a->rows : a->columns;
  const int threads = cpu_threads(backend, (int64_t)m * k);
#pragma omp parallel for schedule(static) num_threads(threads)
  for (int t = 0; t < threads; t++) {
    const int first = (int)((int64_t)m * t / threads), end = (int)((int64_t)m * (t + 1) / threads);
    if (end > first)
      cblas_sgemm(CblasRowMajor, turn_a ? CblasTrans : CblasNoTrans, turn_b ? CblasTrans : CblasNoTrans, end - first, n,
                  k, 1, a->at + (turn_a ? first : (int64_t)first * a->columns), a->columns, b->at, b->columns, 0,
                  c->at + (int64_t)first * n, n);
  }
}

/* gram[1] = the polynomial of G = x x^T (x^T x if x has more rows than columns). */
static void make_polynomial(petra_backend *backend, const matrix *x, const matrix gram[2]) {
  const bool wide = x->rows <= x->columns;
  const int64_t n = gram->rows;
  product(backend, x, !wide, x, wide, &gram[0]);
  product(backend, &gram[0], false, &gram[0], false, &gram[1]);
#pragma omp parallel for schedule(static) num_threads(cpu_threads(backend, n *n))
  for (int64_t i = 0; i < n * n; i++)
    gram[1].at[i] = (float)petra_element_newton_schulz(i / n == i % n, (double)gram[0].at[i], (double)gram[1].at[i]);
}

/* Copies between a tensor and its consecutive rows, times `factor`. */
static void move_rows(const petra_tensor *tensor, const float *from, float *to, bool pack, double factor) {
  const int64_t columns = tensor->elements / tensor->shape[0], taps = (int64_t)tensor->shape[2] * tensor->shape[3];
  const cpu_layout *l = cpu_layout_of(tensor);
  for (int64_t o = 0; o < tensor->shape[0]; o++)
    for (int64_t j = 0; j < columns; j++) {
      const int64_t dense = o * columns + j;
      const int64_t laid = tensor->kind == PETRA_TENSOR_FILTER ? cpu_filter_offset(l, o, j / taps, j % taps) : dense;
      to[pack ? dense : laid] = (float)(factor * (double)from[pack ? laid : dense]);
    }
}

petra_status cpu_orthogonalize(petra_backend *backend, const petra_orthogonalize *a) {
  const int rows = a->work[0]->shape[0], columns = a->work[0]->shape[1], n = a->gram[0]->shape[0];
  const matrix x[2] = {{cpu_data(a->work[0]), rows, columns}, {cpu_data(a->work[1]), rows, columns}};
  const matrix gram[2] = {{cpu_data(a->gram[0]), n, n}, {cpu_data(a->gram[1]), n, n}};
  double squares;
  PETRA_TRY(cpu_dot(backend, a->x, a->x, &squares));
  move_rows(a->x, cpu_read(a->x), x[0].at, true, petra_element_to_norm_1(squares));
  for (int k = 0; k < PETRA_ORTHOGONALIZE_STEPS; k++) {
    const matrix *from = &x[k % 2], *to = &x[(k + 1) % 2];
    make_polynomial(backend, from, gram);
    if (rows <= columns)
      product(backend, &gram[1], false, from, false, to);
    else
      product(backend, from, false, &gram[1], false, to);
  }
  cpu_clear_padding(a->y);
  move_rows(a->y, x[PETRA_ORTHOGONALIZE_STEPS % 2].at, cpu_data(a->y), false, 1);
  return PETRA_OK;
}
