/* SPDX-License-Identifier: Apache-2.0 */
#include "exec/tensor_bytes.h"

#include "backend/ops.h"

static petra_host_type type_of(const petra_backend *backend, petra_tensor_kind kind) {
  return backend->element_bytes[kind] > sizeof(float) ? PETRA_HOST_F64 : PETRA_HOST_F32;
}

size_t petra_packed_bytes(const petra_backend *backend, petra_tensor_kind kind, int64_t elements) {
  return (size_t)elements * (type_of(backend, kind) == PETRA_HOST_F64 ? sizeof(double) : sizeof(float));
}

petra_status petra_pack(const petra_tensor *tensor, void *to) {
  return petra_op_download(tensor->backend, tensor, to, type_of(tensor->backend, tensor->kind));
}

petra_status petra_unpack(petra_tensor *tensor, const void *from) {
  return petra_op_upload(tensor->backend, tensor, from, type_of(tensor->backend, tensor->kind));
}
