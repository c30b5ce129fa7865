/* SPDX-License-Identifier: Apache-2.0 */
/* What the fake cuDNN checks when a descriptor is finalized. */
#include "cuda_host/cudnn_fake.h"

#include <string.h>

#define VALUE_OF(descriptor, name) cudnn_fake_value_of(descriptor, CUDNN_ATTR_##name)
#define NUMBER(descriptor, name, at) cudnn_fake_number(descriptor, CUDNN_ATTR_##name, at)

/* --- tensors and convolutions --- */

static cudnnStatus_t check_tensor(const cudnn_fake_descriptor *d) {
  const int64_t rank = VALUE_OF(d, TENSOR_DIMENSIONS)->count, alignment = NUMBER(d, TENSOR_BYTE_ALIGNMENT, 0);
  const int64_t type = NUMBER(d, TENSOR_DATA_TYPE, 0);
  if (rank != CUDNN_FAKE_RANK || VALUE_OF(d, TENSOR_STRIDES)->count != rank)
    return cudnn_fake_refuse(CUDNN_STATUS_BAD_PARAM, "a tensor needs four dimensions and as many strides");
  for (int i = 0; i < CUDNN_FAKE_RANK; i++)
    if (NUMBER(d, TENSOR_DIMENSIONS, i) <= 0 || NUMBER(d, TENSOR_STRIDES, i) <= 0)
      return cudnn_fake_refuse(CUDNN_STATUS_BAD_PARAM, "a tensor's dimensions and strides are to be positive");
  if (alignment <= 0 || (alignment & (alignment - 1)) != 0)
    return cudnn_fake_refuse(CUDNN_STATUS_BAD_PARAM, "a tensor's alignment is no power of two");
  if (type != CUDNN_DATA_FLOAT && type != CUDNN_DATA_BFLOAT16)
    return cudnn_fake_refuse(CUDNN_STATUS_NOT_SUPPORTED_DATA_TYPE, "the fake has tensors of float and bfloat16");
  return CUDNN_STATUS_SUCCESS;
}

static cudnnStatus_t check_convolution(const cudnn_fake_descriptor *d) {
  if (NUMBER(d, CONVOLUTION_SPATIAL_DIMS, 0) != 2 || VALUE_OF(d, CONVOLUTION_DILATIONS)->count != 2 ||
      VALUE_OF(d, CONVOLUTION_FILTER_STRIDES)->count != 2 || VALUE_OF(d, CONVOLUTION_PRE_PADDINGS)->count != 2 ||
      VALUE_OF(d, CONVOLUTION_POST_PADDINGS)->count != 2)
    return cudnn_fake_refuse(CUDNN_STATUS_BAD_PARAM, "the fake has convolutions in two dimensions");
  for (int i = 0; i < 2; i++)
    if (NUMBER(d, CONVOLUTION_DILATIONS, i) < 1 || NUMBER(d, CONVOLUTION_FILTER_STRIDES, i) < 1 ||
        NUMBER(d, CONVOLUTION_PRE_PADDINGS, i) < 0 || NUMBER(d, CONVOLUTION_POST_PADDINGS, i) < 0)
      return cudnn_fake_refuse(CUDNN_STATUS_BAD_PARAM_OUT_OF_BOUND, "dilations, strides or paddings");
  if (NUMBER(d, CONVOLUTION_COMP_TYPE, 0) != CUDNN_DATA_FLOAT)
    return cudnn_fake_refuse(CUDNN_STATUS_NOT_SUPPORTED_DATA_TYPE, "the fake sums in float");
  return CUDNN_STATUS_SUCCESS;
}

/* --- operations --- */

static void read_tensor(const cudnn_fake_descriptor *d, cudnn_fake_tensor *out) {
  *out = (cudnn_fake_tensor){.id = NUMBER(d, TENSOR_UNIQUE_ID, 0),
                             .alignment = NUMBER(d, TENSOR_BYTE_ALIGNMENT, 0),
                             .bf16 = NUMBER(d, TENSOR_DATA_TYPE, 0) == CUDNN_DATA_BFLOAT16,
                             .inner = VALUE_OF(d, TENSOR_IS_VIRTUAL) != NULL &&
                                      *(const bool *)VALUE_OF(d, TENSOR_IS_VIRTUAL)->data};
  for (int i = 0; i < CUDNN_FAKE_RANK; i++) {
    out->dims[i] = NUMBER(d, TENSOR_DIMENSIONS, i);
    out->strides[i] = NUMBER(d, TENSOR_STRIDES, i);
  }
}

