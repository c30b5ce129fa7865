/* SPDX-License-Identifier: Apache-2.0 */

#include "backend/cuda/cuda.h"
#include "base/log.h"
#include "base/mem.h"

#include <string.h>

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
  int lane; /* who used it last */
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
  int64_t tickets; /* given so far */
  bool due;        /* the last one's copy waits for the end of its segment */
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
      petra_free(a->now);
      petra_free(a->there);
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

/* Nobody uses the pair. */
static petra_status grow(pair *memory, size_t bytes) {
  if (bytes <= memory->bytes)
    return PETRA_OK;
  pair_destroy(memory);
  CUDA_TRY(cudaHostAlloc(&memory->pinned, bytes, cudaHostAllocDefault), "pinned memory");
  CUDA_TRY(cudaMalloc(&memory->device, bytes), "staging memory");
  memory->bytes = bytes;
  return PETRA_OK;
}

petra_status cuda_begin_upload(cuda_backend *cuda, size_t bytes, void **pinned, void **device) {
  slot *s = &cuda->transfer->up[cuda->transfer->next];
  if (s->due) /* all slots are due: the segment has many uploads, and goes on in another one */
    PETRA_TRY(cuda_submit(cuda));
  PETRA_TRY(cuda_wait_for(cuda, s->lane, s->used));
  PETRA_TRY(grow(&s->memory, bytes));
  *pinned = s->memory.pinned;
  *device = s->memory.device;
  return PETRA_OK;
}

petra_status cuda_send_upload(cuda_backend *cuda, size_t bytes) {
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

petra_status cuda_value(cuda_backend *cuda, const void *value, size_t bytes, const void **device) {
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

/* All of it is copied down, whatever a kernel writes: zeros first. */
static petra_status result_memory(const cuda_backend *cuda, void **memory) {
  if (*memory)
    return PETRA_OK;
  CUDA_TRY(cudaMalloc(memory, RESULT_BYTES), "memory for results");
  return cuda_check(cudaMemsetAsync(*memory, 0, RESULT_BYTES, cuda->track[cuda->segment->lane].lane.stream),
                    "zeros of results");
}

petra_status cuda_result(cuda_backend *cuda, void **device) {
  void **result = &cuda->transfer->result[cuda->segment->lane];
  PETRA_TRY(result_memory(cuda, result));
  *device = *result;
  return PETRA_OK;
}

petra_status cuda_late_result(cuda_backend *cuda, void **device) {
  cuda_transfer *transfer = cuda->transfer;
  void **result = &transfer->late_result[cuda->segment->lane];
  if (transfer->due) /* one per segment */
    PETRA_TRY(cuda_submit(cuda));
  if (!transfer->later)
    CUDA_TRY(cudaHostAlloc(&transfer->later, LATER * RESULT_BYTES, cudaHostAllocDefault), "pinned memory");
  PETRA_TRY(result_memory(cuda, result));
  *device = *result;
  return PETRA_OK;
}

int64_t cuda_late_ticket(cuda_backend *cuda) {
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

petra_status cuda_collect_result(cuda_backend *cuda, int64_t ticket, const void **host) {
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

/* Every use of it was waited for. */
petra_status cuda_receive(cuda_backend *cuda, size_t bytes, void **device) {
  PETRA_TRY(grow(&cuda->transfer->down, bytes));
  *device = cuda->transfer->down.device;
  return PETRA_OK;
}

petra_status cuda_fetch(cuda_backend *cuda, const void *device, size_t bytes, const void **host) {
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
