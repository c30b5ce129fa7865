/* SPDX-License-Identifier: Apache-2.0 */
/* Operations on the rows of a matrix or of a sequence: the linear layer, the loss, and the operations of transformers
 * (the mean over positions is in cuda_ops_images.c). */
#include "backend/cuda/cuda.h"

#include <string.h>

/* y = addend + bias; there is nothing to do if y is the addend and there is no bias. */
static petra_status start(petra_backend *backend, const petra_linear_forward *linear) {
  const bool joined = linear->join != PETRA_JOIN_NONE;
  if (!linear->b && (!joined || linear->addend == linear->y))
    return PETRA_OK;
  CUDA_ARGUMENTS(cuda_bias_args, a);
  a.b = linear->b ? cuda_read(backend, linear->b) : NULL;
  a.addend = joined ? cuda_read(backend, linear->addend) : NULL;
  a.y = cuda_write(backend, linear->y);
  a.n = petra_tensor_rows(linear->y);
  a.o = petra_tensor_columns(linear->y);
  a.subtract = linear->join == PETRA_JOIN_SUBTRACT;
  return cuda_add_command(backend, cuda_bias_launch, &a, sizeof a);
}

petra_status cuda_linear_forward(petra_backend *backend, const petra_linear_forward *linear) {
  const bool started = linear->b || linear->join != PETRA_JOIN_NONE;
  PETRA_TRY(start(backend, linear));
  return cuda_multiply(backend, linear->join == PETRA_JOIN_SUBTRACT ? -1 : 1, linear->x, false, linear->w, true,
                       started ? 1 : 0, linear->y);
}

petra_status cuda_linear_backward_data(petra_backend *backend, const petra_tensor *dy, const petra_tensor *w,
                                       petra_tensor *dx) {
  return cuda_multiply(backend, 1, dy, false, w, false, 0, dx);
}

