/* SPDX-License-Identifier: Apache-2.0 */
/* The operations of transformers. Sequences, matrices and vectors lie as in `ref`, whose functions compute them. */
#include "backend/cpu/cpu.h"

#include "backend/ref.h"

petra_status cpu_layer_norm_forward(petra_backend *backend, const petra_layer_norm_forward *a) {
  return petra_ref_ops_f32.layer_norm_forward(backend, a);
}

petra_status cpu_layer_norm_backward(petra_backend *backend, const petra_layer_norm_backward *a) {
  return petra_ref_ops_f32.layer_norm_backward(backend, a);
}

petra_status cpu_gelu_forward(petra_backend *backend, petra_gelu form, const petra_tensor *x, petra_tensor *y) {
  return petra_ref_ops_f32.gelu_forward(backend, form, x, y);
}

petra_status cpu_gelu_backward(petra_backend *backend, petra_gelu form, const petra_tensor *x, const petra_tensor *dy,
                               petra_tensor *dx) {
  return petra_ref_ops_f32.gelu_backward(backend, form, x, dy, dx);
}

petra_status cpu_attention_forward(petra_backend *backend, const petra_attention *a) {
  return petra_ref_ops_f32.attention_forward(backend, a);
}

petra_status cpu_attention_backward(petra_backend *backend, const petra_attention_backward *a) {
  return petra_ref_ops_f32.attention_backward(backend, a);
}

petra_status cpu_embed_forward(petra_backend *backend, const petra_tensor *tokens, const petra_tensor *table,
                               const petra_tensor *positions, petra_tensor *y) {
  return petra_ref_ops_f32.embed_forward(backend, tokens, table, positions, y);
}

petra_status cpu_embed_backward(petra_backend *backend, const petra_tensor *tokens, const petra_tensor *dy,
                                petra_tensor *dtable, petra_tensor *dpositions) {
  return petra_ref_ops_f32.embed_backward(backend, tokens, dy, dtable, dpositions);
}

petra_status cpu_patches(petra_backend *backend, const petra_tensor *images, int size, petra_tensor *y) {
  return petra_ref_ops_f32.patches(backend, images, size, y);
}

petra_status cpu_mean_positions_forward(petra_backend *backend, const petra_tensor *x, petra_tensor *y, int column) {
  return petra_ref_ops_f32.mean_positions_forward(backend, x, y, column);
}

petra_status cpu_mean_positions_backward(petra_backend *backend, const petra_tensor *dy, int column, petra_tensor *dx) {
  return petra_ref_ops_f32.mean_positions_backward(backend, dy, column, dx);
}
