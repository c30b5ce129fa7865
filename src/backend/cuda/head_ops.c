/* SPDX-License-Identifier: Apache-2.0 */
/* The head: linear layer and loss. */
#include "backend/cuda/segment.h"
#include "backend/cuda/transfer.h"

#include <string.h>

typedef struct product_args {
  cuda_blas *blas;
  cuda_product product;
} product_args;

static petra_status product_launch(const cuda_lane *lane, const void *arguments) {
  const product_args *a = arguments;
  return cuda_blas_product(a->blas, lane, &a->product);
}

static petra_status multiply(cuda_backend *cuda, const petra_tensor *a, bool transpose_a, const petra_tensor *b,
                             bool transpose_b, float beta, const petra_tensor *c) {
  CUDA_ARGUMENTS(product_args, p);
  p.blas = cuda->blas;
  p.product.a = cuda_read(cuda, a);
  p.product.b = cuda_read(cuda, b);
  p.product.c = c->data;
  p.product.m = c->shape[0];
  p.product.n = c->shape[1];
  p.product.k = transpose_a ? a->shape[0] : a->shape[1];
  p.product.transpose_a = transpose_a;
  p.product.transpose_b = transpose_b;
  p.product.beta = beta;
  PETRA_TRY(cuda_reserve(cuda, CUDA_BLAS_SCRATCH));
  cuda_writes(cuda, c);
  return cuda_add_command(cuda, product_launch, &p, sizeof p);
}

petra_status cuda_linear_forward(petra_backend *backend, const petra_tensor *x, const petra_tensor *w,
                                 const petra_tensor *b, petra_tensor *y) {
  cuda_backend *cuda = cuda_of(backend);
  CUDA_ARGUMENTS(cuda_bias_args, a);
  a.b = cuda_read(cuda, b);
  a.y = cuda_write(cuda, y);
  a.n = y->shape[0];
  a.o = y->shape[1];
  PETRA_TRY(cuda_add_command(cuda, cuda_bias_launch, &a, sizeof a));
  return multiply(cuda, x, false, w, true, 1, y);
}

petra_status cuda_linear_backward(petra_backend *backend, const petra_tensor *x, const petra_tensor *w,
                                  const petra_tensor *dy, petra_tensor *dx, petra_tensor *dw, petra_tensor *db) {
  cuda_backend *cuda = cuda_of(backend);
  PETRA_TRY(multiply(cuda, dy, false, w, false, 0, dx));
  PETRA_TRY(multiply(cuda, dy, true, x, false, 0, dw));
  CUDA_ARGUMENTS(cuda_bias_backward_args, a);
  a.dy = cuda_read(cuda, dy);
  a.db = cuda_write(cuda, db);
  a.n = dy->shape[0];
  a.o = dy->shape[1];
  return cuda_add_command(cuda, cuda_bias_backward_launch, &a, sizeof a);
}

static void set_results(const void *host, petra_cross_entropy *loss) {
  cuda_loss_result found;
  memcpy(&found, host, sizeof found);
  loss->loss = found.loss;
  loss->top1 = found.top1;
  loss->top5 = found.top5;
}

petra_status cuda_cross_entropy(petra_backend *backend, petra_cross_entropy *loss) {
  cuda_backend *cuda = cuda_of(backend);
  const int32_t images = loss->logits->shape[0];
  const bool later = loss->later && !loss->unwanted && cuda->segment->open;
  const void *labels, *host;
  void *result;
  PETRA_TRY(
      (later ? cuda_late_result : cuda_result)(cuda, &result)); /* may submit: before the labels are in the segment */
  PETRA_TRY(cuda_value(cuda, loss->labels, (size_t)images * sizeof *loss->labels, &labels));
  CUDA_ARGUMENTS(cuda_cross_entropy_args, a);
  a.logits = cuda_read(cuda, loss->logits);
  a.labels = labels;
  a.dlogits = loss->dlogits ? cuda_write(cuda, loss->dlogits) : NULL;
  a.result = result;
  a.n = images;
  a.classes = loss->logits->shape[1];
  PETRA_TRY(cuda_reserve(cuda, cuda_cross_entropy_scratch(images)));
  PETRA_TRY(cuda_add_command(cuda, cuda_cross_entropy_launch, &a, sizeof a));
  if (later)
    loss->ticket = cuda_late_ticket(cuda);
  if (later || loss->unwanted)
    return PETRA_OK;
  PETRA_TRY(cuda_fetch(cuda, result, sizeof(cuda_loss_result), &host));
  set_results(host, loss);
  return PETRA_OK;
}

petra_status cuda_collect(petra_backend *backend, int64_t ticket, petra_cross_entropy *out) {
  const void *host;
  PETRA_TRY(cuda_collect_result(cuda_of(backend), ticket, &host));
  set_results(host, out);
  return PETRA_OK;
}
