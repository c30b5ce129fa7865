/* SPDX-License-Identifier: Apache-2.0 */
/* Tensors on the device, and the way between host arrays and them. */
#include "backend/cuda/cuda.h"
#include "base/mem.h"

#include <string.h>

/* Zeros. Storage is made in the first ticks only: the wait costs nothing later. */
petra_status cuda_storage_create(petra_backend *backend, petra_tensor *tensor) {
  cuda_backend *cuda = cuda_of(backend);
  cuda_storage *storage;
  void *data;
  PETRA_TRY(petra_allocate(&storage, 1, sizeof *storage));
  petra_status status = cuda_check(cudaMalloc(&data, tensor->bytes), "memory for a tensor");
  if (status != PETRA_OK) {
    petra_free(storage);
    return status;
  }
  tensor->data = data;
  tensor->layout = storage;
  cudaStream_t stream = cuda->track[cuda->segment->lane].lane.stream;
  status = cuda_check(cudaMemsetAsync(data, 0, tensor->bytes, stream), "zeros of a tensor");
  if (status == PETRA_OK)
    status = cuda_check(cudaStreamSynchronize(stream), "zeros of a tensor");
  if (status != PETRA_OK)
    cuda_storage_destroy(backend, tensor);
  return status;
}

void cuda_storage_destroy(petra_backend *backend, petra_tensor *tensor) {
  (void)backend;
  if (cuda_storage_of(tensor)->rounded)
    cudaFree(cuda_storage_of(tensor)->rounded);
  cudaFree(tensor->data);
  petra_free(tensor->layout);
  tensor->data = NULL;
  tensor->layout = NULL;
}

/* From the host's order x to the device's order y, or back. Activations and filters have their channels last on the
 * device: (n, c, plane) of the host's order. All else lies as on the host. */
static petra_status reorder(cuda_backend *cuda, const petra_tensor *tensor, const void *x, void *y, bool to_device) {
  const bool planes = tensor->kind == PETRA_TENSOR_ACTIVATION || tensor->kind == PETRA_TENSOR_INNER ||
                      tensor->kind == PETRA_TENSOR_FILTER;
  const bool bytes = tensor->kind == PETRA_TENSOR_QUANTISED || tensor->kind == PETRA_TENSOR_MASK;
  if (!planes) /* no narrow ones are among them */
    return cuda_add_copy(cuda, x, y, bytes ? tensor->bytes : (size_t)tensor->elements * sizeof(float));
  CUDA_ARGUMENTS(cuda_permute_args, a);
  a.x = x;
  a.y = y;
  a.n = tensor->shape[0];
  a.c = tensor->shape[1];
  a.plane = (int64_t)tensor->shape[2] * tensor->shape[3];
  a.to_channels_last = to_device;
  a.narrow = cuda_is_narrow(tensor);
  return cuda_add_command(cuda, cuda_permute_launch, &a, sizeof a);
}

petra_status cuda_upload(petra_backend *backend, petra_tensor *tensor, const void *host, petra_host_type type) {
  cuda_backend *cuda = cuda_of(backend);
  const size_t bytes = type == PETRA_HOST_U8 ? tensor->bytes : (size_t)tensor->elements * sizeof(float);
  void *pinned, *device;
  PETRA_TRY(cuda_begin_upload(cuda, bytes, &pinned, &device));
  if (type != PETRA_HOST_F64)
    memcpy(pinned, host, bytes);
  else
    for (int64_t i = 0; i < tensor->elements; i++)
      ((float *)pinned)[i] = (float)((const double *)host)[i];
  PETRA_TRY(cuda_send_upload(cuda, bytes));
  cuda_writes(cuda, tensor);
  return reorder(cuda, tensor, device, tensor->data, true);
}

