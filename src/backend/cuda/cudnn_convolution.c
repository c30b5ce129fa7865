/* SPDX-License-Identifier: Apache-2.0 */
/* The convolutions of a backend, each made for one shape with an engine of cuDNN: the list of convolutions, the choice
 * of the engine by heuristics or by measuring, and the runs. */
#include "backend/cuda/cudnn_private.h"

#include "backend/cuda/cuda_kernels.h"
#include "base/log.h"
#include "base/mem.h"

#include <cuda_runtime_api.h>
#include <cudnn_graph.h>

#include <assert.h>
#include <stdio.h>
#include <string.h>

struct cuda_convs {
  cuda_engine_wanted wanted;
  unsigned fused;           /* bits of kinds */
  cuda_conv *first;         /* a network has a few dozen shapes: a list is as good as a table */
  cuda_engine_table *table; /* NULL: heuristics alone */
  bool reported;            /* a lack of room for measuring was reported: once is enough */
};

/* --- all convolutions --- */

/* Convolutions that run are made with a handle, as cuDNN documents for running; device properties are for convolutions
 * that are made without a device. cuDNN 9's headers call the handle's attributes deprecated and name no replacement for
 * a present device. */
static petra_status name_device(cuda_engine_wanted *wanted, const char *json) {
  if (json == NULL) {
    int status = cudnnCreate(&wanted->handle);
    return status == CUDNN_STATUS_SUCCESS ? PETRA_OK : cuda_cudnn_error(NULL, "cudnnCreate", status);
  }
  const cuda_attribute text = {CUDNN_ATTR_DEVICEPROP_JSON_REPRESENTATION, CUDNN_TYPE_CHAR, (int64_t)strlen(json) + 1,
                               json};
  int status = cuda_descriptor(CUDNN_BACKEND_DEVICEPROP_DESCRIPTOR, &text, 1, &wanted->deviceprop);
  return status == CUDNN_STATUS_SUCCESS ? PETRA_OK
                                        : cuda_cudnn_error(NULL, "reading a device's properties from JSON", status);
}

petra_status cuda_convs_create(const char *deviceprop, bool deterministic, size_t workspace_max, cuda_convs **out) {
  cuda_convs *convs = NULL;
  PETRA_TRY(petra_allocate(&convs, 1, sizeof *convs));
  convs->wanted.deterministic = deterministic;
  convs->wanted.workspace_max = workspace_max;
  cuda_convs_fuse(convs, 1U << CUDA_CONV_FORWARD | 1U << CUDA_CONV_DATA);
  petra_status status = name_device(&convs->wanted, deviceprop);
  if (status == PETRA_OK)
    *out = convs;
  else
    cuda_convs_destroy(convs);
  return status;
}

static void drop_conv(cuda_conv *conv) {
  if (conv == NULL)
    return;
  cuda_descriptor_drop(&conv->execution);
  cuda_descriptor_drop(&conv->config);
  cuda_conv_graph_drop(&conv->graph);
  petra_free(conv);
}

void cuda_convs_destroy(cuda_convs *convs) {
  if (convs == NULL)
    return;
  for (cuda_conv *conv = convs->first, *next; conv != NULL; conv = next) {
    next = conv->next;
    drop_conv(conv);
  }
  cuda_descriptor_drop(&convs->wanted.deviceprop);
  if (convs->wanted.handle != NULL)
    cudnnDestroy(convs->wanted.handle);
  cuda_engine_table_destroy(convs->table);
  petra_free(convs);
}

petra_status cuda_convs_measure(cuda_convs *convs, const char *file) {
  cuda_engine_setting setting = {.deterministic = convs->wanted.deterministic};
  struct cudaDeviceProp properties;
  int device = 0;
  if (convs->wanted.handle == NULL)
    return petra_fail(PETRA_INTERNAL, "cuDNN: cannot measure plans for a device that is not present");
  cudaError_t error = cudaGetDevice(&device);
  if (error == cudaSuccess)
    error = cudaGetDeviceProperties(&properties, device);
  if (error != cudaSuccess)
    return petra_fail(PETRA_BACKEND, "cuda: the device's name: %s", cudaGetErrorString(error));
  snprintf(setting.device, sizeof setting.device, "%s", properties.name);
  cuda_cudnn_describe(setting.library, sizeof setting.library);
  return cuda_engine_table_open(file, &setting, &convs->table);
}

void cuda_convs_print(const cuda_convs *convs, FILE *out) {
  if (convs->table != NULL)
    cuda_engine_table_print(convs->table, false, out);
}

void cuda_convs_fuse(cuda_convs *convs, unsigned kinds) {
  convs->fused = kinds;
}

void cuda_cudnn_describe(char *text, size_t size) {
  size_t version = cudnnGetVersion();
  snprintf(text, size, "cuDNN %zu.%zu.%zu", version / 10000, version / 100 % 100, version % 100);
}

