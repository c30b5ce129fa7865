/* SPDX-License-Identifier: Apache-2.0 */
/* From cuDNN's heuristics to a convolution: which engines are taken, which not; and what the fake of cuDNN refuses. */
#include "test_cuda_cudnn.h"

#define NOTE(name) CUDNN_NUMERICAL_NOTE_##name

static cuda_conv_shape shape_of(petra_precision precision) {
  return convs_shape(CUDA_CONV_FORWARD, precision, 1, 3, 5, 4, 2, 3, 3, 1, 1);
}

/* Makes a convolution over the engines of mode A, with none in the others; answers what cuda_conv_describe says, "" where
 * there is none. */
static const char *chosen(const cudnn_fake_engine *engines, int count, petra_precision precision, bool deterministic,
                          size_t workspace_max) {
  static char text[128];
  static const cudnn_fake_engine none;
  cuda_convs *convs = NULL;
  const cuda_conv *conv = NULL;
  const cuda_conv_shape shape = shape_of(precision);
  convs_begin(1);
  petra_cudnn_fake_engines(CUDNN_HEUR_MODE_A, engines, count);
  petra_cudnn_fake_engines(CUDNN_HEUR_MODE_B, &none, 0);
  petra_cudnn_fake_engines(CUDNN_HEUR_MODE_FALLBACK, &none, 0);
  ck_assert_int_eq(cuda_convs_create(NULL, deterministic, workspace_max, &convs), PETRA_OK);
  petra_status status = cuda_convs_find(convs, &shape, &conv);
  ck_assert(status == PETRA_OK || (status == PETRA_UNSUPPORTED && conv == NULL));
  ck_assert_int_eq(harness_lines, status == PETRA_OK ? 0 : 1);
  text[0] = 0;
  if (status == PETRA_OK)
    cuda_conv_describe(conv, text, sizeof text);
  cuda_convs_destroy(convs);
  convs_end();
  return text;
}

/* An engine with a note before one without. */
static bool takes(cudnnBackendNumericalNote_t note, petra_precision precision, bool deterministic) {
  const cudnn_fake_engine engines[] = {{.index = 7, .note_count = 2, .notes = {NOTE(STRICT_NAN_PROP), note}},
                                       {.index = 8}};
  const char *text = chosen(engines, 2, precision, deterministic, PLANS_WORKSPACE_MAX);
  const bool first = strncmp(text, "engine 7, ", 10) == 0;
  ck_assert_msg(first || strncmp(text, "engine 8, ", 10) == 0, "chosen: '%s'", text);
  return first;
}

START_TEST(engines_by_their_notes) {
  static const petra_precision precisions[] = {PETRA_PRECISION_FP32, PETRA_PRECISION_TF32, PETRA_PRECISION_BF16};
  for (int p = 0; p < 3; p++)
    for (int deterministic = 0; deterministic < 2; deterministic++)
      for (int note = 0; note < CUDNN_NUMERICAL_NOTE_TYPE_COUNT; note++) {
        bool wanted = note == NOTE(STRICT_NAN_PROP) || (note == NOTE(NONDETERMINISTIC) && !deterministic) ||
                      (note == NOTE(TENSOR_CORE) && p > 0);
        ck_assert_msg(takes((cudnnBackendNumericalNote_t)note, precisions[p], deterministic) == wanted,
                      "note %d, precision %d, %d", note, precisions[p], deterministic);
      }
}
END_TEST

/* A convolution of the engines that were set; "" where there is none. */
static const char *described(petra_precision precision, const char *failing, int nth) {
  static char text[128];
  cuda_convs *convs = NULL;
  const cuda_conv *conv = NULL;
  const cuda_conv_shape shape = shape_of(precision);
  ck_assert_int_eq(cuda_convs_create(NULL, true, PLANS_WORKSPACE_MAX, &convs), PETRA_OK);
  petra_cuda_host_fail(failing, nth, (cudaError_t)CUDNN_STATUS_NOT_SUPPORTED);
  text[0] = 0;
  if (cuda_convs_find(convs, &shape, &conv) == PETRA_OK) {
    cuda_conv_describe(conv, text, sizeof text);
    ck_assert_int_eq(convs_check_run(convs, &shape), PETRA_OK);
  }
  petra_cuda_host_fail(NULL, 0, cudaSuccess);
  cuda_convs_destroy(convs);
  convs_end();
  return text;
}

