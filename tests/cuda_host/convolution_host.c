/* SPDX-License-Identifier: Apache-2.0 */
/* Convolutions on the host: sums in double, rounded once (a wide output: to float). Convolutions are kept by shape as the real ones are. */
#include "backend/cuda/cuda_libraries.h"

#include "base/log.h"
#include "base/mem.h"
#include "cuda_host/arithmetic.h"
#include "cuda_host/control.h"

#include <stdio.h>
#include <stdlib.h>

struct cuda_conv {
  cuda_conv *next;
  cuda_conv_shape shape;
  size_t workspace;
  bool deviceless;
};
struct cuda_convs {
  cuda_conv *first;
  size_t workspace_max;
  bool deviceless;
};

petra_status cuda_convs_create(const char *deviceprop, bool deterministic, size_t workspace_max, cuda_convs **out) {
  (void)deterministic; /* all of these convolutions are */
  int device;
  if (!deviceprop && cudaGetDevice(&device) != cudaSuccess)
    return petra_fail(PETRA_BACKEND, "convolutions: there is no device");
  PETRA_TRY(petra_allocate(out, 1, sizeof **out));
  (*out)->workspace_max = workspace_max;
  (*out)->deviceless = deviceprop != NULL;
  return PETRA_OK;
}

void cuda_convs_destroy(cuda_convs *convs) {
  while (convs && convs->first) {
    cuda_conv *gone = convs->first;
    convs->first = gone->next;
    petra_free(gone);
  }
  petra_free(convs);
}

static bool consistent(const cuda_conv_shape *s) {
  return s->kind >= CUDA_CONV_FORWARD && s->kind <= CUDA_CONV_FILTER && s->n > 0 && s->c > 0 && s->h > 0 && s->w > 0 &&
         s->o > 0 && s->kh > 0 && s->kw > 0 && s->stride > 0 && s->pad >= 0 &&
         (s->precision == HOST_BF16 || (!s->wide_in && !s->wide_out)) && !(s->kind == CUDA_CONV_DATA && s->wide_in) &&
         s->oh == (s->h + 2 * s->pad - s->kh) / s->stride + 1 && s->ow == (s->w + 2 * s->pad - s->kw) / s->stride + 1;
}

petra_status cuda_convs_find(cuda_convs *convs, const cuda_conv_shape *shape, const cuda_conv **out) {
  for (cuda_conv *conv = convs->first; conv; conv = conv->next)
    if (memcmp(&conv->shape, shape, sizeof *shape) == 0) {
      *out = conv;
      return PETRA_OK;
    }
  if (!consistent(shape) || shape->precision == PETRA_PRECISION_FP64)
    return petra_fail(PETRA_UNSUPPORTED,
                      "convolution: no plan for kind %d, precision %d, x (%d, %d, %d, %d), filter (%d, %d, %d), "
                      "stride %d, pad %d, y %d x %d",
                      shape->kind, shape->precision, shape->n, shape->h, shape->w, shape->c, shape->o, shape->kh,
                      shape->kw, shape->stride, shape->pad, shape->oh, shape->ow);
  cuda_conv *conv;
  PETRA_TRY(petra_allocate(&conv, 1, sizeof *conv));
  conv->shape = *shape;
  size_t wish = 1024 + 256 * (size_t)shape->c; /* differs from convolution to convolution */
  conv->workspace = wish < convs->workspace_max ? wish : convs->workspace_max;
  conv->deviceless = convs->deviceless;
  conv->next = convs->first;
  convs->first = conv;
  *out = conv;
  return PETRA_OK;
}

void cuda_convs_fuse(cuda_convs *convs, unsigned kinds) {
  (void)convs, (void)kinds; /* all are */
}

/* There is nothing to choose from. */
petra_status cuda_convs_measure(cuda_convs *convs, const char *file) {
  (void)convs, (void)file;
  return PETRA_OK;
}

void cuda_convs_print(const cuda_convs *convs, FILE *out) {
  (void)convs, (void)out;
}

size_t cuda_conv_workspace(const cuda_conv *conv) {
  return conv->workspace;
}

void cuda_cudnn_describe(char *text, size_t size) {
  snprintf(text, size, "host convolutions");
}

/* --- running --- */

typedef struct host_convolution {
  cuda_conv_shape shape;
  const void *x, *w, *y;
  void *scratch;
  size_t scratch_bytes;
} host_convolution;

/* One of the arrays, images of `plane` pixels and `channels`; in double, it is kept plane by plane: long inner
 * loops. */
typedef struct host_array {
  const void *device;
  int64_t images, plane, channels;
  double *values;
} host_array;

static int64_t place_of(const host_array *array, int64_t at) { /* of element `at` of the device's array */
  int64_t channel = at % array->channels, pixel = at / array->channels;
  return (pixel / array->plane * array->channels + channel) * array->plane + pixel % array->plane;
}

/* `wide`: f32 in bf16, which an input is rounded from. */
static void decode(const cuda_conv_shape *s, host_array *array, bool output, bool wide) {
  int64_t count = array->images * array->plane * array->channels;
  array->values = calloc((size_t)count, sizeof(double));
  if (!array->values)
    abort();
  for (int64_t i = 0; i < count && !output; i++) {
    double value;
    if (wide)
      value = host_from_bf16(host_to_bf16(((const float *)array->device)[i]));
    else if (s->precision == HOST_BF16)
      value = host_from_bf16(((const uint16_t *)array->device)[i]);
    else if (s->precision == HOST_TF32)
      value = host_round_to(((const float *)array->device)[i], 10);
    else
      value = ((const float *)array->device)[i];
    array->values[place_of(array, i)] = value;
  }
}

