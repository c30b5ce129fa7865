/* SPDX-License-Identifier: Apache-2.0 */
#include "probe/probe_parcel.h"

#include "base/log.h"
#include "exec/tensor_bytes.h"

#include <string.h>

void petra_parcel_describe(petra_parcel *parcel, petra_tensor *const *tensors, int count) {
  parcel->count = 0;
  for (int i = 0; i < count; i++)
    if (tensors[i]) {
      parcel->tensor[parcel->count].kind = (int32_t)tensors[i]->kind;
      memcpy(parcel->tensor[parcel->count++].shape, tensors[i]->shape, sizeof tensors[i]->shape);
    }
}

static size_t tensor_bytes(const petra_parcel *parcel, const petra_backend *backend, int i) {
  const int32_t *shape = parcel->tensor[i].shape;
  return petra_packed_bytes(backend, (petra_tensor_kind)parcel->tensor[i].kind,
                            (int64_t)shape[0] * shape[1] * shape[2] * shape[3]);
}

static size_t labels_at(const petra_parcel *parcel, const petra_backend *backend) {
  size_t bytes = sizeof *parcel;
  for (int i = 0; i < parcel->count; i++)
    bytes += tensor_bytes(parcel, backend, i);
  return bytes;
}

size_t petra_parcel_bytes(const petra_parcel *parcel, const petra_backend *backend) {
  return labels_at(parcel, backend) + (size_t)parcel->labels * sizeof(int32_t);
}

petra_status petra_parcel_pack(const petra_parcel *parcel, petra_tensor *const *tensors, int count,
                               const int32_t *labels, void *to) {
  unsigned char *at = to;
  memcpy(at, parcel, sizeof *parcel);
  at += sizeof *parcel;
  for (int i = 0; i < count; i++)
    if (tensors[i]) {
      PETRA_TRY(petra_pack(tensors[i], at));
      at += petra_packed_bytes(tensors[i]->backend, tensors[i]->kind, tensors[i]->elements);
    }
  if (parcel->labels > 0)
    memcpy(at, labels, (size_t)parcel->labels * sizeof *labels);
  return PETRA_OK;
}

static bool is_sound(const petra_parcel *parcel) {
  if (parcel->count < 0 || parcel->count > PETRA_BLOCK_TENSORS || parcel->labels < 0)
    return false;
  for (int i = 0; i < parcel->count; i++)
    if (parcel->tensor[i].kind < 0 || parcel->tensor[i].kind >= PETRA_TENSOR_KINDS)
      return false;
  return true;
}

petra_status petra_parcel_open(petra_parcel *parcel, const petra_backend *backend, const void *data, size_t size) {
  if (size >= sizeof *parcel) {
    memcpy(parcel, data, sizeof *parcel);
    if (is_sound(parcel) && petra_parcel_bytes(parcel, backend) == size)
      return PETRA_OK;
  }
  return petra_fail(PETRA_INTERNAL, "a probe's parcel of %zu bytes has another size than it says", size);
}

petra_status petra_parcel_tensors(const petra_parcel *parcel, const petra_compute *compute,
                                  petra_memory_category category, const void *data, petra_tensor **out) {
  const unsigned char *at = (const unsigned char *)data + sizeof *parcel;
  for (int i = 0; i < parcel->count; i++) {
    PETRA_TRY(petra_compute_tensor(compute, (petra_tensor_kind)parcel->tensor[i].kind, parcel->tensor[i].shape,
                                   category, &out[i]));
    PETRA_TRY(petra_unpack(out[i], at));
    at += tensor_bytes(parcel, compute->backend, i);
  }
  return PETRA_OK;
}

const int32_t *petra_parcel_labels(const petra_parcel *parcel, const petra_backend *backend, const void *data) {
  return (const int32_t *)(const void *)((const unsigned char *)data + labels_at(parcel, backend));
}

size_t petra_parcel_max(const petra_model *model, int first, int end, int32_t samples, const size_t *element_bytes) {
  const size_t labels = (size_t)samples * (size_t)petra_model_labels(model);
  int64_t streams = samples * petra_block_input_elements(&model->blocks[first]), maximum = 0;
  size_t bytes = 0;
  for (int kind = 0; kind < PETRA_TENSOR_KINDS; kind++)
    bytes = element_bytes[kind] > bytes ? element_bytes[kind] : bytes;
  for (int b = first; b < end; b++) {
    const int64_t parameters = petra_block_parameters(model, &model->blocks[b]);
    maximum = parameters > maximum ? parameters : maximum;
  }
  return sizeof(petra_parcel) + (size_t)(streams > maximum ? streams : maximum) * bytes + labels * sizeof(int32_t);
}
