/* SPDX-License-Identifier: Apache-2.0 */
/* The convolution plans of a backend: a list of those made, and their runs. */
#include "backend/cuda/plan_private.h"

#include "backend/cuda/kernels.h"
#include "base/log.h"
#include "base/mem.h"

#include <cuda_runtime_api.h>
#include <cudnn_graph.h>

#include <assert.h>
#include <stdio.h>
#include <string.h>

struct cuda_plans {
  cuda_plan_wanted wanted;
  unsigned fused;         /* kinds */
  cuda_plan *first;       /* a network has a few dozen shapes: a list is as good as a table */
  cuda_plan_table *table; /* NULL: heuristics alone */
  bool reported;          /* that there was no room to measure: once is enough */
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
  if (plan == NULL)
    return;
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
  cuda_plan_table_destroy(plans->table);
  petra_free(plans);
}

petra_status cuda_plans_measure(cuda_plans *plans, const char *file) {
  cuda_plan_setting setting = {.deterministic = plans->wanted.deterministic};
  struct cudaDeviceProp properties;
  int device = 0;
  if (plans->wanted.handle == NULL)
    return petra_fail(PETRA_INTERNAL, "cuDNN: cannot measure plans for a device that is not present");
  cudaError_t error = cudaGetDevice(&device);
  if (error == cudaSuccess)
    error = cudaGetDeviceProperties(&properties, device);
  if (error != cudaSuccess)
    return petra_fail(PETRA_BACKEND, "cuda: the device's name: %s", cudaGetErrorString(error));
  snprintf(setting.device, sizeof setting.device, "%s", properties.name);
  cuda_plans_describe(setting.library, sizeof setting.library);
  return cuda_plan_table_open(file, &setting, &plans->table);
}

