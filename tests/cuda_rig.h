/* SPDX-License-Identifier: Apache-2.0 */
/* For tests of single kernels: arrays, a launch in both orders, and comparison with the `ref` backend in fp64. */
#pragma once

#define PETRA_CUDA_HOST
#include "backend/cuda/cuda_device.h"
#include "backend/backend.h"
#include "base/rng.h"
#include "cuda_host/arithmetic.h"
#include "harness.h"

#include <math.h>

/* Launches run at once. */
void petra_cuda_host_launch(cuda_stream stream, const petra_cuda_host_closure *closure) {
  (void)stream;
  petra_cuda_host_run(closure);
}

/* --- arrays: each with its own allocation, so that a sanitizer sees every step beyond; all freed by rig_end --- */

static void *rig_arrays[256];
static int rig_array_count;
static petra_tensor *rig_tensors[64];
static int rig_tensor_count;
static petra_backend *rig_ref;

/* `bytes` of NaN. */
static inline void *rig_bytes(size_t bytes) {
  void *data = malloc(bytes);
  ck_assert(data && rig_array_count < 256);
  memset(data, 0xff, bytes);
  rig_arrays[rig_array_count++] = data;
  return data;
}

static inline float *rig_empty(int64_t count) {
  return rig_bytes((size_t)count * sizeof(float));
}

/* Normal numbers of the given mean and deviation, a stream for every `seed`. */
static inline float *rig_normal(int64_t count, uint64_t seed, double mean, double deviation) {
  float *data = rig_empty(count);
  petra_rng rng;
  petra_rng_init(&rng, seed, PETRA_RNG_TEST, 0, (uint64_t)count);
  for (int64_t i = 0; i < count; i++)
    data[i] = (float)(mean + deviation * petra_rng_normal(&rng));
  return data;
}

/* `values` in bf16; they are changed to what that holds. */
static inline uint16_t *rig_narrow(float *values, int64_t count) {
  uint16_t *narrow = rig_bytes((size_t)count * sizeof *narrow);
  for (int64_t i = 0; i < count; i++) {
    narrow[i] = host_to_bf16(values[i]);
    values[i] = host_from_bf16(narrow[i]);
  }
  return narrow;
}

static inline float *rig_copy(const float *from, int64_t count) {
  return memcpy(rig_empty(count), from, (size_t)count * sizeof(float));
}

static inline void rig_end(void) {
  while (rig_array_count > 0)
    free(rig_arrays[--rig_array_count]);
  while (rig_tensor_count > 0)
    petra_tensor_release(&rig_tensors[--rig_tensor_count]);
  petra_backend_destroy(rig_ref);
  rig_ref = NULL;
}

