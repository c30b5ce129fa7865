/* SPDX-License-Identifier: Apache-2.0 */
/* Measures how long convolutions of one shape take on the device, on memory of their own. Many runs are in one graph,
 * so that the time of the host that launches does not count. Each run uses other memory than the run before, as in a
 * tick. */
#include "backend/cuda/cudnn_private.h"

#include "backend/cuda/cuda.h"
#include "base/log.h"

enum {
  ARRAYS = 3, /* x, w, y */
  RUNS = 20,  /* in a graph */
  TIMES = 3,
  CACHES = 3, /* the sets of arrays together fill the device's cache so many times, or there are as many as runs */
  SPIN_LAUNCHES = 100,
  FILLING = 0x3f /* every byte: 0.75 in f32 and bf16. Zeros would cost less power, and so have higher clocks */
};
static const double SPIN_MS = 20; /* of work, until an idle device has its clocks */

typedef struct bench {
  void *set[RUNS];
  int sets;
  size_t offset[ARRAYS], set_bytes;
  void *scratch;
  cudaEvent_t start, end;
  cuda_lane lane;
  bool spun;
} bench;

static void close_bench(bench *b) {
  for (int i = 0; i < b->sets; i++)
    cudaFree(b->set[i]);
  if (b->scratch)
    cudaFree(b->scratch);
  if (b->start)
    cudaEventDestroy(b->start);
  if (b->end)
    cudaEventDestroy(b->end);
  if (b->lane.stream)
    cudaStreamDestroy(b->lane.stream);
}

/* --- memory --- */

/* *room becomes false if the device has no room, which is no error. */
static petra_status allocate(size_t bytes, void **out, bool *room) {
  cudaError_t error = cudaMalloc(out, bytes);
  *room = error != cudaErrorMemoryAllocation;
  if (*room)
    return cuda_check(error, "memory for measuring plans");
  cudaGetLastError();
  *out = NULL;
  return PETRA_OK;
}

/* Sets the offsets of the arrays in a set, and the size of a set. */
static void lay_out(const cuda_conv_shape *s, bench *b) {
  const size_t narrow = s->precision == PETRA_PRECISION_BF16 ? sizeof(uint16_t) : sizeof(float);
  const int out = s->kind == CUDA_CONV_FORWARD ? 2 : s->kind == CUDA_CONV_DATA ? 0 : 1;
  const int64_t counts[ARRAYS] = {(int64_t)s->n * s->h * s->w * s->c, (int64_t)s->o * s->kh * s->kw * s->c,
                                  (int64_t)s->n * s->oh * s->ow * s->o};
  for (int i = 0; i < ARRAYS; i++) {
    const bool wide = i == out ? s->wide_out != 0 : i == 0 && s->wide_in;
    b->offset[i] = b->set_bytes;
    b->set_bytes += ((size_t)counts[i] * (wide ? sizeof(float) : narrow) + 255) / 256 * 256;
  }
}

static petra_status sets_wanted(const bench *b, int *out) {
  struct cudaDeviceProp properties;
  int device;
  CUDA_TRY(cudaGetDevice(&device), "cudaGetDevice");
  CUDA_TRY(cudaGetDeviceProperties(&properties, device), "cudaGetDeviceProperties");
  const size_t sets = CACHES * (size_t)properties.l2CacheSize / b->set_bytes + 1;
  *out = sets < RUNS ? (int)sets : (int)RUNS;
  return PETRA_OK;
}

/* If there is no room for all sets, the sets that fit serve, without the last one: graphs and kernels need memory
 * too. */
static petra_status allocate_all(const cuda_conv_shape *shape, size_t workspace, bench *b, bool *room) {
  int wanted;
  bool more = true;
  lay_out(shape, b);
  PETRA_TRY(sets_wanted(b, &wanted));
  PETRA_TRY(allocate(workspace, &b->scratch, room));
  b->lane.scratch = b->scratch;
  b->lane.scratch_bytes = workspace;
  while (*room && more && b->sets < wanted) {
    PETRA_TRY(allocate(b->set_bytes, &b->set[b->sets], &more));
    if (more)
      CUDA_TRY(cudaMemsetAsync(b->set[b->sets++], FILLING, b->set_bytes, b->lane.stream), "memory for measuring plans");
  }
  if (!more && b->sets > 1)
    cudaFree(b->set[--b->sets]);
  *room = b->sets > 0;
  return PETRA_OK;
}

/* --- runs --- */

static petra_status run(const cuda_conv *conv, const bench *b, int number, bool *ran) {
  char *set = b->set[number % b->sets];
  return cuda_conv_try(conv, &b->lane, set + b->offset[0], set + b->offset[1], set + b->offset[2], ran);
}

