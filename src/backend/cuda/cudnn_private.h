/* SPDX-License-Identifier: Apache-2.0 */
/* Definitions that the files of the convolutions share: cudnn_convolution.c (the convolutions and their runs),
 * cudnn_graph.c (a convolution as cuDNN's operation graph, and the search for an engine), cudnn_measure.c (the fastest
 * of several convolutions, and the file of measured engines). Only the first two include cuDNN's headers; this header
 * does not: a descriptor is cuDNN's cudnnBackendDescriptor_t, a pointer to void, and a status its cudnnStatus_t. */
#pragma once

#include "backend/cuda/cuda_libraries.h"

#include <stdio.h>

/* Returns the elements of an array (CUDA_CONV_X, W or Y). */
static inline int64_t cuda_conv_elements(const cuda_conv_shape *s, int array) {
  return array == CUDA_CONV_X   ? (int64_t)s->n * s->h * s->w * s->c
         : array == CUDA_CONV_W ? (int64_t)s->o * s->kh * s->kw * s->c
                                : (int64_t)s->n * s->oh * s->ow * s->o;
}

/* The measured choices of a cuDNN configuration for each shape, stored in a text file.
 *
 *   petra plans 1
 *   library: cuDNN 9.19.0
 *   device: NVIDIA H100 80GB HBM3
 *   deterministic: true
 *   forward, x 64x32x32x3, filter 64x3x3x3, stride 1, pad 1, tf32: rounds 0, widens 0, heuristics a, rank 3,
 *     engine 33, 41.250 us
 *
 * and so on, one line (here broken in two) for each shape. A file is valid only for one version of cuDNN, one kind of
 * device and one value of device.deterministic. */

/* The conversions of a wide shape that are in cuDNN's graph; the others are launches of ours. */
typedef struct cuda_conv_form {
  bool rounds; /* x f32 -> bf16 */
  bool widens; /* the sum f32 -> the output as it is */
} cuda_conv_form;

/* The position of a configuration in cuDNN's heuristics. */
typedef struct cuda_engine_position {
  int mode; /* of CUDA_HEURISTICS: A, B, fallback */
  int rank; /* number of the configuration within the mode, from 0 */
} cuda_engine_position;
enum { CUDA_HEURISTICS = 3 };

typedef struct cuda_engine_choice {
  cuda_conv_form form;
  cuda_engine_position position;
  int64_t engine; /* the global index of the engine there */
  double us;      /* microseconds of a run, including conversions; rounded to three decimals in files */
  bool used;      /* used by this backend; not in files */
} cuda_engine_choice;

/* The scope of a file's choices: its lines after the first. */
typedef struct cuda_engine_setting {
  char library[64], device[256];
  bool deterministic;
} cuda_engine_setting;

typedef struct cuda_engine_table cuda_engine_table;

/* "forward, x 64x32x32x3, filter 64x3x3x3, stride 1, pad 1, bf16, x f32, output f32": the text that names the shape in
 * every line about it. */
typedef struct cuda_shape_text {
  char text[192];
} cuda_shape_text;
cuda_shape_text cuda_shape_describe(const cuda_conv_shape *shape);

/* Opens the choices of the file; there are none if it does not exist, but its folder must. Errors: PETRA_CONFIG, logged
 * with both settings, if the file was measured with another setting; PETRA_DATA, with the line number, if the file is
 * damaged; PETRA_IO; PETRA_NO_MEMORY. */
petra_status cuda_engine_table_open(const char *path, const cuda_engine_setting *setting, cuda_engine_table **out);
void cuda_engine_table_destroy(cuda_engine_table *table);

const char *cuda_engine_table_path(const cuda_engine_table *table);

/* Returns NULL if there is none. Valid until the next put. */
cuda_engine_choice *cuda_engine_table_find(cuda_engine_table *table, const cuda_conv_shape *shape);

/* Adds the choice, or replaces the choice of the shape. Errors: PETRA_NO_MEMORY. */
petra_status cuda_engine_table_put(cuda_engine_table *table, const cuda_conv_shape *shape,
                                   const cuda_engine_choice *choice);

/* Prints the choices as a file has them: the choices that were used, or all choices. */
void cuda_engine_table_print(const cuda_engine_table *table, bool all, FILE *out);

/* Replaces the file completely or not at all, if anything was put since it was opened. Choices that other processes
 * have added to it in the meantime are kept. Errors: the errors of cuda_engine_table_open; the file is then
 * unchanged. */
petra_status cuda_engine_table_write(cuda_engine_table *table);

struct cudnnContext;

/* Names of a convolution's tensors in its graph: x, w and y, also used in the variant pack of a run; and the tensors
 * within the graph, which are not in memory. */
enum { CUDA_GRAPH_X = 1, CUDA_GRAPH_W, CUDA_GRAPH_Y, CUDA_GRAPH_TENSORS = 3, CUDA_GRAPH_ROUNDED, CUDA_GRAPH_SUM };