/* In bf16 and tf32 an engine with tensor cores goes before all without: of later rank, of a later mode. */
START_TEST(tensor_cores_go_first) {
  static const cudnn_fake_engine with = {.index = 9, .note_count = 1, .notes = {NOTE(TENSOR_CORE)}},
                                 none_serves = {.index = 8,
                                                .finalizes = CUDNN_STATUS_NOT_SUPPORTED,
                                                .note_count = 1,
                                                .notes = {NOTE(TENSOR_CORE)}};
  cudnn_fake_engine engines[] = {{.index = 6}, {.index = 7}, with, {.index = 10}};
  static const struct {
    petra_precision precision;
    const char *expected;
  } rows[] = {{PETRA_PRECISION_FP32, "engine 6, 0.0 MiB workspace"},
              {PETRA_PRECISION_TF32, "engine 9, 0.0 MiB workspace, tensor cores"},
              {PETRA_PRECISION_BF16, "engine 9, 0.0 MiB workspace, tensor cores"}};
  for (int i = 0; i < HARNESS_COUNT(rows); i++)
    ck_assert_str_eq(chosen(engines, 4, rows[i].precision, true, PLANS_WORKSPACE_MAX), rows[i].expected);
  convs_begin(1);
  petra_cudnn_fake_engines(CUDNN_HEUR_MODE_A, engines, 2);
  petra_cudnn_fake_engines(CUDNN_HEUR_MODE_B, engines, 1);
  petra_cudnn_fake_engines(CUDNN_HEUR_MODE_FALLBACK, engines, 3);
  ck_assert_str_eq(described(PETRA_PRECISION_BF16, NULL, 0),
                   "engine 9, 0.0 MiB workspace, tensor cores, as a fallback");
  engines[2] = none_serves;
  ck_assert_str_eq(chosen(engines, 4, PETRA_PRECISION_BF16, true, PLANS_WORKSPACE_MAX), "engine 6, 0.0 MiB workspace");
}
END_TEST

START_TEST(descriptions) {
  const cudnn_fake_engine cores = {.index = 4, .workspace = 3 << 18, .note_count = 1, .notes = {NOTE(TENSOR_CORE)}};
  const cudnn_fake_engine both = {.index = 5, .compiled = true, .note_count = 1, .notes = {NOTE(NONDETERMINISTIC)}};
  ck_assert_str_eq(chosen(&cores, 1, PETRA_PRECISION_TF32, true, PLANS_WORKSPACE_MAX),
                   "engine 4, 0.8 MiB workspace, tensor cores");
  ck_assert_str_eq(chosen(&both, 1, PETRA_PRECISION_TF32, false, PLANS_WORKSPACE_MAX),
                   "engine 5, 0.0 MiB workspace, not deterministic, compiled");
}
END_TEST

START_TEST(workspace) {
  const cudnn_fake_engine engines[] = {
      {.index = 1, .workspace = 101}, {.index = 2, .workspace = 70, .per_channel = 10}, {.index = 3}};
  ck_assert_int_eq(strncmp(chosen(engines, 3, PETRA_PRECISION_FP32, true, 101), "engine 1,", 9), 0);
  ck_assert_int_eq(strncmp(chosen(engines, 3, PETRA_PRECISION_FP32, true, 100), "engine 2,", 9), 0);
  ck_assert_int_eq(strncmp(chosen(engines, 3, PETRA_PRECISION_FP32, true, 99), "engine 3,", 9), 0);
  ck_assert_int_eq(strncmp(chosen(engines, 3, PETRA_PRECISION_FP32, true, 0), "engine 3,", 9), 0);
  ck_assert_str_eq(chosen(engines, 2, PETRA_PRECISION_FP32, true, 0), "");
  ck_assert_logged("more than 0 bytes of workspace");
}
END_TEST

START_TEST(none_is_left) {
  const cudnn_fake_engine engines[] = {{.index = 1, .note_count = 1, .notes = {NOTE(FFT)}},
                                       {.index = 2, .workspace = 4096},
                                       {.index = 3, .finalizes = CUDNN_STATUS_NOT_SUPPORTED},
                                       {.index = 4, .workspace = 2000},
                                       {.index = 5, .note_count = 1, .notes = {NOTE(TENSOR_CORE)}},
                                       {.index = 6, .note_count = 1, .notes = {NOTE(WINOGRAD_TILE_4x4)}}};
  ck_assert_str_eq(chosen(engines, 6, PETRA_PRECISION_FP32, true, 1024), "");
  ck_assert_logged(
      "cuDNN has no plan for the convolution forward, x 1x5x4x3, filter 2x3x3x3, stride 1, pad 1, fp32, deterministic: "
      "of 6 "
      "engine configurations 3 have unwanted notes, 2 need more than 1024 bytes of workspace, 1 do not finalize (last: "
      "CUDNN_STATUS_NOT_SUPPORTED)");
  ck_assert_str_eq(chosen(engines, 0, PETRA_PRECISION_FP32, false, 1024), "");
  ck_assert_logged("fp32: of 0 engine configurations 0 have unwanted notes, 0 need more than 1024 bytes of workspace, "
                   "0 do not finalize");
}
END_TEST