/* --- one convolution --- */

static int64_t output_count(const cuda_conv_shape *shape) {
  return cuda_conv_elements(shape, cuda_conv_output(shape->kind));
}

/* Returns the size of a bf16 buffer in the scratch, rounded up so that the buffer behind it is aligned like the
 * scratch. */
static size_t bf16_bytes(int64_t count) {
  return ((size_t)count * sizeof(uint16_t) + 255) / 256 * 256;
}

/* The best form is the first; the last has no conversion in its graph. */
enum { FORMS = 3 };
static int forms_of(const cuda_convs *convs, const cuda_conv_shape *shape, cuda_conv_form *forms) {
  const bool fused = (convs->fused & 1U << shape->kind) != 0, widens = shape->wide_out != 0;
  int count = 0;
  if (fused && shape->wide_in && shape->kind == CUDA_CONV_FORWARD) /* no filter gradient rounds */
    forms[count++] = (cuda_conv_form){true, widens};
  if (fused && widens)
    forms[count++] = (cuda_conv_form){false, true};
  forms[count++] = (cuda_conv_form){false, false};
  return count;
}

static petra_status new_conv(const cuda_convs *convs, const cuda_conv_shape *shape, cuda_conv **out) {
  PETRA_TRY(petra_allocate(out, 1, sizeof **out));
  (*out)->shape = *shape;
  (*out)->handle = convs->wanted.handle;
  return PETRA_OK;
}

/* Gives the convolution the first configuration of the form and of these engines, from position `first` on. If there is
 * none, conv->execution stays NULL, and this is logged if `last`. */
static petra_status try_form(const cuda_convs *convs, cuda_conv_form form, cuda_engine_kind engines,
                             cuda_engine_position first, bool last, cuda_conv *conv) {
  const char *what;
  cuda_engine_refusals why;
  int status = cuda_conv_graph_make(&conv->shape, form, conv->handle, &conv->graph, &what);
  if (status != CUDNN_STATUS_SUCCESS)
    return last ? cuda_cudnn_error(&conv->shape, what, status) : PETRA_OK;
  PETRA_TRY(cuda_engine_search(&convs->wanted, engines, first, conv, &why));
  if (conv->execution == NULL)
    return last ? cuda_engine_none(&convs->wanted, conv, &why) : PETRA_OK;
  conv->form = form;
  conv->rounded = conv->shape.wide_in && !form.rounds ? bf16_bytes(cuda_conv_elements(&conv->shape, CUDA_CONV_X)) : 0;
  conv->narrow = conv->shape.wide_out && !form.widens ? bf16_bytes(output_count(&conv->shape)) : 0;
  return PETRA_OK;
}

static const cuda_engine_position at_first = {0, 0};

/* Strict fp32 never uses tensor cores. In other precisions the heuristics sometimes name engines without them first (a
 * 1 x 1 filter with stride 2 in bf16), which are many times slower. */
static bool prefers_cores(const cuda_conv_shape *shape) {
  return shape->precision == PETRA_PRECISION_TF32 || shape->precision == PETRA_PRECISION_BF16;
}

/* Tries engines with tensor cores in every form, then engines without them: a conversion outside the graph costs less
 * than an engine without tensor cores. The caller owns *out, also after a failure. */
static petra_status by_heuristics(const cuda_convs *convs, const cuda_conv_shape *shape, cuda_conv **out) {
  static const cuda_engine_kind engines[] = {CUDA_ENGINES_WITH_CORES, CUDA_ENGINES_ANY};
  cuda_conv_form forms[FORMS];
  const int count = forms_of(convs, shape, forms);
  PETRA_TRY(new_conv(convs, shape, out));
  for (int e = prefers_cores(shape) ? 0 : 1; e < 2; e++)
    for (int i = 0; i < count && (*out)->execution == NULL; i++) {
      cuda_conv_graph_drop(&(*out)->graph);
      PETRA_TRY(try_form(convs, forms[i], engines[e], at_first, e == 1 && i == count - 1, *out));
    }
  return PETRA_OK;
}

/* --- by measuring --- */

static bool has_form(const cuda_convs *convs, const cuda_conv_shape *shape, cuda_conv_form form) {
  cuda_conv_form forms[FORMS];
  const int count = forms_of(convs, shape, forms);
  for (int i = 0; i < count; i++)
    if (forms[i].rounds == form.rounds && forms[i].widens == form.widens)
      return true;
  return false;
}

static bool is_chosen(const cuda_conv *conv, const cuda_engine_choice *choice) {
  return conv->execution != NULL && conv->position.mode == choice->position.mode &&
         conv->position.rank == choice->position.rank && conv->engine == choice->engine;
}

