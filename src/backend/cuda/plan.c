/* SPDX-License-Identifier: Apache-2.0 */
/* The convolution plans of a backend: a list of those made, and their runs. */
#include "backend/cuda/plan_private.h"

#include "base/log.h"
#include "base/mem.h"

#include <cudnn_graph.h>

#include <stdio.h>
#include <string.h>

struct cuda_plans {
  cuda_plan_wanted wanted;
  cuda_plan *first; /* a network has a few dozen shapes: a list is as good as a table */
};

/* --- all plans --- */

/* Plans that run are made with a handle, the way that cuDNN documents for running; device properties are for
 * plans that are made without a device. cuDNN 9's headers call the handle's attributes deprecated and name
 * nothing in their place for a device that is here. */
static petra_status name_device(cuda_plan_wanted *wanted, const char *json) {
  if (json == NULL) {
    int status = cudnnCreate(&wanted->handle);
    return status == CUDNN_STATUS_SUCCESS ? PETRA_OK : cuda_plan_error(NULL, "cudnnCreate", status);
  }
  const cuda_attribute text = {CUDNN_ATTR_DEVICEPROP_JSON_REPRESENTATION, CUDNN_TYPE_CHAR, (int64_t)strlen(json) + 1,
                               json};
  int status = cuda_descriptor(CUDNN_BACKEND_DEVICEPROP_DESCRIPTOR, &text, 1, &wanted->deviceprop);
  return status == CUDNN_STATUS_SUCCESS ? PETRA_OK
                                        : cuda_plan_error(NULL, "reading a device's properties from JSON", status);
}

petra_status cuda_plans_create(const char *deviceprop, bool deterministic, size_t workspace_max, cuda_plans **out) {
  cuda_plans *plans = NULL;
  PETRA_TRY(petra_allocate(&plans, 1, sizeof *plans));
  plans->wanted.deterministic = deterministic;
  plans->wanted.workspace_max = workspace_max;
  petra_status status = name_device(&plans->wanted, deviceprop);
  if (status == PETRA_OK)
    *out = plans;
  else
    cuda_plans_destroy(plans);
  return status;
}

static void drop_plan(cuda_plan *plan) {
  cuda_descriptor_drop(&plan->plan);
  cuda_descriptor_drop(&plan->config);
  cuda_conv_graph_drop(&plan->graph);
  petra_free(plan);
}

void cuda_plans_destroy(cuda_plans *plans) {
  if (plans == NULL)
    return;
  for (cuda_plan *plan = plans->first, *next; plan != NULL; plan = next) {
    next = plan->next;
    drop_plan(plan);
  }
  cuda_descriptor_drop(&plans->wanted.deviceprop);
  if (plans->wanted.handle != NULL)
    cudnnDestroy(plans->wanted.handle);
  petra_free(plans);
}

void cuda_plans_describe(char *text, size_t size) {
  size_t version = cudnnGetVersion();
  snprintf(text, size, "cuDNN %zu.%zu.%zu", version / 10000, version / 100 % 100, version % 100);
}

/* --- one plan --- */

petra_status cuda_plans_find(cuda_plans *plans, const cuda_conv_shape *shape, const cuda_plan **out) {
  for (cuda_plan *plan = plans->first; plan != NULL; plan = plan->next)
    if (memcmp(&plan->shape, shape, sizeof *shape) == 0) {
      *out = plan;
      return PETRA_OK;
    }
  cuda_plan *plan = NULL;
  PETRA_TRY(petra_allocate(&plan, 1, sizeof *plan));
  plan->shape = *shape;
  plan->handle = plans->wanted.handle;
  petra_status status = cuda_conv_graph_make(shape, plan->handle, &plan->graph);
  if (status == PETRA_OK)
    status = cuda_plan_search(&plans->wanted, plan);
  if (status != PETRA_OK) {
    drop_plan(plan);
    return status;
  }
  plan->next = plans->first;
  plans->first = plan;
  *out = plan;
  return PETRA_OK;
}

size_t cuda_plan_workspace(const cuda_plan *plan) {
  return plan->workspace;
}

petra_status cuda_plan_notes(const cuda_plan *plan, unsigned *notes) {
  int64_t engine = -1;
  bool compiled = false;
  int status = cuda_config_notes(plan->config, &engine, notes, &compiled);
  return status == CUDNN_STATUS_SUCCESS ? PETRA_OK : cuda_plan_error(&plan->shape, "asking an engine's notes", status);
}

void cuda_plan_describe(const cuda_plan *plan, char *text, size_t size) {
  static const char *const found[] = {"", ", by heuristics B", ", as a fallback"};
  snprintf(text, size, "engine %lld, %.1f MiB workspace%s%s%s%s", (long long)plan->engine,
           (double)plan->workspace / (1 << 20),
           (plan->notes & CUDA_PLAN_NOTE_TENSOR_CORES) != 0 ? ", tensor cores" : "",
           (plan->notes & CUDA_PLAN_NOTE_NONDETERMINISTIC) != 0 ? ", not deterministic" : "",
           plan->compiled ? ", compiled" : "", found[plan->mode]);
}

/* --- runs --- */

/* cuDNN's descriptors cannot be changed once finalized, so that each run has its own: host memory only. */
static int variant_pack(const cuda_lane *lane, const void *x, const void *w, const void *y, void **out) {
  const int64_t ids[] = {CUDA_PLAN_X, CUDA_PLAN_W, CUDA_PLAN_Y};
  const void *const pointers[] = {x, w, y};
  const cuda_attribute attributes[] = {
      {CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS, CUDNN_TYPE_INT64, CUDA_PLAN_TENSORS, ids},
      {CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS, CUDNN_TYPE_VOID_PTR, CUDA_PLAN_TENSORS, pointers},
      {CUDNN_ATTR_VARIANT_PACK_WORKSPACE, CUDNN_TYPE_VOID_PTR, 1, &lane->scratch}};
  return cuda_descriptor(CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR, attributes, 3, out);
}

petra_status cuda_plan_run(const cuda_plan *plan, const cuda_lane *lane, const void *x, const void *w, const void *y) {
  if (plan->handle == NULL)
    return petra_fail(PETRA_INTERNAL, "cuDNN: a plan made without a device cannot run: convolution %s",
                      cuda_shape_describe(&plan->shape).text);
  if (plan->workspace > lane->scratch_bytes)
    return petra_fail(PETRA_INTERNAL, "cuDNN: the lane has %zu bytes of scratch, expected at least %zu: convolution %s",
                      lane->scratch_bytes, plan->workspace, cuda_shape_describe(&plan->shape).text);
  void *pack = NULL;
  int status = cudnnSetStream(plan->handle, lane->stream);
  if (status == CUDNN_STATUS_SUCCESS)
    status = variant_pack(lane, x, w, y, &pack);
  if (status == CUDNN_STATUS_SUCCESS)
    status = cudnnBackendExecute(plan->handle, plan->plan, pack);
  petra_status result =
      status == CUDNN_STATUS_SUCCESS ? PETRA_OK : cuda_plan_error(&plan->shape, "running a plan", status);
  cuda_descriptor_drop(&pack);
  return result;
}