START_TEST(modes_in_their_order) {
  static const cudnn_fake_engine bad = {.index = 1, .note_count = 1, .notes = {NOTE(WINOGRAD)}};
  convs_begin(1);
  ck_assert_str_eq(described(PETRA_PRECISION_TF32, NULL, 0), "engine 19, 0.0 MiB workspace, tensor cores");
  convs_begin(1);
  ck_assert_str_eq(described(PETRA_PRECISION_FP32, NULL, 0), "engine 20, 0.0 MiB workspace, compiled");
  convs_begin(1);
  petra_cudnn_fake_engines(CUDNN_HEUR_MODE_A, &bad, 1);
  ck_assert_str_eq(described(PETRA_PRECISION_FP32, NULL, 0), "engine 21, 0.0 MiB workspace, by heuristics B");
  convs_begin(1);
  petra_cudnn_fake_engines(CUDNN_HEUR_MODE_A, &bad, 1);
  petra_cudnn_fake_engines(CUDNN_HEUR_MODE_B, &bad, 1);
  ck_assert_str_eq(described(PETRA_PRECISION_FP32, NULL, 0), "engine 31, 0.0 MiB workspace, as a fallback");
  convs_begin(1); /* finalized before it: three tensors, convolution, operation, graph */
  ck_assert_str_eq(described(PETRA_PRECISION_FP32, "cudnnBackendFinalize", 7),
                   "engine 21, 0.0 MiB workspace, by heuristics B");
}
END_TEST

/* What wide shapes come to: engines of these graphs there are, each in the mode that it is given for. */
static const char *widely(const cudnn_fake_engine *engines, int count, cuda_conv_kind kind, int in, int out,
                          unsigned fused) {
  static char text[128];
  static const cudnn_fake_engine none;
  cuda_convs *convs = NULL;
  const cuda_conv *conv = NULL;
  cuda_conv_shape shape = convs_shape(kind, PETRA_PRECISION_BF16, 1, 3, 5, 4, 2, 3, 3, 1, 1);
  shape.wide_in = in, shape.wide_out = out;
  convs_begin(1);
  petra_cudnn_fake_engines(CUDNN_HEUR_MODE_A, engines, count);
  petra_cudnn_fake_engines(CUDNN_HEUR_MODE_B, &none, 0);
  petra_cudnn_fake_engines(CUDNN_HEUR_MODE_FALLBACK, &none, 0);
  ck_assert_int_eq(cuda_convs_create(NULL, true, PLANS_WORKSPACE_MAX, &convs), PETRA_OK);
  if (fused != ~0U)
    cuda_convs_fuse(convs, fused);
  petra_status status = cuda_convs_find(convs, &shape, &conv);
  ck_assert(status == PETRA_OK || status == PETRA_UNSUPPORTED);
  ck_assert_int_eq(harness_lines, status == PETRA_OK ? 0 : 1);
  text[0] = 0;
  if (status == PETRA_OK) {
    cuda_conv_describe(conv, text, sizeof text);
    ck_assert_int_eq(convs_check_run(convs, &shape), PETRA_OK);
    ck_assert_int_eq(cuda_conv_conversions(conv),
                     (strstr(text, "rounded") != NULL) + (strstr(text, "widened") != NULL));
  }
  cuda_convs_destroy(convs);
  convs_end();
  return text;
}

