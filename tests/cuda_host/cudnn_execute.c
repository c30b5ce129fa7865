/* SPDX-License-Identifier: Apache-2.0 */
/* The fake cuDNN's handles and runs. */
#include "cuda_host/arithmetic.h"
#include "cuda_host/cudnn_fake.h"

#include <stdlib.h>
#include <string.h>

static struct cudnnContext *handles;
static int64_t runs; /* since the reset */

/* --- handles --- */

bool cudnn_fake_handle_alive(const struct cudnnContext *handle) {
  const struct cudnnContext *at = handles;
  while (at && at != handle)
    at = at->next;
  return at != NULL;
}

int64_t petra_cudnn_fake_runs(void) {
  return runs;
}

void cudnn_fake_runs_reset(void) {
  runs = 0;
  while (handles) {
    struct cudnnContext *gone = handles;
    handles = gone->next;
    free(gone);
  }
}

int64_t cudnn_fake_handles(void) {
  int64_t count = 0;
  for (const struct cudnnContext *at = handles; at; at = at->next)
    count++;
  return count;
}

cudnnStatus_t cudnnCreate(cudnnHandle_t *out) {
  CUDNN_FAKE_ENTER("cudnnCreate");
  if (host.devices <= 0)
    return cudnn_fake_leave(cudnn_fake_refuse(CUDNN_STATUS_NOT_INITIALIZED, "there is no device"));
  if (host_capture_forbids() != cudaSuccess) /* it takes device memory */
    return cudnn_fake_leave(cudnn_fake_refuse(CUDNN_STATUS_INTERNAL_ERROR, "cudnnCreate in a capture"));
  struct cudnnContext *made = host_allocate(sizeof *made);
  made->next = handles;
  handles = made;
  *out = made;
  return cudnn_fake_leave(CUDNN_STATUS_SUCCESS);
}

cudnnStatus_t cudnnDestroy(cudnnHandle_t handle) {
  CUDNN_FAKE_ENTER("cudnnDestroy");
  struct cudnnContext **at = &handles;
  while (*at && *at != handle)
    at = &(*at)->next;
  if (!*at)
    return cudnn_fake_leave(cudnn_fake_refuse(CUDNN_STATUS_BAD_PARAM, "destroying no handle"));
  *at = handle->next;
  free(handle);
  return cudnn_fake_leave(CUDNN_STATUS_SUCCESS);
}

cudnnStatus_t cudnnSetStream(cudnnHandle_t handle, cudaStream_t stream) {
  CUDNN_FAKE_ENTER("cudnnSetStream");
  if (!cudnn_fake_handle_alive(handle) || !host_stream(stream))
    return cudnn_fake_leave(cudnn_fake_refuse(CUDNN_STATUS_BAD_PARAM, "no handle or no stream"));
  handle->stream = stream;
  return cudnn_fake_leave(CUDNN_STATUS_SUCCESS);
}

/* --- a run --- */

typedef struct fake_run {
  cudnn_fake_operation o;
  int input_bits; /* of mantissa that inputs keep; 23: all */
  int output_bits;
  float factor; /* of the outputs: what an engine's arithmetic gets wrong */
  void *workspace;
  size_t workspace_bytes;
  double us;
} fake_run;

/* From the first element to the last, in elements. */
static int64_t span(const cudnn_fake_tensor *t) {
  int64_t last = 0;
  for (int i = 0; i < CUDNN_FAKE_RANK; i++)
    last += (t->dims[i] - 1) * t->strides[i];
  return last + 1;
}

/* Numbers at the places that they have on the device. */
static double *decode(const cudnn_fake_tensor *t, bool output, int bits) {
  const int64_t count = span(t);
  double *values = host_allocate((size_t)count * sizeof *values);
  for (int64_t i = 0; i < count && !output; i++) {
    float value = t->bf16 ? host_from_bf16(((const uint16_t *)t->data)[i]) : ((const float *)t->data)[i];
    if (t->rounded)
      value = host_from_bf16(host_to_bf16(value));
    values[i] = bits < 23 ? host_round_to(value, bits) : value;
  }
  return values;
}

/* All channels of one pixel of x under one element of the filter and one output. */
static void channels(const cudnn_fake_operation *o, double *restrict x, double *restrict w, double *restrict y) {
  const int64_t x_stride = o->x.strides[1], w_stride = o->w.strides[1], count = o->x.dims[1];
  double sum = 0;
  if (o->kind == CUDNN_FAKE_FORWARD)
    for (int64_t c = 0; c < count; c++)
      sum += x[c * x_stride] * w[c * w_stride];
  else if (o->kind == CUDNN_FAKE_DATA)
    for (int64_t c = 0; c < count; c++)
      x[c * x_stride] += *y * w[c * w_stride];
  else
    for (int64_t c = 0; c < count; c++)
      w[c * w_stride] += *y * x[c * x_stride];
  if (o->kind == CUDNN_FAKE_FORWARD)
    *y += sum;
}

