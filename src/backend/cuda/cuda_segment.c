/* SPDX-License-Identifier: Apache-2.0 */
#include "backend/cuda/cuda.h"

#include "base/log.h"
#include "base/mem.h"

#include <string.h>

enum { ALIGNMENT = 16, SCRATCH_LEAST = 1 << 20 };

static size_t padded(size_t bytes) {
  return (bytes + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
}

petra_status cuda_track_create(cuda_track *track) {
  void *counters;
  CUDA_TRY(cudaStreamCreateWithFlags(&track->lane.stream, cudaStreamNonBlocking), "cudaStreamCreate");
  CUDA_TRY(cudaMalloc(&counters, CUDA_COUNTERS * sizeof *track->lane.counters), "memory for counters");
  track->lane.counters = counters;
  CUDA_TRY(cudaMemsetAsync(counters, 0, CUDA_COUNTERS * sizeof *track->lane.counters, track->lane.stream), "counters");
  for (int e = 0; e < CUDA_EVENTS; e++)
    CUDA_TRY(cudaEventCreateWithFlags(&track->ended[e], cudaEventDisableTiming), "cudaEventCreate");
  return PETRA_OK;
}

petra_status cuda_segments_create(cuda_backend *cuda) {
  PETRA_TRY(petra_allocate(&cuda->segment, 1, sizeof *cuda->segment));
  for (int l = 0; l < CUDA_LANES; l++)
    PETRA_TRY(cuda_track_create(&cuda->track[l]));
  return PETRA_OK;
}

void cuda_segments_destroy(cuda_backend *cuda) {
  for (int l = 0; l < CUDA_TRACKS; l++) {
    cuda_track *track = &cuda->track[l];
    for (int e = 0; e < CUDA_EVENTS; e++)
      if (track->ended[e])
        cudaEventDestroy(track->ended[e]);
    for (int64_t i = 0; i < track->retired_count; i++)
      cudaFree(track->retired[i]);
    petra_free(track->retired);
    if (track->lane.scratch)
      cudaFree(track->lane.scratch);
    if (track->lane.counters)
      cudaFree(track->lane.counters);
    if (track->lane.stream)
      cudaStreamDestroy(track->lane.stream);
  }
  if (cuda->segment)
    petra_free(cuda->segment->commands);
  petra_free(cuda->segment);
}

static cuda_track *present_track(cuda_backend *cuda) {
  return &cuda->track[cuda->segment->lane];
}

cuda_moment cuda_present(const cuda_backend *cuda) {
  return cuda->track[cuda->segment->lane].submitted + 1;
}

static void wait_before(cuda_segment *segment, int lane, cuda_moment moment) {
  if (lane != segment->lane && moment > segment->waits[lane])
    segment->waits[lane] = moment;
}

static void forget_traffic(cuda_segment *segment) {
  segment->read_bytes = segment->written_bytes = 0;
  segment->last_read = NULL;
}

/* Orders a read after the last write and before the next write. */
static void order_read(cuda_backend *cuda, const petra_tensor *tensor) {
  cuda_storage *storage = cuda_storage_of(tensor);
  wait_before(cuda->segment, storage->write_lane, storage->write);
  storage->reads[cuda->segment->lane] = cuda_present(cuda);
}

/* Orders a write after the last write and the reads since then. */
static void order_write(cuda_backend *cuda, const petra_tensor *tensor) {
  cuda_storage *storage = cuda_storage_of(tensor);
  wait_before(cuda->segment, storage->write_lane, storage->write);
  for (int l = 0; l < CUDA_TRACKS; l++) {
    wait_before(cuda->segment, l, storage->reads[l]);
    storage->reads[l] = 0;
  }
  storage->write_lane = cuda->segment->lane;
  storage->write = cuda_present(cuda);
}

static size_t rounded_bytes(const petra_tensor *tensor) {
  return (size_t)tensor->elements * sizeof(uint16_t);
}

/* Appends a command to the segment under construction, which has not run yet. */
static petra_status append(cuda_backend *cuda, cuda_launch launch, const void *arguments, size_t bytes) {
  cuda_segment *segment = cuda->segment;
  const size_t header = padded(sizeof(cuda_command)), size = header + padded(bytes);
  cuda_command command;
  PETRA_TRY(petra_array_reserve(&segment->commands, &segment->capacity, (int64_t)(segment->used + size), 1));
  unsigned char *at = segment->commands + segment->used;
  memset(&command, 0, sizeof command);
  command.launch = launch;
  command.bytes = bytes;
  command.read_bytes = segment->read_bytes;
  command.written_bytes = segment->written_bytes;
  forget_traffic(segment);
  memset(at, 0, size);
  memcpy(at, &command, sizeof command);
  memcpy(at + header, arguments, bytes);
  segment->last = segment->used;
  segment->used += size;
  return PETRA_OK;
}

/* Adds a command while tensors are named for the command under construction, whose traffic it does not change. */
static void widen(cuda_backend *cuda, const petra_tensor *tensor) {
  cuda_segment *segment = cuda->segment;
  cuda_storage *storage = cuda_storage_of(tensor);
  const size_t read_bytes = segment->read_bytes, written_bytes = segment->written_bytes;
  const petra_tensor *last_read = segment->last_read;
  CUDA_ARGUMENTS(cuda_from_bf16_args, a);
  a.x = storage->rounded;
  a.y = tensor->data;
  a.count = tensor->elements;
  segment->read_bytes = rounded_bytes(tensor);
  segment->written_bytes = tensor->bytes;
  order_write(cuda, tensor);
  const petra_status status = append(cuda, cuda_from_bf16_launch, &a, sizeof a);
  segment->status = segment->status == PETRA_OK ? status : segment->status;
  storage->rounded_alone = false;
  segment->read_bytes = read_bytes;
  segment->written_bytes = written_bytes;
  segment->last_read = last_read;
}

void cuda_reads(petra_backend *backend, const petra_tensor *tensor) {
  cuda_backend *cuda = cuda_of(backend);
  if (!tensor)
    return;
  if (cuda_storage_of(tensor)->rounded_alone)
    widen(cuda, tensor);
  if (tensor != cuda->segment->last_read)
    cuda->segment->read_bytes += tensor->bytes;
  cuda->segment->last_read = tensor;
  order_read(cuda, tensor);
}

void cuda_writes(petra_backend *backend, const petra_tensor *tensor) {
  cuda_backend *cuda = cuda_of(backend);
  if (!tensor)
    return;
  cuda->segment->written_bytes += tensor->bytes;
  order_write(cuda, tensor);
  cuda_storage_of(tensor)->rounded_valid = cuda_storage_of(tensor)->rounded_alone = false;
}

petra_status cuda_make_rounded(petra_backend *backend, const petra_tensor *tensor) {
  cuda_storage *storage = cuda_storage_of(tensor);
  void *data;
  if (cuda_is_narrow(tensor) || storage->rounded)
    return PETRA_OK;
  PETRA_TRY(cuda_check(cudaMalloc(&data, rounded_bytes(tensor)), "memory for rounded numbers"));
  storage->rounded = data;
  cuda_of(backend)->rounded_bytes += (int64_t)rounded_bytes(tensor);
  return PETRA_OK;
}

/* Adds a command. It is called before any tensor is named for the command that reads the copy. */
static petra_status fill_rounded(cuda_backend *cuda, const petra_tensor *tensor, cuda_storage *storage) {
  CUDA_ARGUMENTS(cuda_to_bf16_args, a);
  a.x = tensor->data;
  a.y = storage->rounded;
  a.count = tensor->elements;
  cuda_reads(&cuda->base, tensor);
  order_write(cuda, tensor);
  cuda->segment->written_bytes += rounded_bytes(tensor);
  PETRA_TRY(append(cuda, cuda_to_bf16_launch, &a, sizeof a));
  storage->rounded_valid = true;
  return PETRA_OK;
}

petra_status cuda_round(petra_backend *backend, const petra_tensor *tensor) {
  cuda_backend *cuda = cuda_of(backend);
  cuda_storage *storage = cuda_storage_of(tensor);
  if (cuda_is_narrow(tensor))
    return PETRA_OK;
  PETRA_TRY(cuda_make_rounded(backend, tensor));
  return storage->rounded_valid ? PETRA_OK : fill_rounded(cuda, tensor, storage);
}

const void *cuda_read_rounded(petra_backend *backend, const petra_tensor *tensor) {
  cuda_backend *cuda = cuda_of(backend);
  if (cuda_is_narrow(tensor)) {
    cuda_reads(backend, tensor);
    return tensor->data;
  }
  order_read(cuda, tensor);
  cuda->segment->read_bytes += rounded_bytes(tensor);
  return cuda_storage_of(tensor)->rounded;
}

uint16_t *cuda_write_rounded(petra_backend *backend, const petra_tensor *tensor) {
  cuda_storage *storage = cuda_storage_of(tensor);
  storage->rounded_valid = storage->rounded != NULL;
  if (storage->rounded)
    cuda_of(backend)->segment->written_bytes += rounded_bytes(tensor);
  return storage->rounded;
}

const void *cuda_read_either(petra_backend *backend, const petra_tensor *tensor, bool *narrow) {
  *narrow = cuda_is_narrow(tensor) || cuda_storage_of(tensor)->rounded_alone;
  return *narrow ? cuda_read_rounded(backend, tensor) : cuda_read(backend, tensor);
}

void *cuda_write_narrow(petra_backend *backend, const petra_tensor *tensor) {
  cuda_backend *cuda = cuda_of(backend);
  cuda_storage *storage = cuda_storage_of(tensor);
  if (cuda_is_narrow(tensor)) {
    cuda_writes(backend, tensor);
    return tensor->data;
  }
  cuda->segment->written_bytes += rounded_bytes(tensor);
  order_write(cuda, tensor);
  storage->rounded_valid = storage->rounded_alone = true;
  return storage->rounded;
}

void cuda_updates(petra_backend *backend, const petra_tensor *tensor) {
  cuda_reads(backend, tensor);
  cuda_writes(backend, tensor);
}

/* Graphs may use the old memory for ever, so it is kept to the end. Sizes double, so that the old memory is small. */
petra_status cuda_reserve(petra_backend *backend, size_t bytes) {
  cuda_backend *cuda = cuda_of(backend);
  cuda_track *track = present_track(cuda);
  size_t size = track->lane.scratch_bytes ? track->lane.scratch_bytes : SCRATCH_LEAST;
  void *scratch;
  if (bytes <= track->lane.scratch_bytes)
    return PETRA_OK;
  while (size < bytes)
    size *= 2;
  PETRA_TRY(petra_array_reserve(&track->retired, &track->retired_capacity, track->retired_count + 1, sizeof(void *)));
  CUDA_TRY(cudaMalloc(&scratch, size), "scratch memory");
  if (track->lane.scratch)
    track->retired[track->retired_count++] = track->lane.scratch;
  cuda->scratch_bytes += (int64_t)size;
  track->lane.scratch = scratch;
  track->lane.scratch_bytes = size;
  return PETRA_OK;
}

/* Returns the failure of commands that were added while tensors were named, and resets it. */
static petra_status take_status(cuda_segment *segment) {
  const petra_status status = segment->status;
  segment->status = PETRA_OK;
  return status;
}

petra_status cuda_add_command(petra_backend *backend, cuda_launch launch, const void *arguments, size_t bytes) {
  cuda_backend *cuda = cuda_of(backend);
  PETRA_TRY(take_status(cuda->segment));
  PETRA_TRY(append(cuda, launch, arguments, bytes));
  return cuda->segment->open ? PETRA_OK : cuda_submit(cuda);
}

void *cuda_last_command(petra_backend *backend, cuda_launch launch) {
  cuda_segment *segment = cuda_of(backend)->segment;
  cuda_command command;
  if (!segment->open || segment->used == 0)
    return NULL;
  memcpy(&command, segment->commands + segment->last, sizeof command);
  return command.launch == launch ? segment->commands + segment->last + padded(sizeof command) : NULL;
}

petra_status cuda_extend_command(petra_backend *backend) {
  cuda_segment *segment = cuda_of(backend)->segment;
  cuda_command command;
  memcpy(&command, segment->commands + segment->last, sizeof command);
  command.read_bytes += segment->read_bytes;
  command.written_bytes += segment->written_bytes;
  memcpy(segment->commands + segment->last, &command, sizeof command);
  forget_traffic(segment);
  return take_status(segment);
}

size_t cuda_command_at(const unsigned char *commands, size_t at, cuda_command *command, const void **arguments) {
  memcpy(command, commands + at, sizeof *command);
  at += padded(sizeof *command);
  *arguments = commands + at;
  return at + padded(command->bytes);
}

petra_status cuda_launch_commands(const cuda_lane *lane, const unsigned char *commands, size_t bytes) {
  for (size_t at = 0; at < bytes;) {
    cuda_command command;
    const void *arguments;
    at = cuda_command_at(commands, at, &command, &arguments);
    PETRA_TRY(command.launch(lane, arguments));
  }
  return PETRA_OK;
}

/* Returns the event after which a segment is over: the event of the segment, or of a later segment that has reused
 * it. */
static cudaEvent_t end_of(const cuda_track *track, cuda_moment moment) {
  cuda_moment oldest = track->submitted >= CUDA_EVENTS ? track->submitted - CUDA_EVENTS + 1 : 1;
  return track->ended[(moment < oldest ? oldest : moment) % CUDA_EVENTS];
}

static petra_status wait_for_others(cuda_backend *cuda) {
  cuda_track *track = present_track(cuda);
  for (int l = 0; l < CUDA_TRACKS; l++) {
    cuda_moment moment = cuda->segment->waits[l];
    cuda->segment->waits[l] = 0;
    if (moment <= track->waited[l] || cuda->track[l].submitted == 0)
      continue;
    if (moment > cuda->track[l].submitted) /* the moment belongs to a segment that was abandoned */
      moment = cuda->track[l].submitted;
    CUDA_TRY(cudaStreamWaitEvent(track->lane.stream, end_of(&cuda->track[l], moment), 0), "cudaStreamWaitEvent");
    track->waited[l] = moment;
  }
  return PETRA_OK;
}

petra_status cuda_submit(cuda_backend *cuda) {
  cuda_segment *segment = cuda->segment;
  cuda_track *track = present_track(cuda);
  const size_t bytes = segment->used;
  segment->used = 0;
  if (bytes == 0)
    return PETRA_OK;
  PETRA_TRY(wait_for_others(cuda));
  PETRA_TRY(cuda_transfer_before(cuda));
  if (segment->launcher.launch)
    PETRA_TRY(segment->launcher.launch(segment->launcher.context, &track->lane, segment->commands, bytes));
  else if (segment->open && cuda->graphs)
    PETRA_TRY(cuda_graphs_launch(cuda->graphs, segment->lane, &track->lane, segment->commands, bytes));
  else
    PETRA_TRY(cuda_launch_commands(&track->lane, segment->commands, bytes));
  PETRA_TRY(cuda_transfer_after(cuda));
  return cuda_beside_ended(cuda, segment->lane);
}

petra_status cuda_beside_enter(cuda_backend *cuda, int lane, int *before) {
  PETRA_TRY(cuda_submit(cuda));
  *before = cuda->segment->lane;
  cuda->segment->lane = lane;
  return PETRA_OK;
}

/* Conversions count as a part of the library's work. */
petra_status cuda_beside_wait(cuda_backend *cuda) {
  cuda_segment *segment = cuda->segment;
  const size_t bytes = segment->used;
  segment->used = 0;
  PETRA_TRY(wait_for_others(cuda));
  PETRA_TRY(cuda_launch_commands(&present_track(cuda)->lane, segment->commands, bytes));
  return take_status(segment);
}

void cuda_beside_leave(cuda_backend *cuda, int before) {
  cuda->segment->lane = before;
  forget_traffic(cuda->segment); /* it belongs to no command */
}

petra_status cuda_beside_ended(cuda_backend *cuda, int lane) {
  cuda_track *track = &cuda->track[lane];
  track->submitted++;
  return cuda_check(cudaEventRecord(track->ended[track->submitted % CUDA_EVENTS], track->lane.stream),
                    "cudaEventRecord");
}

petra_status cuda_begin(petra_backend *backend, int32_t stage, int32_t kind) {
  cuda_segment *segment = cuda_of(backend)->segment;
  segment->open = true;
  segment->lane = stage % cuda_of(backend)->lanes;
  segment->kind = kind;
  segment->used = 0;
  forget_traffic(segment);
  memset(segment->waits, 0, sizeof segment->waits);
  return PETRA_OK;
}

petra_status cuda_end(petra_backend *backend) {
  cuda_backend *cuda = cuda_of(backend);
  petra_status status = cuda_submit(cuda);
  cuda->segment->open = false;
  cuda->segment->lane = 0;
  cuda->segment->kind = 0;
  return status;
}

petra_status cuda_wait_for(cuda_backend *cuda, int lane, cuda_moment moment) {
  const cuda_track *track = &cuda->track[lane];
  if (moment == 0 || track->submitted == 0)
    return PETRA_OK;
  if (moment > track->submitted)
    moment = track->submitted;
  return cuda_check(cudaEventSynchronize(end_of(track, moment)), "the device's work");
}

petra_status cuda_synchronize(petra_backend *backend) {
  PETRA_TRY(cuda_submit(cuda_of(backend)));
  return cuda_check(cudaDeviceSynchronize(), "the device's work");
}

petra_status cuda_settle(petra_backend *backend, petra_tensor *tensor, bool writes) {
  cuda_backend *cuda = cuda_of(backend);
  cuda_storage *storage = cuda_storage_of(tensor);
  PETRA_TRY(cuda_submit(cuda));
  PETRA_TRY(cuda_wait_for(cuda, storage->write_lane, storage->write));
  if (storage->rounded_alone && !writes) {
    cuda_reads(backend, tensor);
    forget_traffic(cuda->segment); /* it belongs to no command */
    PETRA_TRY(take_status(cuda->segment));
    PETRA_TRY(cuda_submit(cuda));
    PETRA_TRY(cuda_wait_for(cuda, storage->write_lane, storage->write));
  }
  storage->rounded_valid = storage->rounded_valid && !writes;
  storage->rounded_alone = false;
  for (int l = 0; l < CUDA_TRACKS && writes; l++)
    PETRA_TRY(cuda_wait_for(cuda, l, storage->reads[l]));
  return PETRA_OK;
}

/* Logs each error of the CUDA run time as one line. */

petra_status cuda_check(cudaError_t error, const char *what) {
  if (error == cudaSuccess)
    return PETRA_OK;
  if (error == cudaErrorMemoryAllocation) {
    size_t free_bytes = 0, total_bytes = 0;
    cudaGetLastError(); /* clears the error */
    if (cudaMemGetInfo(&free_bytes, &total_bytes) != cudaSuccess)
      free_bytes = total_bytes = 0;
    return petra_fail(PETRA_NO_MEMORY,
                      "cuda: %s: the device is out of memory (%.2f of %.2f GiB free); expected a smaller data.batch, "
                      "model.width or number of stages",
                      what, (double)free_bytes / (1 << 30), (double)total_bytes / (1 << 30));
  }
  return petra_fail(PETRA_BACKEND, "cuda: %s: %s: %s", what, cudaGetErrorName(error), cudaGetErrorString(error));
}

/* Weak, because the tests of the kernels alone replace it. */
__attribute__((weak)) petra_status cuda_launched(const char *name) {
  return cuda_check(cudaGetLastError(), name);
}
