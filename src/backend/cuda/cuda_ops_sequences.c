/* SPDX-License-Identifier: Apache-2.0 */
/* Operations on the rows of a matrix or of a sequence: the linear layer, the loss, and the operations of transformers
 * (the mean over positions is in cuda_ops_images.c). */
#include "backend/cuda/cuda.h"

#include <string.h>

/* y = addend + bias; there is nothing to do if y is the addend and there is no bias. */
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

/* --- the loss --- */

static void set_results(const void *host, petra_cross_entropy *loss) {
  cuda_loss_result found;
  memcpy(&found, host, sizeof found);
  loss->loss = found.loss;
  loss->top1 = found.top1;
  loss->top5 = found.top5;
}

petra_status cuda_cross_entropy(petra_backend *backend, petra_cross_entropy *loss) {
  cuda_backend *cuda = cuda_of(backend);
  const int64_t rows = petra_tensor_rows(loss->logits);
  const bool later = loss->later && !loss->unwanted && cuda->segment->open;
  const void *labels, *host;
  void *result;
  PETRA_TRY(
      (later ? cuda_late_result : cuda_result)(cuda, &result)); /* may submit: before the labels are in the segment */
  PETRA_TRY(cuda_value(cuda, loss->labels, (size_t)rows * sizeof *loss->labels, &labels));
  CUDA_ARGUMENTS(cuda_cross_entropy_args, a);
  a.logits = cuda_read(cuda, loss->logits);
  a.labels = labels;
  a.dlogits = loss->dlogits ? cuda_write(cuda, loss->dlogits) : NULL;
  a.result = result;
  a.n = (int32_t)rows;
  a.classes = petra_tensor_columns(loss->logits);
  PETRA_TRY(cuda_reserve(cuda, cuda_cross_entropy_scratch(a.n)));
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

/* --- the operations of transformers. What is only read is named first: outputs may be inputs. --- */

petra_status cuda_layer_norm_forward(petra_backend *backend, const petra_layer_norm_forward *norm) {
  cuda_backend *cuda = cuda_of(backend);
  CUDA_ARGUMENTS(cuda_layer_norm_args, a);
  a.x = cuda_read(cuda, norm->x);
  if (norm->y) {
    a.scale = cuda_read(cuda, norm->scale);
    a.shift = norm->mean ? cuda_read(cuda, norm->shift) : NULL;
    a.y = cuda_write(cuda, norm->y);
  }
  a.mean = norm->mean ? cuda_write(cuda, norm->mean) : NULL;
  a.deviation = cuda_write(cuda, norm->deviation);
  a.rows = petra_tensor_rows(norm->x);
  a.c = petra_tensor_columns(norm->x);
  return cuda_add_command(cuda, cuda_layer_norm_launch, &a, sizeof a);
}

petra_status cuda_layer_norm_backward(petra_backend *backend, const petra_layer_norm_backward *norm) {
  cuda_backend *cuda = cuda_of(backend);
  CUDA_ARGUMENTS(cuda_layer_norm_backward_args, a);
  a.x = cuda_read(cuda, norm->x);
  a.scale = cuda_read(cuda, norm->scale);
  a.mean = norm->mean ? cuda_read(cuda, norm->mean) : NULL;
  a.deviation = cuda_read(cuda, norm->deviation);
  a.dy = cuda_read(cuda, norm->dy);
  a.dx = cuda_write(cuda, norm->dx);
  a.dscale = cuda_write(cuda, norm->dscale);
  a.dshift = norm->dshift ? cuda_write(cuda, norm->dshift) : NULL;
  a.rows = petra_tensor_rows(norm->x);
  a.c = petra_tensor_columns(norm->x);
  PETRA_TRY(cuda_reserve(cuda, cuda_layer_norm_scratch(a.rows, a.c)));
  return cuda_add_command(cuda, cuda_layer_norm_backward_launch, &a, sizeof a);
}

/* dy NULL: forward. */
static petra_status gelu(cuda_backend *cuda, petra_gelu form, const petra_tensor *x, const petra_tensor *dy,
                         petra_tensor *out) {
  CUDA_ARGUMENTS(cuda_gelu_args, a);
  a.x = cuda_read(cuda, x);
  a.dy = dy ? cuda_read(cuda, dy) : NULL;
  a.out = cuda_write(cuda, out);
  a.count = out->elements;
  a.form = (int32_t)form;
  return cuda_add_command(cuda, cuda_gelu_launch, &a, sizeof a);
}

petra_status cuda_gelu_forward(petra_backend *backend, petra_gelu form, const petra_tensor *x, petra_tensor *y) {
  return gelu(cuda_of(backend), form, x, NULL, y);
}

petra_status cuda_gelu_backward(petra_backend *backend, petra_gelu form, const petra_tensor *x, const petra_tensor *dy,
                                petra_tensor *dx) {
  return gelu(cuda_of(backend), form, x, dy, dx);
}

petra_status cuda_swiglu_forward(petra_backend *backend, const petra_tensor *x, petra_tensor *y) {
  cuda_backend *cuda = cuda_of(backend);
  CUDA_ARGUMENTS(cuda_swiglu_args, a);
  a.x = cuda_read(cuda, x);
  a.out = cuda_write(cuda, y);
  a.rows = petra_tensor_rows(y);
  a.features = petra_tensor_columns(y);
  return cuda_add_command(cuda, cuda_swiglu_launch, &a, sizeof a);
}

petra_status cuda_swiglu_backward(petra_backend *backend, const petra_tensor *x, const petra_tensor *dy,
                                  petra_tensor *dx) {
  cuda_backend *cuda = cuda_of(backend);
  CUDA_ARGUMENTS(cuda_swiglu_args, a);
  a.x = cuda_read(cuda, x);
  a.dy = cuda_read(cuda, dy);
  a.out = cuda_write(cuda, dx);
  a.rows = petra_tensor_rows(dy);
  a.features = petra_tensor_columns(dy);
  return cuda_add_command(cuda, cuda_swiglu_launch, &a, sizeof a);
}

petra_status cuda_rotary(petra_backend *backend, const petra_rotary *rotary) {
  cuda_backend *cuda = cuda_of(backend);
  CUDA_ARGUMENTS(cuda_rotary_args, a);
  a.x = cuda_read(cuda, rotary->x);
  a.y = cuda_write(cuda, rotary->y);
  a.rows = petra_tensor_rows(rotary->x);
  a.t = rotary->x->shape[1];
  a.columns = petra_tensor_columns(rotary->x);
  a.heads = rotary->heads;
  a.width = rotary->width;
  a.base = rotary->base;
  a.back = rotary->back;
  return cuda_add_command(cuda, cuda_rotary_launch, &a, sizeof a);
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
  cuda_backend *cuda = cuda_of(backend);
  CUDA_ARGUMENTS(cuda_attention_args, a);
  set_attention(attention, &a);
  a.qkv = cuda_read(cuda, attention->qkv);
  a.y = cuda_write(cuda, attention->y);
  a.log_sum = cuda_write(cuda, attention->log_sum);
  return cuda_add_command(cuda, cuda_attention_forward_launch, &a, sizeof a);
}

petra_status cuda_attention_backward(petra_backend *backend, const petra_attention *attention) {
  cuda_backend *cuda = cuda_of(backend);
  CUDA_ARGUMENTS(cuda_attention_args, a);
  set_attention(attention, &a);
  a.qkv = cuda_read(cuda, attention->qkv);
  a.dy = cuda_read(cuda, attention->dy);
  cuda_reads(cuda, attention->y);
  cuda_reads(cuda, attention->log_sum);
  a.y = attention->y->data;
  a.log_sum = attention->log_sum->data;
  a.dqkv = cuda_write(cuda, attention->dqkv);
  PETRA_TRY(cuda_reserve(cuda, cuda_attention_backward_scratch(a.n, a.t, a.heads)));
  return cuda_add_command(cuda, cuda_attention_backward_launch, &a, sizeof a);
}

petra_status cuda_embed_forward(petra_backend *backend, const petra_tensor *tokens, const petra_tensor *table,
                                const petra_tensor *positions, petra_tensor *y) {
  cuda_backend *cuda = cuda_of(backend);
  CUDA_ARGUMENTS(cuda_embed_args, a);
  a.tokens = cuda_read(cuda, tokens);
  a.table = cuda_read(cuda, table);
  a.positions = positions ? cuda_read(cuda, positions) : NULL;
  a.y = cuda_write(cuda, y);
  a.n = y->shape[0];
  a.t = y->shape[1];
  a.c = y->shape[2];
  a.rows = table->shape[0];
  return cuda_add_command(cuda, cuda_embed_launch, &a, sizeof a);
}

petra_status cuda_embed_backward(petra_backend *backend, const petra_tensor *tokens, const petra_tensor *dy,
                                 petra_tensor *dtable, petra_tensor *dpositions) {
  cuda_backend *cuda = cuda_of(backend);
  CUDA_ARGUMENTS(cuda_embed_backward_args, a);
  a.tokens = cuda_read(cuda, tokens);
  a.dy = cuda_read(cuda, dy);
  a.dtable = cuda_write(cuda, dtable);
  a.dpositions = dpositions ? cuda_write(cuda, dpositions) : NULL;
  a.n = dy->shape[0];
  a.t = dy->shape[1];
  a.c = dy->shape[2];
  a.rows = dtable->shape[0];
  a.positions = dpositions ? dpositions->shape[0] : 0;
  PETRA_TRY(cuda_reserve(cuda, cuda_embed_scratch(a.n, a.t)));
  return cuda_add_command(cuda, cuda_embed_backward_launch, &a, sizeof a);
}

petra_status cuda_patches(petra_backend *backend, const petra_tensor *images, int size, petra_tensor *y) {
  cuda_backend *cuda = cuda_of(backend);
  CUDA_ARGUMENTS(cuda_patches_args, a);
  a.x = cuda_read(cuda, images);
  a.y = cuda_write(cuda, y);
  a.n = images->shape[0];
  a.h = images->shape[2];
  a.w = images->shape[3];
  a.size = size;
  return cuda_add_command(cuda, cuda_patches_launch, &a, sizeof a);
}
