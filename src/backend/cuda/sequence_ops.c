/* SPDX-License-Identifier: Apache-2.0 */
/* The operations of transformers beside the linear layer and the mean over positions (activation.c). What is only read is named
 * first: outputs may be inputs. */
#include "backend/cuda/segment.h"

#include <string.h>

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

static void set_attention(const petra_tensor *y, int heads, int kv_heads, bool causal, cuda_attention_args *a) {
  a->n = y->shape[0];
  a->t = y->shape[1];
  a->heads = heads;
  a->kv_heads = kv_heads;
  a->d = y->shape[2] / heads;
  a->causal = causal;
}

petra_status cuda_attention_forward(petra_backend *backend, const petra_attention *attention) {
  cuda_backend *cuda = cuda_of(backend);
  CUDA_ARGUMENTS(cuda_attention_args, a);
  set_attention(attention->y, attention->heads, attention->kv_heads, attention->causal, &a);
  a.qkv = cuda_read(cuda, attention->qkv);
  a.y = cuda_write(cuda, attention->y);
  a.log_sum = cuda_write(cuda, attention->log_sum);
  return cuda_add_command(cuda, cuda_attention_forward_launch, &a, sizeof a);
}

petra_status cuda_attention_backward(petra_backend *backend, const petra_attention_backward *attention) {
  cuda_backend *cuda = cuda_of(backend);
  CUDA_ARGUMENTS(cuda_attention_args, a);
  set_attention(attention->y, attention->heads, attention->kv_heads, attention->causal, &a);
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