/* The choices lie behind the pixels, so that one copy brings both. */
petra_status cuda_upload_images(petra_backend *backend, const petra_images *images, petra_tensor *x) {
  cuda_backend *cuda = cuda_of(backend);
  const size_t pixels = (size_t)x->elements, choices = (size_t)x->shape[0] * sizeof *images->choices;
  const size_t start = (pixels + 15) / 16 * 16;
  void *pinned, *device;
  PETRA_TRY(cuda_begin_upload(cuda, start + choices, &pinned, &device));
  memcpy(pinned, images->pixels, pixels);
  memcpy((char *)pinned + start, images->choices, choices);
  PETRA_TRY(cuda_send_upload(cuda, start + choices));
  CUDA_ARGUMENTS(cuda_augment_args, a);
  a.pixels = device;
  a.choices = (const void *)((const char *)device + start);
  a.y = cuda_write(cuda, x);
  a.rounded = cuda_write_rounded(cuda, x);
  a.n = x->shape[0];
  a.h = x->shape[2];
  a.w = x->shape[3];
  memcpy(a.mean, images->mean, sizeof a.mean);
  memcpy(a.deviation, images->deviation, sizeof a.deviation);
  return cuda_add_command(cuda, cuda_augment_launch, &a, sizeof a);
}

petra_status cuda_download(petra_backend *backend, const petra_tensor *tensor, void *host, petra_host_type type) {
  cuda_backend *cuda = cuda_of(backend);
  const size_t bytes = type == PETRA_HOST_U8 ? tensor->bytes : (size_t)tensor->elements * sizeof(float);
  void *device;
  const void *pinned;
  PETRA_TRY(cuda_receive(cuda, bytes, &device));
  cuda_reads(cuda, tensor);
  PETRA_TRY(reorder(cuda, tensor, tensor->data, device, false));
  PETRA_TRY(cuda_fetch(cuda, device, bytes, &pinned));
  if (type != PETRA_HOST_F64)
    memcpy(host, pinned, bytes);
  else
    for (int64_t i = 0; i < tensor->elements; i++)
      ((double *)host)[i] = (double)((const float *)pinned)[i];
  return PETRA_OK;
}

/* --- number formats --- */

/* Returns the channels that lie together, and sets the number of positions; sequences lie in the logical order. */
static int32_t channels_of(const petra_tensor *tensor, int64_t *plane) {
  const bool image = tensor->kind == PETRA_TENSOR_ACTIVATION || tensor->kind == PETRA_TENSOR_INNER;
  const int32_t c = image ? tensor->shape[1] : 1;
  *plane = tensor->elements / tensor->shape[0] / c;
  return c;
}

petra_status cuda_quantise(petra_backend *backend, const petra_tensor *x, petra_format format, const petra_draws *draws,
                           petra_tensor *y) {
  cuda_backend *cuda = cuda_of(backend);
  const void *values = NULL;
  if (petra_format_is_random(format))
    PETRA_TRY(cuda_value(cuda, draws, sizeof *draws, &values));
  CUDA_ARGUMENTS(cuda_quantise_args, a);
  a.x = cuda_read_either(cuda, x, &a.narrow);
  a.draws = values;
  a.bytes = (uint8_t *)cuda_write(cuda, y);
  a.n = x->shape[0];
  a.c = channels_of(x, &a.plane);
  a.row = y->shape[1];
  a.format = format;
  return cuda_add_command(cuda, cuda_quantise_launch, &a, sizeof a);
}

petra_status cuda_dequantise(petra_backend *backend, const petra_tensor *x, petra_format format, petra_tensor *y) {
  cuda_backend *cuda = cuda_of(backend);
  CUDA_ARGUMENTS(cuda_dequantise_args, a);
  a.bytes = (const uint8_t *)cuda_read(cuda, x);
  a.y = cuda_write(cuda, y);
  a.n = y->shape[0];
  a.c = channels_of(y, &a.plane);
  a.row = x->shape[1];
  a.format = format;
  a.narrow = cuda_is_narrow(y);
  return cuda_add_command(cuda, cuda_dequantise_launch, &a, sizeof a);
}