static void read_convolution(const cudnn_fake_descriptor *d, cudnn_fake_operation *out) {
  static const int names[][6] = {
#define NAMES(prefix, x, w, y)                                                                                         \
  {CUDNN_ATTR_OPERATION_CONVOLUTION_##prefix##_CONV_DESC, CUDNN_ATTR_OPERATION_CONVOLUTION_##prefix##_##x,             \
   CUDNN_ATTR_OPERATION_CONVOLUTION_##prefix##_##w,       CUDNN_ATTR_OPERATION_CONVOLUTION_##prefix##_##y,             \
   CUDNN_ATTR_OPERATION_CONVOLUTION_##prefix##_ALPHA,     CUDNN_ATTR_OPERATION_CONVOLUTION_##prefix##_BETA}
      NAMES(FORWARD, X, W, Y), NAMES(BWD_DATA, DX, W, DY), NAMES(BWD_FILTER, X, DW, DY)};
#undef NAMES
  out->kind = d->type == CUDNN_BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR         ? CUDNN_FAKE_FORWARD
              : d->type == CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_DATA_DESCRIPTOR ? CUDNN_FAKE_DATA
                                                                                        : CUDNN_FAKE_FILTER;
  out->extras = 0;
  const int *name = names[out->kind];
  const cudnn_fake_descriptor *convolution = cudnn_fake_part(d, name[0]);
  read_tensor(cudnn_fake_part(d, name[1]), &out->x);
  read_tensor(cudnn_fake_part(d, name[2]), &out->w);
  read_tensor(cudnn_fake_part(d, name[3]), &out->y);
  memcpy(&out->alpha, cudnn_fake_value_of(d, name[4])->data, sizeof out->alpha);
  memcpy(&out->beta, cudnn_fake_value_of(d, name[5])->data, sizeof out->beta);
  out->flipped = NUMBER(convolution, CONVOLUTION_CONV_MODE, 0) == CUDNN_CONVOLUTION;
  for (int i = 0; i < 2; i++) {
    out->strides[i] = NUMBER(convolution, CONVOLUTION_FILTER_STRIDES, i);
    out->dilations[i] = NUMBER(convolution, CONVOLUTION_DILATIONS, i);
    out->before[i] = NUMBER(convolution, CONVOLUTION_PRE_PADDINGS, i);
    out->after[i] = NUMBER(convolution, CONVOLUTION_POST_PADDINGS, i);
  }
}

cudnn_fake_tensor *cudnn_fake_output(cudnn_fake_operation *o) {
  return o->kind == CUDNN_FAKE_FORWARD ? &o->y : o->kind == CUDNN_FAKE_DATA ? &o->x : &o->w;
}

/* Inputs are of one type, and the output is too, or a sum of float within a graph. */
static bool types_fit(cudnn_fake_operation *o) {
  const cudnn_fake_tensor *out = cudnn_fake_output(o), *const all[] = {&o->x, &o->w, &o->y};
  const cudnn_fake_tensor *first = out == &o->x ? &o->w : &o->x;
  for (int i = 0; i < 3; i++)
    if (all[i]->bf16 != first->bf16 && !(all[i] == out && out->inner && !out->bf16))
      return false;
  return true;
}

static cudnnStatus_t check_operation(const cudnn_fake_descriptor *d) {
  cudnn_fake_operation o;
  read_convolution(d, &o);
  bool fits = o.x.dims[0] == o.y.dims[0] && o.x.dims[1] == o.w.dims[1] && o.w.dims[0] == o.y.dims[1];
  for (int i = 0; i < 2; i++) {
    int64_t room = o.x.dims[2 + i] + o.before[i] + o.after[i] - (o.w.dims[2 + i] - 1) * o.dilations[i] - 1;
    fits = fits && room >= 0 && o.y.dims[2 + i] == room / o.strides[i] + 1;
  }
  if (!fits)
    return cudnn_fake_refuse(CUDNN_STATUS_BAD_PARAM_SHAPE_MISMATCH, "x, w and y do not fit");
  if (!types_fit(&o))
    return cudnn_fake_refuse(CUDNN_STATUS_NOT_SUPPORTED_DATA_TYPE, "x, w and y are of different types");
  if (o.x.id == o.w.id || o.x.id == o.y.id || o.w.id == o.y.id)
    return cudnn_fake_refuse(CUDNN_STATUS_BAD_PARAM, "two tensors have one name");
  return CUDNN_STATUS_SUCCESS;
}

/* --- conversions, and graphs --- */

static cudnnStatus_t check_pointwise(const cudnn_fake_descriptor *d) {
  if (NUMBER(d, POINTWISE_MODE, 0) != CUDNN_POINTWISE_IDENTITY)
    return cudnn_fake_refuse(CUDNN_STATUS_NOT_SUPPORTED, "the fake has the identity alone");
  if (NUMBER(d, POINTWISE_MATH_PREC, 0) != CUDNN_DATA_FLOAT)
    return cudnn_fake_refuse(CUDNN_STATUS_NOT_SUPPORTED_DATA_TYPE, "the fake computes in float");
  return CUDNN_STATUS_SUCCESS;
}

static bool same_layout(const cudnn_fake_tensor *a, const cudnn_fake_tensor *b) {
  return memcmp(a->dims, b->dims, sizeof a->dims) == 0 && memcmp(a->strides, b->strides, sizeof a->strides) == 0;
}

static cudnnStatus_t check_conversion(const cudnn_fake_descriptor *d) {
  cudnn_fake_tensor from, to;
  read_tensor(cudnn_fake_part(d, CUDNN_ATTR_OPERATION_POINTWISE_XDESC), &from);
  read_tensor(cudnn_fake_part(d, CUDNN_ATTR_OPERATION_POINTWISE_YDESC), &to);
  if (!same_layout(&from, &to))
    return cudnn_fake_refuse(CUDNN_STATUS_BAD_PARAM_SHAPE_MISMATCH, "an identity between two shapes");
  if (from.id == to.id)
    return cudnn_fake_refuse(CUDNN_STATUS_BAD_PARAM, "two tensors have one name");
  return CUDNN_STATUS_SUCCESS;
}

/* Takes the identity from `from` to `to`, which is next to the convolution's `inner`, into its place. */
static bool convert(cudnn_fake_operation *o, const cudnn_fake_tensor *from, const cudnn_fake_tensor *to) {
  cudnn_fake_tensor *out = cudnn_fake_output(o);
  if (to->id == o->x.id && out != &o->x && (o->extras & CUDNN_FAKE_ROUNDS) == 0) {
    const bool fits = to->inner && to->bf16 && o->x.inner && o->x.bf16 && same_layout(to, &o->x);
    o->extras |= CUDNN_FAKE_ROUNDS;
    o->x = *from;
    o->x.rounded = true;
    return fits && !from->inner && !from->bf16;
  }
  if (from->id == out->id && (o->extras & CUDNN_FAKE_WIDENS) == 0) {
    const bool fits = from->inner && !from->bf16 && out->inner && !out->bf16 && same_layout(from, out);
    o->extras |= CUDNN_FAKE_WIDENS;
    *out = *to;
    return fits && !to->inner && !to->bf16;
  }
  return false;
}

/* One convolution, and identities whose other end is in memory. */
bool cudnn_fake_read_graph(const cudnn_fake_descriptor *graph, cudnn_fake_operation *out) {
  const int64_t count = VALUE_OF(graph, OPERATIONGRAPH_OPS)->count;
  const cudnn_fake_descriptor *found = NULL;
  int64_t convolutions = 0, names[5] = {0}, named = 0;
  for (int64_t i = 0; i < count; i++) {
    const cudnn_fake_descriptor *op = cudnn_fake_part_at(graph, CUDNN_ATTR_OPERATIONGRAPH_OPS, i);
    if (op->type == CUDNN_BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR ||
        op->type == CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_DATA_DESCRIPTOR ||
        op->type == CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_FILTER_DESCRIPTOR) {
      convolutions++;
      found = op;
    } else if (op->type != CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR)
      return false;
  }
  if (convolutions != 1)
    return false;
  read_convolution(found, out);
  names[named++] = out->x.id, names[named++] = out->w.id, names[named++] = out->y.id;
  for (int64_t i = 0; i < count; i++) {
    const cudnn_fake_descriptor *op = cudnn_fake_part_at(graph, CUDNN_ATTR_OPERATIONGRAPH_OPS, i);
    cudnn_fake_tensor from, to;
    if (op == found)
      continue;
    read_tensor(cudnn_fake_part(op, CUDNN_ATTR_OPERATION_POINTWISE_XDESC), &from);
    read_tensor(cudnn_fake_part(op, CUDNN_ATTR_OPERATION_POINTWISE_YDESC), &to);
    const int64_t fresh = from.inner ? to.id : from.id; /* the end in memory */
    for (int64_t j = 0; j < named; j++)
      if (names[j] == fresh)
        return false;
    names[named++] = fresh;
    if (!convert(out, &from, &to))
      return false;
  }
  return !out->x.inner && !out->w.inner && !out->y.inner;
}

static cudnnStatus_t check_graph(const cudnn_fake_descriptor *d) {
  cudnn_fake_operation operation;
  if (!cudnn_fake_read_graph(d, &operation))
    return cudnn_fake_refuse(CUDNN_STATUS_NOT_SUPPORTED,
                             "the fake has graphs of a convolution, with identities to and from memory");
  return CUDNN_STATUS_SUCCESS;
}

/* --- for which device --- */

static cudnnStatus_t check_heuristics(const cudnn_fake_descriptor *d) {
  const cudnn_fake_descriptor *graph = cudnn_fake_part(d, CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH);
  const bool handle = cudnn_fake_handle(graph, CUDNN_ATTR_OPERATIONGRAPH_HANDLE) != NULL;
  if (handle == (VALUE_OF(d, ENGINEHEUR_DEVICEPROP) != NULL))
    return cudnn_fake_refuse(CUDNN_STATUS_BAD_PARAM,
                             "heuristics need a graph with a handle or device properties, not both");
  return CUDNN_STATUS_SUCCESS;
}

static cudnnStatus_t check_plan(const cudnn_fake_descriptor *d) {
  const cudnn_fake_descriptor *config = cudnn_fake_part(d, CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG);
  if (cudnn_fake_find(config->graph, CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR) == NULL)
    return cudnn_fake_refuse(CUDNN_STATUS_BAD_PARAM, "the configuration's graph is gone");
  struct cudnnContext *of_graph = cudnn_fake_handle(config->graph, CUDNN_ATTR_OPERATIONGRAPH_HANDLE);
  if (cudnn_fake_handle(d, CUDNN_ATTR_EXECUTION_PLAN_HANDLE) != of_graph)
    return cudnn_fake_refuse(CUDNN_STATUS_BAD_PARAM,
                             "a plan needs the handle of its graph, and none where that has none");
  if (cudnn_fake_part(d, CUDNN_ATTR_EXECUTION_PLAN_DEVICEPROP) != config->deviceprop)
    return cudnn_fake_refuse(CUDNN_STATUS_BAD_PARAM,
                             "a plan needs the device properties of its heuristics, and none where they have none");
  if (config->engine->finalizes != CUDNN_STATUS_SUCCESS)
    return cudnn_fake_refuse(config->engine->finalizes, "an engine that does not finalize");
  return CUDNN_STATUS_SUCCESS;
}

static cudnnStatus_t check_deviceprop(const cudnn_fake_descriptor *d) {
  const cudnn_fake_value *text = VALUE_OF(d, DEVICEPROP_JSON_REPRESENTATION);
  if ((text != NULL) == (VALUE_OF(d, DEVICEPROP_HANDLE) != NULL))
    return cudnn_fake_refuse(CUDNN_STATUS_BAD_PARAM, "device properties are read from text or asked of a handle");
  if (text && (((const char *)text->data)[0] != '{' || ((const char *)text->data)[text->count - 1] != 0))
    return cudnn_fake_refuse(CUDNN_STATUS_BAD_PARAM, "device properties are text in JSON with a zero at its end");
  return CUDNN_STATUS_SUCCESS;
}

static cudnnStatus_t check_pack(const cudnn_fake_descriptor *d) {
  const int64_t count = VALUE_OF(d, VARIANT_PACK_UNIQUE_IDS)->count;
  if (VALUE_OF(d, VARIANT_PACK_DATA_POINTERS)->count != count)
    return cudnn_fake_refuse(CUDNN_STATUS_BAD_PARAM, "another number of names than of pointers");
  for (int i = 0; i < count; i++)
    for (int j = 0; j < i; j++)
      if (NUMBER(d, VARIANT_PACK_UNIQUE_IDS, i) == NUMBER(d, VARIANT_PACK_UNIQUE_IDS, j))
        return cudnn_fake_refuse(CUDNN_STATUS_BAD_PARAM, "one name for two pointers");
  return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnn_fake_check(const cudnn_fake_descriptor *d) {
  switch (d->type) {
  case CUDNN_BACKEND_TENSOR_DESCRIPTOR:
    return check_tensor(d);
  case CUDNN_BACKEND_CONVOLUTION_DESCRIPTOR:
    return check_convolution(d);
  case CUDNN_BACKEND_POINTWISE_DESCRIPTOR:
    return check_pointwise(d);
  case CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR:
    return check_conversion(d);
  case CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR:
    return check_graph(d);
  case CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR:
    return check_heuristics(d);
  case CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR:
    return check_plan(d);
  case CUDNN_BACKEND_DEVICEPROP_DESCRIPTOR:
    return check_deviceprop(d);
  case CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR:
    return check_pack(d);
  case CUDNN_BACKEND_ENGINECFG_DESCRIPTOR:
  case CUDNN_BACKEND_ENGINE_DESCRIPTOR:
    return cudnn_fake_refuse(CUDNN_STATUS_NOT_SUPPORTED,
                             "the fake's engines and configurations come from its heuristics");
  default:
    return check_operation(d);
  }
}
