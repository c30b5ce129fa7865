/* SPDX-License-Identifier: Apache-2.0 */
/* Layouts, storage, and copies between host arrays and layouts. */
#include "backend/cpu/cpu.h"

#include "base/mem.h"

#include <string.h>

/* Returns the block of one side of a filter, and in fp32 of an activation, with `channels` channels; 1: not blocked, as
 * for images. A single channel is blocked: without padding oneDNN 2.6 has only slow kernels for it and, in bf16 without
 * AMX, returns wrong gradients (x (2, 2, 6, 5), filter (1, 2, 1, 1)). */
static int channel_block(const cpu_backend *backend, int channels) {
  return channels == 3 ? 1 : backend->block;
}

static int blocks_of(int count, int block) {
  return (count + block - 1) / block;
}

static void activation_layout(const cpu_backend *cpu, const int32_t shape[4], cpu_layout *l) {
  l->block = channel_block(cpu, shape[1]);
  if (cpu->channels_last)
    l->block = l->block == 1 ? shape[1] : blocks_of(shape[1], CPU_BLOCK_MAX) * CPU_BLOCK_MAX;
  l->lanes = (int)cpu_minimum(l->block, CPU_BLOCK_MAX);
  l->channel_blocks = blocks_of(shape[1], l->block);
  l->plane = (int64_t)shape[2] * shape[3];
  l->count = (int64_t)shape[0] * l->channel_blocks * l->block * l->plane;
  l->padded = shape[1] % l->block != 0;
}

static void filter_layout(const cpu_backend *cpu, const int32_t shape[4], cpu_layout *l) {
  l->block_out = channel_block(cpu, shape[0]);
  l->block_in = channel_block(cpu, shape[1]);
  if (l->block_out > 1 && l->block_in == 1)
    l->block_in = shape[1]; /* Ohwi16o */
  l->out_blocks = blocks_of(shape[0], l->block_out);
  l->in_blocks = blocks_of(shape[1], l->block_in);
  l->taps = shape[2] * shape[3];
  l->count = (int64_t)l->out_blocks * l->in_blocks * l->taps * l->block_in * l->block_out;
  l->padded = shape[0] % l->block_out != 0 || shape[1] % l->block_in != 0;
}

/* Sets the layout and returns the number of stored elements. */
static int64_t lay_out(petra_backend *backend, const petra_tensor *tensor, cpu_layout *l) {
  *l =
      (cpu_layout){.count = tensor->elements,
                   .narrow = petra_kind_is_inner(tensor->kind) && backend->element_bytes[tensor->kind] < sizeof(float)};
  switch (tensor->kind) {
  case PETRA_TENSOR_ACTIVATION:
  case PETRA_TENSOR_INNER:
  case PETRA_TENSOR_MASK: /* max-pool: the winner of its window */
    activation_layout(cpu_of(backend), tensor->shape, l);
    break;
  case PETRA_TENSOR_FILTER:
    filter_layout(cpu_of(backend), tensor->shape, l);
    break;
  case PETRA_TENSOR_VECTOR:
    return (int64_t)blocks_of(tensor->shape[0], CPU_BLOCK_MAX) * CPU_BLOCK_MAX;
  case PETRA_TENSOR_MATRIX:
  case PETRA_TENSOR_SEQUENCE:
  case PETRA_TENSOR_INNER_SEQUENCE:
  case PETRA_TENSOR_QUANTISED:
    break;
  }
  return l->count;
}

size_t cpu_storage_bytes(petra_backend *backend, const petra_tensor *tensor) {
  cpu_layout layout;
  return (size_t)lay_out(backend, tensor, &layout) * backend->element_bytes[tensor->kind];
}

petra_status cpu_storage_create(petra_backend *backend, petra_tensor *tensor) {
  PETRA_FREED cpu_layout *l = NULL;
  PETRA_TRY(petra_allocate(&l, 1, sizeof *l));
  lay_out(backend, tensor, l);
  PETRA_TRY(petra_allocate(&tensor->data, tensor->bytes, 1));
  tensor->layout = l;
  l = NULL;
  return PETRA_OK;
}

void cpu_storage_destroy(petra_backend *backend, petra_tensor *tensor) {
  (void)backend;
  for (int i = 0; i < CPU_SHADOWS && tensor->layout; i++)
    petra_free(cpu_layout_of(tensor)->shadow[i].data);
  petra_free(tensor->data);
  petra_free(tensor->layout);
  tensor->data = NULL;
  tensor->layout = NULL;
}

static bool is_image(const petra_tensor *tensor) {
  return tensor->kind == PETRA_TENSOR_ACTIVATION || tensor->kind == PETRA_TENSOR_INNER;
}

static void clear_activation(petra_tensor *tensor, const cpu_layout *l) {
  const int used = tensor->shape[1] % l->block;
  const size_t bytes = (size_t)(l->block - used) * (l->narrow ? sizeof(uint16_t) : sizeof(float));
  for (int64_t n = 0; n < tensor->shape[0]; n++) {
    const int64_t last = cpu_channel_offset(l, n, (int64_t)(l->channel_blocks - 1) * l->block) + used;
    for (int64_t p = 0; p < l->plane; p++)
      memset(cpu_write(tensor, last + p * l->block), 0, bytes);
  }
}

static void clear_filter(petra_tensor *tensor, const cpu_layout *l) {
  for (int64_t o = 0; o < (int64_t)l->out_blocks * l->block_out; o++)
    for (int64_t i = 0; i < (int64_t)l->in_blocks * l->block_in; i++)
      if (o >= tensor->shape[0] || i >= tensor->shape[1])
        for (int64_t tap = 0; tap < l->taps; tap++)
          cpu_data(tensor)[cpu_filter_offset(l, o, i, tap)] = 0;
}

