/* SPDX-License-Identifier: Apache-2.0 */
/* Memory: tensors on the device, and transfers between host arrays and tensors. */
#include "backend/cuda/cuda.h"
#include "base/log.h"
#include "base/mem.h"

#include <string.h>

/* The storage is filled with zeros. It is created only in the first ticks, so that later ticks do not wait. */
petra_status cuda_storage_create(petra_backend *backend, petra_tensor *tensor) {
  cuda_backend *cuda = cuda_of(backend);
  cudaStream_t stream = cuda->track[cuda->segment->lane].lane.stream;
  PETRA_TRY(petra_allocate(&tensor->layout, 1, sizeof(cuda_storage)));
  petra_status status = cuda_check(cudaMalloc(&tensor->data, tensor->bytes), "memory for a tensor");
  if (status == PETRA_OK)
    status = cuda_check(cudaMemsetAsync(tensor->data, 0, tensor->bytes, stream), "zeros of a tensor");
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

/* --- pinned memory in transit: uploads, downloads, values, results --- */

enum { SLOTS = 4, RESULT_BYTES = 64, VALUE_ALIGNMENT = 16, LATER = 4 };

/* A piece of pinned memory with its twin on the device. */
typedef struct pair {
  void *pinned, *device;
  size_t bytes;
} pair;

typedef struct slot {
  pair memory;
  cudaEvent_t copied;
  bool due; /* sent; the segment that uses it was not submitted yet */
  int lane; /* the lane that used it last */
  cuda_moment used;
} slot;

/* The values of one kind of segment on one lane. */
typedef struct area {
  unsigned char *device, *pinned; /* pinned: SLOTS copies */
  unsigned char *now, *there;     /* values of the current segment; values on the device */
  size_t used, valid;
  cuda_moment copies[SLOTS];
  int next;
} area;

struct cuda_transfer {
  cudaStream_t stream;
  slot up[SLOTS];
  int next;
  area area[CUDA_LANES][PETRA_BACKEND_ACTIONS];
  void *result[CUDA_LANES], *late_result[CUDA_LANES];
  void *later; /* pinned: LATER results */
  cudaEvent_t there[LATER];
  int64_t tickets; /* number given so far */
  bool due;        /* the copy of the last result waits for the end of its segment */
  pair down;
};

petra_status cuda_transfer_create(cuda_transfer **out) {
  cuda_transfer *transfer;
  PETRA_TRY(petra_allocate(&transfer, 1, sizeof *transfer));
  *out = transfer;
  CUDA_TRY(cudaStreamCreateWithFlags(&transfer->stream, cudaStreamNonBlocking), "cudaStreamCreate");
  for (int s = 0; s < SLOTS; s++)
    CUDA_TRY(cudaEventCreateWithFlags(&transfer->up[s].copied, cudaEventDisableTiming), "cudaEventCreate");
  for (int i = 0; i < LATER; i++)
    CUDA_TRY(cudaEventCreateWithFlags(&transfer->there[i], cudaEventDisableTiming), "cudaEventCreate");
  return PETRA_OK;
}

static void pair_destroy(pair *memory) {
  cudaFree(memory->device);
  cudaFreeHost(memory->pinned);
  *memory = (pair){0};
}

void cuda_transfer_destroy(cuda_transfer *transfer) {
  if (!transfer)
    return;
  for (int s = 0; s < SLOTS; s++) {
    pair_destroy(&transfer->up[s].memory);
    if (transfer->up[s].copied)
      cudaEventDestroy(transfer->up[s].copied);
  }
  for (int l = 0; l < CUDA_LANES; l++) {
    for (int k = 0; k < PETRA_BACKEND_ACTIONS; k++) {
      area *a = &transfer->area[l][k];
      cudaFree(a->device);
      cudaFreeHost(a->pinned);
      PETRA_FREE_ALL(a->now, a->there);
    }
    cudaFree(transfer->result[l]);
    cudaFree(transfer->late_result[l]);
  }
  pair_destroy(&transfer->down);
  for (int i = 0; i < LATER; i++)
    if (transfer->there[i])
      cudaEventDestroy(transfer->there[i]);
  cudaFreeHost(transfer->later);
  if (transfer->stream)
    cudaStreamDestroy(transfer->stream);
  petra_free(transfer);
}

/* The caller makes sure that nothing uses the pair. */
static petra_status grow(pair *memory, size_t bytes) {
  if (bytes <= memory->bytes)
    return PETRA_OK;
  pair_destroy(memory);
  CUDA_TRY(cudaHostAlloc(&memory->pinned, bytes, cudaHostAllocDefault), "pinned memory");
  CUDA_TRY(cudaMalloc(&memory->device, bytes), "staging memory");
  memory->bytes = bytes;
  return PETRA_OK;
}

/* Gets memory for an upload of `bytes` bytes: the caller fills *pinned, calls send_upload, and then describes the
 * command that reads *device. */
static petra_status begin_upload(petra_backend *backend, size_t bytes, void **pinned, void **device) {
  cuda_backend *cuda = cuda_of(backend);
  slot *s = &cuda->transfer->up[cuda->transfer->next];
  if (s->due) /* all slots are due: the segment has many uploads, and continues in another segment */
    PETRA_TRY(cuda_submit(cuda));
  PETRA_TRY(cuda_wait_for(cuda, s->lane, s->used));
  PETRA_TRY(grow(&s->memory, bytes));
  *pinned = s->memory.pinned;
  *device = s->memory.device;
  return PETRA_OK;
}

static petra_status send_upload(petra_backend *backend, size_t bytes) {
  cuda_backend *cuda = cuda_of(backend);
  cuda_transfer *transfer = cuda->transfer;
  slot *s = &transfer->up[transfer->next];
  CUDA_TRY(cudaMemcpyAsync(s->memory.device, s->memory.pinned, bytes, cudaMemcpyHostToDevice, transfer->stream),
           "a copy to the device");
  CUDA_TRY(cudaEventRecord(s->copied, transfer->stream), "cudaEventRecord");
  s->due = true;
  s->lane = cuda->segment->lane;
  s->used = cuda_present(cuda);
  transfer->next = (transfer->next + 1) % SLOTS;
  return PETRA_OK;
}

static area *present_area(cuda_backend *cuda) {
  return &cuda->transfer->area[cuda->segment->lane][cuda->segment->kind % PETRA_BACKEND_ACTIONS];
}

static petra_status area_create(area *a) {
  if (!a->now)
    PETRA_TRY(petra_allocate(&a->now, CUDA_VALUES_BYTES, 1));
  if (!a->there)
    PETRA_TRY(petra_allocate(&a->there, CUDA_VALUES_BYTES, 1));
  if (!a->pinned) {
    void *pinned;
    CUDA_TRY(cudaHostAlloc(&pinned, (size_t)SLOTS * CUDA_VALUES_BYTES, cudaHostAllocDefault), "pinned memory");
    a->pinned = pinned;
  }
  if (!a->device) {
    void *device;
    CUDA_TRY(cudaMalloc(&device, CUDA_VALUES_BYTES), "memory for values");
    a->device = device;
  }
  return PETRA_OK;
}

petra_status cuda_value(petra_backend *backend, const void *value, size_t bytes, const void **device) {
  cuda_backend *cuda = cuda_of(backend);
  area *a = present_area(cuda);
  const size_t padded = (bytes + VALUE_ALIGNMENT - 1) / VALUE_ALIGNMENT * VALUE_ALIGNMENT;
  if (padded > CUDA_VALUES_BYTES)
    return petra_fail(PETRA_UNSUPPORTED,
                      "cuda: %zu bytes of labels or rates in one operation; expected at most %d: a smaller data.batch",
                      bytes, CUDA_VALUES_BYTES);
  PETRA_TRY(area_create(a));
  if (a->used + padded > CUDA_VALUES_BYTES)
    PETRA_TRY(cuda_submit(cuda));
  memset(a->now + a->used, 0, padded);
  memcpy(a->now + a->used, value, bytes);
  *device = a->device + a->used;
  a->used += padded;
  return PETRA_OK;
}

static petra_status copy_values(cuda_backend *cuda, area *a) {
  const size_t bytes = a->used;
  a->used = 0;
  if (bytes == 0 || (bytes <= a->valid && memcmp(a->now, a->there, bytes) == 0))
    return PETRA_OK;
  unsigned char *pinned = a->pinned + (size_t)a->next * CUDA_VALUES_BYTES;
  PETRA_TRY(cuda_wait_for(cuda, cuda->segment->lane, a->copies[a->next]));
  memcpy(pinned, a->now, bytes);
  CUDA_TRY(
      cudaMemcpyAsync(a->device, pinned, bytes, cudaMemcpyHostToDevice, cuda->track[cuda->segment->lane].lane.stream),
      "a copy to the device");
  memcpy(a->there, a->now, bytes);
  a->valid = bytes > a->valid ? bytes : a->valid;
  a->copies[a->next] = cuda_present(cuda);
  a->next = (a->next + 1) % SLOTS;
  return PETRA_OK;
}

petra_status cuda_transfer_before(cuda_backend *cuda) {
  cuda_transfer *transfer = cuda->transfer;
  for (int s = 0; s < SLOTS; s++) {
    if (!transfer->up[s].due)
      continue;
    transfer->up[s].due = false;
    CUDA_TRY(cudaStreamWaitEvent(cuda->track[cuda->segment->lane].lane.stream, transfer->up[s].copied, 0),
             "cudaStreamWaitEvent");
  }
  return copy_values(cuda, present_area(cuda));
}

/* All of the memory is downloaded, even bytes that no kernel writes; it therefore begins as zeros. */
static petra_status result_memory(const cuda_backend *cuda, void **memory) {
  if (*memory)
    return PETRA_OK;
  CUDA_TRY(cudaMalloc(memory, RESULT_BYTES), "memory for results");
  return cuda_check(cudaMemsetAsync(*memory, 0, RESULT_BYTES, cuda->track[cuda->segment->lane].lane.stream),
                    "zeros of results");
}

petra_status cuda_result(petra_backend *backend, void **device) {
  cuda_backend *cuda = cuda_of(backend);
  void **result = &cuda->transfer->result[cuda->segment->lane];
  PETRA_TRY(result_memory(cuda, result));
  *device = *result;
  return PETRA_OK;
}

petra_status cuda_late_result(petra_backend *backend, void **device) {
  cuda_backend *cuda = cuda_of(backend);
  cuda_transfer *transfer = cuda->transfer;
  void **result = &transfer->late_result[cuda->segment->lane];
  if (transfer->due) /* a segment has one late result */
    PETRA_TRY(cuda_submit(cuda));
  if (!transfer->later)
    CUDA_TRY(cudaHostAlloc(&transfer->later, LATER * RESULT_BYTES, cudaHostAllocDefault), "pinned memory");
  PETRA_TRY(result_memory(cuda, result));
  *device = *result;
  return PETRA_OK;
}

int64_t cuda_late_ticket(petra_backend *backend) {
  cuda_backend *cuda = cuda_of(backend);
  cuda->transfer->due = true;
  return ++cuda->transfer->tickets;
}

petra_status cuda_transfer_after(cuda_backend *cuda) {
  cuda_transfer *transfer = cuda->transfer;
  const int lane = cuda->segment->lane, place = (int)(transfer->tickets % LATER);
  cudaStream_t stream = cuda->track[lane].lane.stream;
  if (!transfer->due)
    return PETRA_OK;
  transfer->due = false;
  CUDA_TRY(cudaMemcpyAsync((char *)transfer->later + (size_t)place * RESULT_BYTES, transfer->late_result[lane],
                           RESULT_BYTES, cudaMemcpyDeviceToHost, stream),
           "a copy from the device");
  return cuda_check(cudaEventRecord(transfer->there[place], stream), "cudaEventRecord");
}

petra_status cuda_collect_result(petra_backend *backend, int64_t ticket, const void **host) {
  cuda_backend *cuda = cuda_of(backend);
  cuda_transfer *transfer = cuda->transfer;
  const int place = (int)(ticket % LATER);
  if (ticket < 1 || ticket > transfer->tickets || ticket <= transfer->tickets - LATER)
    return petra_fail(PETRA_INTERNAL, "cuda: result %lld was asked for after %lld", (long long)ticket,
                      (long long)transfer->tickets);
  if (transfer->due && ticket == transfer->tickets)
    PETRA_TRY(cuda_submit(cuda));
  CUDA_TRY(cudaEventSynchronize(transfer->there[place]), "the device's work");
  PETRA_TRY(cuda_peers_alive(cuda));
  *host = (const char *)transfer->later + (size_t)place * RESULT_BYTES;
  return PETRA_OK;
}

petra_status cuda_fetch(petra_backend *backend, const void *device, size_t bytes, const void **host) {
  cuda_backend *cuda = cuda_of(backend);
  cuda_transfer *transfer = cuda->transfer;
  cudaStream_t stream = cuda->track[cuda->segment->lane].lane.stream;
  PETRA_TRY(cuda_submit(cuda));
  if (device != transfer->down.device)
    PETRA_TRY(grow(&transfer->down, bytes));
  CUDA_TRY(cudaMemcpyAsync(transfer->down.pinned, device, bytes, cudaMemcpyDeviceToHost, stream),
           "a copy from the device");
  CUDA_TRY(cudaStreamSynchronize(stream), "the device's work");
  PETRA_TRY(cuda_peers_alive(cuda));
  *host = transfer->down.pinned;
  return PETRA_OK;
}

/* --- between host arrays and tensors --- */

/* From the host's order x to the device's order y, or back. Activations and filters have their channels last on the
 * device: (n, c, plane) of the host's order. All other tensors have the same order as on the host. */
static petra_status reorder(petra_backend *backend, const petra_tensor *tensor, const void *x, void *y,
                            bool to_device) {
  const bool planes = tensor->kind == PETRA_TENSOR_ACTIVATION || tensor->kind == PETRA_TENSOR_INNER ||
                      tensor->kind == PETRA_TENSOR_FILTER;
  const bool bytes = tensor->kind == PETRA_TENSOR_QUANTISED || tensor->kind == PETRA_TENSOR_MASK;
  if (!planes) /* none of these tensors is narrow */
    return cuda_add_copy(backend, x, y, bytes ? tensor->bytes : (size_t)tensor->elements * sizeof(float));
  CUDA_ARGUMENTS(cuda_permute_args, a);
  a.x = x;
  a.y = y;
  a.n = tensor->shape[0];
  a.c = tensor->shape[1];
  a.plane = (int64_t)tensor->shape[2] * tensor->shape[3];
  a.to_channels_last = to_device;
  a.narrow = cuda_is_narrow(tensor);
  return cuda_add_command(backend, cuda_permute_launch, &a, sizeof a);
}

petra_status cuda_upload(petra_backend *backend, petra_tensor *tensor, const void *host, petra_host_type type) {
  const size_t bytes = type == PETRA_HOST_U8 ? tensor->bytes : (size_t)tensor->elements * sizeof(float);
  void *pinned, *device;
  PETRA_TRY(begin_upload(backend, bytes, &pinned, &device));
  if (type != PETRA_HOST_F64)
    memcpy(pinned, host, bytes);
  else
    for (int64_t i = 0; i < tensor->elements; i++)
      ((float *)pinned)[i] = (float)((const double *)host)[i];
  PETRA_TRY(send_upload(backend, bytes));
  cuda_writes(backend, tensor);
  return reorder(backend, tensor, device, tensor->data, true);
}

/* The choices lie behind the pixels, so that one copy transfers both. */
petra_status cuda_upload_images(petra_backend *backend, const petra_images *images, petra_tensor *x) {
  const size_t pixels = (size_t)x->elements, choices = (size_t)x->shape[0] * sizeof *images->choices;
  const size_t start = (pixels + 15) / 16 * 16;
  void *pinned, *device;
  PETRA_TRY(begin_upload(backend, start + choices, &pinned, &device));
  memcpy(pinned, images->pixels, pixels);
  memcpy((char *)pinned + start, images->choices, choices);
  PETRA_TRY(send_upload(backend, start + choices));
  CUDA_ARGUMENTS(cuda_augment_args, a);
  a.pixels = device;
  a.choices = (const void *)((const char *)device + start);
  a.y = cuda_write(backend, x);
  a.rounded = cuda_write_rounded(backend, x);
  a.n = x->shape[0];
  a.h = x->shape[2];
  a.w = x->shape[3];
  memcpy(a.mean, images->mean, sizeof a.mean);
  memcpy(a.deviation, images->deviation, sizeof a.deviation);
  return cuda_add_command(backend, cuda_augment_launch, &a, sizeof a);
}

petra_status cuda_download(petra_backend *backend, const petra_tensor *tensor, void *host, petra_host_type type) {
  const size_t bytes = type == PETRA_HOST_U8 ? tensor->bytes : (size_t)tensor->elements * sizeof(float);
  pair *down = &cuda_of(backend)->transfer->down;
  const void *pinned;
  PETRA_TRY(grow(down, bytes)); /* every use of it was waited for */
  cuda_reads(backend, tensor);
  PETRA_TRY(reorder(backend, tensor, tensor->data, down->device, false));
  PETRA_TRY(cuda_fetch(backend, down->device, bytes, &pinned));
  if (type != PETRA_HOST_F64)
    memcpy(host, pinned, bytes);
  else
    for (int64_t i = 0; i < tensor->elements; i++)
      ((double *)host)[i] = (double)((const float *)pinned)[i];
  return PETRA_OK;
}

/* --- number formats --- */

/* Returns the number of channels that lie together, and sets the number of positions; sequences are stored in the
 * logical order. */
static int32_t channels_of(const petra_tensor *tensor, int64_t *plane) {
  const bool image = tensor->kind == PETRA_TENSOR_ACTIVATION || tensor->kind == PETRA_TENSOR_INNER;
  const int32_t c = image ? tensor->shape[1] : 1;
  *plane = tensor->elements / tensor->shape[0] / c;
  return c;
}

petra_status cuda_quantise(petra_backend *backend, const petra_tensor *x, petra_format format, const petra_draws *draws,
                           petra_tensor *y) {
  const void *values = NULL;
  if (petra_format_is_random(format))
    PETRA_TRY(cuda_value(backend, draws, sizeof *draws, &values));
  CUDA_ARGUMENTS(cuda_quantise_args, a);
  a.x = cuda_read_either(backend, x, &a.narrow);
  a.draws = values;
  a.bytes = (uint8_t *)cuda_write(backend, y);
  a.n = x->shape[0];
  a.c = channels_of(x, &a.plane);
  a.row = y->shape[1];
  a.format = format;
  return cuda_add_command(backend, cuda_quantise_launch, &a, sizeof a);
}

petra_status cuda_dequantise(petra_backend *backend, const petra_tensor *x, petra_format format, petra_tensor *y) {
  CUDA_ARGUMENTS(cuda_dequantise_args, a);
  a.bytes = (const uint8_t *)cuda_read(backend, x);
  a.y = cuda_write(backend, y);
  a.n = y->shape[0];
  a.c = channels_of(y, &a.plane);
  a.row = x->shape[1];
  a.format = format;
  a.narrow = cuda_is_narrow(y);
  return cuda_add_command(backend, cuda_dequantise_launch, &a, sizeof a);
}