/* A descriptor's attribute: cudnnBackendAttributeName_t, cudnnBackendAttributeType_t, and `count` values. */
typedef struct cuda_attribute {
  int name, type;
  int64_t count;
  const void *values;
} cuda_attribute;

/* The operation graph of one convolution and its parts; NULL: not present. */
typedef struct cuda_conv_graph {
  void *x, *w, *y, *rounded, *sum; /* tensors */
  void *convolution, *identity;    /* the operations' parameters (cuDNN's convolution descriptor, identity) */
  void *rounding, *operation, *widening;
  void *graph;
} cuda_conv_graph;

struct cuda_conv {
  cuda_conv_shape shape;
  struct cudnnContext *handle; /* NULL: made for an absent device */
  cuda_conv_graph graph;       /* kept with the configuration, from which the execution plan was made */
  void *config, *execution;
  int64_t engine;
  size_t workspace; /* cuDNN's workspace; in the scratch it follows the two buffers below */
  size_t rounded;   /* x in bf16; 0: x is read as it is */
  size_t narrow;    /* the output in bf16; 0: it is written as it is */
  unsigned notes;   /* CUDA_ENGINE_NOTE_... */
  bool compiled;    /* its kernel was compiled at run time for this convolution */
  cuda_conv_form form;
  cuda_engine_position position;
  struct cuda_conv *next;
};

/* The requirements of a convolution, and its device: exactly one of `handle` and `deviceprop` is not NULL. */
typedef struct cuda_engine_wanted {
  struct cudnnContext *handle; /* handle of the present device; graphs and convolutions contain it */
  void *deviceprop;            /* descriptor of an absent device; heuristics and convolutions contain it */
  bool deterministic;
  size_t workspace_max;
} cuda_engine_wanted;

/* Makes and finalizes a descriptor. Returns cuDNN's status, unlogged; *out is NULL unless it is success.
 * cudnn_graph.c */
int cuda_descriptor(int type, const cuda_attribute *attributes, int count, void **out);

/* Destroys *descriptor, which may be NULL, and sets it to NULL. */
void cuda_descriptor_drop(void **descriptor);

/* Logs "cuDNN: WHAT: CONVOLUTION: its message" and returns PETRA_NO_MEMORY or PETRA_BACKEND. `shape` may be NULL. */
petra_status cuda_cudnn_error(const cuda_conv_shape *shape, const char *what, int status);

/* Makes the graph of a convolution. `handle`: NULL in a graph for an absent device. Gets `graph`, which must be passed
 * to cuda_conv_graph_drop even on failure, and `what`, which names the step that failed. Returns cuDNN's status,
 * unlogged. */
int cuda_conv_graph_make(const cuda_conv_shape *shape, cuda_conv_form form, struct cudnnContext *handle,
                         cuda_conv_graph *graph, const char **what);
void cuda_conv_graph_drop(cuda_conv_graph *graph);

/* The reasons why configurations were rejected. */
typedef struct cuda_engine_refusals {
  int requested, notes, workspace, unfinished;
  int last; /* cuDNN's status for the last configuration that did not finalize */
} cuda_engine_refusals;

/* The configurations that a search considers. */
typedef enum cuda_engine_kind {
  CUDA_ENGINES_ANY,
  CUDA_ENGINES_WITH_CORES, /* engines whose numerical notes say that they use tensor cores */
  CUDA_ENGINES_WITHOUT_CORES
} cuda_engine_kind;

/* Fills conv->config, execution, engine, workspace, notes, position for conv->shape and conv->graph, from the first
 * configuration of these engines that works, beginning at the position `first`; conv->execution stays NULL if none
 * does. The only error is PETRA_NO_MEMORY, logged. cudnn_graph.c */
petra_status cuda_engine_search(const cuda_engine_wanted *wanted, cuda_engine_kind engines, cuda_engine_position first,
                                cuda_conv *conv, cuda_engine_refusals *why);

/* Logs that there is no convolution; returns PETRA_UNSUPPORTED. */
petra_status cuda_engine_none(const cuda_engine_wanted *wanted, const cuda_conv *conv, const cuda_engine_refusals *why);

/* Gets the notes (CUDA_ENGINE_NOTE_...) of an engine configuration, and the number of its engine. Returns cuDNN's
 * status. */
int cuda_config_notes(void *config, int64_t *engine, unsigned *notes, bool *compiled);

/* Measures convolutions of one shape on temporarily allocated device memory, once the device has finished all earlier
 * work. The time of a convolution includes conversions. Twenty runs are in one graph, on sets of arrays in turn that
 * the cache does not hold together; the time is the median of three launches, after launches that do not count. A
 * convolution that cannot be captured is skipped. *fastest: the convolution with the smallest time (the first of
 * equals), which is *us microseconds; -1 if the device has too little memory or cuDNN runs none of them, and then
 * nothing is logged. cudnn_measure.c */
petra_status cuda_engines_time(cuda_conv *const *convs, int count, int *fastest, double *us);