/* *out NULL: cuDNN does not run the convolution in a capture. */
static petra_status capture(const cuda_conv *conv, const bench *b, cudaGraphExec_t *out) {
  cudaGraph_t graph = NULL;
  bool ran = true;
  petra_status status = PETRA_OK;
  *out = NULL;
  CUDA_TRY(cudaStreamBeginCapture(b->lane.stream, cudaStreamCaptureModeThreadLocal), "cudaStreamBeginCapture");
  for (int i = 0; i < RUNS && ran && status == PETRA_OK; i++)
    status = run(conv, b, i, &ran);
  const cudaError_t error = cudaStreamEndCapture(b->lane.stream, &graph);
  if (status == PETRA_OK && ran && error == cudaSuccess)
    status = cuda_check(cudaGraphInstantiate(out, graph, 0), "cudaGraphInstantiate");
  else
    cudaGetLastError(); /* dealt with, or logged */
  if (graph)
    cudaGraphDestroy(graph);
  return status;
}

/* One launch between the events: waits for its end. */
static petra_status time_once(cudaGraphExec_t exec, const bench *b, float *ms) {
  CUDA_TRY(cudaEventRecord(b->start, b->lane.stream), "cudaEventRecord");
  CUDA_TRY(cudaGraphLaunch(exec, b->lane.stream), "cudaGraphLaunch");
  CUDA_TRY(cudaEventRecord(b->end, b->lane.stream), "cudaEventRecord");
  CUDA_TRY(cudaEventSynchronize(b->end), "measuring plans");
  return cuda_check(cudaEventElapsedTime(ms, b->start, b->end), "cudaEventElapsedTime");
}

/* The first launch uploads the graph. */
static petra_status warm_up(cudaGraphExec_t exec, bench *b) {
  float ms, all = 0;
  for (int i = 0; i < (b->spun ? 1 : SPIN_LAUNCHES) && all < SPIN_MS; i++) {
    PETRA_TRY(time_once(exec, b, &ms));
    all += ms;
  }
  b->spun = true;
  return PETRA_OK;
}

static double median(const float t[TIMES]) {
  const float low = t[0] < t[1] ? t[0] : t[1], high = t[0] < t[1] ? t[1] : t[0];
  return t[2] < low ? low : t[2] > high ? high : t[2];
}

static petra_status time_graph(cudaGraphExec_t exec, bench *b, double *us) {
  float ms[TIMES];
  PETRA_TRY(warm_up(exec, b));
  for (int i = 0; i < TIMES; i++)
    PETRA_TRY(time_once(exec, b, &ms[i]));
  *us = median(ms) * 1e3 / RUNS;
  return PETRA_OK;
}

/* *us < 0: cuDNN does not run it. */
static petra_status time_conv(const cuda_conv *conv, bench *b, double *us) {
  cudaGraphExec_t exec = NULL;
  bool ran;
  *us = -1;
  PETRA_TRY(run(conv, b, 0, &ran)); /* loads its kernels, which a capture might refuse */
  if (ran)
    PETRA_TRY(capture(conv, b, &exec));
  if (!exec)
    return PETRA_OK;
  const petra_status status = time_graph(exec, b, us);
  cudaGraphExecDestroy(exec);
  return status;
}

static petra_status time_all(cuda_conv *const *convs, int count, bench *b, int *fastest, double *us) {
  size_t workspace = 0;
  bool room = true;
  for (int i = 0; i < count; i++)
    if (cuda_conv_workspace(convs[i]) > workspace)
      workspace = cuda_conv_workspace(convs[i]);
  CUDA_TRY(cudaStreamCreateWithFlags(&b->lane.stream, cudaStreamNonBlocking), "cudaStreamCreate");
  CUDA_TRY(cudaEventCreate(&b->start), "cudaEventCreate");
  CUDA_TRY(cudaEventCreate(&b->end), "cudaEventCreate");
  PETRA_TRY(allocate_all(&convs[0]->shape, workspace, b, &room));
  if (!room)
    return PETRA_OK;
  CUDA_TRY(cudaDeviceSynchronize(), "the work before measuring plans"); /* nothing else shall run beside */
  for (int i = 0; i < count; i++) {
    double each;
    PETRA_TRY(time_conv(convs[i], b, &each));
    if (each >= 0 && (*fastest < 0 || each < *us)) {
      *fastest = i;
      *us = each;
    }
  }
  return PETRA_OK;
}

petra_status cuda_engines_time(cuda_conv *const *convs, int count, int *fastest, double *us) {
  bench b = {.start = NULL};
  *fastest = -1;
  petra_status status = time_all(convs, count, &b, fastest, us);
  if (b.lane.stream)
    cudaStreamSynchronize(b.lane.stream);
  close_bench(&b);
  return status;
}