/* Finds the convolution that the file names; *out stays NULL, with a line, if cuDNN has another configuration there. */
static petra_status by_file(const cuda_convs *convs, const cuda_conv_shape *shape, cuda_engine_choice *choice,
                            cuda_conv **out) {
  cuda_conv *conv = NULL;
  petra_status status = new_conv(convs, shape, &conv);
  if (status == PETRA_OK && has_form(convs, shape, choice->form))
    status = try_form(convs, choice->form, CUDA_ENGINES_ANY, choice->position, false, conv);
  if (status == PETRA_OK && is_chosen(conv, choice)) {
    choice->used = true;
    *out = conv;
    return PETRA_OK;
  }
  drop_conv(conv);
  if (status == PETRA_OK)
    petra_log(
        PETRA_LOG_WARNING,
        "device.plans: %s: convolution %s: engine %lld is not the one that cuDNN has at this rank; measured again",
        cuda_engine_table_path(convs->table), cuda_shape_describe(shape).text, (long long)choice->engine);
  return status;
}

/* Gets the first configurations that work, from all forms, each with a share of the remaining number: configurations
 * with tensor cores before those without, in the order of by_heuristics, whose choice comes first. */
enum { CANDIDATES = 8 };
typedef struct candidates {
  cuda_conv *conv[CANDIDATES];
  int count;
} candidates;

static petra_status gather_form(const cuda_convs *convs, const cuda_conv_shape *shape, cuda_conv_form form,
                                cuda_engine_kind engines, int share, candidates *all) {
  cuda_engine_position position = at_first;
  for (; share > 0; share--) {
    cuda_conv *conv = NULL;
    PETRA_TRY(new_conv(convs, shape, &conv));
    petra_status status = try_form(convs, form, engines, position, false, conv);
    if (status != PETRA_OK || conv->execution == NULL) {
      drop_conv(conv);
      return status;
    }
    position = (cuda_engine_position){conv->position.mode, conv->position.rank + 1};
    all->conv[all->count++] = conv;
  }
  return PETRA_OK;
}

static petra_status gather(const cuda_convs *convs, const cuda_conv_shape *shape, candidates *all) {
  static const cuda_engine_kind engines[] = {CUDA_ENGINES_WITH_CORES, CUDA_ENGINES_WITHOUT_CORES};
  cuda_conv_form forms[FORMS];
  const int count = forms_of(convs, shape, forms);
  for (int e = prefers_cores(shape) ? 0 : 1; e < 2; e++)
    for (int i = 0; i < count; i++)
      PETRA_TRY(gather_form(convs, shape, forms[i], engines[e], (CANDIDATES - all->count) / (count - i), all));
  return PETRA_OK;
}

/* Writes the choice into the file immediately: a run that was killed continues with the same engines, and therefore
 * with the same bits. */
static petra_status keep_choice(const cuda_convs *convs, const cuda_conv *conv, double us) {
  const cuda_engine_choice choice = {conv->form, conv->position, conv->engine, us, true};
  PETRA_TRY(cuda_engine_table_put(convs->table, &conv->shape, &choice));
  return cuda_engine_table_write(convs->table);
}

/* Gets the fastest convolution, or the first one if they cannot be measured. */
static petra_status choose(cuda_convs *convs, candidates *all, cuda_conv **out) {
  int fastest;
  double us = 0;
  PETRA_TRY(cuda_engines_time(all->conv, all->count, &fastest, &us));
  if (fastest >= 0)
    PETRA_TRY(keep_choice(convs, all->conv[fastest], us));
  else if (!convs->reported) {
    petra_log(PETRA_LOG_WARNING,
              "device.plans: convolution %s: not measured, because the device has too little memory or cuDNN runs none "
              "of its configurations; heuristics choose the plan of every such shape",
              cuda_shape_describe(&all->conv[0]->shape).text);
    convs->reported = true;
  }
  cuda_conv **chosen = &all->conv[fastest >= 0 ? fastest : 0];
  *out = *chosen;
  *chosen = NULL;
  return PETRA_OK;
}

static petra_status by_measuring(cuda_convs *convs, const cuda_conv_shape *shape, cuda_conv **out) {
  candidates all = {.count = 0};
  petra_status status = gather(convs, shape, &all);
  if (status == PETRA_OK && all.count > 0)
    status = choose(convs, &all, out);
  for (int i = 0; i < all.count; i++)
    drop_conv(all.conv[i]);
  if (status == PETRA_OK && all.count == 0)
    return by_heuristics(convs, shape, out); /* which reports why there is none */
  return status;
}

/* The caller owns *out, also after a failure; NULL: there is none. */
static petra_status make(cuda_convs *convs, const cuda_conv_shape *shape, cuda_conv **out) {
  if (convs->table == NULL)
    return by_heuristics(convs, shape, out);
  cuda_engine_choice *choice = cuda_engine_table_find(convs->table, shape);
  if (choice != NULL)
    PETRA_TRY(by_file(convs, shape, choice, out));
  return *out != NULL ? PETRA_OK : by_measuring(convs, shape, out);
}

