/* SPDX-License-Identifier: Apache-2.0 */
/* Matrix products by cuBLAS. matrix.c is the only file that includes its header; it opens the library at the first
 * use. */
#pragma once

#include "backend/cuda/lane.h"
#include "config/config.h"
#include "base/status.h"

#include <stdbool.h>
#include <stdint.h>

typedef struct cuda_blas cuda_blas;

/* Creates a handle that computes on the current device in the given precision: fp32, tf32 or bf16. Data are f32 in all
 * three; in bf16 the product rounds its inputs. `CUDA_BLAS_SCRATCH` bytes of the lane's scratch are used as
 * workspace. */
enum { CUDA_BLAS_SCRATCH = 32 << 20 };
petra_status cuda_blas_create(petra_precision precision, cuda_blas **out);
void cuda_blas_destroy(cuda_blas *blas);

/* Row-major: c (m, n) = alpha op(a) op(b) + beta c, where op(a) is (m, k) and op(b) is (k, n). If transposed, a is
 * stored as (k, m), b as (n, k). */
typedef struct cuda_product {
  const float *a, *b;
  float *c;
  int32_t m, n, k;
  bool transpose_a, transpose_b;
  float alpha, beta;
} cuda_product;
petra_status cuda_blas_product(cuda_blas *blas, const cuda_lane *lane, const cuda_product *product);

/* "cuBLAS 13.0.2", or that it was not found. */
void cuda_blas_describe(char *text, size_t size);
