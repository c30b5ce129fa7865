/* The inside of the `cuda` backend: its handle and what its files offer each other.
 *
 * From an operation to the device: an operation (activation.c, arithmetic.c, ...) describes its launches as
 * commands, the tensors that each reads and writes with them (segment.h); the commands of an action of a stage make
 * a segment, which runs in order on the lane of the stage (segment.c), as single launches or as a CUDA graph of them
 * (graph.c). Segments of different lanes wait for each other only where one touches what the other wrote, or writes
 * what it read.
 *
 * Tensors: kernels.h says how they are laid out. Masks are one byte an element. Everything that the host reads
 * (download, dot, cross_entropy) waits for the lane that computes it.
 *
 * cuda_runtime_api.h is included by the files of this folder alone; tests put a run time of their own in its place. */
#ifndef PETRA_BACKEND_CUDA_CUDA_H
#define PETRA_BACKEND_CUDA_CUDA_H

#include "backend/backend.h"
#include "backend/cuda/convolution.h"
#include "backend/cuda/kernels.h"
#include "backend/cuda/lane.h"
#include "backend/cuda/matrix.h"

#include <cuda_runtime_api.h>

enum {
  CUDA_LANES = 16,  /* stage j computes on lane j % CUDA_LANES; lane 0 is also that of everything outside of stages */
  CUDA_EVENTS = 16, /* the last segments of a lane that others can wait for one by one */
};

/* When a segment was: it is over once the lane has come so far. Numbers start at 1; 0: none. */
typedef uint64_t cuda_moment;

/* What tensor->layout points to: who touched the storage last. */
typedef struct cuda_storage {
  int write_lane;
  cuda_moment write;
  cuda_moment reads[CUDA_LANES]; /* the last of each lane since the write */
} cuda_storage;

typedef struct cuda_track {
  cuda_lane lane;                 /* what launches see of it; first */
  cudaEvent_t ended[CUDA_EVENTS]; /* of segment s: ended[s % CUDA_EVENTS] */
  cuda_moment submitted;
  cuda_moment waited[CUDA_LANES]; /* what this lane has already waited for */
  void **retired;                 /* scratch that became too small, but that graphs may still use */
  int retired_count;
} cuda_track;

typedef struct cuda_segment cuda_segment;   /* segment.h: the one in the making */
typedef struct cuda_graphs cuda_graphs;     /* graph.h: those that were captured */
typedef struct cuda_transfer cuda_transfer; /* transfer.h: pinned memory on its way */

typedef struct cuda_backend {
  petra_backend base;
  int device;
  cuda_track track[CUDA_LANES];
  cuda_segment *segment;
  cuda_graphs *graphs; /* NULL: every command is launched on its own */
  cuda_transfer *transfer;
  cuda_plans *plans;
  cuda_blas *blas;
} cuda_backend;

static inline cuda_backend *cuda_of(petra_backend *backend) {
  return (cuda_backend *)backend;
}

static inline cuda_storage *cuda_storage_of(const petra_tensor *tensor) {
  return (cuda_storage *)tensor->layout;
}

static inline float *cuda_data(petra_tensor *tensor) {
  return (float *)tensor->data;
}

static inline const float *cuda_read(const petra_tensor *tensor) {
  return (const float *)tensor->data;
}

/* Channels last: pixels of an activation, over all images. */
static inline int64_t cuda_pixels(const petra_tensor *tensor) {
  return (int64_t)tensor->shape[0] * tensor->shape[2] * tensor->shape[3];
}

/* --- error.c --- */

/* PETRA_OK, or one line "cuda: WHAT: cudaErrorName: its text"; memory errors are PETRA_NO_MEMORY, all others
 * PETRA_BACKEND. */
petra_status cuda_check(cudaError_t error, const char *what);
#define CUDA_TRY(call, what) PETRA_TRY(cuda_check(call, what))

/* --- storage.c --- */

