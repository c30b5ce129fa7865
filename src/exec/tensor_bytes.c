/* SPDX-License-Identifier: Apache-2.0 */
#include "exec/tensor_bytes.h"

#include "backend/backend.h"

static petra_host_type type_of(const petra_backend *backend, petra_tensor_kind kind) {
  if (kind == PETRA_TENSOR_QUANTISED)
    return PETRA_HOST_U8;
  return backend->element_bytes[kind] > sizeof(float) ? PETRA_HOST_F64 : PETRA_HOST_F32;
}

size_t petra_packed_bytes(const petra_backend *backend, petra_tensor_kind kind, int64_t elements) {
  static const size_t bytes[] = {
      [PETRA_HOST_F32] = sizeof(float), [PETRA_HOST_F64] = sizeof(double), [PETRA_HOST_U8] = 1};
  return (size_t)elements * bytes[type_of(backend, kind)];
}

petra_status petra_pack(const petra_tensor *tensor, void *to) {
  return petra_op_download(tensor->backend, tensor, to, type_of(tensor->backend, tensor->kind));
}

petra_status petra_unpack(petra_tensor *tensor, const void *from) {
  return petra_op_upload(tensor->backend, tensor, from, type_of(tensor->backend, tensor->kind));
}
