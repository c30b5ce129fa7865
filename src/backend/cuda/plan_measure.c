/* SPDX-License-Identifier: Apache-2.0 */
/* Measures how long plans of one shape take on the device, on memory of their own. */
#include "backend/cuda/plan_private.h"

#include "backend/cuda/cuda.h"
#include "base/log.h"

enum { ARRAYS = 3, TIMES = 3 };

typedef struct bench {
  void *array[ARRAYS]; /* x, w, y */
  void *scratch;
  cudaEvent_t start, end;
  cuda_lane lane;
} bench;

static void close_bench(bench *b) {
  for (int i = 0; i < ARRAYS; i++)
    if (b->array[i])
      cudaFree(b->array[i]);
  if (b->scratch)
    cudaFree(b->scratch);
  if (b->start)
    cudaEventDestroy(b->start);
  if (b->end)
    cudaEventDestroy(b->end);
  if (b->lane.stream)
    cudaStreamDestroy(b->lane.stream);
}

/* False where the device has no room, which is dealt with. */
static petra_status allocate(size_t bytes, void **out, bool *room) {
  cudaError_t error = *room ? cudaMalloc(out, bytes) : cudaSuccess;
  if (error == cudaErrorMemoryAllocation) {
    cudaGetLastError();
    *out = NULL;
    *room = false;
    return PETRA_OK;
  }
  return cuda_check(error, "memory for measuring plans");
}

static petra_status allocate_all(const cuda_conv_shape *s, size_t workspace, bench *b, bool *room) {
  const size_t bf16 = s->precision == PETRA_PRECISION_BF16 ? sizeof(uint16_t) : sizeof(float);
  const int out = s->kind == CUDA_CONV_FORWARD ? 2 : s->kind == CUDA_CONV_DATA ? 0 : 1;
  const int64_t counts[ARRAYS] = {(int64_t)s->n * s->h * s->w * s->c, (int64_t)s->o * s->kh * s->kw * s->c,
                                  (int64_t)s->n * s->oh * s->ow * s->o};
  for (int i = 0; i < ARRAYS; i++) {
    const bool wide = i == out ? s->wide_out != 0 : i == 0 && s->wide_in;
    const size_t bytes = (size_t)counts[i] * (wide ? sizeof(float) : bf16);
    PETRA_TRY(allocate(bytes, &b->array[i], room));
    if (*room) /* numbers like any others: no NaN, no denormals */
      CUDA_TRY(cudaMemsetAsync(b->array[i], 0, bytes, b->lane.stream), "memory for measuring plans");
  }
  b->lane.scratch_bytes = workspace;
  PETRA_TRY(allocate(workspace, &b->scratch, room));
  b->lane.scratch = b->scratch;
  return PETRA_OK;
}

/* One run between the events: waits for its end. */
static petra_status time_once(const cuda_plan *plan, const bench *b, float *ms, bool *ran) {
  CUDA_TRY(cudaEventRecord(b->start, b->lane.stream), "cudaEventRecord");
  PETRA_TRY(cuda_plan_try(plan, &b->lane, b->array[0], b->array[1], b->array[2], ran));
  CUDA_TRY(cudaEventRecord(b->end, b->lane.stream), "cudaEventRecord");
  CUDA_TRY(cudaEventSynchronize(b->end), "measuring plans");
  return cuda_check(cudaEventElapsedTime(ms, b->start, b->end), "cudaEventElapsedTime");
}

static double median(const float t[TIMES]) {
  const float low = t[0] < t[1] ? t[0] : t[1], high = t[0] < t[1] ? t[1] : t[0];
  return t[2] < low ? low : t[2] > high ? high : t[2];
}

/* *us < 0: cuDNN does not run it. */
static petra_status time_plan(const cuda_plan *plan, const bench *b, double *us) {
  float ms[TIMES] = {0}, before;
  bool ran = true;
  *us = -1;
  PETRA_TRY(time_once(plan, b, &before, &ran)); /* loads its kernels */
  for (int i = 0; i < TIMES && ran; i++)
    PETRA_TRY(time_once(plan, b, &ms[i], &ran));
  if (ran)
    *us = median(ms) * 1e3;
  return PETRA_OK;
}

static petra_status time_all(cuda_plan *const *plans, int count, bench *b, int *fastest, double *us) {
  size_t workspace = 0;
  bool room = true;
  for (int i = 0; i < count; i++)
    if (cuda_plan_workspace(plans[i]) > workspace)
      workspace = cuda_plan_workspace(plans[i]);
  CUDA_TRY(cudaStreamCreateWithFlags(&b->lane.stream, cudaStreamNonBlocking), "cudaStreamCreate");
  CUDA_TRY(cudaEventCreate(&b->start), "cudaEventCreate");
  CUDA_TRY(cudaEventCreate(&b->end), "cudaEventCreate");
  PETRA_TRY(allocate_all(&plans[0]->shape, workspace, b, &room));
  if (!room)
    return PETRA_OK;
  CUDA_TRY(cudaDeviceSynchronize(), "the work before measuring plans"); /* nothing else shall run beside */
  for (int i = 0; i < count; i++) {
    double each;
    PETRA_TRY(time_plan(plans[i], b, &each));
    if (each >= 0 && (*fastest < 0 || each < *us)) {
      *fastest = i;
      *us = each;
    }
  }
  return PETRA_OK;
}

petra_status cuda_plans_time(cuda_plan *const *plans, int count, int *fastest, double *us) {
  bench b = {.start = NULL};
  *fastest = -1;
  petra_status status = time_all(plans, count, &b, fastest, us);
  if (b.lane.stream)
    cudaStreamSynchronize(b.lane.stream);
  close_bench(&b);
  return status;
}