/* One row of y under one element of the filter: the three kinds differ in which of the arrays is summed up. */
static void row(int32_t kind, int64_t count, int64_t stride, double *restrict x, double *restrict w,
                double *restrict y) {
  double sum = 0;
  if (kind == CUDA_CONV_FORWARD)
    for (int64_t q = 0; q < count; q++)
      y[q] += *w * x[q * stride];
  else if (kind == CUDA_CONV_DATA)
    for (int64_t q = 0; q < count; q++)
      x[q * stride] += *w * y[q];
  else
    for (int64_t q = 0; q < count; q++)
      sum += y[q] * x[q * stride];
  if (kind == CUDA_CONV_FILTER)
    *w += sum;
}

/* x and y are planes of one image and channel, w the filter between them. */
static void convolve_planes(const cuda_conv_shape *s, double *x, double *w, double *y) {
  for (int64_t a = 0; a < s->kh; a++)
    for (int64_t b = 0; b < s->kw; b++) {
      int64_t first = 0, end = s->ow;
      while (first < end && first * s->stride + b < s->pad)
        first++;
      while (end > first && (end - 1) * s->stride + b - s->pad >= s->w)
        end--;
      for (int64_t p = 0; p < s->oh && first < end; p++) {
        int64_t i = p * s->stride + a - s->pad;
        if (i >= 0 && i < s->h)
          row(s->kind, end - first, s->stride, x + i * s->w + first * s->stride + b - s->pad, w + a * s->kw + b,
              y + p * s->ow + first);
      }
    }
}

static void run(void *arguments) {
  const host_convolution *h = arguments;
  const cuda_conv_shape *s = &h->shape;
  host_array x = {h->x, s->n, (int64_t)s->h * s->w, s->c, NULL};
  host_array w = {h->w, s->o, (int64_t)s->kh * s->kw, s->c, NULL};
  host_array y = {h->y, s->n, (int64_t)s->oh * s->ow, s->o, NULL};
  host_array *out = s->kind == CUDA_CONV_FORWARD ? &y : s->kind == CUDA_CONV_DATA ? &x : &w;
  host_scribble(h->scratch, h->scratch_bytes);
  decode(s, &x, out == &x, s->wide_in);
  decode(s, &w, out == &w, false);
  decode(s, &y, out == &y, false);
  for (int64_t n = 0; n < s->n; n++)
    for (int64_t o = 0; o < s->o; o++)
      for (int64_t c = 0; c < s->c; c++)
        convolve_planes(s, x.values + (n * s->c + c) * x.plane, w.values + (o * s->c + c) * w.plane,
                        y.values + (n * s->o + o) * y.plane);
  for (int64_t i = 0; i < out->images * out->plane * out->channels; i++)
    if (s->precision == HOST_BF16 && !s->wide_out)
      ((uint16_t *)(uintptr_t)out->device)[i] = host_to_bf16((float)out->values[place_of(out, i)]);
    else
      ((float *)(uintptr_t)out->device)[i] = (float)out->values[place_of(out, i)];
  free(x.values);
  free(w.values);
  free(y.values);
}

/* Each array once, in the bytes that it is stored in. */
static bool is_reported(const cuda_conv_shape *s) {
  static const char *const names[] = {"convolution.forward", "convolution.data", "convolution.filter"};
  const double size = s->precision == HOST_BF16 ? 2 : 4;
  const double x = size * s->n * s->h * s->w * s->c, w = size * s->o * s->kh * s->kw * s->c;
  const double y = size * s->n * s->oh * s->ow * s->o;
  const double out = s->kind == CUDA_CONV_FORWARD ? y : s->kind == CUDA_CONV_DATA ? x : w;
  return petra_cuda_host_is_told(
      &(petra_cuda_host_told){.name = names[s->kind],
                              .flops = 2.0 * s->n * s->oh * s->ow * s->o * s->c * s->kh * s->kw,
                              .read_bytes = x + w + y - out,
                              .written_bytes = s->wide_out ? 2 * out : out});
}

petra_status cuda_conv_run(const cuda_conv *conv, const cuda_lane *lane, const void *x, const void *w, const void *y,
                           bool *ran) {
  (void)ran;
  if (conv->deviceless)
    return petra_fail(PETRA_INTERNAL, "convolution: a plan that was made without a device cannot run");
  if (lane->scratch_bytes < conv->workspace)
    return petra_fail(PETRA_INTERNAL, "convolution: the lane has %zu bytes of scratch, not %zu", lane->scratch_bytes,
                      conv->workspace);
  if (is_reported(&conv->shape))
    return PETRA_OK;
  host_convolution h = {conv->shape, x, w, y, lane->scratch, lane->scratch_bytes};
  cudaError_t error = petra_cuda_host_call(lane->stream, run, &h, sizeof h);
  if (error != cudaSuccess)
    return petra_fail(PETRA_BACKEND, "convolution: %s", cudaGetErrorString(error));
  return PETRA_OK;
}
