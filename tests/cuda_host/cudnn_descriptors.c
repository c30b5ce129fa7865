/* SPDX-License-Identifier: Apache-2.0 */
/* The fake cuDNN's descriptors: a table of what each type takes, and the store. */
#include "cuda_host/cudnn_fake.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static cudnn_fake_descriptor *alive;
static int64_t alive_count;
static _Thread_local char last_error[256];

/* --- what each type takes --- */

typedef enum need { NEEDED, ALLOWED, ANSWERED } need;

typedef struct rule {
  int descriptor, name, type;
  int64_t least, maximum;
  need need;
  int part; /* descriptors: of this type; -1: any */
} rule;

#define RULE(descriptor, name, type, least, maximum, need)                                                             \
  { CUDNN_BACKEND_##descriptor##_DESCRIPTOR, CUDNN_ATTR_##name, CUDNN_TYPE_##type, least, maximum, need, -1 }
#define PART(descriptor, name, need, of)                                                                               \
  {                                                                                                                    \
    CUDNN_BACKEND_##descriptor##_DESCRIPTOR, CUDNN_ATTR_##name, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, 1, need,             \
        CUDNN_BACKEND_##of##_DESCRIPTOR                                                                                \
  }
#define OPERATION(descriptor, prefix, x, w, y)                                                                         \
  PART(descriptor, OPERATION_CONVOLUTION_##prefix##_CONV_DESC, NEEDED, CONVOLUTION),                                   \
      PART(descriptor, OPERATION_CONVOLUTION_##prefix##_##x, NEEDED, TENSOR),                                          \
      PART(descriptor, OPERATION_CONVOLUTION_##prefix##_##w, NEEDED, TENSOR),                                          \
      PART(descriptor, OPERATION_CONVOLUTION_##prefix##_##y, NEEDED, TENSOR),                                          \
      RULE(descriptor, OPERATION_CONVOLUTION_##prefix##_ALPHA, FLOAT, 1, 1, NEEDED),                                   \
      RULE(descriptor, OPERATION_CONVOLUTION_##prefix##_BETA, FLOAT, 1, 1, NEEDED)

static const rule rules[] = {
    RULE(TENSOR, TENSOR_UNIQUE_ID, INT64, 1, 1, NEEDED),
    RULE(TENSOR, TENSOR_DATA_TYPE, DATA_TYPE, 1, 1, NEEDED),
    RULE(TENSOR, TENSOR_BYTE_ALIGNMENT, INT64, 1, 1, NEEDED),
    RULE(TENSOR, TENSOR_DIMENSIONS, INT64, 1, CUDNN_FAKE_RANK, NEEDED),
    RULE(TENSOR, TENSOR_STRIDES, INT64, 1, CUDNN_FAKE_RANK, NEEDED),
    RULE(TENSOR, TENSOR_IS_VIRTUAL, BOOLEAN, 1, 1, ALLOWED),
    RULE(CONVOLUTION, CONVOLUTION_COMP_TYPE, DATA_TYPE, 1, 1, NEEDED),
    RULE(CONVOLUTION, CONVOLUTION_CONV_MODE, CONVOLUTION_MODE, 1, 1, NEEDED),
    RULE(CONVOLUTION, CONVOLUTION_SPATIAL_DIMS, INT64, 1, 1, NEEDED),
    RULE(CONVOLUTION, CONVOLUTION_DILATIONS, INT64, 1, 2, NEEDED),
    RULE(CONVOLUTION, CONVOLUTION_FILTER_STRIDES, INT64, 1, 2, NEEDED),
    RULE(CONVOLUTION, CONVOLUTION_PRE_PADDINGS, INT64, 1, 2, NEEDED),
    RULE(CONVOLUTION, CONVOLUTION_POST_PADDINGS, INT64, 1, 2, NEEDED),
    OPERATION(OPERATION_CONVOLUTION_FORWARD, FORWARD, X, W, Y),
    OPERATION(OPERATION_CONVOLUTION_BACKWARD_DATA, BWD_DATA, DX, W, DY),
    OPERATION(OPERATION_CONVOLUTION_BACKWARD_FILTER, BWD_FILTER, X, DW, DY),
    RULE(POINTWISE, POINTWISE_MODE, POINTWISE_MODE, 1, 1, NEEDED),
    RULE(POINTWISE, POINTWISE_MATH_PREC, DATA_TYPE, 1, 1, NEEDED),
    PART(OPERATION_POINTWISE, OPERATION_POINTWISE_PW_DESCRIPTOR, NEEDED, POINTWISE),
    PART(OPERATION_POINTWISE, OPERATION_POINTWISE_XDESC, NEEDED, TENSOR),
    PART(OPERATION_POINTWISE, OPERATION_POINTWISE_YDESC, NEEDED, TENSOR),
    RULE(OPERATIONGRAPH, OPERATIONGRAPH_OPS, BACKEND_DESCRIPTOR, 1, 3, NEEDED),
    RULE(OPERATIONGRAPH, OPERATIONGRAPH_HANDLE, HANDLE, 1, 1, ALLOWED),
    PART(ENGINEHEUR, ENGINEHEUR_OPERATION_GRAPH, NEEDED, OPERATIONGRAPH),
    RULE(ENGINEHEUR, ENGINEHEUR_MODE, HEUR_MODE, 1, 1, NEEDED),
    PART(ENGINEHEUR, ENGINEHEUR_DEVICEPROP, ALLOWED, DEVICEPROP),
    RULE(ENGINEHEUR, ENGINEHEUR_RESULTS, BACKEND_DESCRIPTOR, 0, 0, ANSWERED),
    RULE(ENGINECFG, ENGINECFG_ENGINE, BACKEND_DESCRIPTOR, 0, 0, ANSWERED),
    RULE(ENGINE, ENGINE_GLOBAL_INDEX, INT64, 0, 0, ANSWERED),
    RULE(ENGINE, ENGINE_NUMERICAL_NOTE, NUMERICAL_NOTE, 0, 0, ANSWERED),
    RULE(ENGINE, ENGINE_BEHAVIOR_NOTE, BEHAVIOR_NOTE, 0, 0, ANSWERED),
    PART(EXECUTION_PLAN, EXECUTION_PLAN_ENGINE_CONFIG, NEEDED, ENGINECFG),
    RULE(EXECUTION_PLAN, EXECUTION_PLAN_HANDLE, HANDLE, 1, 1, ALLOWED),
    PART(EXECUTION_PLAN, EXECUTION_PLAN_DEVICEPROP, ALLOWED, DEVICEPROP),
    RULE(EXECUTION_PLAN, EXECUTION_PLAN_WORKSPACE_SIZE, INT64, 0, 0, ANSWERED),
    RULE(VARIANT_PACK, VARIANT_PACK_UNIQUE_IDS, INT64, 1, 8, NEEDED),
    RULE(VARIANT_PACK, VARIANT_PACK_DATA_POINTERS, VOID_PTR, 1, 8, NEEDED),
    RULE(VARIANT_PACK, VARIANT_PACK_WORKSPACE, VOID_PTR, 1, 1, NEEDED),
    RULE(DEVICEPROP, DEVICEPROP_JSON_REPRESENTATION, CHAR, 2, 1 << 16, ALLOWED),
    RULE(DEVICEPROP, DEVICEPROP_HANDLE, HANDLE, 1, 1, ALLOWED),
};
enum { RULES = sizeof rules / sizeof *rules };

static const rule *rule_of(int descriptor, int name) {
  for (int i = 0; i < RULES; i++)
    if (rules[i].descriptor == descriptor && rules[i].name == name)
      return &rules[i];
  return NULL;
}

static size_t size_of(int type) {
  switch (type) {
  case CUDNN_TYPE_CHAR:
    return 1;
  case CUDNN_TYPE_BOOLEAN:
    return sizeof(bool);
  case CUDNN_TYPE_INT64:
    return sizeof(int64_t);
  case CUDNN_TYPE_FLOAT:
    return sizeof(float);
  case CUDNN_TYPE_HANDLE:
  case CUDNN_TYPE_VOID_PTR:
  case CUDNN_TYPE_BACKEND_DESCRIPTOR:
    return sizeof(void *);
  default: /* enumerations */
    return sizeof(int);
  }
}

/* --- errors --- */

cudnnStatus_t cudnn_fake_refuse(cudnnStatus_t status, const char *text) {
  snprintf(last_error, sizeof last_error, "%s", text);
  return status;
}

static cudnnStatus_t refuse_attribute(cudnnStatus_t status, int descriptor, int name, const char *what) {
  char text[128];
  snprintf(text, sizeof text, "descriptor of type %d, attribute %d: %s", descriptor, name, what);
  return cudnn_fake_refuse(status, text);
}

cudnnStatus_t cudnn_fake_enter(const char *function) {
  cudaError_t error = host_enter(function, false);
  return error == cudaSuccess ? CUDNN_STATUS_SUCCESS : cudnn_fake_refuse((cudnnStatus_t)error, "asked for by a test");
}

cudnnStatus_t cudnn_fake_leave(cudnnStatus_t status) {
  host_leave(cudaSuccess);
  return status;
}

void cudnnGetLastErrorString(char *message, size_t size) {
  snprintf(message, size, "%s", last_error);
  last_error[0] = 0;
}

const char *cudnnGetErrorString(cudnnStatus_t status) {
#define NAME(name)                                                                                                     \
  case name:                                                                                                           \
    return #name;
  switch ((int)status) {
    NAME(CUDNN_STATUS_SUCCESS)
    NAME(CUDNN_STATUS_NOT_INITIALIZED)
    NAME(CUDNN_STATUS_BAD_PARAM)
    NAME(CUDNN_STATUS_BAD_PARAM_NULL_POINTER)
    NAME(CUDNN_STATUS_BAD_PARAM_MISALIGNED_POINTER)
    NAME(CUDNN_STATUS_BAD_PARAM_NOT_FINALIZED)
    NAME(CUDNN_STATUS_BAD_PARAM_OUT_OF_BOUND)
    NAME(CUDNN_STATUS_BAD_PARAM_SHAPE_MISMATCH)
    NAME(CUDNN_STATUS_BAD_PARAM_DESCRIPTOR_TYPE)
    NAME(CUDNN_STATUS_NOT_SUPPORTED)
    NAME(CUDNN_STATUS_NOT_SUPPORTED_DATA_TYPE)
    NAME(CUDNN_STATUS_INTERNAL_ERROR)
    NAME(CUDNN_STATUS_INTERNAL_ERROR_HOST_ALLOCATION_FAILED)
    NAME(CUDNN_STATUS_EXECUTION_FAILED_CUDART)
  }
#undef NAME
  return "CUDNN_STATUS_ of another number";
}

size_t cudnnGetVersion(void) {
  return CUDNN_VERSION;
}

/* --- the store --- */

cudnn_fake_descriptor *cudnn_fake_find(const void *descriptor, int type) {
  for (cudnn_fake_descriptor *at = alive; at; at = at->next)
    if (at == descriptor)
      return type < 0 || at->type == type ? at : NULL;
  return NULL;
}

const cudnn_fake_value *cudnn_fake_value_of(const cudnn_fake_descriptor *descriptor, int name) {
  for (int i = 0; i < descriptor->value_count; i++)
    if (descriptor->values[i].name == name)
      return &descriptor->values[i];
  return NULL;
}

int64_t cudnn_fake_number(const cudnn_fake_descriptor *descriptor, int name, int at) {
  const rule *found = rule_of(descriptor->type, name);
  const void *data = cudnn_fake_value_of(descriptor, name)->data;
  return found->type == CUDNN_TYPE_INT64 ? ((const int64_t *)data)[at] : ((const int *)data)[at];
}

cudnn_fake_descriptor *cudnn_fake_part_at(const cudnn_fake_descriptor *descriptor, int name, int64_t at) {
  const cudnn_fake_value *value = cudnn_fake_value_of(descriptor, name);
  return value && at < value->count ? cudnn_fake_find(((void *const *)value->data)[at], -1) : NULL;
}

cudnn_fake_descriptor *cudnn_fake_part(const cudnn_fake_descriptor *descriptor, int name) {
  return cudnn_fake_part_at(descriptor, name, 0);
}

struct cudnnContext *cudnn_fake_handle(const cudnn_fake_descriptor *descriptor, int name) {
  const cudnn_fake_value *value = cudnn_fake_value_of(descriptor, name);
  return value ? *(struct cudnnContext *const *)value->data : NULL;
}

int64_t petra_cudnn_fake_alive(void) {
  host_enter("petra_cudnn_fake_alive", false);
  int64_t count = alive_count + cudnn_fake_handles();
  host_leave(cudaSuccess);
  return count;
}

cudnnStatus_t cudnnBackendCreateDescriptor(cudnnBackendDescriptorType_t type, cudnnBackendDescriptor_t *out) {
  CUDNN_FAKE_ENTER("cudnnBackendCreateDescriptor");
  bool known = false;
  for (int i = 0; i < RULES; i++)
    known = known || rules[i].descriptor == (int)type;
  if (!known)
    return cudnn_fake_leave(cudnn_fake_refuse(CUDNN_STATUS_NOT_SUPPORTED, "the fake has no such type of descriptor"));
  cudnn_fake_descriptor *made = host_allocate(sizeof *made);
  made->type = (int)type;
  made->next = alive;
  alive = made;
  alive_count++;
  *out = made;
  return cudnn_fake_leave(CUDNN_STATUS_SUCCESS);
}

/* Takes the descriptor that is at this place of the list. */
static void destroy(cudnn_fake_descriptor **at) {
  cudnn_fake_descriptor *gone = *at;
  *at = gone->next;
  alive_count--;
  for (int i = 0; i < gone->value_count; i++)
    free(gone->values[i].data);
  free(gone);
}

cudnnStatus_t cudnnBackendDestroyDescriptor(cudnnBackendDescriptor_t descriptor) {
  CUDNN_FAKE_ENTER("cudnnBackendDestroyDescriptor");
  cudnn_fake_descriptor **at = &alive;
  while (*at && *at != descriptor)
    at = &(*at)->next;
  if (!*at)
    return cudnn_fake_leave(cudnn_fake_refuse(CUDNN_STATUS_BAD_PARAM, "destroying what is not there"));
  destroy(at);
  return cudnn_fake_leave(CUDNN_STATUS_SUCCESS);
}

void petra_cudnn_fake_reset(void) {
  host_enter("petra_cudnn_fake_reset", false);
  while (alive)
    destroy(&alive);
  cudnn_fake_runs_reset();
  for (int mode = 0; mode < CUDNN_HEUR_MODES_COUNT; mode++)
    petra_cudnn_fake_engines((cudnnBackendHeurMode_t)mode, NULL, 0);
  last_error[0] = 0;
  host_leave(cudaSuccess);
}

/* Whether all of a value's descriptors are finalized and of the right type, and its handle is there. */
static cudnnStatus_t check_parts(const rule *r, int64_t count, const void *values) {
  if (r->type == CUDNN_TYPE_HANDLE && !cudnn_fake_handle_alive(*(struct cudnnContext *const *)values))
    return refuse_attribute(CUDNN_STATUS_BAD_PARAM, r->descriptor, r->name, "no handle");
  for (int64_t i = 0; r->type == CUDNN_TYPE_BACKEND_DESCRIPTOR && i < count; i++) {
    const cudnn_fake_descriptor *part = cudnn_fake_find(((void *const *)values)[i], r->part);
    if (!part)
      return refuse_attribute(CUDNN_STATUS_BAD_PARAM_DESCRIPTOR_TYPE, r->descriptor, r->name,
                              "no descriptor of the type");
    if (!part->finalized)
      return refuse_attribute(CUDNN_STATUS_BAD_PARAM_NOT_FINALIZED, r->descriptor, r->name,
                              "a descriptor is not finalized");
  }
  return CUDNN_STATUS_SUCCESS;
}

/* The statuses are those of cuDNN 9.19, where it has been asked. */
static cudnnStatus_t set(cudnn_fake_descriptor *d, int name, int type, int64_t count, const void *values) {
  if (!d || !values)
    return cudnn_fake_refuse(CUDNN_STATUS_BAD_PARAM_NULL_POINTER, "an attribute of nothing");
  const rule *found = rule_of(d->type, name);
  if (d->finalized)
    return refuse_attribute(CUDNN_STATUS_BAD_PARAM, d->type, name, "set after finalizing");
  if (!found || found->need == ANSWERED)
    return refuse_attribute(CUDNN_STATUS_BAD_PARAM, d->type, name, "cannot be set");
  if (found->type != type)
    return refuse_attribute(CUDNN_STATUS_NOT_INITIALIZED, d->type, name, "of another type");
  if (count < found->least || count > found->maximum)
    return refuse_attribute(CUDNN_STATUS_BAD_PARAM_OUT_OF_BOUND, d->type, name, "another number of values");
  cudnnStatus_t status = check_parts(found, count, values);
  if (status != CUDNN_STATUS_SUCCESS)
    return status;
  cudnn_fake_value *value = (cudnn_fake_value *)(uintptr_t)cudnn_fake_value_of(d, name);
  if (!value && d->value_count == CUDNN_FAKE_VALUES)
    return refuse_attribute(CUDNN_STATUS_INTERNAL_ERROR, d->type, name, "too many attributes for the fake");
  if (!value)
    value = &d->values[d->value_count++];
  free(value->data);
  *value = (cudnn_fake_value){name, count, host_allocate((size_t)count * size_of(type))};
  memcpy(value->data, values, (size_t)count * size_of(type));
  return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnBackendSetAttribute(cudnnBackendDescriptor_t descriptor, cudnnBackendAttributeName_t name,
                                       cudnnBackendAttributeType_t type, int64_t count, const void *values) {
  CUDNN_FAKE_ENTER("cudnnBackendSetAttribute");
  return cudnn_fake_leave(set(cudnn_fake_find(descriptor, -1), (int)name, (int)type, count, values));
}

cudnnStatus_t cudnnBackendFinalize(cudnnBackendDescriptor_t descriptor) {
  CUDNN_FAKE_ENTER("cudnnBackendFinalize");
  cudnn_fake_descriptor *d = cudnn_fake_find(descriptor, -1);
  if (!d || d->finalized)
    return cudnn_fake_leave(cudnn_fake_refuse(CUDNN_STATUS_BAD_PARAM, "finalizing nothing, or again"));
  for (int i = 0; i < RULES; i++)
    if (rules[i].descriptor == d->type && rules[i].need == NEEDED && !cudnn_fake_value_of(d, rules[i].name))
      return cudnn_fake_leave(refuse_attribute(CUDNN_STATUS_BAD_PARAM, d->type, rules[i].name, "missing"));
  for (int i = 0; i < d->value_count; i++) {
    cudnnStatus_t status = check_parts(rule_of(d->type, d->values[i].name), d->values[i].count, d->values[i].data);
    if (status != CUDNN_STATUS_SUCCESS)
      return cudnn_fake_leave(status);
  }
  cudnnStatus_t status = cudnn_fake_check(d);
  d->finalized = status == CUDNN_STATUS_SUCCESS;
  if (d->finalized && d->type == CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR) {
    const cudnn_fake_descriptor *config = cudnn_fake_part(d, CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG);
    d->engine = config->engine;
    d->graph = config->graph;
  }
  return cudnn_fake_leave(status);
}

cudnnStatus_t cudnnBackendGetAttribute(const cudnnBackendDescriptor_t descriptor, cudnnBackendAttributeName_t name,
                                       cudnnBackendAttributeType_t type, int64_t wanted, int64_t *count, void *out) {
  CUDNN_FAKE_ENTER("cudnnBackendGetAttribute");
  const cudnn_fake_descriptor *d = cudnn_fake_find(descriptor, -1);
  const rule *found = d ? rule_of(d->type, (int)name) : NULL;
  if (!found || found->need != ANSWERED)
    return cudnn_fake_leave(cudnn_fake_refuse(CUDNN_STATUS_BAD_PARAM, "an attribute that the fake does not answer"));
  if (!d->finalized)
    return cudnn_fake_leave(cudnn_fake_refuse(CUDNN_STATUS_BAD_PARAM_NOT_FINALIZED, "asking what is not finalized"));
  if (found->type != (int)type)
    return cudnn_fake_leave(refuse_attribute(CUDNN_STATUS_NOT_INITIALIZED, d->type, (int)name, "of another type"));
  return cudnn_fake_leave(cudnn_fake_answer(d, (int)name, wanted, count, out));
}