START_TEST(wide_shapes) {
  enum { DEFAULT = -1, FILTER = 1 << CUDA_CONV_FILTER };
  static const cudnn_fake_engine all[] = {{.index = 1}, {.index = 2, .takes = CUDNN_FAKE_ROUNDS | CUDNN_FAKE_WIDENS}},
                                 both[] = {{.index = 1},
                                           {.index = 3, .takes = CUDNN_FAKE_ROUNDS},
                                           {.index = 4, .takes = CUDNN_FAKE_WIDENS}};
  static const struct {
    const cudnn_fake_engine *engines;
    int count;
    cuda_conv_kind kind;
    int in, out;
    unsigned fused;
    const char *expected;
  } rows[] = {{all, 2, CUDA_CONV_FORWARD, 0, 0, DEFAULT, "engine 1, 0.0 MiB workspace"},
              {all, 2, CUDA_CONV_FORWARD, 1, 1, DEFAULT, "engine 2, 0.0 MiB workspace"},
              {all, 2, CUDA_CONV_FORWARD, 1, 0, DEFAULT, "engine 2, 0.0 MiB workspace"},
              {all, 2, CUDA_CONV_DATA, 0, 1, DEFAULT, "engine 2, 0.0 MiB workspace"},
              {all, 2, CUDA_CONV_FILTER, 0, 1, DEFAULT, "engine 1, 0.0 MiB workspace, widened after"},
              {all, 2, CUDA_CONV_FILTER, 1, 1, DEFAULT, "engine 1, 0.0 MiB workspace, rounded before, widened after"},
              {all, 2, CUDA_CONV_FILTER, 0, 1, FILTER, "engine 2, 0.0 MiB workspace"},
              {all, 2, CUDA_CONV_FILTER, 1, 1, FILTER, "engine 2, 0.0 MiB workspace, rounded before"},
              {all, 2, CUDA_CONV_FILTER, 1, 0, FILTER, "engine 1, 0.0 MiB workspace, rounded before"},
              {all, 2, CUDA_CONV_FORWARD, 1, 1, FILTER, "engine 1, 0.0 MiB workspace, rounded before, widened after"},
              {all, 1, CUDA_CONV_FORWARD, 1, 1, DEFAULT, "engine 1, 0.0 MiB workspace, rounded before, widened after"},
              {all, 1, CUDA_CONV_FORWARD, 1, 0, DEFAULT, "engine 1, 0.0 MiB workspace, rounded before"},
              {all, 1, CUDA_CONV_DATA, 0, 1, DEFAULT, "engine 1, 0.0 MiB workspace, widened after"},
              {both, 3, CUDA_CONV_FORWARD, 1, 0, DEFAULT, "engine 3, 0.0 MiB workspace"},
              {both, 3, CUDA_CONV_FORWARD, 0, 1, DEFAULT, "engine 4, 0.0 MiB workspace"},
              {both, 3, CUDA_CONV_FORWARD, 1, 1, DEFAULT, "engine 4, 0.0 MiB workspace, rounded before"},
              {all + 1, 1, CUDA_CONV_FILTER, 1, 1, DEFAULT, ""}};
  for (int i = 0; i < HARNESS_COUNT(rows); i++)
    ck_assert_str_eq(widely(rows[i].engines, rows[i].count, rows[i].kind, rows[i].in, rows[i].out, rows[i].fused),
                     rows[i].expected);
  ck_assert_logged("bf16, x f32, output f32, deterministic: of 0 engine configurations");
}
END_TEST

/* A conversion of ours costs less than a convolution without tensor cores. */
START_TEST(tensor_cores_go_before_conversions) {
  static const cudnn_fake_engine engines[] = {{.index = 1, .note_count = 1, .notes = {NOTE(TENSOR_CORE)}},
                                              {.index = 2, .takes = CUDNN_FAKE_WIDENS}};
  ck_assert_str_eq(widely(engines, 2, CUDA_CONV_DATA, 0, 1, ~0U),
                   "engine 1, 0.0 MiB workspace, tensor cores, widened after");
}
END_TEST

/* A graph with more has to have the wanted notes as well, and not too large a workspace; no line is logged for it. */
START_TEST(wide_graphs_are_chosen_as_others_are) {
  static const cudnn_fake_engine plain = {.index = 1};
  cudnn_fake_engine engines[] = {plain, {.index = 2, .takes = CUDNN_FAKE_WIDENS}};
  engines[1].note_count = 1;
  engines[1].notes[0] = NOTE(DOWN_CONVERT_INPUTS);
  ck_assert_int_eq(strncmp(widely(engines, 2, CUDA_CONV_DATA, 0, 1, ~0U), "engine 1,", 9), 0);
  engines[1].notes[0] = NOTE(TENSOR_CORE);
  ck_assert_int_eq(strncmp(widely(engines, 2, CUDA_CONV_DATA, 0, 1, ~0U), "engine 2,", 9), 0);
  engines[1].workspace = PLANS_WORKSPACE_MAX + 1;
  ck_assert_int_eq(strncmp(widely(engines, 2, CUDA_CONV_DATA, 0, 1, ~0U), "engine 1,", 9), 0);
  engines[1].workspace = 0, engines[1].finalizes = CUDNN_STATUS_NOT_SUPPORTED;
  ck_assert_int_eq(strncmp(widely(engines, 2, CUDA_CONV_DATA, 0, 1, ~0U), "engine 1,", 9), 0);
}
END_TEST

/* Nor is one that cuDNN does not know at all. */
START_TEST(wide_graphs_that_cannot_be_described) {
  for (int nth = 1; nth <= 9; nth++) { /* four tensors, convolution, operation, identity, widening, graph */
    cuda_convs *convs = NULL;
    const cuda_conv *conv = NULL;
    cuda_conv_shape shape = convs_shape(CUDA_CONV_DATA, PETRA_PRECISION_BF16, 1, 3, 5, 4, 2, 3, 3, 1, 1);
    shape.wide_out = 1;
    convs_begin(1);
    ck_assert_int_eq(cuda_convs_create(NULL, true, PLANS_WORKSPACE_MAX, &convs), PETRA_OK);
    petra_cuda_host_fail("cudnnBackendFinalize", nth, (cudaError_t)CUDNN_STATUS_NOT_SUPPORTED);
    ck_assert_int_eq(convs_check_run(convs, &shape), PETRA_OK);
    ck_assert_int_eq(cuda_convs_find(convs, &shape, &conv), PETRA_OK);
    ck_assert_int_eq(cuda_conv_conversions(conv), 1);
    ck_assert_int_eq(harness_lines, 0);
    petra_cuda_host_fail(NULL, 0, cudaSuccess);
    cuda_convs_destroy(convs);
    convs_end();
  }
}
END_TEST