petra_status cuda_convs_find(cuda_convs *convs, const cuda_conv_shape *shape, const cuda_conv **out) {
  assert(shape->precision == PETRA_PRECISION_BF16 || (!shape->wide_in && !shape->wide_out));
  assert(shape->kind != CUDA_CONV_DATA || !shape->wide_in);
  for (cuda_conv *conv = convs->first; conv != NULL; conv = conv->next)
    if (memcmp(&conv->shape, shape, sizeof *shape) == 0) {
      *out = conv;
      return PETRA_OK;
    }
  cuda_conv *conv = NULL;
  petra_status status = make(convs, shape, &conv);
  if (status != PETRA_OK) {
    drop_conv(conv);
    return status;
  }
  conv->next = convs->first;
  convs->first = conv;
  *out = conv;
  return PETRA_OK;
}

size_t cuda_conv_workspace(const cuda_conv *conv) {
  return conv->rounded + conv->narrow + conv->workspace;
}

/* --- runs --- */

/* cuDNN's descriptors cannot be changed once finalized, so that each run makes a new one: host memory only. */
static int variant_pack(const void *const at[CUDA_CONV_ARRAYS], const void *workspace, void **out) {
  const int64_t ids[] = {CUDA_GRAPH_X, CUDA_GRAPH_W, CUDA_GRAPH_Y};
  const cuda_attribute attributes[] = {
      {CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS, CUDNN_TYPE_INT64, CUDA_GRAPH_TENSORS, ids},
      {CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS, CUDNN_TYPE_VOID_PTR, CUDA_GRAPH_TENSORS, at},
      {CUDNN_ATTR_VARIANT_PACK_WORKSPACE, CUDNN_TYPE_VOID_PTR, 1, &workspace}};
  return cuda_descriptor(CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR, attributes, 3, out);
}

/* `ran`: set to false, without a line, if cuDNN refuses; NULL: a refusal is a failure. */
static petra_status execute(const cuda_conv *conv, const cuda_lane *lane, const void *const at[CUDA_CONV_ARRAYS],
                            const void *workspace, bool *ran) {
  void *pack = NULL;
  int status = cudnnSetStream(conv->handle, lane->stream);
  if (status == CUDNN_STATUS_SUCCESS)
    status = variant_pack(at, workspace, &pack);
  if (status == CUDNN_STATUS_SUCCESS)
    status = cudnnBackendExecute(conv->handle, conv->execution, pack);
  petra_status result = PETRA_OK;
  if (ran != NULL)
    *ran = status == CUDNN_STATUS_SUCCESS;
  else if (status != CUDNN_STATUS_SUCCESS)
    result = cuda_cudnn_error(&conv->shape, "running a plan", status);
  cuda_descriptor_drop(&pack);
  return result;
}

/* Takes the next `bytes` of the scratch, which may be 0 bytes and have no address. */
static void *take(void **free, size_t bytes) {
  void *taken = *free;
  if (bytes > 0)
    *free = (char *)taken + bytes;
  return taken;
}

petra_status cuda_conv_run(const cuda_conv *conv, const cuda_lane *lane, const void *x, const void *w, const void *y,
                           bool *ran) {
  const cuda_conv_shape *shape = &conv->shape;
  const size_t needed = cuda_conv_workspace(conv);
  void *free = lane->scratch;
  if (conv->handle == NULL)
    return petra_fail(PETRA_INTERNAL, "cuDNN: a plan made without a device cannot run: convolution %s",
                      cuda_shape_describe(shape).text);
  if (needed > lane->scratch_bytes)
    return petra_fail(PETRA_INTERNAL, "cuDNN: the lane has %zu bytes of scratch, expected at least %zu: convolution %s",
                      lane->scratch_bytes, needed, cuda_shape_describe(shape).text);
  const void *at[CUDA_CONV_ARRAYS] = {x, w, y};
  const void **out = &at[cuda_conv_output(shape->kind)];
  const cuda_from_bf16_args widening = {take(&free, conv->narrow), (float *)(uintptr_t)*out, output_count(shape)};
  const cuda_to_bf16_args rounding = {x, take(&free, conv->rounded), cuda_conv_elements(shape, CUDA_CONV_X)};
  if (conv->rounded > 0) {
    PETRA_TRY(cuda_to_bf16_launch(lane, &rounding));
    at[CUDA_CONV_X] = rounding.y;
  }
  if (conv->narrow > 0)
    *out = widening.x;
  PETRA_TRY(execute(conv, lane, at, free, ran));
  if (ran && !*ran)
    return PETRA_OK;
  return conv->narrow > 0 ? cuda_from_bf16_launch(lane, &widening) : PETRA_OK;
}