static void pixel(const cudnn_fake_operation *o, int64_t n, int64_t p, int64_t q, double *x, double *w, double *y) {
  for (int64_t a = 0; a < o->w.dims[2]; a++)
    for (int64_t b = 0; b < o->w.dims[3]; b++) {
      const int64_t i = p * o->strides[0] + a * o->dilations[0] - o->before[0];
      const int64_t j = q * o->strides[1] + b * o->dilations[1] - o->before[1];
      const int64_t row = o->flipped ? o->w.dims[2] - 1 - a : a, column = o->flipped ? o->w.dims[3] - 1 - b : b;
      if (i < 0 || j < 0 || i >= o->x.dims[2] || j >= o->x.dims[3])
        continue;
      for (int64_t k = 0; k < o->w.dims[0]; k++)
        channels(o, x + n * o->x.strides[0] + i * o->x.strides[2] + j * o->x.strides[3],
                 w + k * o->w.strides[0] + row * o->w.strides[2] + column * o->w.strides[3],
                 y + n * o->y.strides[0] + k * o->y.strides[1] + p * o->y.strides[2] + q * o->y.strides[3]);
    }
}

static void encode(const fake_run *r, const cudnn_fake_tensor *t, const double *values, int64_t at) {
  float *whole = &((float *)t->data)[t->bf16 ? 0 : at];
  uint16_t *half = &((uint16_t *)t->data)[t->bf16 ? at : 0];
  double value = (double)r->o.alpha * values[at];
  if (r->o.beta != 0)
    value += (double)r->o.beta * (t->bf16 ? host_from_bf16(*half) : *whole);
  float rounded = (float)value * r->factor;
  if (r->output_bits < 23)
    rounded = host_round_to(rounded, r->output_bits);
  if (t->bf16)
    *half = host_to_bf16(rounded);
  else
    *whole = rounded;
}

/* Before and after: so an input or an output that lies in it is seen. */
static void lose_workspace(const fake_run *r) {
  if (r->workspace_bytes > 0)
    memset(r->workspace, 0xff, r->workspace_bytes);
}

static void run(void *arguments) {
  const fake_run *r = arguments;
  cudnn_fake_operation copy = r->o, *o = &copy;
  const cudnn_fake_tensor *out = cudnn_fake_output(o);
  lose_workspace(r);
  double *x = decode(&o->x, out == &o->x, r->input_bits), *w = decode(&o->w, out == &o->w, r->input_bits);
  double *y = decode(&o->y, out == &o->y, r->input_bits), *values = out == &o->x ? x : out == &o->w ? w : y;
  for (int64_t n = 0; n < o->y.dims[0]; n++)
    for (int64_t p = 0; p < o->y.dims[2]; p++)
      for (int64_t q = 0; q < o->y.dims[3]; q++)
        pixel(o, n, p, q, x, w, y);
  for (int64_t a = 0; a < out->dims[0]; a++)
    for (int64_t b = 0; b < out->dims[1]; b++)
      for (int64_t c = 0; c < out->dims[2]; c++)
        for (int64_t d = 0; d < out->dims[3]; d++)
          encode(r, out, values, a * out->strides[0] + b * out->strides[1] + c * out->strides[2] + d * out->strides[3]);
  lose_workspace(r);
  petra_cuda_host_take(r->us);
  free(x);
  free(w);
  free(y);
}

/* --- what is to be run --- */

static bool on_device(const void *start, size_t bytes) {
  const unsigned char *at = start;
  for (const host_memory *memory = host.memory; memory; memory = memory->next)
    if (memory->device && at >= memory->start && at + bytes <= memory->start + memory->size)
      return true;
  return false;
}

static cudnnStatus_t bind(const cudnn_fake_descriptor *pack, cudnn_fake_tensor *t) {
  const cudnn_fake_value *ids = cudnn_fake_value_of(pack, CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS);
  const cudnn_fake_value *pointers = cudnn_fake_value_of(pack, CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS);
  for (int64_t i = 0; i < ids->count; i++)
    if (((const int64_t *)ids->data)[i] == t->id)
      t->data = ((void *const *)pointers->data)[i];
  if (!t->data)
    return cudnn_fake_refuse(CUDNN_STATUS_BAD_PARAM_NULL_POINTER, "a tensor has no pointer");
  if ((uintptr_t)t->data % (uintptr_t)t->alignment != 0)
    return cudnn_fake_refuse(CUDNN_STATUS_BAD_PARAM_MISALIGNED_POINTER, "a tensor's pointer");
  if (!on_device(t->data, (size_t)span(t) * (t->bf16 ? sizeof(uint16_t) : sizeof(float))))
    return cudnn_fake_refuse(CUDNN_STATUS_BAD_PARAM, "a tensor is not within an allocation on the device");
  return CUDNN_STATUS_SUCCESS;
}

