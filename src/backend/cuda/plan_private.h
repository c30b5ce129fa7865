/* SPDX-License-Identifier: Apache-2.0 */
/* What the files of the convolution plans share: plan.c (the plans and their runs), plan_graph.c (a
 * convolution as cuDNN's operation graph), plan_search.c (from the heuristics to a plan). They alone include
 * cuDNN's headers; this one does not: a descriptor is cuDNN's cudnnBackendDescriptor_t, a pointer to void,
 * and a status its cudnnStatus_t. */
#ifndef PETRA_BACKEND_CUDA_PLAN_PRIVATE_H
#define PETRA_BACKEND_CUDA_PLAN_PRIVATE_H

#include "backend/cuda/convolution.h"

struct cudnnContext;

/* Names of a convolution's tensors in its graph and in the variant pack of a run. */
enum { CUDA_PLAN_X = 1, CUDA_PLAN_W, CUDA_PLAN_Y, CUDA_PLAN_TENSORS = 3 };

/* A descriptor's attribute: cudnnBackendAttributeName_t, cudnnBackendAttributeType_t, and `count` values. */
typedef struct cuda_attribute {
  int name, type;
  int64_t count;
  const void *values;
} cuda_attribute;

/* The operation graph of one convolution, and what it is made of. */
typedef struct cuda_conv_graph {
  void *x, *w, *y, *convolution, *operation, *graph;
} cuda_conv_graph;

struct cuda_plan {
  cuda_conv_shape shape;
  struct cudnnContext *handle; /* NULL: made for a device that is not here */
  cuda_conv_graph graph;       /* kept with the configuration, as the plan was made from them */
  void *config, *plan;
  int64_t engine;
  size_t workspace;
  unsigned notes; /* CUDA_PLAN_NOTE_... */
  bool compiled;  /* its kernel was compiled for it, here */
  int mode, rank; /* where the heuristics had it: which mode, and the how-manieth from 0 */
  struct cuda_plan *next;
};

/* What a plan must satisfy, and for which device: exactly one of `handle` and `deviceprop` is not NULL. */
typedef struct cuda_plan_wanted {
  struct cudnnContext *handle; /* the present device's: graphs and plans carry it */
  void *deviceprop;            /* a descriptor: of a device that is not here; heuristics and plans carry it */
  bool deterministic;
  size_t workspace_max;
} cuda_plan_wanted;

/* Makes and finalizes a descriptor. Answers cuDNN's status, unlogged; *out is NULL where it is not success.
 * plan_graph.c */
int cuda_descriptor(int type, const cuda_attribute *attributes, int count, void **out);

/* Destroys *descriptor, which may be NULL, and sets it to NULL. */
void cuda_descriptor_drop(void **descriptor);

/* Logs "cuDNN: WHAT: CONVOLUTION: what it says" and answers PETRA_NO_MEMORY or PETRA_BACKEND. `shape` may be NULL. */
petra_status cuda_plan_error(const cuda_conv_shape *shape, const char *what, int status);

/* "forward, x 64x32x32x3, filter 64x3x3x3, stride 1, pad 1, fp32": of every line about a shape. */
typedef struct cuda_shape_text {
  char text[160];
} cuda_shape_text;
cuda_shape_text cuda_shape_describe(const cuda_conv_shape *shape);

/* `handle`: NULL in a graph for a device that is not here. Out: `graph`, also on failure to be given to
 * cuda_conv_graph_drop. */
petra_status cuda_conv_graph_make(const cuda_conv_shape *shape, struct cudnnContext *handle, cuda_conv_graph *graph);
void cuda_conv_graph_drop(cuda_conv_graph *graph);

/* Fills plan->config, plan, engine, workspace, notes for plan->shape and plan->graph. plan_search.c */
petra_status cuda_plan_search(const cuda_plan_wanted *wanted, cuda_plan *plan);

/* Notes (CUDA_PLAN_NOTE_...) of an engine configuration, and the number of its engine. Answers cuDNN's status. */
int cuda_config_notes(void *config, int64_t *engine, unsigned *notes, bool *compiled);

#endif