petra_status cuda_storage_create(petra_backend *backend, petra_tensor *tensor);
void cuda_storage_destroy(petra_backend *backend, petra_tensor *tensor);
size_t cuda_storage_bytes(petra_backend *backend, const petra_tensor *tensor);
petra_status cuda_upload(petra_backend *backend, petra_tensor *tensor, const void *host, petra_host_type type);
petra_status cuda_upload_images(petra_backend *backend, const petra_images *images, petra_tensor *x);
petra_status cuda_download(petra_backend *backend, const petra_tensor *tensor, void *host, petra_host_type type);

/* --- the operations of backend.h --- */

/* arithmetic.c */
petra_status cuda_copy(petra_backend *backend, const petra_tensor *x, petra_tensor *y);
petra_status cuda_fill(petra_backend *backend, petra_tensor *y, double value);
petra_status cuda_axpy(petra_backend *backend, double alpha, const petra_tensor *x, petra_tensor *y);
petra_status cuda_add(petra_backend *backend, const petra_tensor *a, const petra_tensor *b, petra_tensor *y);
petra_status cuda_dot(petra_backend *backend, const petra_tensor *a, const petra_tensor *b, double *out);
petra_status cuda_relu_backward(petra_backend *backend, const petra_tensor *y, const petra_tensor *dy,
                                petra_tensor *dx);
petra_status cuda_sgd_step(petra_backend *backend, const petra_sgd_step *arguments);

/* activation.c */
petra_status cuda_split(petra_backend *backend, const petra_tensor *x, petra_tensor *x1, petra_tensor *x2);
petra_status cuda_concat(petra_backend *backend, const petra_tensor *x1, const petra_tensor *x2, petra_tensor *x);
petra_status cuda_space_to_depth(petra_backend *backend, const petra_tensor *x, petra_tensor *y);
petra_status cuda_depth_to_space(petra_backend *backend, const petra_tensor *y, petra_tensor *x);
petra_status cuda_max_pool_forward(petra_backend *backend, const petra_pool_geometry *geometry, const petra_tensor *x,
                                   petra_tensor *y, petra_tensor *mask);
petra_status cuda_max_pool_backward(petra_backend *backend, const petra_pool_geometry *geometry, const petra_tensor *dy,
                                    const petra_tensor *mask, petra_tensor *dx);
petra_status cuda_average_pool_forward(petra_backend *backend, const petra_tensor *x, petra_tensor *y, int column);
petra_status cuda_average_pool_backward(petra_backend *backend, const petra_tensor *dy, int column, petra_tensor *dx);

/* conv_ops.c */
petra_status cuda_conv_forward(petra_backend *backend, const petra_conv_geometry *geometry, const petra_tensor *x,
                               const petra_tensor *w, petra_tensor *y);
petra_status cuda_conv_backward_data(petra_backend *backend, const petra_conv_geometry *geometry,
                                     const petra_tensor *dy, const petra_tensor *w, petra_tensor *dx);
petra_status cuda_conv_backward_filter(petra_backend *backend, const petra_conv_geometry *geometry,
                                       const petra_tensor *x, const petra_tensor *dy, petra_tensor *dw);

/* norm_ops.c */
petra_status cuda_norm_forward(petra_backend *backend, const petra_norm_forward *arguments);
petra_status cuda_norm_backward(petra_backend *backend, const petra_norm_backward *arguments);
petra_status cuda_norm_evaluate(petra_backend *backend, const petra_norm_forward *arguments);
petra_status cuda_norm_update_running(petra_backend *backend, const petra_tensor *mean, const petra_tensor *variance,
                                      int64_t samples, double momentum, petra_tensor *running_mean,
                                      petra_tensor *running_variance);

/* head_ops.c */
petra_status cuda_linear_forward(petra_backend *backend, const petra_tensor *x, const petra_tensor *w,
                                 const petra_tensor *b, petra_tensor *y);
petra_status cuda_linear_backward(petra_backend *backend, const petra_tensor *x, const petra_tensor *w,
                                  const petra_tensor *dy, petra_tensor *dx, petra_tensor *dw, petra_tensor *db);
petra_status cuda_cross_entropy(petra_backend *backend, petra_cross_entropy *arguments);
petra_status cuda_collect(petra_backend *backend, int64_t ticket, petra_cross_entropy *out);

#endif