void cpu_clear_padding(petra_tensor *tensor) {
  const cpu_layout *l = cpu_layout_of(tensor);
  if (!l->padded)
    return;
  if (is_image(tensor))
    clear_activation(tensor, l);
  else if (tensor->kind == PETRA_TENSOR_FILTER)
    clear_filter(tensor, l);
}

/* Copies `length` elements from `start` on, `step` apart, from or to a dense host array. */
static void scatter(petra_tensor *tensor, int64_t start, int64_t step, const void *host, petra_host_type type,
                    int64_t first, int64_t length) {
  const bool narrow = cpu_layout_of(tensor)->narrow, dense = !narrow && step == 1 && type == PETRA_HOST_F32;
  const float *single = (const float *)host + first;
  void *data = cpu_write(tensor, start);
  if (dense)
    memcpy(data, single, (size_t)length * sizeof(float));
  for (int64_t i = 0; i < length && !dense; i++) {
    const float x = type == PETRA_HOST_F64 ? (float)((const double *)host)[first + i] : single[i];
    if (narrow)
      ((uint16_t *)data)[i * step] = cpu_to_bf16(x);
    else
      ((float *)data)[i * step] = x;
  }
}

static void gather(const petra_tensor *tensor, int64_t start, int64_t step, void *host, petra_host_type type,
                   int64_t first, int64_t length) {
  const bool narrow = cpu_layout_of(tensor)->narrow, dense = !narrow && step == 1 && type == PETRA_HOST_F32;
  const void *data = cpu_element(tensor, start);
  if (dense)
    memcpy((float *)host + first, data, (size_t)length * sizeof(float));
  for (int64_t i = 0; i < length && !dense; i++) {
    const float x = narrow ? cpu_from_bf16(((const uint16_t *)data)[i * step]) : ((const float *)data)[i * step];
    if (type == PETRA_HOST_F64)
      ((double *)host)[first + i] = (double)x;
    else
      ((float *)host)[first + i] = x;
  }
}

/* The stretches of equal step that a tensor consists of: outer index -> start of the stretch, in both orders. */
typedef struct stretches {
  int64_t count, length, step;
} stretches;

static stretches stretches_of(const petra_tensor *tensor) {
  const cpu_layout *l = cpu_layout_of(tensor);
  if (is_image(tensor))
    return (stretches){(int64_t)tensor->shape[0] * tensor->shape[1], l->plane, l->block};
  if (tensor->kind == PETRA_TENSOR_FILTER)
    return (stretches){(int64_t)tensor->shape[0] * tensor->shape[1], l->taps, (int64_t)l->block_in * l->block_out};
  return (stretches){1, tensor->elements, 1};
}

static int64_t stretch_start(const petra_tensor *tensor, int64_t outer) {
  const cpu_layout *l = cpu_layout_of(tensor);
  if (is_image(tensor))
    return cpu_channel_offset(l, outer / tensor->shape[1], outer % tensor->shape[1]);
  if (tensor->kind == PETRA_TENSOR_FILTER)
    return cpu_filter_offset(l, outer / tensor->shape[1], outer % tensor->shape[1], 0);
  return 0;
}

petra_status cpu_upload(petra_backend *backend, petra_tensor *tensor, const void *host, petra_host_type type) {
  stretches s = stretches_of(tensor);
  if (type == PETRA_HOST_U8) {
    memcpy(tensor->data, host, tensor->bytes);
    return PETRA_OK;
  }
#pragma omp parallel for schedule(static) num_threads(cpu_threads(backend, tensor->elements))
  for (int64_t outer = 0; outer < s.count; outer++)
    scatter(tensor, stretch_start(tensor, outer), s.step, host, type, outer * s.length, s.length);
  return PETRA_OK;
}

petra_status cpu_download(petra_backend *backend, const petra_tensor *tensor, void *host, petra_host_type type) {
  stretches s = stretches_of(tensor);
  if (type == PETRA_HOST_U8) {
    memcpy(host, tensor->data, tensor->bytes);
    return PETRA_OK;
  }
#pragma omp parallel for schedule(static) num_threads(cpu_threads(backend, tensor->elements))
  for (int64_t outer = 0; outer < s.count; outer++)
    gather(tensor, stretch_start(tensor, outer), s.step, host, type, outer * s.length, s.length);
  return PETRA_OK;
}

/* Gets the position of elements from `first` of sample `n` on that lie `step` apart, at most `count` elements; returns
 * their number. */
static int64_t stretch_of_sample(const petra_tensor *tensor, int64_t n, int64_t first, int64_t count, int64_t *start,
                                 int64_t *step) {
  const cpu_layout *l = cpu_layout_of(tensor);
  *step = is_image(tensor) ? l->block : 1;
  if (!is_image(tensor)) {
    *start = n * (tensor->elements / tensor->shape[0]) + first;
    return count;
  }
  *start = cpu_channel_offset(l, n, first / l->plane) + first % l->plane * l->block;
  return cpu_minimum(count, l->plane - first % l->plane);
}

void cpu_read_sample(const petra_tensor *tensor, int64_t n, int64_t first, int64_t count, float *values) {
  int64_t start, step, found;
  for (int64_t i = 0; i < count; i += found) {
    found = stretch_of_sample(tensor, n, first + i, count - i, &start, &step);
    gather(tensor, start, step, values, PETRA_HOST_F32, i, found);
  }
}

void cpu_write_sample(petra_tensor *tensor, int64_t n, int64_t first, int64_t count, const float *values) {
  int64_t start, step, found;
  for (int64_t i = 0; i < count; i += found) {
    found = stretch_of_sample(tensor, n, first + i, count - i, &start, &step);
    scatter(tensor, start, step, values, PETRA_HOST_F32, i, found);
  }
}
