/* Convolutions on the host: sums in double, rounded once. Plans are kept by shape as the real ones are. */
#include "backend/cuda/convolution.h"

#include "base/log.h"
#include "base/mem.h"
#include "cuda_host/arithmetic.h"
#include "cuda_host/control.h"

#include <stdio.h>
#include <stdlib.h>

struct cuda_plan {
  cuda_plan *next;
  cuda_conv_shape shape;
  size_t workspace;
  bool deviceless;
};
struct cuda_plans {
  cuda_plan *first;
  size_t workspace_max;
  bool deviceless;
};

petra_status cuda_plans_create(const char *deviceprop, bool deterministic, size_t workspace_max, cuda_plans **out) {
  (void)deterministic; /* all of these plans are */
  int device;
  if (!deviceprop && cudaGetDevice(&device) != cudaSuccess)
    return petra_fail(PETRA_BACKEND, "convolutions: there is no device");
  PETRA_TRY(petra_allocate(out, 1, sizeof **out));
  (*out)->workspace_max = workspace_max;
  (*out)->deviceless = deviceprop != NULL;
  return PETRA_OK;
}

void cuda_plans_destroy(cuda_plans *plans) {
  while (plans && plans->first) {
    cuda_plan *gone = plans->first;
    plans->first = gone->next;
    petra_free(gone);
  }
  petra_free(plans);
}

static bool consistent(const cuda_conv_shape *s) {
  return s->kind >= CUDA_CONV_FORWARD && s->kind <= CUDA_CONV_FILTER && s->n > 0 && s->c > 0 && s->h > 0 && s->w > 0 &&
         s->o > 0 && s->kh > 0 && s->kw > 0 && s->stride > 0 && s->pad >= 0 &&
         s->oh == (s->h + 2 * s->pad - s->kh) / s->stride + 1 && s->ow == (s->w + 2 * s->pad - s->kw) / s->stride + 1;
}

petra_status cuda_plans_find(cuda_plans *plans, const cuda_conv_shape *shape, const cuda_plan **out) {
  for (cuda_plan *plan = plans->first; plan; plan = plan->next)
    if (memcmp(&plan->shape, shape, sizeof *shape) == 0) {
      *out = plan;
      return PETRA_OK;
    }
  if (!consistent(shape) || shape->precision == PETRA_PRECISION_FP64)
    return petra_fail(PETRA_UNSUPPORTED,
                      "convolution: no plan for kind %d, precision %d, x (%d, %d, %d, %d), filter (%d, %d, %d), "
                      "stride %d, pad %d, y %d x %d", shape->kind, shape->precision, shape->n, shape->h, shape->w, shape->c,
                      shape->o, shape->kh, shape->kw, shape->stride, shape->pad, shape->oh, shape->ow);
  cuda_plan *plan;
  PETRA_TRY(petra_allocate(&plan, 1, sizeof *plan));
  plan->shape = *shape;
  size_t wish = 1024 + 256 * (size_t)shape->c; /* differs from plan to plan */
  plan->workspace = wish < plans->workspace_max ? wish : plans->workspace_max;
  plan->deviceless = plans->deviceless;
  plan->next = plans->first;
  plans->first = plan;
  *out = plan;
  return PETRA_OK;
}

size_t cuda_plan_workspace(const cuda_plan *plan) {
  return plan->workspace;
}

void cuda_plan_describe(const cuda_plan *plan, char *text, size_t size) {
  snprintf(text, size, "host loops, %zu bytes workspace", plan->workspace);
}

void cuda_plans_describe(char *text, size_t size) {
  snprintf(text, size, "host convolutions");
}

/* --- running --- */

typedef struct host_convolution {
  cuda_conv_shape shape;
  const void *x, *w, *y;
  void *scratch;
  size_t scratch_bytes;
} host_convolution;

