/* SPDX-License-Identifier: Apache-2.0 */
/* A convolution as cuDNN's operation graph: one operation; in a wide shape also an identity before it that rounds x,
 * and an identity after it that writes the sum. Descriptors are tables of attributes. */
#include "backend/cuda/cudnn_private.h"

#include "base/log.h"
#include "base/mem.h"

#include <cudnn_graph.h>
#include <stdio.h>

#if CUDNN_VERSION < 90800
#error "cuDNN 9.8 or newer is needed: before it, plans could not be made for a device's properties"
#endif

#define ATTRIBUTE(name, type, value)                                                                                   \
  { CUDNN_ATTR_##name, CUDNN_TYPE_##type, 1, &(value) }
#define ATTRIBUTES(name, type, array)                                                                                  \
  { CUDNN_ATTR_##name, CUDNN_TYPE_##type, (int64_t)(sizeof(array) / sizeof *(array)), array }
#define COUNT(table) ((int)(sizeof(table) / sizeof *(table)))

/* Passes on a failure of cuDNN within functions that return its status. */
#define TRY(expression)                                                                                                \
  do {                                                                                                                 \
    const int try_status_ = (expression);                                                                              \
    if (try_status_ != CUDNN_STATUS_SUCCESS)                                                                           \
      return try_status_;                                                                                              \
  } while (0)

/* --- descriptors --- */

int cuda_descriptor(int type, const cuda_attribute *attributes, int count, void **out) {
  *out = NULL;
  void *made = NULL;
  cudnnStatus_t status = CUDNN_STATUS_SUCCESS;
  TRY(cudnnBackendCreateDescriptor((cudnnBackendDescriptorType_t)type, &made));
  for (int i = 0; i < count && status == CUDNN_STATUS_SUCCESS; i++)
    status = cudnnBackendSetAttribute(made, (cudnnBackendAttributeName_t)attributes[i].name,
                                      (cudnnBackendAttributeType_t)attributes[i].type, attributes[i].count,
                                      attributes[i].values);
  if (status == CUDNN_STATUS_SUCCESS)
    status = cudnnBackendFinalize(made);
  if (status == CUDNN_STATUS_SUCCESS)
    *out = made;
  else
    cudnnBackendDestroyDescriptor(made);
  return status;
}

void cuda_descriptor_drop(void **descriptor) {
  if (*descriptor != NULL)
    cudnnBackendDestroyDescriptor(*descriptor);
  *descriptor = NULL;
}

/* --- messages --- */

petra_status cuda_cudnn_error(const cuda_conv_shape *shape, const char *what, int status) {
  char detail[256] = "";
  cudnnGetLastErrorString(detail, sizeof detail);
  bool no_memory = status == CUDNN_STATUS_INTERNAL_ERROR_HOST_ALLOCATION_FAILED ||
                   status == CUDNN_STATUS_INTERNAL_ERROR_DEVICE_ALLOCATION_FAILED;
  return petra_fail(no_memory ? PETRA_NO_MEMORY : PETRA_BACKEND, "%scuDNN: %s%s%s: %s (%d)%s%s",
                    no_memory ? "out of memory: " : "", what, shape != NULL ? ": convolution " : "",
                    shape != NULL ? cuda_shape_describe(shape).text : "", cudnnGetErrorString((cudnnStatus_t)status),
                    status, detail[0] != 0 ? ": " : "", detail);
}

/* --- the graph --- */

/* A tensor of the dimensions of `like`: CUDA_GRAPH_X, W or Y. Dimensions are given in cuDNN's order (n, c, h, w); the
 * strides say that channels come last. */
static int tensor(const cuda_conv_shape *s, int like, int64_t id, cudnnDataType_t type, void **out) {
  const int64_t x[] = {s->n, s->c, s->h, s->w}, w[] = {s->o, s->c, s->kh, s->kw}, y[] = {s->n, s->o, s->oh, s->ow};
  const int64_t *const d = like == CUDA_GRAPH_X ? x : like == CUDA_GRAPH_W ? w : y;
  const int64_t dimensions[] = {d[0], d[1], d[2], d[3]}, strides[] = {d[2] * d[3] * d[1], 1, d[3] * d[1], d[1]};
  const int64_t alignment = 16;
  const bool inner = id > CUDA_GRAPH_TENSORS;
  const cuda_attribute attributes[] = {
      ATTRIBUTE(TENSOR_UNIQUE_ID, INT64, id),
      ATTRIBUTE(TENSOR_DATA_TYPE, DATA_TYPE, type),
      ATTRIBUTE(TENSOR_BYTE_ALIGNMENT, INT64, alignment),
      ATTRIBUTES(TENSOR_DIMENSIONS, INT64, dimensions),
      ATTRIBUTES(TENSOR_STRIDES, INT64, strides),
      ATTRIBUTE(TENSOR_IS_VIRTUAL, BOOLEAN, inner),
  };
  return cuda_descriptor(CUDNN_BACKEND_TENSOR_DESCRIPTOR, attributes, COUNT(attributes), out);
}

/* Makes the graph's tensors; returns the first failure. */
static int tensors(const cuda_conv_shape *shape, cuda_conv_form form, cuda_conv_graph *graph) {
  void **const places[] = {&graph->x, &graph->w, &graph->y};
  const cudnnDataType_t narrow = shape->precision == PETRA_PRECISION_BF16 ? CUDNN_DATA_BFLOAT16 : CUDNN_DATA_FLOAT;
  const int out = CUDA_GRAPH_X + cuda_conv_output(shape->kind);
  for (int i = 0; i < CUDA_GRAPH_TENSORS; i++) {
    const int id = CUDA_GRAPH_X + i;
    const bool wide = id == out ? form.widens : id == CUDA_GRAPH_X && form.rounds;
    TRY(tensor(shape, id, id, wide ? CUDNN_DATA_FLOAT : narrow, places[i]));
  }
  if (form.rounds)
    TRY(tensor(shape, CUDA_GRAPH_X, CUDA_GRAPH_ROUNDED, narrow, &graph->rounded));
  if (form.widens)
    TRY(tensor(shape, out, CUDA_GRAPH_SUM, CUDNN_DATA_FLOAT, &graph->sum));
  return CUDNN_STATUS_SUCCESS;
}

/* Sums in f32 whatever the inputs are; filters are not flipped. */
static int convolution(const cuda_conv_shape *shape, void **out) {
  const int64_t rank = 2, ones[] = {1, 1}, strides[] = {shape->stride, shape->stride},
                pads[] = {shape->pad, shape->pad};
  const cudnnDataType_t sums = CUDNN_DATA_FLOAT;
  const cudnnConvolutionMode_t mode = CUDNN_CROSS_CORRELATION;
  const cuda_attribute attributes[] = {
      ATTRIBUTE(CONVOLUTION_COMP_TYPE, DATA_TYPE, sums),      ATTRIBUTE(CONVOLUTION_CONV_MODE, CONVOLUTION_MODE, mode),
      ATTRIBUTE(CONVOLUTION_SPATIAL_DIMS, INT64, rank),       ATTRIBUTES(CONVOLUTION_DILATIONS, INT64, ones),
      ATTRIBUTES(CONVOLUTION_FILTER_STRIDES, INT64, strides), ATTRIBUTES(CONVOLUTION_PRE_PADDINGS, INT64, pads),
      ATTRIBUTES(CONVOLUTION_POST_PADDINGS, INT64, pads),
  };
  return cuda_descriptor(CUDNN_BACKEND_CONVOLUTION_DESCRIPTOR, attributes, COUNT(attributes), out);
}

/* The convolution between its three tensors. Instead of a tensor that is rounded or widened it has the tensor within
 * the graph. */
static int operation(int kind, const cuda_conv_graph *graph, void **out) {
  const float one = 1, zero = 0;
  void *const *x = kind == CUDA_CONV_DATA ? &graph->sum : &graph->rounded;
  void *const *w = kind == CUDA_CONV_FILTER && graph->sum != NULL ? &graph->sum : &graph->w;
  void *const *y = kind == CUDA_CONV_FORWARD && graph->sum != NULL ? &graph->sum : &graph->y;
  if (*x == NULL)
    x = &graph->x;
#define OPERATION(prefix, x_name, w_name, y_name)                                                                      \
  {                                                                                                                    \
    ATTRIBUTE(OPERATION_CONVOLUTION_##prefix##_CONV_DESC, BACKEND_DESCRIPTOR, graph->convolution),                     \
        ATTRIBUTE(OPERATION_CONVOLUTION_##prefix##_##x_name, BACKEND_DESCRIPTOR, *x),                                  \
        ATTRIBUTE(OPERATION_CONVOLUTION_##prefix##_##w_name, BACKEND_DESCRIPTOR, *w),                                  \
        ATTRIBUTE(OPERATION_CONVOLUTION_##prefix##_##y_name, BACKEND_DESCRIPTOR, *y),                                  \
        ATTRIBUTE(OPERATION_CONVOLUTION_##prefix##_ALPHA, FLOAT, one),                                                 \
        ATTRIBUTE(OPERATION_CONVOLUTION_##prefix##_BETA, FLOAT, zero),                                                 \
  }
  const cuda_attribute forward[] = OPERATION(FORWARD, X, W, Y);
  const cuda_attribute data[] = OPERATION(BWD_DATA, DX, W, DY);
  const cuda_attribute filter[] = OPERATION(BWD_FILTER, X, DW, DY);
#undef OPERATION
  if (kind == CUDA_CONV_FORWARD)
    return cuda_descriptor(CUDNN_BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR, forward, COUNT(forward), out);
  if (kind == CUDA_CONV_DATA)
    return cuda_descriptor(CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_DATA_DESCRIPTOR, data, COUNT(data), out);
  return cuda_descriptor(CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_FILTER_DESCRIPTOR, filter, COUNT(filter), out);
}

/* to = from, in to's type. */
static int conversion(const cuda_conv_graph *graph, void *from, void *to, void **out) {
  const cuda_attribute attributes[] = {
      ATTRIBUTE(OPERATION_POINTWISE_PW_DESCRIPTOR, BACKEND_DESCRIPTOR, graph->identity),
      ATTRIBUTE(OPERATION_POINTWISE_XDESC, BACKEND_DESCRIPTOR, from),
      ATTRIBUTE(OPERATION_POINTWISE_YDESC, BACKEND_DESCRIPTOR, to),
  };
  return cuda_descriptor(CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR, attributes, COUNT(attributes), out);
}

/* Adds the operations before and after the convolution. */
static int conversions(const cuda_conv_shape *shape, cuda_conv_form form, cuda_conv_graph *graph) {
  const cudnnPointwiseMode_t mode = CUDNN_POINTWISE_IDENTITY;
  const cudnnDataType_t in = CUDNN_DATA_FLOAT;
  const cuda_attribute attributes[] = {
      ATTRIBUTE(POINTWISE_MODE, POINTWISE_MODE, mode),
      ATTRIBUTE(POINTWISE_MATH_PREC, DATA_TYPE, in),
  };
  void *const tensors_of[] = {graph->x, graph->w, graph->y};
  if (form.rounds || form.widens)
    TRY(cuda_descriptor(CUDNN_BACKEND_POINTWISE_DESCRIPTOR, attributes, COUNT(attributes), &graph->identity));
  if (form.rounds)
    TRY(conversion(graph, graph->x, graph->rounded, &graph->rounding));
  if (form.widens)
    TRY(conversion(graph, graph->sum, tensors_of[cuda_conv_output(shape->kind)], &graph->widening));
  return CUDNN_STATUS_SUCCESS;
}

static int operations(struct cudnnContext *handle, cuda_conv_graph *graph) {
  void *const all[] = {graph->rounding, graph->operation, graph->widening};
  void *present[COUNT(all)];
  int64_t count = 0;
  for (int i = 0; i < COUNT(all); i++)
    if (all[i] != NULL)
      present[count++] = all[i];
  const cuda_attribute attributes[] = {
      {CUDNN_ATTR_OPERATIONGRAPH_OPS, CUDNN_TYPE_BACKEND_DESCRIPTOR, count, present},
      ATTRIBUTE(OPERATIONGRAPH_HANDLE, HANDLE, handle),
  };
  return cuda_descriptor(CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR, attributes, handle != NULL ? 2 : 1, &graph->graph);
}

int cuda_conv_graph_make(const cuda_conv_shape *shape, cuda_conv_form form, struct cudnnContext *handle,
                         cuda_conv_graph *graph, const char **what) {
  *graph = (cuda_conv_graph){0};
  *what = "describing the tensors";
  TRY(tensors(shape, form, graph));
  *what = "describing the operation";
  TRY(convolution(shape, &graph->convolution));
  TRY(operation(shape->kind, graph, &graph->operation));
  TRY(conversions(shape, form, graph));
  *what = "building the graph";
  return operations(handle, graph);
}

void cuda_conv_graph_drop(cuda_conv_graph *graph) {
  void **const all[] = {&graph->graph,    &graph->widening,    &graph->operation, &graph->rounding,
                        &graph->identity, &graph->convolution, &graph->sum,       &graph->rounded,
                        &graph->y,        &graph->w,           &graph->x};
  for (int i = 0; i < COUNT(all); i++)
    cuda_descriptor_drop(all[i]);
}

/* From the heuristics' engine configurations, best first, to the first that has the wanted notes, finalizes
 * and fits, or to the one after that. */

static const cudnnBackendHeurMode_t modes[CUDA_HEURISTICS] = {CUDNN_HEUR_MODE_A, CUDNN_HEUR_MODE_B,
                                                              CUDNN_HEUR_MODE_FALLBACK};

/* --- notes --- */

static const struct {
  cudnnBackendNumericalNote_t found;
  unsigned own;
} known_notes[] = {{CUDNN_NUMERICAL_NOTE_TENSOR_CORE, CUDA_ENGINE_NOTE_TENSOR_CORES},
                   {CUDNN_NUMERICAL_NOTE_NONDETERMINISTIC, CUDA_ENGINE_NOTE_NONDETERMINISTIC},
                   {CUDNN_NUMERICAL_NOTE_DOWN_CONVERT_INPUTS, CUDA_ENGINE_NOTE_DOWN_CONVERTS},
                   {CUDNN_NUMERICAL_NOTE_REDUCED_PRECISION_REDUCTION, CUDA_ENGINE_NOTE_REDUCED_SUMS},
                   {CUDNN_NUMERICAL_NOTE_FFT, CUDA_ENGINE_NOTE_FFT},
                   {CUDNN_NUMERICAL_NOTE_WINOGRAD, CUDA_ENGINE_NOTE_WINOGRAD},
                   {CUDNN_NUMERICAL_NOTE_WINOGRAD_TILE_4x4, CUDA_ENGINE_NOTE_WINOGRAD},
                   {CUDNN_NUMERICAL_NOTE_WINOGRAD_TILE_6x6, CUDA_ENGINE_NOTE_WINOGRAD},
                   {CUDNN_NUMERICAL_NOTE_WINOGRAD_TILE_13x13, CUDA_ENGINE_NOTE_WINOGRAD}};

/* Sums are f32 in every precision, and inputs are not rounded to a smaller type than the precision's, so that both
 * notes are always unwanted. Winograd and Fourier transforms are also unwanted: their rounding errors are relative to
 * the largest element of a tile or an image instead of each output's own terms, and the streams that reversible blocks
 * invert through many layers accumulate these errors. The arithmetic of tensor cores is the only difference that tf32
 * and bf16 stand for. */
static unsigned unwanted_notes(int precision, bool deterministic) {
  unsigned notes =
      CUDA_ENGINE_NOTE_DOWN_CONVERTS | CUDA_ENGINE_NOTE_REDUCED_SUMS | CUDA_ENGINE_NOTE_WINOGRAD | CUDA_ENGINE_NOTE_FFT;
  if (precision != PETRA_PRECISION_TF32 && precision != PETRA_PRECISION_BF16)
    notes |= CUDA_ENGINE_NOTE_TENSOR_CORES;
  if (deterministic)
    notes |= CUDA_ENGINE_NOTE_NONDETERMINISTIC;
  return notes;
}

static int engine_notes(void *engine, int64_t *number, unsigned *notes, bool *compiled) {
  cudnnBackendNumericalNote_t numerical[CUDNN_NUMERICAL_NOTE_TYPE_COUNT];
  cudnnBackendBehaviorNote_t behavior[CUDNN_BEHAVIOR_NOTE_TYPE_COUNT];
  int64_t count = 0;
  *notes = 0;
  *compiled = false;
  TRY(cudnnBackendGetAttribute(engine, CUDNN_ATTR_ENGINE_GLOBAL_INDEX, CUDNN_TYPE_INT64, 1, &count, number));
  TRY(cudnnBackendGetAttribute(engine, CUDNN_ATTR_ENGINE_NUMERICAL_NOTE, CUDNN_TYPE_NUMERICAL_NOTE,
                               CUDNN_NUMERICAL_NOTE_TYPE_COUNT, &count, numerical));
  for (int64_t i = 0; i < count && i < CUDNN_NUMERICAL_NOTE_TYPE_COUNT; i++)
    for (int k = 0; k < COUNT(known_notes); k++)
      *notes |= numerical[i] == known_notes[k].found ? known_notes[k].own : 0;
  TRY(cudnnBackendGetAttribute(engine, CUDNN_ATTR_ENGINE_BEHAVIOR_NOTE, CUDNN_TYPE_BEHAVIOR_NOTE,
                               CUDNN_BEHAVIOR_NOTE_TYPE_COUNT, &count, behavior));
  for (int64_t i = 0; i < count && i < CUDNN_BEHAVIOR_NOTE_TYPE_COUNT; i++)
    *compiled = *compiled || behavior[i] == CUDNN_BEHAVIOR_NOTE_RUNTIME_COMPILATION;
  return CUDNN_STATUS_SUCCESS;
}

int cuda_config_notes(void *config, int64_t *engine, unsigned *notes, bool *compiled) {
  void *descriptor = NULL;
  int64_t count = 0;
  TRY(cudnnBackendCreateDescriptor(CUDNN_BACKEND_ENGINE_DESCRIPTOR, &descriptor));
  int status = cudnnBackendGetAttribute(config, CUDNN_ATTR_ENGINECFG_ENGINE, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &count,
                                        &descriptor);
  if (status == CUDNN_STATUS_SUCCESS)
    status = engine_notes(descriptor, engine, notes, compiled);
  cudnnBackendDestroyDescriptor(descriptor);
  return status;
}

/* --- one configuration --- */

static int make_conv(const cuda_engine_wanted *wanted, void *config, void **conv) {
  cuda_attribute attributes[] = {
      {CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &config},
      {CUDNN_ATTR_EXECUTION_PLAN_DEVICEPROP, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &wanted->deviceprop}};
  if (wanted->handle != NULL)
    attributes[1] = (cuda_attribute){CUDNN_ATTR_EXECUTION_PLAN_HANDLE, CUDNN_TYPE_HANDLE, 1, &wanted->handle};
  return cuda_descriptor(CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR, attributes, 2, conv);
}

static bool is_one_of(cuda_engine_kind engines, unsigned notes) {
  const bool cores = (notes & CUDA_ENGINE_NOTE_TENSOR_CORES) != 0;
  return engines == CUDA_ENGINES_ANY || cores == (engines == CUDA_ENGINES_WITH_CORES);
}

/* Fills the convolution and returns true if `config` serves; the convolution then owns it. */
static bool take(const cuda_engine_wanted *wanted, cuda_engine_kind engines, void *config, cuda_conv *conv,
                 cuda_engine_refusals *why) {
  int64_t workspace = 0, count = 0;
  int status = cuda_config_notes(config, &conv->engine, &conv->notes, &conv->compiled);
  if (status == CUDNN_STATUS_SUCCESS && !is_one_of(engines, conv->notes))
    return false;
  why->requested++;
  if (status == CUDNN_STATUS_SUCCESS &&
      (conv->notes & unwanted_notes(conv->shape.precision, wanted->deterministic)) != 0) {
    why->notes++;
    return false;
  }
  if (status == CUDNN_STATUS_SUCCESS)
    status = make_conv(wanted, config, &conv->execution);
  if (status == CUDNN_STATUS_SUCCESS)
    status = cudnnBackendGetAttribute(conv->execution, CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE, CUDNN_TYPE_INT64, 1,
                                      &count, &workspace);
  if (status == CUDNN_STATUS_SUCCESS && workspace >= 0 && (uint64_t)workspace <= wanted->workspace_max) {
    conv->workspace = (size_t)workspace;
    conv->config = config;
    return true;
  }
  cuda_descriptor_drop(&conv->execution);
  if (status == CUDNN_STATUS_SUCCESS)
    why->workspace++;
  else {
    why->unfinished++;
    why->last = status;
  }
  return false;
}

/* --- a mode of the heuristics --- */

/* Reads the heuristics' result into `count` new configurations; `*filled` of them were filled. */
static int read_results(void *heuristics, void **configs, int64_t count, int64_t *filled) {
  for (int64_t i = 0; i < count; i++)
    TRY(cudnnBackendCreateDescriptor(CUDNN_BACKEND_ENGINECFG_DESCRIPTOR, &configs[i]));
  return cudnnBackendGetAttribute(heuristics, CUDNN_ATTR_ENGINEHEUR_RESULTS, CUDNN_TYPE_BACKEND_DESCRIPTOR, count,
                                  filled, configs);
}

/* Tries the configurations from `rank` on. Heuristics that cannot answer in this mode count as a configuration that
 * does not finalize. */
static petra_status try_mode(const cuda_engine_wanted *wanted, cuda_engine_kind engines, int mode, int rank,
                             cuda_conv *conv, cuda_engine_refusals *why) {
  const cuda_attribute attributes[] = {
      {CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &conv->graph.graph},
      {CUDNN_ATTR_ENGINEHEUR_MODE, CUDNN_TYPE_HEUR_MODE, 1, &modes[mode]},
      {CUDNN_ATTR_ENGINEHEUR_DEVICEPROP, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &wanted->deviceprop}};
  void *heuristics = NULL;
  PETRA_FREED void **configs = NULL;
  int64_t count = 0, filled = 0;
  const int reported = wanted->deviceprop != NULL ? 3 : 2; /* otherwise the graph's handle decides */
  int status = cuda_descriptor(CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR, attributes, reported, &heuristics);
  if (status == CUDNN_STATUS_SUCCESS)
    status = cudnnBackendGetAttribute(heuristics, CUDNN_ATTR_ENGINEHEUR_RESULTS, CUDNN_TYPE_BACKEND_DESCRIPTOR, 0,
                                      &count, NULL);
  petra_status result = petra_allocate(&configs, (size_t)count, sizeof *configs);
  if (result == PETRA_OK && status == CUDNN_STATUS_SUCCESS)
    status = read_results(heuristics, configs, count, &filled);
  if (status != CUDNN_STATUS_SUCCESS) {
    why->unfinished++;
    why->last = status;
  }
  for (int64_t i = rank; i < filled && conv->execution == NULL; i++)
    if (take(wanted, engines, configs[i], conv, why)) {
      configs[i] = NULL;
      conv->position = (cuda_engine_position){mode, (int)i};
    }
  for (int64_t i = 0; configs != NULL && i < count; i++)
    cuda_descriptor_drop(&configs[i]);
  cuda_descriptor_drop(&heuristics);
  return result;
}

petra_status cuda_engine_search(const cuda_engine_wanted *wanted, cuda_engine_kind engines, cuda_engine_position first,
                                cuda_conv *conv, cuda_engine_refusals *why) {
  *why = (cuda_engine_refusals){0};
  for (int mode = first.mode; mode < CUDA_HEURISTICS && conv->execution == NULL; mode++)
    PETRA_TRY(try_mode(wanted, engines, mode, mode == first.mode ? first.rank : 0, conv, why));
  return PETRA_OK;
}

petra_status cuda_engine_none(const cuda_engine_wanted *wanted, const cuda_conv *conv,
                              const cuda_engine_refusals *why) {
  char last[96] = "";
  if (why->unfinished > 0)
    snprintf(last, sizeof last, " (last: %s)", cudnnGetErrorString((cudnnStatus_t)why->last));
  return petra_fail(PETRA_UNSUPPORTED,
                    "cuDNN has no plan for the convolution %s%s: of %d engine configurations %d have "
                    "unwanted notes, %d need "
                    "more than %zu bytes of workspace, %d do not finalize%s",
                    cuda_shape_describe(&conv->shape).text, wanted->deterministic ? ", deterministic" : "",
                    why->requested, why->notes, why->workspace, wanted->workspace_max, why->unfinished, last);
}