START_TEST(convs_are_kept) {
  cuda_convs *convs = NULL;
  const cuda_conv *first = NULL, *second = NULL, *again = NULL;
  const cuda_conv_shape one = shape_of(PETRA_PRECISION_TF32), other = shape_of(PETRA_PRECISION_FP32);
  convs_begin(1);
  ck_assert_int_eq(cuda_convs_create(NULL, true, PLANS_WORKSPACE_MAX, &convs), PETRA_OK);
  ck_assert_int_eq(cuda_convs_find(convs, &one, &first), PETRA_OK);
  ck_assert_int_eq(cuda_convs_find(convs, &other, &second), PETRA_OK);
  const int64_t alive = petra_cudnn_fake_alive();
  ck_assert_int_eq(cuda_convs_find(convs, &one, &again), PETRA_OK);
  ck_assert(first == again && first != second && petra_cudnn_fake_alive() == alive);
  /* the handle; for each convolution its tensors, convolution, operation, graph, configuration and itself */
  ck_assert_int_eq(alive, 1 + 2 * 8);
  unsigned found = ~0U;
  ck_assert_int_eq(cuda_conv_notes(first, &found), 0);
  ck_assert_uint_eq(found, CUDA_ENGINE_NOTE_TENSOR_CORES);
  cuda_convs_destroy(convs);
  convs_end();
}
END_TEST

/* --- for which device --- */

START_TEST(without_a_device) {
  cuda_convs *convs = NULL;
  const cuda_conv *conv = NULL;
  const cuda_conv_shape shape = shape_of(PETRA_PRECISION_BF16);
  const cuda_lane lane = {NULL, NULL, PLANS_WORKSPACE_MAX, NULL};
  convs_begin(1);
  petra_cuda_host_devices(0);
  ck_assert_int_eq(cuda_convs_create(NULL, true, PLANS_WORKSPACE_MAX, &convs), PETRA_BACKEND);
  ck_assert_logged("cuDNN: cudnnCreate: CUDNN_STATUS_NOT_INITIALIZED (1001): there is no device");
  ck_assert_int_eq(harness_lines, 1);
  ck_assert_int_eq(cuda_convs_create("properties", true, PLANS_WORKSPACE_MAX, &convs), PETRA_BACKEND);
  ck_assert_logged("cuDNN: reading a device's properties from JSON: CUDNN_STATUS_BAD_PARAM");
  ck_assert_ptr_null(convs);
  ck_assert_int_eq(cuda_convs_create("{}", true, PLANS_WORKSPACE_MAX, &convs), PETRA_OK);
  ck_assert_int_eq(cuda_convs_find(convs, &shape, &conv), PETRA_OK);
  harness_clear();
  ck_assert_int_eq(cuda_conv_run(conv, &lane, NULL, NULL, NULL, NULL), PETRA_INTERNAL);
  ck_assert_logged("made without a device cannot run");
  ck_assert_int_eq(harness_lines, 1);
  cuda_convs_destroy(convs);
  convs_end();
}
END_TEST

/* --- the fake itself: what it could not refuse, no test above would see --- */

static cudnnStatus_t set(cudnnBackendDescriptor_t d, int name, int type, int64_t count, const void *values) {
  return cudnnBackendSetAttribute(d, (cudnnBackendAttributeName_t)name, (cudnnBackendAttributeType_t)type, count,
                                  values);
}

/* --- the fake itself, of graphs with more than a convolution --- */

enum { PIECES = 16 };
typedef struct pieces {
  cudnnBackendDescriptor_t all[PIECES];
  int count;
} pieces;

typedef struct attribute {
  int name, type;
  int64_t count;
  const void *values;
} attribute;

static cudnnBackendDescriptor_t piece(pieces *p, cudnnBackendDescriptorType_t type, const attribute *a, int count,
                                      cudnnStatus_t expected) {
  cudnnBackendDescriptor_t d;
  ck_assert_int_lt(p->count, PIECES);
  ck_assert_int_eq(cudnnBackendCreateDescriptor(type, &d), CUDNN_STATUS_SUCCESS);
  for (int i = 0; i < count; i++)
    ck_assert_int_eq(set(d, a[i].name, a[i].type, a[i].count, a[i].values), CUDNN_STATUS_SUCCESS);
  ck_assert_int_eq(cudnnBackendFinalize(d), expected);
  return p->all[p->count++] = d;
}

