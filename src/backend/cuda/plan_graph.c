/* SPDX-License-Identifier: Apache-2.0 */
/* A convolution as cuDNN's operation graph of one operation. Descriptors are tables of attributes. */
#include "backend/cuda/plan_private.h"

#include "base/log.h"

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

/* --- descriptors --- */

int cuda_descriptor(int type, const cuda_attribute *attributes, int count, void **out) {
  *out = NULL;
  void *made = NULL;
  cudnnStatus_t status = cudnnBackendCreateDescriptor((cudnnBackendDescriptorType_t)type, &made);
  if (status != CUDNN_STATUS_SUCCESS)
    return status;
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

cuda_shape_text cuda_shape_describe(const cuda_conv_shape *shape) {
  static const char *const kinds[] = {"forward", "data gradient", "filter gradient"};
  const char *precision = shape->precision == PETRA_PRECISION_TF32   ? "tf32"
                          : shape->precision == PETRA_PRECISION_BF16 ? "bf16"
                                                                     : "fp32";
  cuda_shape_text out;
  snprintf(out.text, sizeof out.text, "%s, x %dx%dx%dx%d, filter %dx%dx%dx%d, stride %d, pad %d, %s",
           kinds[shape->kind], shape->n, shape->h, shape->w, shape->c, shape->o, shape->kh, shape->kw, shape->c,
           shape->stride, shape->pad, precision);
  return out;
}

petra_status cuda_plan_error(const cuda_conv_shape *shape, const char *what, int status) {
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

/* Dimensions are given in cuDNN's order (n, c, h, w); the strides say that channels come last. */
static int tensor(int64_t id, bool bf16, int32_t n, int32_t c, int32_t h, int32_t w, void **out) {
  const int64_t dimensions[] = {n, c, h, w};
  const int64_t strides[] = {(int64_t)h * w * c, 1, (int64_t)w * c, c};
  const int64_t alignment = 16;
  const cudnnDataType_t type = bf16 ? CUDNN_DATA_BFLOAT16 : CUDNN_DATA_FLOAT;
  const cuda_attribute attributes[] = {
      ATTRIBUTE(TENSOR_UNIQUE_ID, INT64, id),
      ATTRIBUTE(TENSOR_DATA_TYPE, DATA_TYPE, type),
      ATTRIBUTE(TENSOR_BYTE_ALIGNMENT, INT64, alignment),
      ATTRIBUTES(TENSOR_DIMENSIONS, INT64, dimensions),
      ATTRIBUTES(TENSOR_STRIDES, INT64, strides),
  };
  return cuda_descriptor(CUDNN_BACKEND_TENSOR_DESCRIPTOR, attributes, COUNT(attributes), out);
}

/* The first failure among x, w, y. All three are of one type: for bf16 inputs with an f32 output cuDNN has no
 * engine. */
static int tensors(const cuda_conv_shape *shape, cuda_conv_graph *graph) {
  const bool bf16 = shape->precision == PETRA_PRECISION_BF16;
  int status = tensor(CUDA_PLAN_X, bf16, shape->n, shape->c, shape->h, shape->w, &graph->x);
  if (status == CUDNN_STATUS_SUCCESS)
    status = tensor(CUDA_PLAN_W, bf16, shape->o, shape->c, shape->kh, shape->kw, &graph->w);
  if (status == CUDNN_STATUS_SUCCESS)
    status = tensor(CUDA_PLAN_Y, bf16, shape->n, shape->o, shape->oh, shape->ow, &graph->y);
  return status;
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

static int operation(int kind, const cuda_conv_graph *graph, void **out) {
  const float one = 1, zero = 0;
#define OPERATION(prefix, x_name, w_name, y_name)                                                                      \
  {                                                                                                                    \
    ATTRIBUTE(OPERATION_CONVOLUTION_##prefix##_CONV_DESC, BACKEND_DESCRIPTOR, graph->convolution),                     \
        ATTRIBUTE(OPERATION_CONVOLUTION_##prefix##_##x_name, BACKEND_DESCRIPTOR, graph->x),                            \
        ATTRIBUTE(OPERATION_CONVOLUTION_##prefix##_##w_name, BACKEND_DESCRIPTOR, graph->w),                            \
        ATTRIBUTE(OPERATION_CONVOLUTION_##prefix##_##y_name, BACKEND_DESCRIPTOR, graph->y),                            \
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

petra_status cuda_conv_graph_make(const cuda_conv_shape *shape, struct cudnnContext *handle, cuda_conv_graph *graph) {
  *graph = (cuda_conv_graph){0};
  int status = tensors(shape, graph);
  if (status != CUDNN_STATUS_SUCCESS)
    return cuda_plan_error(shape, "describing the tensors", status);
  status = convolution(shape, &graph->convolution);
  if (status == CUDNN_STATUS_SUCCESS)
    status = operation(shape->kind, graph, &graph->operation);
  if (status != CUDNN_STATUS_SUCCESS)
    return cuda_plan_error(shape, "describing the operation", status);
  const cuda_attribute attributes[] = {
      ATTRIBUTE(OPERATIONGRAPH_OPS, BACKEND_DESCRIPTOR, graph->operation),
      ATTRIBUTE(OPERATIONGRAPH_HANDLE, HANDLE, handle),
  };
  status = cuda_descriptor(CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR, attributes, handle != NULL ? 2 : 1, &graph->graph);
  return status == CUDNN_STATUS_SUCCESS ? PETRA_OK : cuda_plan_error(shape, "building the graph", status);
}

void cuda_conv_graph_drop(cuda_conv_graph *graph) {
  cuda_descriptor_drop(&graph->graph);
  cuda_descriptor_drop(&graph->operation);
  cuda_descriptor_drop(&graph->convolution);
  cuda_descriptor_drop(&graph->y);
  cuda_descriptor_drop(&graph->w);
  cuda_descriptor_drop(&graph->x);
}
