/* SPDX-License-Identifier: Apache-2.0 */
/* The internals of the `cuda` backend: its handle and the functions that its files share.
 *
 * From an operation to the device: an operation (activation.c, arithmetic.c, ...) describes its launches as commands,
 * each with the tensors that it reads and writes (segment.h). The commands of one action of a stage form a segment,
 * which runs in order on the stage's lane (segment.c), as single launches or as one CUDA graph (graph.c). Segments of
 * different lanes wait for each other only where one touches what the other wrote, or writes what it read.
 *
 * Tensors: kernels.h says how they are laid out. Masks are one byte an element. Everything that the host reads
 * (download, dot, cross_entropy) waits for the lane that computes it.
 *
 * cuda_runtime_api.h is included by the files of this folder alone; tests put a run time of their own in its place. */
#pragma once

#include "backend/backend.h"
#include "backend/cuda/convolution.h"
#include "backend/cuda/kernels.h"
#include "backend/cuda/lane.h"
#include "backend/cuda/matrix.h"

#include <cuda_runtime_api.h>

enum {
  CUDA_LANES =
      16, /* at most; stage j computes on lane j % lanes; lane 0 is also that of everything outside of stages */
  CUDA_TRACKS = CUDA_LANES + PETRA_PEER_LANES, /* and those of messages from and to other processes (peers.c) */
  CUDA_EVENTS = 16,                            /* the last segments of a lane that others can wait for one by one */
};

/* The sequence number of a segment on its lane: the segment is over once the lane has reached this number. Numbers
 * start at 1; 0: none. */
typedef uint64_t cuda_moment;

/* The target of tensor->layout: the last accesses to the storage. */
typedef struct cuda_storage {
  int write_lane;
  cuda_moment write;
  cuda_moment reads[CUDA_TRACKS]; /* the last access of each lane since the write */
  /* In bf16, for tensors that are stored in f32 (streams, images, filters and their gradients): a copy of their values
   * in bf16, which convolutions read and write; made on first use. An access to the tensor counts as an access to the
   * copy too. NULL: none. */
  uint16_t *rounded;
  bool rounded_valid; /* they are the tensor's numbers, rounded */
  bool rounded_alone; /* only the rounded copy is up to date; the f32 values are older (cuda_reads widens the copy) */
} cuda_storage;

typedef struct cuda_track {
  cuda_lane lane;                 /* the view of launches; first member */
  cudaEvent_t ended[CUDA_EVENTS]; /* of segment s: ended[s % CUDA_EVENTS] */
  cuda_moment submitted;
  cuda_moment waited[CUDA_TRACKS]; /* what this lane has already waited for */
  void **retired;                  /* outgrown scratch that graphs may still use */
  int retired_count;
} cuda_track;

typedef struct cuda_segment cuda_segment;   /* segment.h: the one under construction */
typedef struct cuda_graphs cuda_graphs;     /* graph.c: captured segments */
typedef struct cuda_transfer cuda_transfer; /* transfer.c: pinned memory in transit */
typedef struct cuda_peers cuda_peers;       /* peers.c: lanes to other processes */

typedef struct cuda_backend {
  petra_backend base;
  int device, lanes; /* number of lanes that stages compute on */
  bool wide_gradients;
  cuda_track track[CUDA_TRACKS];
  cuda_segment *segment;
  cuda_graphs *graphs; /* NULL: every command is launched on its own */
  cuda_transfer *transfer;
  cuda_peers *peers; /* NULL: none was connected */
  cuda_plans *plans;
  cuda_blas *blas;
  /* bytes of rounded copies; bytes of the lanes' scratch, including outgrown scratch */
  int64_t rounded_bytes, scratch_bytes;
} cuda_backend;

static inline cuda_backend *cuda_of(petra_backend *backend) {
  return (cuda_backend *)backend;
}

static inline cuda_storage *cuda_storage_of(const petra_tensor *tensor) {
  return (cuda_storage *)tensor->layout;
}

/* Returns true if its elements are bf16. */
static inline bool cuda_is_narrow(const petra_tensor *tensor) {
  return tensor->backend->element_bytes[tensor->kind] == sizeof(uint16_t);
}

/* Returns the pixels of an activation, over all images (channels last). */
static inline int64_t cuda_pixels(const petra_tensor *tensor) {
  return (int64_t)tensor->shape[0] * tensor->shape[2] * tensor->shape[3];
}

/* --- segment.c --- */

/* Returns PETRA_OK, or logs one line "cuda: WHAT: cudaErrorName: its text"; memory errors are PETRA_NO_MEMORY, all
 * others PETRA_BACKEND. */
petra_status cuda_check(cudaError_t error, const char *what);
#define CUDA_TRY(call, what) PETRA_TRY(cuda_check(call, what))

/* --- storage.c --- */

petra_status cuda_storage_create(petra_backend *backend, petra_tensor *tensor);
void cuda_storage_destroy(petra_backend *backend, petra_tensor *tensor);
petra_status cuda_upload_images(petra_backend *backend, const petra_images *images, petra_tensor *x);

/* --- peers.c, or peers_none.c where petra is built without NCCL --- */

/* Returns NULL if there are none. */
const petra_peer_ops *cuda_peer_ops(void);
const char *cuda_peers_version(void); /* "NCCL 2.28.9"; NULL */

/* Cancels transfers that hang, so that the final wait for the device can end. */
void cuda_peers_destroy(cuda_backend *cuda);

/* Returns PETRA_CHILD after a cancellation: the results of the device since then are undefined. Logs nothing. */
petra_status cuda_peers_alive(const cuda_backend *cuda);

/* --- the operations of backend.h: arithmetic.c, activation.c, conv_ops.c, norm_ops.c, linear_ops.c,
 * sequence_ops.c, loss_ops.c --- */

PETRA_OPERATIONS(PETRA_OPERATION_DECLARE, cuda_)

/* loss_ops.c */
petra_status cuda_collect(petra_backend *backend, int64_t ticket, petra_cross_entropy *out);
