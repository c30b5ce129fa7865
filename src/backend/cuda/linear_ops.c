/* SPDX-License-Identifier: Apache-2.0 */
/* The linear layer, for the rows of a matrix or of a sequence. */
#include "backend/cuda/segment.h"

#include <string.h>

/* y = addend and bias; nothing to do where y is the addend and there is no bias. */
static petra_status start(cuda_backend *cuda, const petra_linear_forward *linear) {
  const bool joined = linear->join != PETRA_JOIN_NONE;
  if (!linear->b && (!joined || linear->addend == linear->y))
    return PETRA_OK;
  CUDA_ARGUMENTS(cuda_bias_args, a);
  a.b = linear->b ? cuda_read(cuda, linear->b) : NULL;
  a.addend = joined ? cuda_read(cuda, linear->addend) : NULL;
  a.y = cuda_write(cuda, linear->y);
  a.n = petra_tensor_rows(linear->y);
  a.o = petra_tensor_columns(linear->y);
  a.subtract = linear->join == PETRA_JOIN_SUBTRACT;
  return cuda_add_command(cuda, cuda_bias_launch, &a, sizeof a);
}

petra_status cuda_linear_forward(petra_backend *backend, const petra_linear_forward *linear) {
  cuda_backend *cuda = cuda_of(backend);
  const bool started = linear->b || linear->join != PETRA_JOIN_NONE;
  PETRA_TRY(start(cuda, linear));
  return cuda_multiply(cuda, linear->join == PETRA_JOIN_SUBTRACT ? -1 : 1, linear->x, false, linear->w, true,
                       started ? 1 : 0, linear->y);
}

petra_status cuda_linear_backward_data(petra_backend *backend, const petra_tensor *dy, const petra_tensor *w,
                                       petra_tensor *dx) {
  return cuda_multiply(cuda_of(backend), 1, dy, false, w, false, 0, dx);
}

petra_status cuda_linear_backward_weights(petra_backend *backend, const petra_tensor *x, const petra_tensor *dy,
                                          petra_tensor *dw, petra_tensor *db) {
  cuda_backend *cuda = cuda_of(backend);
  PETRA_TRY(cuda_multiply(cuda, 1, dy, true, x, false, 0, dw));
  if (!db)
    return PETRA_OK;
  CUDA_ARGUMENTS(cuda_bias_backward_args, a);
  a.dy = cuda_read(cuda, dy);
  a.db = cuda_write(cuda, db);
  a.n = petra_tensor_rows(dy);
  a.o = petra_tensor_columns(dy);
  a.levels = petra_kind_is_sequence(dy->kind);
  PETRA_TRY(cuda_reserve(cuda, cuda_bias_scratch(a.n, a.o)));
  return cuda_add_command(cuda, cuda_bias_backward_launch, &a, sizeof a);
}

/* --- products of tensors as commands of a segment --- */

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
