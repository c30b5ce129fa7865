/* SPDX-License-Identifier: Apache-2.0 */
/* The convolution plans of a backend: a list of those made, and their runs. */
#include "backend/cuda/plan_private.h"

#include "backend/cuda/kernels.h"
#include "base/log.h"
#include "base/mem.h"

#include <cudnn_graph.h>

#include <assert.h>
#include <stdio.h>
#include <string.h>

struct cuda_plans {
  cuda_plan_wanted wanted;
  unsigned fused;   /* kinds */
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
  cuda_plans_fuse(plans, 1U << CUDA_CONV_FORWARD | 1U << CUDA_CONV_DATA);
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

void cuda_plans_fuse(cuda_plans *plans, unsigned kinds) {
  plans->fused = kinds;
}

void cuda_plans_describe(char *text, size_t size) {
  size_t version = cudnnGetVersion();
  snprintf(text, size, "cuDNN %zu.%zu.%zu", version / 10000, version / 100 % 100, version % 100);
}

/* --- one plan --- */

static int64_t x_count(const cuda_conv_shape *s) {
  return (int64_t)s->n * s->h * s->w * s->c;
}

static int64_t output_count(const cuda_conv_shape *s) {
  return s->kind == CUDA_CONV_FORWARD ? (int64_t)s->n * s->oh * s->ow * s->o
         : s->kind == CUDA_CONV_DATA  ? x_count(s)
                                      : (int64_t)s->o * s->kh * s->kw * s->c;
}

/* In the scratch: what follows stays aligned as that is. */
static size_t bf16_bytes(int64_t count) {
  return ((size_t)count * sizeof(uint16_t) + 255) / 256 * 256;
}

/* Best first; the last has no conversion in its graph. */
enum { FORMS = 3 };
static int forms_of(const cuda_plans *plans, const cuda_conv_shape *shape, cuda_conv_form *forms) {
  const bool fused = (plans->fused & 1U << shape->kind) != 0, widens = shape->wide_out != 0;
  int count = 0;
  if (fused && shape->wide_in && shape->kind == CUDA_CONV_FORWARD) /* no filter gradient rounds */
    forms[count++] = (cuda_conv_form){true, widens};
  if (fused && widens)
    forms[count++] = (cuda_conv_form){false, true};
  forms[count++] = (cuda_conv_form){false, false};
  return count;
}

/* Makes the plan of the form; where there is none it stays without one, which is logged if `last`. */
static petra_status try_form(const cuda_plans *plans, cuda_conv_form form, bool last, cuda_plan *plan) {
  const char *what;
  cuda_plan_refusals why;
  int status = cuda_conv_graph_make(&plan->shape, form, plan->handle, &plan->graph, &what);
  if (status != CUDNN_STATUS_SUCCESS)
    return last ? cuda_plan_error(&plan->shape, what, status) : PETRA_OK;
  PETRA_TRY(cuda_plan_search(&plans->wanted, plan, &why));
  if (plan->plan == NULL)
    return last ? cuda_plan_none(&plans->wanted, plan, &why) : PETRA_OK;
  plan->rounded = plan->shape.wide_in && !form.rounds ? bf16_bytes(x_count(&plan->shape)) : 0;
  plan->narrow = plan->shape.wide_out && !form.widens ? bf16_bytes(output_count(&plan->shape)) : 0;
  return PETRA_OK;
}

static petra_status make(const cuda_plans *plans, cuda_plan *plan) {
  cuda_conv_form forms[FORMS];
  const int count = forms_of(plans, &plan->shape, forms);
  for (int i = 0; i < count && plan->plan == NULL; i++) {
    cuda_conv_graph_drop(&plan->graph);
    PETRA_TRY(try_form(plans, forms[i], i == count - 1, plan));
  }
  return PETRA_OK;
}

petra_status cuda_plans_find(cuda_plans *plans, const cuda_conv_shape *shape, const cuda_plan **out) {
  assert(shape->precision == PETRA_PRECISION_BF16 || (!shape->wide_in && !shape->wide_out));
  assert(shape->kind != CUDA_CONV_DATA || !shape->wide_in);
  for (cuda_plan *plan = plans->first; plan != NULL; plan = plan->next)
    if (memcmp(&plan->shape, shape, sizeof *shape) == 0) {
      *out = plan;
      return PETRA_OK;
    }
  cuda_plan *plan = NULL;
  PETRA_TRY(petra_allocate(&plan, 1, sizeof *plan));
  plan->shape = *shape;
  plan->handle = plans->wanted.handle;
  petra_status status = make(plans, plan);
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
  return plan->rounded + plan->narrow + plan->workspace;
}

int cuda_plan_conversions(const cuda_plan *plan) {
  return (plan->rounded > 0) + (plan->narrow > 0);
}

petra_status cuda_plan_notes(const cuda_plan *plan, unsigned *notes) {
  int64_t engine = -1;
  bool compiled = false;
  int status = cuda_config_notes(plan->config, &engine, notes, &compiled);
  return status == CUDNN_STATUS_SUCCESS ? PETRA_OK : cuda_plan_error(&plan->shape, "asking an engine's notes", status);
}

void cuda_plan_describe(const cuda_plan *plan, char *text, size_t size) {
  static const char *const found[] = {"", ", by heuristics B", ", as a fallback"};
  snprintf(text, size, "engine %lld, %.1f MiB workspace%s%s%s%s%s%s", (long long)plan->engine,
           (double)cuda_plan_workspace(plan) / (1 << 20),
           (plan->notes & CUDA_PLAN_NOTE_TENSOR_CORES) != 0 ? ", tensor cores" : "",
           (plan->notes & CUDA_PLAN_NOTE_NONDETERMINISTIC) != 0 ? ", not deterministic" : "",
           plan->compiled ? ", compiled" : "", found[plan->mode], plan->rounded > 0 ? ", rounded before" : "",
           plan->narrow > 0 ? ", widened after" : "");
}

/* --- runs --- */

typedef struct arrays {
  const void *x, *w, *y;
} arrays;

/* cuDNN's descriptors cannot be changed once finalized, so that each run has its own: host memory only. */
static int variant_pack(const arrays *at, const void *workspace, void **out) {
  const int64_t ids[] = {CUDA_PLAN_X, CUDA_PLAN_W, CUDA_PLAN_Y};
  const void *const pointers[] = {at->x, at->w, at->y};
  const cuda_attribute attributes[] = {
      {CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS, CUDNN_TYPE_INT64, CUDA_PLAN_TENSORS, ids},
      {CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS, CUDNN_TYPE_VOID_PTR, CUDA_PLAN_TENSORS, pointers},
      {CUDNN_ATTR_VARIANT_PACK_WORKSPACE, CUDNN_TYPE_VOID_PTR, 1, &workspace}};
  return cuda_descriptor(CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR, attributes, 3, out);
}

static petra_status execute(const cuda_plan *plan, const cuda_lane *lane, const arrays *at, const void *workspace) {
  void *pack = NULL;
  int status = cudnnSetStream(plan->handle, lane->stream);
  if (status == CUDNN_STATUS_SUCCESS)
    status = variant_pack(at, workspace, &pack);
  if (status == CUDNN_STATUS_SUCCESS)
    status = cudnnBackendExecute(plan->handle, plan->plan, pack);
  petra_status result =
      status == CUDNN_STATUS_SUCCESS ? PETRA_OK : cuda_plan_error(&plan->shape, "running a plan", status);
  cuda_descriptor_drop(&pack);
  return result;
}

/* The next `bytes` of the scratch, which may be none and have no address. */
static void *take(void **free, size_t bytes) {
  void *taken = *free;
  if (bytes > 0)
    *free = (char *)taken + bytes;
  return taken;
}

petra_status cuda_plan_run(const cuda_plan *plan, const cuda_lane *lane, const void *x, const void *w, const void *y) {
  const cuda_conv_shape *shape = &plan->shape;
  const size_t needed = cuda_plan_workspace(plan);
  void *free = lane->scratch;
  if (plan->handle == NULL)
    return petra_fail(PETRA_INTERNAL, "cuDNN: a plan made without a device cannot run: convolution %s",
                      cuda_shape_describe(shape).text);
  if (needed > lane->scratch_bytes)
    return petra_fail(PETRA_INTERNAL, "cuDNN: the lane has %zu bytes of scratch, expected at least %zu: convolution %s",
                      lane->scratch_bytes, needed, cuda_shape_describe(shape).text);
  arrays at = {x, w, y};
  const void **out = shape->kind == CUDA_CONV_FORWARD ? &at.y : shape->kind == CUDA_CONV_DATA ? &at.x : &at.w;
  const cuda_from_bf16_args widening = {take(&free, plan->narrow), (float *)(uintptr_t)*out, output_count(shape)};
  const cuda_to_bf16_args rounding = {x, take(&free, plan->rounded), x_count(shape)};
  if (plan->rounded > 0) {
    PETRA_TRY(cuda_to_bf16_launch(lane, &rounding));
    at.x = rounding.y;
  }
  if (plan->narrow > 0)
    *out = widening.x;
  PETRA_TRY(execute(plan, lane, &at, free));
  return plan->narrow > 0 ? cuda_from_bf16_launch(lane, &widening) : PETRA_OK;
}
