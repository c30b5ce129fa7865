/* SPDX-License-Identifier: Apache-2.0 */
#include "backend/cuda/product.h"

#include <string.h>

typedef struct product_args {
  cuda_blas *blas;
  cuda_product product;
} product_args;

static petra_status product_launch(const cuda_lane *lane, const void *arguments) {
  const product_args *a = arguments;
  return cuda_blas_product(a->blas, lane, &a->product);
}

petra_status cuda_multiply(cuda_backend *cuda, float alpha, const petra_tensor *a, bool transpose_a,
                           const petra_tensor *b, bool transpose_b, float beta, const petra_tensor *c) {
  CUDA_ARGUMENTS(product_args, p);
  p.blas = cuda->blas;
  p.product.a = cuda_read(cuda, a);
  p.product.b = cuda_read(cuda, b);
  p.product.c = c->data;
  p.product.m = (int32_t)petra_tensor_rows(c);
  p.product.n = petra_tensor_columns(c);
  p.product.k = transpose_a ? (int32_t)petra_tensor_rows(a) : petra_tensor_columns(a);
  p.product.transpose_a = transpose_a;
  p.product.transpose_b = transpose_b;
  p.product.alpha = alpha;
  p.product.beta = beta;
  PETRA_TRY(cuda_reserve(cuda, CUDA_BLAS_SCRATCH));
  (beta != 0 ? cuda_updates : cuda_writes)(cuda, c);
  return cuda_add_command(cuda, product_launch, &p, sizeof p);
}