/* Of 1 x 1 x 1 x `width`, as all tensors of these graphs. */
static cudnnBackendDescriptor_t tensor(pieces *p, int64_t id, int type, bool inner, int64_t width) {
  const int64_t dims[] = {1, 1, 1, width}, strides[] = {width, 1, width, 1}, alignment = 16;
  const attribute a[] = {{CUDNN_ATTR_TENSOR_UNIQUE_ID, CUDNN_TYPE_INT64, 1, &id},
                         {CUDNN_ATTR_TENSOR_DATA_TYPE, CUDNN_TYPE_DATA_TYPE, 1, &type},
                         {CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT, CUDNN_TYPE_INT64, 1, &alignment},
                         {CUDNN_ATTR_TENSOR_DIMENSIONS, CUDNN_TYPE_INT64, 4, dims},
                         {CUDNN_ATTR_TENSOR_STRIDES, CUDNN_TYPE_INT64, 4, strides},
                         {CUDNN_ATTR_TENSOR_IS_VIRTUAL, CUDNN_TYPE_BOOLEAN, 1, &inner}};
  return piece(p, CUDNN_BACKEND_TENSOR_DESCRIPTOR, a, 6, CUDNN_STATUS_SUCCESS);
}

static cudnnBackendDescriptor_t identity(pieces *p, cudnnBackendDescriptor_t from, cudnnBackendDescriptor_t to,
                                         cudnnStatus_t expected) {
  const int mode = CUDNN_POINTWISE_IDENTITY, type = CUDNN_DATA_FLOAT;
  const attribute what[] = {{CUDNN_ATTR_POINTWISE_MODE, CUDNN_TYPE_POINTWISE_MODE, 1, &mode},
                            {CUDNN_ATTR_POINTWISE_MATH_PREC, CUDNN_TYPE_DATA_TYPE, 1, &type}};
  cudnnBackendDescriptor_t d = piece(p, CUDNN_BACKEND_POINTWISE_DESCRIPTOR, what, 2, CUDNN_STATUS_SUCCESS);
  const attribute a[] = {{CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &d},
                         {CUDNN_ATTR_OPERATION_POINTWISE_XDESC, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &from},
                         {CUDNN_ATTR_OPERATION_POINTWISE_YDESC, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &to}};
  return piece(p, CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR, a, 3, expected);
}

static cudnnBackendDescriptor_t forward(pieces *p, cudnnBackendDescriptor_t x, cudnnBackendDescriptor_t y,
                                        cudnnStatus_t expected) {
  const int64_t rank = 2, ones[] = {1, 1}, none[] = {0, 0};
  const int sums = CUDNN_DATA_FLOAT, mode = CUDNN_CROSS_CORRELATION;
  const float one = 1, zero = 0;
  const attribute c[] = {{CUDNN_ATTR_CONVOLUTION_COMP_TYPE, CUDNN_TYPE_DATA_TYPE, 1, &sums},
                         {CUDNN_ATTR_CONVOLUTION_CONV_MODE, CUDNN_TYPE_CONVOLUTION_MODE, 1, &mode},
                         {CUDNN_ATTR_CONVOLUTION_SPATIAL_DIMS, CUDNN_TYPE_INT64, 1, &rank},
                         {CUDNN_ATTR_CONVOLUTION_DILATIONS, CUDNN_TYPE_INT64, 2, ones},
                         {CUDNN_ATTR_CONVOLUTION_FILTER_STRIDES, CUDNN_TYPE_INT64, 2, ones},
                         {CUDNN_ATTR_CONVOLUTION_PRE_PADDINGS, CUDNN_TYPE_INT64, 2, none},
                         {CUDNN_ATTR_CONVOLUTION_POST_PADDINGS, CUDNN_TYPE_INT64, 2, none}};
  cudnnBackendDescriptor_t w = tensor(p, 2, CUDNN_DATA_BFLOAT16, false, 1);
  cudnnBackendDescriptor_t d = piece(p, CUDNN_BACKEND_CONVOLUTION_DESCRIPTOR, c, 7, CUDNN_STATUS_SUCCESS);
  const attribute a[] = {{CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_CONV_DESC, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &d},
                         {CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_X, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &x},
                         {CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_W, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &w},
                         {CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_Y, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &y},
                         {CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_ALPHA, CUDNN_TYPE_FLOAT, 1, &one},
                         {CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_BETA, CUDNN_TYPE_FLOAT, 1, &zero}};
  return piece(p, CUDNN_BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR, a, 6, expected);
}

static void check_ops(pieces *p, const cudnnBackendDescriptor_t *ops, int count, bool served) {
  const attribute a[] = {{CUDNN_ATTR_OPERATIONGRAPH_OPS, CUDNN_TYPE_BACKEND_DESCRIPTOR, count, ops}};
  piece(p, CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR, a, 1, served ? CUDNN_STATUS_SUCCESS : CUDNN_STATUS_NOT_SUPPORTED);
}