petra_status cuda_linear_backward_weights(petra_backend *backend, const petra_tensor *x, const petra_tensor *dy,
                                          petra_tensor *dw, petra_tensor *db) {
  PETRA_TRY(cuda_multiply(backend, 1, dy, true, x, false, 0, dw));
  if (!db)
    return PETRA_OK;
  CUDA_ARGUMENTS(cuda_bias_backward_args, a);
  a.dy = cuda_read(backend, dy);
  a.db = cuda_write(backend, db);
  a.n = petra_tensor_rows(dy);
  a.o = petra_tensor_columns(dy);
  a.levels = petra_kind_is_sequence(dy->kind);
  PETRA_TRY(cuda_reserve(backend, cuda_bias_scratch(a.n, a.o)));
  return cuda_add_command(backend, cuda_bias_backward_launch, &a, sizeof a);
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

petra_status cuda_multiply(petra_backend *backend, float alpha, const petra_tensor *a, bool transpose_a,
                           const petra_tensor *b, bool transpose_b, float beta, const petra_tensor *c) {
  CUDA_ARGUMENTS(product_args, p);
  p.blas = cuda_of(backend)->blas;
  p.product.a = cuda_read(backend, a);
  p.product.b = cuda_read(backend, b);
  p.product.c = c->data;
  p.product.m = (int32_t)petra_tensor_rows(c);
  p.product.n = petra_tensor_columns(c);
  p.product.k = transpose_a ? (int32_t)petra_tensor_rows(a) : petra_tensor_columns(a);
  p.product.transpose_a = transpose_a;
  p.product.transpose_b = transpose_b;
  p.product.alpha = alpha;
  p.product.beta = beta;
  PETRA_TRY(cuda_reserve(backend, CUDA_BLAS_SCRATCH));
  (beta != 0 ? cuda_updates : cuda_writes)(backend, c);
  return cuda_add_command(backend, product_launch, &p, sizeof p);
}

/* --- the loss --- */

static void set_results(const void *host, petra_cross_entropy *loss) {
  cuda_loss_result found;
  memcpy(&found, host, sizeof found);
  loss->loss = found.loss;
  loss->top1 = found.top1;
  loss->top5 = found.top5;
}

petra_status cuda_cross_entropy(petra_backend *backend, petra_cross_entropy *loss) {
  const int64_t rows = petra_tensor_rows(loss->logits);
  const bool later = loss->later && !loss->unwanted && cuda_of(backend)->segment->open;
  const void *labels, *host;
  void *result;
  PETRA_TRY((later ? cuda_late_result : cuda_result)(backend,
                                                     &result)); /* may submit: before the labels are in the segment */
  PETRA_TRY(cuda_value(backend, loss->labels, (size_t)rows * sizeof *loss->labels, &labels));
  CUDA_ARGUMENTS(cuda_cross_entropy_args, a);
  a.logits = cuda_read(backend, loss->logits);
  a.labels = labels;
  a.dlogits = loss->dlogits ? cuda_write(backend, loss->dlogits) : NULL;
  a.result = result;
  a.n = (int32_t)rows;
  a.classes = petra_tensor_columns(loss->logits);
  PETRA_TRY(cuda_reserve(backend, cuda_cross_entropy_scratch(a.n)));
  PETRA_TRY(cuda_add_command(backend, cuda_cross_entropy_launch, &a, sizeof a));
  if (later)
    loss->ticket = cuda_late_ticket(backend);
  if (later || loss->unwanted)
    return PETRA_OK;
  PETRA_TRY(cuda_fetch(backend, result, sizeof(cuda_loss_result), &host));
  set_results(host, loss);
  return PETRA_OK;
}

petra_status cuda_collect(petra_backend *backend, int64_t ticket, petra_cross_entropy *out) {
  const void *host;
  PETRA_TRY(cuda_collect_result(backend, ticket, &host));
  set_results(host, out);
  return PETRA_OK;
}

/* --- the operations of transformers. Tensors that are only read are named first, because outputs may be inputs. --- */

petra_status cuda_layer_norm_forward(petra_backend *backend, const petra_layer_norm_forward *norm) {
  CUDA_ARGUMENTS(cuda_layer_norm_args, a);
  a.x = cuda_read(backend, norm->x);
  if (norm->y) {
    a.scale = cuda_read(backend, norm->scale);
    a.shift = norm->mean ? cuda_read(backend, norm->shift) : NULL;
    a.y = cuda_write(backend, norm->y);
  }
  a.mean = norm->mean ? cuda_write(backend, norm->mean) : NULL;
  a.deviation = cuda_write(backend, norm->deviation);
  a.rows = petra_tensor_rows(norm->x);
  a.c = petra_tensor_columns(norm->x);
  return cuda_add_command(backend, cuda_layer_norm_launch, &a, sizeof a);
}

petra_status cuda_layer_norm_backward(petra_backend *backend, const petra_layer_norm_backward *norm) {
  CUDA_ARGUMENTS(cuda_layer_norm_backward_args, a);
  a.x = cuda_read(backend, norm->x);
  a.scale = cuda_read(backend, norm->scale);
  a.mean = norm->mean ? cuda_read(backend, norm->mean) : NULL;
  a.deviation = cuda_read(backend, norm->deviation);
  a.dy = cuda_read(backend, norm->dy);
  a.dx = cuda_write(backend, norm->dx);
  a.dscale = cuda_write(backend, norm->dscale);
  a.dshift = norm->dshift ? cuda_write(backend, norm->dshift) : NULL;
  a.rows = petra_tensor_rows(norm->x);
  a.c = petra_tensor_columns(norm->x);
  PETRA_TRY(cuda_reserve(backend, cuda_layer_norm_scratch(a.rows, a.c)));
  return cuda_add_command(backend, cuda_layer_norm_backward_launch, &a, sizeof a);
}

/* dy NULL: forward. */
static petra_status gelu(petra_backend *backend, petra_gelu form, const petra_tensor *x, const petra_tensor *dy,
                         petra_tensor *out) {
  CUDA_ARGUMENTS(cuda_gelu_args, a);
  a.x = cuda_read(backend, x);
  a.dy = dy ? cuda_read(backend, dy) : NULL;
  a.out = cuda_write(backend, out);
  a.count = out->elements;
  a.form = (int32_t)form;
  return cuda_add_command(backend, cuda_gelu_launch, &a, sizeof a);
}

petra_status cuda_gelu_forward(petra_backend *backend, petra_gelu form, const petra_tensor *x, petra_tensor *y) {
  return gelu(backend, form, x, NULL, y);
}

petra_status cuda_gelu_backward(petra_backend *backend, petra_gelu form, const petra_tensor *x, const petra_tensor *dy,
                                petra_tensor *dx) {
  return gelu(backend, form, x, dy, dx);
}

petra_status cuda_swiglu_forward(petra_backend *backend, const petra_tensor *x, petra_tensor *y) {
  CUDA_ARGUMENTS(cuda_swiglu_args, a);
  a.x = cuda_read(backend, x);
  a.out = cuda_write(backend, y);
  a.rows = petra_tensor_rows(y);
  a.features = petra_tensor_columns(y);
  return cuda_add_command(backend, cuda_swiglu_launch, &a, sizeof a);
}

petra_status cuda_swiglu_backward(petra_backend *backend, const petra_tensor *x, const petra_tensor *dy,
                                  petra_tensor *dx) {
  CUDA_ARGUMENTS(cuda_swiglu_args, a);
  a.x = cuda_read(backend, x);
  a.dy = cuda_read(backend, dy);
  a.out = cuda_write(backend, dx);
  a.rows = petra_tensor_rows(dy);
  a.features = petra_tensor_columns(dy);
  return cuda_add_command(backend, cuda_swiglu_launch, &a, sizeof a);
}

petra_status cuda_rotary(petra_backend *backend, const petra_rotary *rotary) {
  CUDA_ARGUMENTS(cuda_rotary_args, a);
  a.x = cuda_read(backend, rotary->x);
  a.y = cuda_write(backend, rotary->y);
  a.rows = petra_tensor_rows(rotary->x);
  a.t = rotary->x->shape[1];
  a.columns = petra_tensor_columns(rotary->x);
  a.heads = rotary->heads;
  a.width = rotary->width;
  a.base = rotary->base;
  a.back = rotary->back;
  return cuda_add_command(backend, cuda_rotary_launch, &a, sizeof a);
}

static void set_attention(const petra_attention *attention, cuda_attention_args *a) {
  a->n = attention->y->shape[0];
  a->t = attention->y->shape[1];
  a->heads = attention->heads;
  a->kv_heads = attention->kv_heads;
  a->d = attention->y->shape[2] / attention->heads;
  a->causal = attention->causal;
}

petra_status cuda_attention_forward(petra_backend *backend, const petra_attention *attention) {
  CUDA_ARGUMENTS(cuda_attention_args, a);
  set_attention(attention, &a);
  a.qkv = cuda_read(backend, attention->qkv);
  a.y = cuda_write(backend, attention->y);
  a.log_sum = cuda_write(backend, attention->log_sum);
  return cuda_add_command(backend, cuda_attention_forward_launch, &a, sizeof a);
}

petra_status cuda_attention_backward(petra_backend *backend, const petra_attention *attention) {
  CUDA_ARGUMENTS(cuda_attention_args, a);
  set_attention(attention, &a);
  a.qkv = cuda_read(backend, attention->qkv);
  a.dy = cuda_read(backend, attention->dy);
  cuda_reads(backend, attention->y);
  cuda_reads(backend, attention->log_sum);
  a.y = attention->y->data;
  a.log_sum = attention->log_sum->data;
  a.dqkv = cuda_write(backend, attention->dqkv);
  PETRA_TRY(cuda_reserve(backend, cuda_attention_backward_scratch(a.n, a.t, a.heads)));
  return cuda_add_command(backend, cuda_attention_backward_launch, &a, sizeof a);
}

petra_status cuda_embed_forward(petra_backend *backend, const petra_tensor *tokens, const petra_tensor *table,
                                const petra_tensor *positions, petra_tensor *y) {
  CUDA_ARGUMENTS(cuda_embed_args, a);
  a.tokens = cuda_read(backend, tokens);
  a.table = cuda_read(backend, table);
  a.positions = positions ? cuda_read(backend, positions) : NULL;
  a.y = cuda_write(backend, y);
  a.n = y->shape[0];
  a.t = y->shape[1];
  a.c = y->shape[2];
  a.rows = table->shape[0];
  return cuda_add_command(backend, cuda_embed_launch, &a, sizeof a);
}

petra_status cuda_embed_backward(petra_backend *backend, const petra_tensor *tokens, const petra_tensor *dy,
                                 petra_tensor *dtable, petra_tensor *dpositions) {
  CUDA_ARGUMENTS(cuda_embed_backward_args, a);
  a.tokens = cuda_read(backend, tokens);
  a.dy = cuda_read(backend, dy);
  a.dtable = cuda_write(backend, dtable);
  a.dpositions = dpositions ? cuda_write(backend, dpositions) : NULL;
  a.n = dy->shape[0];
  a.t = dy->shape[1];
  a.c = dy->shape[2];
  a.rows = dtable->shape[0];
  a.positions = dpositions ? dpositions->shape[0] : 0;
  PETRA_TRY(cuda_reserve(backend, cuda_embed_scratch(a.n, a.t)));
  return cuda_add_command(backend, cuda_embed_backward_launch, &a, sizeof a);
}

petra_status cuda_patches(petra_backend *backend, const petra_tensor *images, int size, petra_tensor *y) {
  CUDA_ARGUMENTS(cuda_patches_args, a);
  a.x = cuda_read(backend, images);
  a.y = cuda_write(backend, y);
  a.n = images->shape[0];
  a.h = images->shape[2];
  a.w = images->shape[3];
  a.size = size;
  return cuda_add_command(backend, cuda_patches_launch, &a, sizeof a);
}