/* ck_assert where it holds millions of times: Check writes down every one that it passes. */
#define HOLDS(condition)                                                                                               \
  do {                                                                                                                 \
    if (!(condition))                                                                                                  \
      ck_abort_msg("not true: %s", #condition);                                                                        \
  } while (0)

/* --- launches --- */

typedef struct rig_output {
  void *data;
  size_t bytes;
} rig_output;

static inline void rig_launch_once(cuda_launch launch, const void *arguments, size_t scratch_bytes) {
  static unsigned counters[CUDA_COUNTERS];
  cuda_lane lane = {NULL, NULL, scratch_bytes, counters};
  ck_assert(posix_memalign(&lane.scratch, 256, scratch_bytes) == 0);
  memset(lane.scratch, 0xff, scratch_bytes);
  ck_assert_int_eq(launch(&lane, arguments), PETRA_OK);
  free(lane.scratch);
  for (int i = 0; i < CUDA_COUNTERS; i++)
    ck_assert_msg(counters[i] == 0, "a launch leaves counter %d at %u", i, counters[i]);
}

/* Forwards and in reverse, from the same content of the outputs: true where both give the same bits. The outputs are
 * those of the second. */
static inline bool rig_same(cuda_launch launch, const void *arguments, size_t scratch_bytes, int count,
                            const rig_output *outputs) {
  void *before[4], *after[4];
  bool same = true;
  for (int i = 0; i < count; i++)
    before[i] = memcpy(malloc(outputs[i].bytes), outputs[i].data, outputs[i].bytes);
  rig_launch_once(launch, arguments, scratch_bytes);
  for (int i = 0; i < count; i++) {
    after[i] = memcpy(malloc(outputs[i].bytes), outputs[i].data, outputs[i].bytes);
    memcpy(outputs[i].data, before[i], outputs[i].bytes);
  }
  petra_cuda_host_reverse(true);
  rig_launch_once(launch, arguments, scratch_bytes);
  petra_cuda_host_reverse(false);
  for (int i = 0; i < count; i++) {
    same = same && memcmp(after[i], outputs[i].data, outputs[i].bytes) == 0;
    free(before[i]);
    free(after[i]);
  }
  return same;
}

#define RIG_LAUNCH(launch, arguments, scratch, ...)                                                                    \
  do {                                                                                                                 \
    const rig_output rig_outputs_[] = {__VA_ARGS__};                                                                   \
    ck_assert_msg(rig_same((launch), (arguments), (scratch), HARNESS_COUNT(rig_outputs_), rig_outputs_),               \
                  "%s: the result depends on the order of blocks or threads", #launch);                                \
  } while (0)
#define FLOATS(data, count)                                                                                            \
  { (data), (size_t)(count) * sizeof(float) }

/* --- the reference --- */

/* Where element `i` of the logical order (N, C, H, W) lies in (N, H, W, C). */
static inline int64_t rig_last(const int32_t shape[4], int64_t i) {
  int64_t plane = (int64_t)shape[2] * shape[3], c = i / plane % shape[1];
  return (i / plane / shape[1] * plane + i % plane) * shape[1] + c;
}

/* Where element `i` of the logical order of a tensor lies on the device. */
static inline int64_t rig_place(const petra_tensor *tensor, int64_t i) {
  return tensor->kind == PETRA_TENSOR_SEQUENCE ? i : rig_last(tensor->shape, i);
}

/* A tensor of the fp64 reference; `data`, as on the device, or NULL. It goes with rig_end. */
static inline petra_tensor *rig_tensor(petra_tensor_kind kind, int n, int c, int h, int w, const float *data) {
  const int32_t shape[4] = {n, c, h, w};
  petra_tensor *tensor;
  if (!rig_ref)
    ck_assert_int_eq(petra_backend_create(PETRA_BACKEND_REF, PETRA_PRECISION_FP64, 1, true, &rig_ref), PETRA_OK);
  ck_assert_int_eq(petra_tensor_create(rig_ref, kind, shape, NULL, PETRA_MEMORY_GRAPH, &tensor), PETRA_OK);
  ck_assert(rig_tensor_count < 64);
  rig_tensors[rig_tensor_count++] = tensor;
  if (data) {
    float *logical = malloc((size_t)tensor->elements * sizeof *logical);
    for (int64_t i = 0; i < tensor->elements; i++)
      logical[i] = data[rig_place(tensor, i)];
    ck_assert_int_eq(rig_ref->ops->upload(rig_ref, tensor, logical, PETRA_HOST_F32), PETRA_OK);
    free(logical);
  }
  return tensor;
}

#define ACTIVATION(n, c, h, w, data) rig_tensor(PETRA_TENSOR_ACTIVATION, n, c, h, w, data)
#define MATRIX(rows, columns, data) rig_tensor(PETRA_TENSOR_MATRIX, rows, columns, 1, 1, data)
#define SEQUENCE(n, t, c, data) rig_tensor(PETRA_TENSOR_SEQUENCE, n, t, c, 1, data)
#define VECTOR(count, data) rig_tensor(PETRA_TENSOR_VECTOR, count, 1, 1, 1, data)

/* A result that was computed in double and rounded once to f32 is off by half a unit in the last place; sums in another
 * order add 1e-13 of `scale`, what their terms come to. NaN meets NaN, infinity itself. */
static inline bool rig_near(double got, double expected, double scale) {
  if (isnan(expected) || isinf(expected))
    return isnan(expected) ? isnan(got) : got == expected;
  return fabs(got - expected) <= 0x1.0001p-24 * fabs(expected) + 1e-13 * scale + 0x1p-149;
}

static inline void rig_agree(const char *what, const petra_tensor *expected, const float *got, double scale) {
  double *logical = malloc((size_t)expected->elements * sizeof *logical);
  ck_assert_int_eq(rig_ref->ops->download(rig_ref, expected, logical, PETRA_HOST_F64), PETRA_OK);
  for (int64_t i = 0; i < expected->elements; i++) {
    double value = got[rig_place(expected, i)];
    if (!rig_near(value, logical[i], scale))
      ck_abort_msg("%s: element %lld: %.17g, expected %.17g", what, (long long)i, value, logical[i]);
  }
  free(logical);
}
