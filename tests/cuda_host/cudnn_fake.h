/* SPDX-License-Identifier: Apache-2.0 */
/* The inside of the fake cuDNN: what its files offer each other. All under the runtime's lock. */
#pragma once

#include "cuda_host/cudnn_control.h"
#include "cuda_host/runtime.h"

enum { CUDNN_FAKE_VALUES = 8, CUDNN_FAKE_RANK = 4 };

typedef struct cudnn_fake_value {
  int name;
  int64_t count;
  void *data; /* owned */
} cudnn_fake_value;

typedef struct cudnn_fake_descriptor {
  struct cudnn_fake_descriptor *next;
  int type;
  bool finalized;
  int value_count;
  cudnn_fake_value values[CUDNN_FAKE_VALUES];
  /* configurations, engines and plans: */
  const cudnn_fake_engine *engine;
  const struct cudnn_fake_descriptor *graph, *deviceprop; /* that the heuristics had */
  int runs;                                               /* of a plan, so far */
} cudnn_fake_descriptor;

struct cudnnContext {
  struct cudnnContext *next;
  cudaStream_t stream;
};

typedef struct cudnn_fake_tensor {
  int64_t id, alignment, dims[CUDNN_FAKE_RANK], strides[CUDNN_FAKE_RANK];
  bool bf16;
  bool inner;   /* within a graph */
  bool rounded; /* float that the convolution reads as bf16 */
  void *data;   /* of a run */
} cudnn_fake_tensor;

typedef enum cudnn_fake_kind { CUDNN_FAKE_FORWARD, CUDNN_FAKE_DATA, CUDNN_FAKE_FILTER } cudnn_fake_kind;

/* A convolution's operation as its attributes have it; of a graph: between the tensors that are in memory. */
typedef struct cudnn_fake_operation {
  cudnn_fake_kind kind;
  cudnn_fake_tensor x, w, y;
  int64_t strides[2], before[2], after[2], dilations[2];
  bool flipped;
  float alpha, beta;
  int extras; /* CUDNN_FAKE_ROUNDS, CUDNN_FAKE_WIDENS */
} cudnn_fake_operation;

/* --- cudnn_descriptors.c --- */

/* Keeps the text for cudnnGetLastErrorString and answers the status. */
cudnnStatus_t cudnn_fake_refuse(cudnnStatus_t status, const char *text);

/* Takes the lock; a failure that was asked for, or success. cudnn_fake_leave gives it back. */
cudnnStatus_t cudnn_fake_enter(const char *function);
cudnnStatus_t cudnn_fake_leave(cudnnStatus_t status);
#define CUDNN_FAKE_ENTER(function)                                                                                     \
  do {                                                                                                                 \
    cudnnStatus_t fake_status_ = cudnn_fake_enter(function);                                                           \
    if (fake_status_ != CUDNN_STATUS_SUCCESS)                                                                          \
      return cudnn_fake_leave(fake_status_);                                                                           \
  } while (0)

/* The descriptor if it is alive and of the type (-1: any), else NULL. */
cudnn_fake_descriptor *cudnn_fake_find(const void *descriptor, int type);
/* An attribute that was set; NULL: it was not. */
const cudnn_fake_value *cudnn_fake_value_of(const cudnn_fake_descriptor *descriptor, int name);
/* Element `at` of an attribute of numbers, or of descriptors; the attribute is there. */
int64_t cudnn_fake_number(const cudnn_fake_descriptor *descriptor, int name, int at);
cudnn_fake_descriptor *cudnn_fake_part(const cudnn_fake_descriptor *descriptor, int name);
cudnn_fake_descriptor *cudnn_fake_part_at(const cudnn_fake_descriptor *descriptor, int name, int64_t at);
/* The handle in an attribute; NULL: none. */
struct cudnnContext *cudnn_fake_handle(const cudnn_fake_descriptor *descriptor, int name);

/* --- cudnn_checks.c --- */

/* Whether attributes that are all there fit together. */
cudnnStatus_t cudnn_fake_check(const cudnn_fake_descriptor *descriptor);
/* Of a graph's operations; whether they are what the fake knows as a graph. */
bool cudnn_fake_read_graph(const cudnn_fake_descriptor *graph, cudnn_fake_operation *out);
cudnn_fake_tensor *cudnn_fake_output(cudnn_fake_operation *operation);

/* --- cudnn_engines.c --- */

/* Attributes that are answered, not set. */
cudnnStatus_t cudnn_fake_answer(const cudnn_fake_descriptor *descriptor, int name, int64_t wanted, int64_t *count,
                                void *out);
int64_t cudnn_fake_workspace(const cudnn_fake_descriptor *plan);
bool cudnn_fake_noted(const cudnn_fake_engine *engine, cudnnBackendNumericalNote_t note);

/* --- cudnn_execute.c --- */
void cudnn_fake_runs_reset(void); /* and the handles */
bool cudnn_fake_handle_alive(const struct cudnnContext *handle);
int64_t cudnn_fake_handles(void);
