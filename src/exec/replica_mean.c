/* SPDX-License-Identifier: Apache-2.0 */
#include "exec/replica_mean.h"

#include "base/log.h"
#include "exec/tensor_bytes.h"

static petra_status add_size(void *context, petra_tensor *tensor) {
  petra_shared_size *size = context;
  const size_t bytes = petra_packed_bytes(tensor->backend, tensor->kind, 1);
  if (size->element_bytes != 0 && size->element_bytes != bytes)
    return petra_fail(PETRA_INTERNAL, "gradients of %zu and of %zu bytes an element in one stage", size->element_bytes,
                      bytes);
  size->element_bytes = bytes;
  size->elements += tensor->elements;
  return PETRA_OK;
}

petra_status petra_shared_size_of(petra_stage *stage, petra_shared_size *out) {
  *out = (petra_shared_size){0};
  return petra_stage_visit_shared(stage, add_size, out);
}

static size_t bytes_of(const petra_tensor *tensor) {
  return petra_packed_bytes(tensor->backend, tensor->kind, tensor->elements);
}

static petra_status pack(void *context, petra_tensor *tensor) {
  unsigned char **at = context;
  PETRA_TRY(petra_pack(tensor, *at));
  *at += bytes_of(tensor);
  return PETRA_OK;
}

petra_status petra_shared_pack(petra_stage *stage, void *to) {
  unsigned char *at = to;
  return petra_stage_visit_shared(stage, pack, &at);
}

static petra_status unpack(void *context, petra_tensor *tensor) {
  const unsigned char **at = context;
  PETRA_TRY(petra_unpack(tensor, *at));
  *at += bytes_of(tensor);
  return PETRA_OK;
}

petra_status petra_shared_unpack(petra_stage *stage, const void *from) {
  const unsigned char *at = from;
  return petra_stage_visit_shared(stage, unpack, &at);
}

static void mean_of_floats(const float *const *parts, int replicas, int64_t elements, float *out) {
  for (int64_t e = 0; e < elements; e++) {
    float sum = parts[0][e];
    for (int i = 1; i < replicas; i++)
      sum += parts[i][e];
    out[e] = sum / (float)replicas;
  }
}

static void mean_of_doubles(const double *const *parts, int replicas, int64_t elements, double *out) {
  for (int64_t e = 0; e < elements; e++) {
    double sum = parts[0][e];
    for (int i = 1; i < replicas; i++)
      sum += parts[i][e];
    out[e] = sum / (double)replicas;
  }
}

void petra_replica_mean(const void *const *parts, int replicas, const petra_shared_size *size, void *out) {
  if (size->element_bytes == sizeof(float))
    mean_of_floats((const float *const *)parts, replicas, size->elements, out);
  else
    mean_of_doubles((const double *const *)parts, replicas, size->elements, out);
}