void cuda_plans_print(const cuda_plans *plans, FILE *out) {
  if (plans->table != NULL)
    cuda_plan_table_print(plans->table, false, out);
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

static petra_status new_plan(const cuda_plans *plans, const cuda_conv_shape *shape, cuda_plan **out) {
  PETRA_TRY(petra_allocate(out, 1, sizeof **out));
  (*out)->shape = *shape;
  (*out)->handle = plans->wanted.handle;
  return PETRA_OK;
}

/* Makes the first plan of the form and of these engines from `first` on; where there is none it stays without one, which
 * is logged if `last`. */
static petra_status try_form(const cuda_plans *plans, cuda_conv_form form, cuda_plan_engines engines,
                             cuda_plan_place first, bool last, cuda_plan *plan) {
  const char *what;
  cuda_plan_refusals why;
  int status = cuda_conv_graph_make(&plan->shape, form, plan->handle, &plan->graph, &what);
  if (status != CUDNN_STATUS_SUCCESS)
    return last ? cuda_plan_error(&plan->shape, what, status) : PETRA_OK;
  PETRA_TRY(cuda_plan_search(&plans->wanted, engines, first, plan, &why));
  if (plan->plan == NULL)
    return last ? cuda_plan_none(&plans->wanted, plan, &why) : PETRA_OK;
  plan->form = form;
  plan->rounded = plan->shape.wide_in && !form.rounds ? bf16_bytes(x_count(&plan->shape)) : 0;
  plan->narrow = plan->shape.wide_out && !form.widens ? bf16_bytes(output_count(&plan->shape)) : 0;
  return PETRA_OK;
}

static const cuda_plan_place at_first = {0, 0};

/* Strict fp32 never uses tensor cores. In other precisions the heuristics sometimes name engines without them first (a
 * 1 x 1 filter with stride 2 in bf16), which are many times slower. */
static bool prefers_cores(const cuda_conv_shape *shape) {
  return shape->precision == PETRA_PRECISION_TF32 || shape->precision == PETRA_PRECISION_BF16;
}

/* With tensor cores in any form, then without them: a conversion outside the graph costs less. *out: of the caller, also
 * on failure. */
static petra_status by_heuristics(const cuda_plans *plans, const cuda_conv_shape *shape, cuda_plan **out) {
  static const cuda_plan_engines engines[] = {CUDA_ENGINES_WITH_CORES, CUDA_ENGINES_ANY};
  cuda_conv_form forms[FORMS];
  const int count = forms_of(plans, shape, forms);
  PETRA_TRY(new_plan(plans, shape, out));
  for (int e = prefers_cores(shape) ? 0 : 1; e < 2; e++)
    for (int i = 0; i < count && (*out)->plan == NULL; i++) {
      cuda_conv_graph_drop(&(*out)->graph);
      PETRA_TRY(try_form(plans, forms[i], engines[e], at_first, e == 1 && i == count - 1, *out));
    }
  return PETRA_OK;
}

/* --- by measuring --- */

static bool has_form(const cuda_plans *plans, const cuda_conv_shape *shape, cuda_conv_form form) {
  cuda_conv_form forms[FORMS];
  const int count = forms_of(plans, shape, forms);
  for (int i = 0; i < count; i++)
    if (forms[i].rounds == form.rounds && forms[i].widens == form.widens)
      return true;
  return false;
}

static bool is_chosen(const cuda_plan *plan, const cuda_plan_choice *choice) {
  return plan->plan != NULL && plan->place.mode == choice->place.mode && plan->place.rank == choice->place.rank &&
         plan->engine == choice->engine;
}

/* Finds the plan that the file names; *out stays NULL, with a line, if cuDNN has something else there. */
static petra_status by_file(const cuda_plans *plans, const cuda_conv_shape *shape, cuda_plan_choice *choice,
                            cuda_plan **out) {
  cuda_plan *plan = NULL;
  petra_status status = new_plan(plans, shape, &plan);
  if (status == PETRA_OK && has_form(plans, shape, choice->form))
    status = try_form(plans, choice->form, CUDA_ENGINES_ANY, choice->place, false, plan);
  if (status == PETRA_OK && is_chosen(plan, choice)) {
    choice->used = true;
    *out = plan;
    return PETRA_OK;
  }
  drop_plan(plan);
  if (status == PETRA_OK)
    petra_log(
        PETRA_LOG_WARNING,
        "device.plans: %s: convolution %s: engine %lld is not the one that cuDNN has at this rank; measured again",
        cuda_plan_table_path(plans->table), cuda_shape_describe(shape).text, (long long)choice->engine);
  return status;
}

/* Gets the first configurations that work, from all forms, each with a share of the remaining number: those with tensor
 * cores before those without, in the order of by_heuristics, whose choice comes first. */
enum { CANDIDATES = 8 };
typedef struct candidates {
  cuda_plan *plan[CANDIDATES];
  int count;
} candidates;

static petra_status gather_form(const cuda_plans *plans, const cuda_conv_shape *shape, cuda_conv_form form,
                                cuda_plan_engines engines, int share, candidates *all) {
  cuda_plan_place place = at_first;
  for (; share > 0; share--) {
    cuda_plan *plan = NULL;
    PETRA_TRY(new_plan(plans, shape, &plan));
    petra_status status = try_form(plans, form, engines, place, false, plan);
    if (status != PETRA_OK || plan->plan == NULL) {
      drop_plan(plan);
      return status;
    }
    place = (cuda_plan_place){plan->place.mode, plan->place.rank + 1};
    all->plan[all->count++] = plan;
  }
  return PETRA_OK;
}

static petra_status gather(const cuda_plans *plans, const cuda_conv_shape *shape, candidates *all) {
  static const cuda_plan_engines engines[] = {CUDA_ENGINES_WITH_CORES, CUDA_ENGINES_WITHOUT_CORES};
  cuda_conv_form forms[FORMS];
  const int count = forms_of(plans, shape, forms);
  for (int e = prefers_cores(shape) ? 0 : 1; e < 2; e++)
    for (int i = 0; i < count; i++)
      PETRA_TRY(gather_form(plans, shape, forms[i], engines[e], (CANDIDATES - all->count) / (count - i), all));
  return PETRA_OK;
}

/* In the file at once: a run that is killed goes on with the same plans, and so with the same bits. */
static petra_status keep_choice(const cuda_plans *plans, const cuda_plan *plan, double us) {
  const cuda_plan_choice choice = {plan->form, plan->place, plan->engine, us, true};
  PETRA_TRY(cuda_plan_table_put(plans->table, &plan->shape, &choice));
  return cuda_plan_table_write(plans->table);
}

/* The fastest of them; the first where they cannot be measured. */
static petra_status choose(cuda_plans *plans, candidates *all, cuda_plan **out) {
  int fastest;
  double us = 0;
  PETRA_TRY(cuda_plans_time(all->plan, all->count, &fastest, &us));
  if (fastest >= 0)
    PETRA_TRY(keep_choice(plans, all->plan[fastest], us));
  else if (!plans->reported) {
    petra_log(PETRA_LOG_WARNING,
              "device.plans: convolution %s: not measured, because the device has too little memory or cuDNN runs none "
              "of its configurations; heuristics choose the plan of every such shape",
              cuda_shape_describe(&all->plan[0]->shape).text);
    plans->reported = true;
  }
  cuda_plan **chosen = &all->plan[fastest >= 0 ? fastest : 0];
  *out = *chosen;
  *chosen = NULL;
  return PETRA_OK;
}

static petra_status by_measuring(cuda_plans *plans, const cuda_conv_shape *shape, cuda_plan **out) {
  candidates all = {.count = 0};
  petra_status status = gather(plans, shape, &all);
  if (status == PETRA_OK && all.count > 0)
    status = choose(plans, &all, out);
  for (int i = 0; i < all.count; i++)
    drop_plan(all.plan[i]);
  if (status == PETRA_OK && all.count == 0)
    return by_heuristics(plans, shape, out); /* which reports why there is none */
  return status;
}

/* *out: of the caller, also on failure; NULL: there is none. */
static petra_status make(cuda_plans *plans, const cuda_conv_shape *shape, cuda_plan **out) {
  if (plans->table == NULL)
    return by_heuristics(plans, shape, out);
  cuda_plan_choice *choice = cuda_plan_table_find(plans->table, shape);
  if (choice != NULL)
    PETRA_TRY(by_file(plans, shape, choice, out));
  return *out != NULL ? PETRA_OK : by_measuring(plans, shape, out);
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
  petra_status status = make(plans, shape, &plan);
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
           plan->compiled ? ", compiled" : "", found[plan->place.mode], plan->rounded > 0 ? ", rounded before" : "",
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

/* `ran`: where cuDNN refuses that is set to false, without a line; NULL: it is a failure. */
static petra_status execute(const cuda_plan *plan, const cuda_lane *lane, const arrays *at, const void *workspace,
                            bool *ran) {
  void *pack = NULL;
  int status = cudnnSetStream(plan->handle, lane->stream);
  if (status == CUDNN_STATUS_SUCCESS)
    status = variant_pack(at, workspace, &pack);
  if (status == CUDNN_STATUS_SUCCESS)
    status = cudnnBackendExecute(plan->handle, plan->plan, pack);
  petra_status result = PETRA_OK;
  if (ran != NULL)
    *ran = status == CUDNN_STATUS_SUCCESS;
  else if (status != CUDNN_STATUS_SUCCESS)
    result = cuda_plan_error(&plan->shape, "running a plan", status);
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

static petra_status run(const cuda_plan *plan, const cuda_lane *lane, const void *x, const void *w, const void *y,
                        bool *ran) {
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
  PETRA_TRY(execute(plan, lane, &at, free, ran));
  if (ran && !*ran)
    return PETRA_OK;
  return plan->narrow > 0 ? cuda_from_bf16_launch(lane, &widening) : PETRA_OK;
}

petra_status cuda_plan_run(const cuda_plan *plan, const cuda_lane *lane, const void *x, const void *w, const void *y) {
  return run(plan, lane, x, w, y, NULL);
}

petra_status cuda_plan_try(const cuda_plan *plan, const cuda_lane *lane, const void *x, const void *w, const void *y,
                           bool *ran) {
  return run(plan, lane, x, w, y, ran);
}