/* An input as doubles, decoded as the precision reads it. */
static double *decode(const cuda_conv_shape *s, const void *from, int64_t count) {
  double *to = malloc(sizeof *to * (size_t)count);
  if (!to)
    abort();
  for (int64_t i = 0; i < count; i++) {
    if (s->precision == HOST_BF16)
      to[i] = host_from_bf16(((const uint16_t *)from)[i]);
    else if (s->precision == HOST_TF32)
      to[i] = host_round_to(((const float *)from)[i], 10);
    else
      to[i] = ((const float *)from)[i];
  }
  return to;
}

/* One place of the filter under one place of the output: the three kinds differ in which of the arrays is summed up. */
static void place(const cuda_conv_shape *s, double *restrict x, double *restrict w, double *restrict y) {
  const int64_t stride = (int64_t)s->kh * s->kw * s->c, outputs = s->o;
  const int32_t channels = s->c;
  if (s->kind == CUDA_CONV_FORWARD)
    for (int64_t o = 0; o < outputs; o++) {
      double sum = 0;
      for (int32_t c = 0; c < channels; c++)
        sum += x[c] * w[o * stride + c];
      y[o] += sum;
    }
  else if (s->kind == CUDA_CONV_DATA)
    for (int64_t o = 0; o < outputs; o++)
      for (int32_t c = 0; c < channels; c++)
        x[c] += y[o] * w[o * stride + c];
  else
    for (int64_t o = 0; o < outputs; o++)
      for (int32_t c = 0; c < channels; c++)
        w[o * stride + c] += y[o] * x[c];
}

static void convolve(const cuda_conv_shape *s, double *x, double *w, double *y) {
  for (int64_t n = 0; n < s->n; n++)
    for (int64_t p = 0; p < s->oh; p++)
      for (int64_t q = 0; q < s->ow; q++)
        for (int64_t a = 0; a < s->kh; a++)
          for (int64_t b = 0; b < s->kw; b++) {
            int64_t i = p * s->stride + a - s->pad, j = q * s->stride + b - s->pad;
            if (i >= 0 && i < s->h && j >= 0 && j < s->w)
              place(s, x + ((n * s->h + i) * s->w + j) * s->c, w + (a * s->kw + b) * s->c,
                    y + ((n * s->oh + p) * s->ow + q) * s->o);
          }
}

static void run(void *arguments) {
  const host_convolution *h = arguments;
  const cuda_conv_shape *s = &h->shape;
  int64_t counts[3] = {(int64_t)s->n * s->h * s->w * s->c, (int64_t)s->o * s->kh * s->kw * s->c,
                       (int64_t)s->n * s->oh * s->ow * s->o};
  const void *arrays[3] = {h->x, h->w, h->y};
  int output = s->kind == CUDA_CONV_FORWARD ? 2 : s->kind == CUDA_CONV_DATA ? 0 : 1;
  double *values[3];
  host_scribble(h->scratch, h->scratch_bytes);
  for (int i = 0; i < 3; i++) {
    values[i] = i == output ? calloc((size_t)counts[i], sizeof(double)) : decode(s, arrays[i], counts[i]);
    if (!values[i])
      abort();
  }
  convolve(s, values[0], values[1], values[2]);
  for (int64_t i = 0; i < counts[output]; i++)
    ((float *)(uintptr_t)arrays[output])[i] = (float)values[output][i];
  for (int i = 0; i < 3; i++)
    free(values[i]);
}

petra_status cuda_plan_run(const cuda_plan *plan, const cuda_lane *lane, const void *x, const void *w, const void *y) {
  if (plan->deviceless)
    return petra_fail(PETRA_INTERNAL, "convolution: a plan that was made without a device cannot run");
  if (lane->scratch_bytes < plan->workspace)
    return petra_fail(PETRA_INTERNAL, "convolution: the lane has %zu bytes of scratch, not %zu", lane->scratch_bytes,
                      plan->workspace);
  host_convolution h = {plan->shape, x, w, y, lane->scratch, lane->scratch_bytes};
  cudaError_t error = petra_cuda_host_call(lane->stream, run, &h, sizeof h);
  if (error != cudaSuccess)
    return petra_fail(PETRA_BACKEND, "convolution: %s", cudaGetErrorString(error));
  return PETRA_OK;
}
