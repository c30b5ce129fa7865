/* SPDX-License-Identifier: Apache-2.0 */
/* Products of row-major matrices of floats. */
#ifndef PETRA_BACKEND_CPU_PRODUCT_H
#define PETRA_BACKEND_CPU_PRODUCT_H

#include "base/status.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* c (m, n) = alpha a' b' + beta c, a' (m, k) and b' (k, n) being a and b or, where it is said, what is stored transposed;
 * `step` elements lie from the beginning of a stored row to the next. beta = 0: c is not read. c overlaps neither a nor b. */
typedef struct cpu_product {
  bool transpose_a, transpose_b;
  int64_t m, n, k;
  float alpha, beta;
  const float *a, *b;
  float *c;
  int64_t step_a, step_b, step_c;
} cpu_product;

/* By oneDNN, with the number of threads of the caller; inside a parallel region by the calling thread alone. PETRA_BACKEND,
 * PETRA_NO_MEMORY, logged. */
petra_status cpu_onednn_product(const cpu_product *product);

/* By CBLAS, in one thread; extents below 2^31. */
void cpu_blas_product(const cpu_product *product);

/* Keeps the BLAS library to one thread: its matrices are those of the head, and its sums then keep their order. PETRA_NO_MEMORY, logged, unless
 * there is what it takes for itself in so many threads that call it. */
petra_status cpu_blas_init(int threads);
void cpu_blas_describe(char *text, size_t size);

#endif
