/* SPDX-License-Identifier: Apache-2.0 */
/* petra_op_orthogonalize: products by CBLAS over dense matrices, into which filters are taken from their blocked layout. */
#include "backend/cpu/cpu.h"
#include "backend/element.h"

#include <cblas.h>

/* Row-major. */
typedef struct matrix {
  float *at;
  int rows, columns;
} matrix;

/* c = a b; `turn_a`: a transposed, `turn_b`: b. The rows of c are shared out among the threads. */
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

/* gram[1] = the polynomial of G = x x^T (x^T x where x has more rows than columns). */
static void make_polynomial(petra_backend *backend, const matrix *x, const matrix gram[2]) {
  const bool wide = x->rows <= x->columns;
  const int64_t n = gram->rows;
  product(backend, x, !wide, x, wide, &gram[0]);
  product(backend, &gram[0], false, &gram[0], false, &gram[1]);
#pragma omp parallel for schedule(static) num_threads(cpu_threads(backend, n *n))
  for (int64_t i = 0; i < n * n; i++)
    gram[1].at[i] = (float)petra_element_newton_schulz(i / n == i % n, (double)gram[0].at[i], (double)gram[1].at[i]);
}

/* Between a tensor and its rows one after the other, times `factor`. */
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