static void drop_pieces(pieces *p) {
  for (int i = 0; i < p->count; i++)
    ck_assert_int_eq(cudnnBackendDestroyDescriptor(p->all[i]), CUDNN_STATUS_SUCCESS);
  p->count = 0;
}

/* An identity from y's place or into x's: `near`, the tensor that the convolution has there, and `far`, the identity's
 * other end. */
typedef struct end {
  int64_t id;
  int type;
  bool inner;
} end;
static void check_end(bool before, end near, end far, cudnnStatus_t convolution, bool served) {
  enum { BF16 = CUDNN_DATA_BFLOAT16 };
  pieces p = {.count = 0};
  cudnnBackendDescriptor_t inside = tensor(&p, near.id, near.type, near.inner, 3),
                           outside = tensor(&p, far.id, far.type, far.inner, 3),
                           other = tensor(&p, before ? 3 : 1, BF16, false, 3);
  cudnnBackendDescriptor_t ops[2];
  ops[0] = forward(&p, before ? inside : other, before ? other : inside, convolution);
  if (convolution == CUDNN_STATUS_SUCCESS) {
    ops[1] = identity(&p, before ? outside : inside, before ? inside : outside, CUDNN_STATUS_SUCCESS);
    check_ops(&p, ops, 2, served);
    if (near.inner)
      check_ops(&p, ops, 1, false); /* what is within the graph alone comes from nowhere */
  }
  drop_pieces(&p);
}

START_TEST(the_fake_refuses_graphs) {
  enum { BF16 = CUDNN_DATA_BFLOAT16, F32 = CUDNN_DATA_FLOAT };
  const cudnnStatus_t fits = CUDNN_STATUS_SUCCESS, types = CUDNN_STATUS_NOT_SUPPORTED_DATA_TYPE;
  convs_begin(1);
  check_end(true, (end){4, BF16, true}, (end){1, F32, false}, fits, true);
  check_end(true, (end){4, BF16, true}, (end){1, BF16, false}, fits, false);
  check_end(true, (end){4, BF16, true}, (end){1, F32, true}, fits, false);
  check_end(true, (end){4, BF16, true}, (end){3, F32, false}, fits, false); /* y's name */
  check_end(true, (end){4, BF16, false}, (end){1, F32, false}, fits, false);
  check_end(true, (end){4, F32, true}, (end){1, F32, false}, types, false);
  check_end(false, (end){5, F32, true}, (end){3, F32, false}, fits, true);
  check_end(false, (end){5, F32, true}, (end){3, BF16, false}, fits, false);
  check_end(false, (end){5, F32, true}, (end){3, F32, true}, fits, false);
  check_end(false, (end){5, F32, true}, (end){2, F32, false}, fits, false); /* w's name */
  check_end(false, (end){5, BF16, true}, (end){3, F32, false}, fits, false);
  check_end(false, (end){5, F32, false}, (end){3, F32, false}, types, false);

  pieces p = {.count = 0};
  cudnnBackendDescriptor_t x = tensor(&p, 1, BF16, false, 3), y = tensor(&p, 3, BF16, false, 3),
                           wide = tensor(&p, 6, F32, false, 4), far = tensor(&p, 7, F32, false, 3);
  identity(&p, y, wide, CUDNN_STATUS_BAD_PARAM_SHAPE_MISMATCH);
  identity(&p, y, y, CUDNN_STATUS_BAD_PARAM);
  cudnnBackendDescriptor_t alone = identity(&p, far, x, fits), conv = forward(&p, x, y, fits);
  const cudnnBackendDescriptor_t twice[] = {conv, conv}, no_operation[] = {conv, x};
  check_ops(&p, &alone, 1, false);
  check_ops(&p, twice, 2, false);
  check_ops(&p, no_operation, 2, false);
  drop_pieces(&p);

  const int modes[] = {CUDNN_POINTWISE_RELU_FWD, CUDNN_POINTWISE_IDENTITY}, precisions[] = {F32, BF16};
  for (int i = 0; i < 2; i++) {
    const attribute what[] = {{CUDNN_ATTR_POINTWISE_MODE, CUDNN_TYPE_POINTWISE_MODE, 1, &modes[i]},
                              {CUDNN_ATTR_POINTWISE_MATH_PREC, CUDNN_TYPE_DATA_TYPE, 1, &precisions[i]}};
    piece(&p, CUDNN_BACKEND_POINTWISE_DESCRIPTOR, what, 2, i == 0 ? CUDNN_STATUS_NOT_SUPPORTED : types);
  }
  drop_pieces(&p);
  convs_end();
}
END_TEST

