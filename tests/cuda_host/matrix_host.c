/* SPDX-License-Identifier: Apache-2.0 */
/* Matrix products on the host: sums in double, rounded once. */
#include "backend/cuda/cuda_libraries.h"

#include "base/log.h"
#include "base/mem.h"
#include "cuda_host/arithmetic.h"
#include "cuda_host/control.h"

#include <stdio.h>
#include <stdlib.h>

struct cuda_blas {
  petra_precision precision;
};

typedef struct host_product {
  cuda_product product;
  petra_precision precision;
  void *scratch;
  size_t scratch_bytes;
} host_product;

petra_status cuda_blas_create(petra_precision precision, cuda_blas **out) {
  int device;
  if (cudaGetDevice(&device) != cudaSuccess)
    return petra_fail(PETRA_BACKEND, "matrix products: there is no device");
  if (precision == PETRA_PRECISION_FP64)
    return petra_fail(PETRA_UNSUPPORTED, "matrix products: no fp64");
  PETRA_TRY(petra_allocate(out, 1, sizeof **out));
  (*out)->precision = precision;
  return PETRA_OK;
}

void cuda_blas_destroy(cuda_blas *blas) {
  petra_free(blas);
}

static float input(const host_product *h, float x) {
  if ((int)h->precision == HOST_TF32)
    return host_round_to(x, 10);
  return (int)h->precision == HOST_BF16 ? host_round_to(x, 7) : x;
}

static void run(void *arguments) {
  const host_product *h = arguments;
  const cuda_product *p = &h->product;
  double *row = malloc(sizeof *row * (size_t)p->n);
  if (!row)
    abort();
  host_scribble(h->scratch, h->scratch_bytes);
  for (int64_t i = 0; i < p->m; i++) {
    for (int64_t j = 0; j < p->n; j++)
      row[j] = p->beta == 0 ? 0 : (double)p->beta * p->c[i * p->n + j];
    for (int64_t l = 0; l < p->k; l++) {
      double a = p->alpha * (double)input(h, p->transpose_a ? p->a[l * p->m + i] : p->a[i * p->k + l]);
      for (int64_t j = 0; j < p->n; j++)
        row[j] += a * input(h, p->transpose_b ? p->b[j * p->k + l] : p->b[l * p->n + j]);
    }
    for (int64_t j = 0; j < p->n; j++)
      p->c[i * p->n + j] = (float)row[j];
  }
  free(row);
}

petra_status cuda_blas_product(cuda_blas *blas, const cuda_lane *lane, const cuda_product *product) {
  if (lane->scratch_bytes < CUDA_BLAS_SCRATCH)
    return petra_fail(PETRA_INTERNAL, "matrix products: the lane has %zu bytes of scratch, not %d", lane->scratch_bytes,
                      (int)CUDA_BLAS_SCRATCH);
  const double m = product->m, n = product->n, k = product->k;
  const petra_cuda_host_told reported = {.name = "product",
                                         .flops = 2 * m * n * k,
                                         .read_bytes = 4 * (m * k + k * n + (product->beta == 0 ? 0 : m * n)),
                                         .written_bytes = 4 * m * n};
  if (petra_cuda_host_is_told(&reported))
    return PETRA_OK;
  host_product h = {*product, blas->precision, lane->scratch, lane->scratch_bytes};
  cudaError_t error = petra_cuda_host_call(lane->stream, run, &h, sizeof h);
  if (error != cudaSuccess)
    return petra_fail(PETRA_BACKEND, "matrix product: %s", cudaGetErrorString(error));
  return PETRA_OK;
}

void cuda_blas_describe(char *text, size_t size) {
  snprintf(text, size, "host products");
}