static void behave(fake_run *r, const cudnn_fake_engine *engine) {
  r->input_bits = cudnn_fake_noted(engine, CUDNN_NUMERICAL_NOTE_DOWN_CONVERT_INPUTS) ? 7
                  : cudnn_fake_noted(engine, CUDNN_NUMERICAL_NOTE_TENSOR_CORE)       ? 10
                                                                                     : 23;
  r->output_bits = cudnn_fake_noted(engine, CUDNN_NUMERICAL_NOTE_REDUCED_PRECISION_REDUCTION) ? 7 : 23;
  r->factor = 1;
  for (int note = CUDNN_NUMERICAL_NOTE_WINOGRAD; note <= CUDNN_NUMERICAL_NOTE_WINOGRAD_TILE_13x13; note++)
    if (cudnn_fake_noted(engine, (cudnnBackendNumericalNote_t)note))
      r->factor = 1 + 0x1p-7f;
  if (cudnn_fake_noted(engine, CUDNN_NUMERICAL_NOTE_FFT))
    r->factor = 1 - 0x1p-7f;
  if (cudnn_fake_noted(engine, CUDNN_NUMERICAL_NOTE_NONDETERMINISTIC))
    r->factor = 1 + 0x1p-14f * (float)host_random(64);
}

static cudnnStatus_t prepare(cudnnHandle_t handle, const cudnn_fake_descriptor *plan, const cudnn_fake_descriptor *pack,
                             fake_run *r) {
  if (!cudnn_fake_handle_alive(handle) || !plan || !pack || !plan->finalized || !pack->finalized)
    return cudnn_fake_refuse(CUDNN_STATUS_BAD_PARAM_NOT_FINALIZED, "a run needs a handle, a plan and a variant pack");
  if (cudnn_fake_handle(plan, CUDNN_ATTR_EXECUTION_PLAN_HANDLE) != handle)
    return cudnn_fake_refuse(CUDNN_STATUS_BAD_PARAM, "the plan is not of this handle");
  if (!cudnn_fake_find(plan->graph, CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR))
    return cudnn_fake_refuse(CUDNN_STATUS_BAD_PARAM, "the plan's graph is gone");
  cudnn_fake_read_graph(plan->graph, &r->o);
  if (cudnn_fake_value_of(pack, CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS)->count != 3)
    return cudnn_fake_refuse(CUDNN_STATUS_BAD_PARAM, "a variant pack needs the three tensors that are in memory");
  cudnn_fake_tensor *const tensors[] = {&r->o.x, &r->o.w, &r->o.y};
  for (int i = 0; i < 3; i++) {
    cudnnStatus_t status = bind(pack, tensors[i]);
    if (status != CUDNN_STATUS_SUCCESS)
      return status;
  }
  r->workspace = *(void *const *)cudnn_fake_value_of(pack, CUDNN_ATTR_VARIANT_PACK_WORKSPACE)->data;
  r->workspace_bytes = (size_t)cudnn_fake_workspace(plan);
  if (r->workspace_bytes > 0 && ((uintptr_t)r->workspace % 16 != 0 || !on_device(r->workspace, r->workspace_bytes)))
    return cudnn_fake_refuse(CUDNN_STATUS_BAD_PARAM, "the workspace is not within an allocation on the device");
  behave(r, plan->engine);
  return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnBackendExecute(cudnnHandle_t handle, cudnnBackendDescriptor_t plan, cudnnBackendDescriptor_t pack) {
  fake_run r;
  memset(&r, 0, sizeof r);
  CUDNN_FAKE_ENTER("cudnnBackendExecute");
  cudnn_fake_descriptor *found = cudnn_fake_find(plan, CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR);
  cudnnStatus_t status = prepare(handle, found, cudnn_fake_find(pack, CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR), &r);
  if (status == CUDNN_STATUS_SUCCESS) {
    runs++;
    r.us = found->engine->us[found->runs < CUDNN_FAKE_RUNS ? found->runs : CUDNN_FAKE_RUNS - 1];
    found->runs++;
  }
  cudaStream_t stream = status == CUDNN_STATUS_SUCCESS ? handle->stream : NULL;
  cudnn_fake_leave(status);
  if (status == CUDNN_STATUS_SUCCESS && petra_cuda_host_call(stream, run, &r, sizeof r) != cudaSuccess)
    status = cudnn_fake_refuse(CUDNN_STATUS_EXECUTION_FAILED_CUDART, "the run cannot be queued");
  return status;
}