START_TEST(the_fake_refuses) {
  cudnnBackendDescriptor_t d, heuristics, graph;
  const int64_t dims[] = {1, 2, 3, 4, 5};
  const int type = CUDNN_DATA_FLOAT, mode = CUDNN_HEUR_MODE_A;
  convs_begin(1);
  ck_assert_int_eq(cudnnBackendCreateDescriptor(CUDNN_BACKEND_TENSOR_DESCRIPTOR, &d), CUDNN_STATUS_SUCCESS);
  ck_assert_int_eq(set(d, CUDNN_ATTR_CONVOLUTION_SPATIAL_DIMS, CUDNN_TYPE_INT64, 1, dims), CUDNN_STATUS_BAD_PARAM);
  ck_assert_int_eq(set(d, CUDNN_ATTR_TENSOR_UNIQUE_ID, CUDNN_TYPE_FLOAT, 1, dims), CUDNN_STATUS_NOT_INITIALIZED);
  ck_assert_int_eq(set(d, CUDNN_ATTR_TENSOR_DIMENSIONS, CUDNN_TYPE_INT64, 5, dims),
                   CUDNN_STATUS_BAD_PARAM_OUT_OF_BOUND);
  ck_assert_int_eq(set(d, CUDNN_ATTR_TENSOR_UNIQUE_ID, CUDNN_TYPE_INT64, 1, dims), CUDNN_STATUS_SUCCESS);
  ck_assert_int_eq(set(d, CUDNN_ATTR_TENSOR_DIMENSIONS, CUDNN_TYPE_INT64, 4, dims), CUDNN_STATUS_SUCCESS);
  ck_assert_int_eq(set(d, CUDNN_ATTR_TENSOR_STRIDES, CUDNN_TYPE_INT64, 4, dims), CUDNN_STATUS_SUCCESS);
  ck_assert_int_eq(set(d, CUDNN_ATTR_TENSOR_DATA_TYPE, CUDNN_TYPE_DATA_TYPE, 1, &type), CUDNN_STATUS_SUCCESS);
  ck_assert_int_eq(cudnnBackendFinalize(d), CUDNN_STATUS_BAD_PARAM); /* no alignment */
  char text[128];
  cudnnGetLastErrorString(text, sizeof text);
  ck_assert_msg(strstr(text, "missing") != NULL, "%s", text);
  ck_assert_int_eq(set(d, CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT, CUDNN_TYPE_INT64, 1, &dims[3]), CUDNN_STATUS_SUCCESS);
  ck_assert_int_eq(cudnnBackendFinalize(d), CUDNN_STATUS_SUCCESS);
  ck_assert_int_eq(cudnnBackendFinalize(d), CUDNN_STATUS_BAD_PARAM);
  ck_assert_int_eq(set(d, CUDNN_ATTR_TENSOR_UNIQUE_ID, CUDNN_TYPE_INT64, 1, dims), CUDNN_STATUS_BAD_PARAM);
  ck_assert_int_eq(cudnnBackendCreateDescriptor(CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR, &graph), CUDNN_STATUS_SUCCESS);
  ck_assert_int_eq(cudnnBackendCreateDescriptor(CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR, &heuristics),
                   CUDNN_STATUS_SUCCESS);
  ck_assert_int_eq(set(heuristics, CUDNN_ATTR_ENGINEHEUR_MODE, CUDNN_TYPE_HEUR_MODE, 1, &mode), CUDNN_STATUS_SUCCESS);
  ck_assert_int_eq(set(heuristics, CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &graph),
                   CUDNN_STATUS_BAD_PARAM_NOT_FINALIZED);
  ck_assert_int_eq(set(heuristics, CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &d),
                   CUDNN_STATUS_BAD_PARAM_DESCRIPTOR_TYPE);
  cudnnBackendDescriptor_t *const all[] = {&d, &heuristics, &graph};
  for (int i = 0; i < 3; i++)
    ck_assert_int_eq(cudnnBackendDestroyDescriptor(*all[i]), CUDNN_STATUS_SUCCESS);
  convs_end();
}
END_TEST

int search_tests(const TTest **tests) {
  int count = 0;
  tests[count++] = engines_by_their_notes;
  tests[count++] = tensor_cores_go_first;
  tests[count++] = tensor_cores_go_before_conversions;
  tests[count++] = descriptions;
  tests[count++] = workspace;
  tests[count++] = none_is_left;
  tests[count++] = modes_in_their_order;
  tests[count++] = wide_shapes;
  tests[count++] = wide_graphs_are_chosen_as_others_are;
  tests[count++] = wide_graphs_that_cannot_be_described;
  tests[count++] = convs_are_kept;
  tests[count++] = without_a_device;
  tests[count++] = the_fake_refuses;
  tests[count++] = the_fake_refuses_graphs;
  return count;
}
