/* SPDX-License-Identifier: Apache-2.0 */
/* What cudnn_*.c tell cuDNN, over a fake that does it: values, streams, captures, failures. */
#include "test_cuda_cudnn.h"

#include "base/mem.h"
#include "cuda_host/arithmetic.h"

/* --- the frame --- */

void convs_reset(uint64_t seed) {
  petra_cuda_host_reset();
  petra_cuda_host_seed(seed);
  petra_cudnn_fake_reset();
}

void convs_end(void) {
  petra_cuda_host_counts counts = petra_cuda_host_count();
  ck_assert_int_eq(counts.streams + counts.graphs + counts.graph_execs + counts.queued, 0);
  ck_assert_int_eq(counts.device_allocations, 0);
  ck_assert_int_eq(counts.violations, 0);
  ck_assert_int_eq(petra_cudnn_fake_alive(), 0);
}

cuda_conv_shape convs_shape(cuda_conv_kind kind, petra_precision precision, int n, int c, int h, int w, int o, int kh,
                            int kw, int stride, int pad) {
  return (cuda_conv_shape){(int32_t)kind,
                           (int32_t)precision,
                           n,
                           c,
                           h,
                           w,
                           o,
                           kh,
                           kw,
                           stride,
                           pad,
                           (h + 2 * pad - kh) / stride + 1,
                           (w + 2 * pad - kw) / stride + 1,
                           0,
                           0};
}

/* --- one convolution --- */

enum { X, W, Y, ARRAYS };

typedef struct convolution {
  cuda_conv_shape shape;
  int64_t count[ARRAYS];
  size_t bytes[ARRAYS];
  float *values[ARRAYS]; /* inputs; the output's are what was there */
  void *device[ARRAYS];
  int out;
} convolution;

static void fill(float *values, int64_t count, uint32_t seed) {
  for (int64_t i = 0; i < count; i++)
    values[i] = (float)((int)((seed = seed * 1664525u + 1013904223u) >> 8) - (1 << 23)) / (1 << 22);
}

static bool is_bf16(const convolution *c, int array) {
  const bool wide = array == c->out ? c->shape.wide_out : array == X && c->shape.wide_in;
  return c->shape.precision == PETRA_PRECISION_BF16 && !wide;
}

static void encode(const convolution *c, int array, void *out) {
  for (int64_t i = 0; i < c->count[array]; i++)
    if (is_bf16(c, array))
      ((uint16_t *)out)[i] = host_to_bf16(c->values[array][i]);
    else
      ((float *)out)[i] = c->values[array][i];
}

static void put(convolution *c, uint32_t seed) {
  for (int a = 0; a < ARRAYS; a++) {
    fill(c->values[a], c->count[a], seed + (uint32_t)a);
    if (a == c->out) /* NaN, which no factor of 0 takes away */
      memset(c->device[a], 0xff, c->bytes[a]);
    else
      encode(c, a, c->device[a]);
  }
}

static convolution make(const cuda_conv_shape *s) {
  convolution c = {.shape = *s, .out = s->kind == CUDA_CONV_FORWARD ? Y : s->kind == CUDA_CONV_DATA ? X : W};
  c.count[X] = (int64_t)s->n * s->h * s->w * s->c;
  c.count[W] = (int64_t)s->o * s->kh * s->kw * s->c;
  c.count[Y] = (int64_t)s->n * s->oh * s->ow * s->o;
  for (int a = 0; a < ARRAYS; a++) {
    c.bytes[a] = (size_t)c.count[a] * (is_bf16(&c, a) ? sizeof(uint16_t) : sizeof(float));
    c.values[a] = malloc((size_t)c.count[a] * sizeof(float));
    ck_assert_ptr_nonnull(c.values[a]);
    ck_cuda(cudaMalloc(&c.device[a], c.bytes[a]));
  }
  put(&c, 1);
  return c;
}

static void drop(convolution *c) {
  for (int a = 0; a < ARRAYS; a++) {
    free(c->values[a]);
    ck_cuda(cudaFree(c->device[a]));
  }
}

/* An input as the precision sees it. */
static double seen(const convolution *c, int array, int64_t at) {
  const float value = c->values[array][at];
  const int32_t precision = c->shape.precision;
  return precision == PETRA_PRECISION_TF32   ? host_round_to(value, 10)
         : precision == PETRA_PRECISION_BF16 ? host_round_to(value, 7)
                                             : value;
}

/* The definition: output `at` is the sum over all (image, output, channel, place of the window, element of the
 * filter) that it has a part in, gathered; *size is that of the absolute values. */
static double defined(const convolution *c, int64_t at, double *size) {
  const cuda_conv_shape *s = &c->shape;
  double sum = 0;
  *size = 0;
  const int64_t inner = c->out == Y ? s->o : s->c, channel = at % inner, pixel = at / inner;
  const int64_t width = c->out == X   ? s->w
                        : c->out == W ? s->kw
                                      : s->ow,
                height = c->out == X   ? s->h
                         : c->out == W ? s->kh
                                       : s->oh;
  const int64_t column = pixel % width, row = pixel / width % height, outer = pixel / width / height;
#define EACH(v, size_, here, known)                                                                                    \
  for (int64_t v = (here) ? (known) : 0, v##_end = (here) ? (known) + 1 : (size_); v < v##_end; v++)
  EACH(n, s->n, c->out != W, outer)
  EACH(o, s->o, c->out != X, c->out == Y ? channel : outer)
  EACH(k, s->c, c->out != Y, channel)
  EACH(a, s->kh, c->out == W, row)
  EACH(b, s->kw, c->out == W, column)
  EACH(p, s->oh, c->out == Y, row)
  EACH(q, s->ow, c->out == Y, column) {
    const int64_t i = p * s->stride + a - s->pad, j = q * s->stride + b - s->pad;
    if (i < 0 || j < 0 || i >= s->h || j >= s->w || (c->out == X && (i != row || j != column)))
      continue;
    double product = 1;
    if (c->out != X)
      product *= seen(c, X, ((n * s->h + i) * s->w + j) * s->c + k);
    if (c->out != W)
      product *= seen(c, W, ((o * s->kh + a) * s->kw + b) * s->c + k);
    if (c->out != Y)
      product *= seen(c, Y, ((n * s->oh + p) * s->ow + q) * s->o + o);
    sum += product;
    *size += fabs(product);
  }
#undef EACH
  return sum;
}

/* `rounded`: to bf16, whatever the output's type is. */
static void compare_rounded(const convolution *c, bool rounded) {
  const bool bf16 = is_bf16(c, c->out);
  for (int a = 0; a < ARRAYS; a++) {
    char *was = malloc(c->bytes[a]);
    ck_assert_ptr_nonnull(was);
    encode(c, a, was);
    ck_assert_msg(a == c->out || memcmp(was, c->device[a], c->bytes[a]) == 0, "an input was changed");
    free(was);
  }
  for (int64_t i = 0; i < c->count[c->out]; i++) {
    double size, expected = defined(c, i, &size);
    double found = bf16 ? host_from_bf16(((uint16_t *)c->device[c->out])[i]) : ((float *)c->device[c->out])[i];
    double allowed = size * 1e-12 + fabs(expected) * (rounded ? 0x1p-8 : 0x1p-23);
    bool fits = !rounded || found == host_round_to((float)found, 7);
    if (!fits || !(fabs(found - expected) <= allowed)) /* true for NaN */
      ck_abort_msg("kind %d, precision %d, kernel %dx%d/%d: element %d is %.9g, expected %.9g", c->shape.kind,
                   c->shape.precision, c->shape.kh, c->shape.kw, c->shape.stride, (int)i, found, expected);
  }
}

static void compare(const convolution *c) {
  compare_rounded(c, is_bf16(c, c->out));
}

typedef struct lane_rig {
  cuda_lane lane;
  cudaStream_t stream;
} lane_rig;

static lane_rig lane_make(size_t scratch) {
  lane_rig rig = {{NULL, NULL, scratch, NULL}, NULL};
  ck_cuda(cudaStreamCreateWithFlags(&rig.stream, cudaStreamNonBlocking));
  rig.lane.stream = rig.stream;
  if (scratch > 0)
    ck_cuda(cudaMalloc(&rig.lane.scratch, scratch));
  return rig;
}

static void lane_drop(lane_rig *rig) {
  ck_cuda(cudaStreamDestroy(rig->stream));
  ck_cuda(cudaFree(rig->lane.scratch));
}

petra_status convs_check_run(cuda_convs *convs, const cuda_conv_shape *shape) {
  const cuda_conv *conv = NULL;
  PETRA_TRY(cuda_convs_find(convs, shape, &conv));
  convolution c = make(shape);
  lane_rig rig = lane_make(cuda_conv_workspace(conv)); /* no byte more: the next allocation is guarded */
  petra_status status = cuda_conv_run(conv, &rig.lane, c.device[X], c.device[W], c.device[Y], NULL);
  if (status == PETRA_OK) {
    char text[128];
    cuda_conv_describe(conv, text, sizeof text);
    ck_assert_msg(((unsigned char *)c.device[c.out])[c.bytes[c.out] - 1] == 0xff, "a run does not wait for its stream");
    ck_cuda(cudaStreamSynchronize(rig.stream));
    compare_rounded(&c, is_bf16(&c, c.out) || strstr(text, "widened after") != NULL);
  }
  lane_drop(&rig);
  drop(&c);
  return status;
}

/* --- values --- */

static const petra_precision precisions[] = {PETRA_PRECISION_FP32, PETRA_PRECISION_TF32, PETRA_PRECISION_BF16};

START_TEST(convolutions_are_the_definition) {
  static const int table[][9] = {
      /* n, c, h, w, o, kh, kw, stride, pad */
      {1, 1, 1, 1, 1, 1, 1, 1, 0}, {1, 3, 7, 5, 4, 3, 3, 1, 1},   {2, 3, 9, 8, 5, 7, 7, 2, 3},
      {2, 4, 6, 5, 3, 1, 1, 1, 0}, {3, 4, 6, 5, 3, 1, 1, 2, 0},   {1, 2, 8, 6, 3, 3, 3, 2, 1},
      {2, 2, 5, 6, 3, 3, 3, 1, 0}, {2, 3, 6, 4, 2, 3, 1, 1, 1},   {1, 3, 5, 9, 2, 2, 5, 2, 2},
      {1, 4, 2, 2, 3, 7, 7, 1, 3}, {2, 17, 4, 3, 20, 3, 3, 1, 1}, {1, 2, 3, 4, 2, 1, 1, 1, 1}};
  for (int p = 0; p < HARNESS_COUNT(precisions); p++)
    for (uint64_t seed = 1; seed <= 2; seed++) {
      cuda_convs *convs = NULL;
      convs_begin(seed);
      ck_assert_int_eq(cuda_convs_create(NULL, true, PLANS_WORKSPACE_MAX, &convs), PETRA_OK);
      for (int i = 0; i < HARNESS_COUNT(table); i++)
        for (int kind = CUDA_CONV_FORWARD; kind <= CUDA_CONV_FILTER; kind++) {
          const int *t = table[i];
          const cuda_conv_shape shape =
              convs_shape((cuda_conv_kind)kind, precisions[p], t[0], t[1], t[2], t[3], t[4], t[5], t[6], t[7], t[8]);
          ck_assert_msg(convs_check_run(convs, &shape) == PETRA_OK, "%s", harness_line);
        }
      ck_assert_int_eq(harness_lines, 0);
      cuda_convs_destroy(convs);
      convs_end();
    }
}
END_TEST

/* Wide shapes, all in one graph (-1: as it is at first), rounded before it, or with no conversion in it. */
static const int takes[] = {-1, CUDNN_FAKE_WIDENS, CUDNN_FAKE_ROUNDS, 0};

static void set_takes(int what) {
  static cudnn_fake_engine engines[2];
  engines[0] = (cudnn_fake_engine){.index = 7, .workspace = 100, .per_channel = 8};
  engines[1] = (cudnn_fake_engine){.index = 8, .workspace = 60, .takes = what};
  if (what >= 0)
    petra_cudnn_fake_engines(CUDNN_HEUR_MODE_A, engines, what > 0 ? 2 : 1);
}

static bool make_wide(cuda_conv_shape *shape, int wide) {
  shape->wide_in = wide & 1;
  shape->wide_out = wide >> 1;
  return !(shape->wide_in && shape->kind == CUDA_CONV_DATA);
}

START_TEST(wide_convolutions_are_the_definition) {
  static const int table[][9] = {{1, 1, 1, 1, 1, 1, 1, 1, 0}, {1, 3, 7, 5, 4, 3, 3, 1, 1},
                                 {2, 3, 9, 8, 5, 7, 7, 2, 3}, {3, 4, 6, 5, 3, 1, 1, 2, 0},
                                 {2, 2, 5, 6, 3, 3, 3, 1, 0}, {2, 17, 4, 3, 20, 3, 3, 1, 1}};
  int conversions[3] = {0};
  for (int t = 0; t < HARNESS_COUNT(takes); t++)
    for (unsigned fused = 0; fused < 8; fused += 7) {
      cuda_convs *convs = NULL;
      convs_begin(t + fused);
      set_takes(takes[t]);
      ck_assert_int_eq(cuda_convs_create(NULL, true, PLANS_WORKSPACE_MAX, &convs), PETRA_OK);
      cuda_convs_fuse(convs, fused);
      for (int i = 0; i < HARNESS_COUNT(table); i++)
        for (int k = 0; k < 9; k++) {
          const int *e = table[i];
          const cuda_conv *conv = NULL;
          cuda_conv_shape shape = convs_shape((cuda_conv_kind)(k / 3), PETRA_PRECISION_BF16, e[0], e[1], e[2], e[3],
                                              e[4], e[5], e[6], e[7], e[8]);
          if (!make_wide(&shape, k % 3 + 1))
            continue;
          ck_assert_msg(convs_check_run(convs, &shape) == PETRA_OK, "%s", harness_line);
          ck_assert_int_eq(cuda_convs_find(convs, &shape, &conv), PETRA_OK);
          conversions[cuda_conv_conversions(conv)]++;
        }
      ck_assert_int_eq(harness_lines, 0);
      cuda_convs_destroy(convs);
      convs_end();
    }
  ck_assert(conversions[0] > 0 && conversions[1] > 0 && conversions[2] > 0);
}
END_TEST

/* Two lanes with one handle, in turns: each run is on its own stream. */
START_TEST(each_run_is_on_its_lane) {
  for (uint64_t seed = 1; seed <= 8; seed++) {
    cuda_convs *convs = NULL;
    const cuda_conv *conv = NULL;
    const cuda_conv_shape shape = convs_shape(CUDA_CONV_DATA, PETRA_PRECISION_TF32, 1, 3, 5, 4, 2, 3, 3, 1, 1);
    convs_begin(seed);
    ck_assert_int_eq(cuda_convs_create(NULL, true, PLANS_WORKSPACE_MAX, &convs), PETRA_OK);
    ck_assert_int_eq(cuda_convs_find(convs, &shape, &conv), PETRA_OK);
    convolution c[2] = {make(&shape), make(&shape)};
    lane_rig rig[2] = {lane_make(cuda_conv_workspace(conv)), lane_make(cuda_conv_workspace(conv))};
    for (int i = 0; i < 2; i++)
      ck_assert_int_eq(cuda_conv_run(conv, &rig[i].lane, c[i].device[X], c[i].device[W], c[i].device[Y], NULL),
                       PETRA_OK);
    ck_cuda(cudaStreamSynchronize(rig[seed % 2].stream));
    compare(&c[seed % 2]);
    ck_cuda(cudaStreamSynchronize(rig[1 - seed % 2].stream));
    compare(&c[1 - seed % 2]);
    for (int i = 0; i < 2; i++) {
      lane_drop(&rig[i]);
      drop(&c[i]);
    }
    cuda_convs_destroy(convs);
    convs_end();
  }
}
END_TEST

static void check_captured(const cuda_conv_shape *shape, int conversions) {
  cuda_convs *convs = NULL;
  const cuda_conv *conv = NULL;
  cudaGraph_t graph;
  cudaGraphExec_t exec;
  convs_begin(1);
  ck_assert_int_eq(cuda_convs_create(NULL, true, PLANS_WORKSPACE_MAX, &convs), PETRA_OK);
  ck_assert_int_eq(cuda_convs_find(convs, shape, &conv), PETRA_OK);
  ck_assert_int_eq(cuda_conv_conversions(conv), conversions);
  convolution c = make(shape);
  lane_rig rig = lane_make(cuda_conv_workspace(conv));
  ck_cuda(cudaStreamBeginCapture(rig.stream, cudaStreamCaptureModeGlobal));
  ck_assert_int_eq(cuda_conv_run(conv, &rig.lane, c.device[X], c.device[W], c.device[Y], NULL), PETRA_OK);
  ck_cuda(cudaStreamEndCapture(rig.stream, &graph));
  ck_cuda(cudaGraphInstantiate(&exec, graph, 0));
  for (uint32_t round = 0; round < 3; round++) {
    put(&c, round * 100);
    ck_cuda(cudaGraphLaunch(exec, rig.stream));
    ck_cuda(cudaStreamSynchronize(rig.stream));
    compare_rounded(&c, shape->wide_out);
  }
  ck_cuda(cudaGraphExecDestroy(exec));
  ck_cuda(cudaGraphDestroy(graph));
  lane_drop(&rig);
  drop(&c);
  cuda_convs_destroy(convs);
  convs_end();
}

START_TEST(a_captured_run_runs_at_each_launch) {
  cuda_conv_shape shape = convs_shape(CUDA_CONV_FILTER, PETRA_PRECISION_FP32, 2, 3, 5, 4, 2, 3, 3, 2, 1);
  check_captured(&shape, 0);
  shape.precision = PETRA_PRECISION_BF16, shape.wide_in = 1, shape.wide_out = 1;
  check_captured(&shape, 2);
}
END_TEST

/* --- failures --- */

/* All of a convolution's life while the nth call of `function` fails; whether it came to that call. `wide`: -1, a plain convolution;
 * else of a wide shape, with engines that take that much of it. */
static bool life(const char *function, int nth, cudnnStatus_t error, int wide) {
  cuda_convs *convs = NULL;
  cuda_conv_shape shape = convs_shape(CUDA_CONV_FORWARD, PETRA_PRECISION_FP32, 1, 2, 4, 4, 2, 3, 3, 1, 1);
  convs_begin(1);
  if (wide >= 0) {
    set_takes(wide);
    shape.precision = PETRA_PRECISION_BF16, shape.wide_in = 1, shape.wide_out = 1;
  }
  petra_cuda_host_fail(function, nth, (cudaError_t)error);
  petra_status status = cuda_convs_create(NULL, true, PLANS_WORKSPACE_MAX, &convs);
  if (status == PETRA_OK)
    status = convs_check_run(convs, &shape);
  const bool failed = petra_cuda_host_failed();
  if (status == PETRA_OK) /* the search had another engine */
    ck_assert_int_eq(harness_lines, 0);
  else {
    ck_assert_msg(failed && harness_lines == 1, "%s, call %d: %d lines: %s", function, nth, harness_lines,
                  harness_line);
    ck_assert_logged("cuDNN: ");
    ck_assert_logged(cudnnGetErrorString(error));
    ck_assert_int_eq(status,
                     error == CUDNN_STATUS_INTERNAL_ERROR_HOST_ALLOCATION_FAILED ? PETRA_NO_MEMORY : PETRA_BACKEND);
  }
  petra_cuda_host_fail(NULL, 0, cudaSuccess);
  cuda_convs_destroy(convs);
  convs_end();
  return failed;
}

START_TEST(each_call_that_fails_is_one_line) {
  static const struct {
    const char *function;
    int least; /* calls at least: the test sees them all */
  } functions[] = {{"cudnnCreate", 1},
                   {"cudnnSetStream", 1},
                   {"cudnnBackendCreateDescriptor", 20},
                   {"cudnnBackendSetAttribute", 35},
                   {"cudnnBackendFinalize", 9},
                   {"cudnnBackendGetAttribute", 30},
                   {"cudnnBackendExecute", 1}};
  static const cudnnStatus_t errors[] = {CUDNN_STATUS_INTERNAL_ERROR,
                                         CUDNN_STATUS_INTERNAL_ERROR_HOST_ALLOCATION_FAILED};
  for (int f = 0; f < HARNESS_COUNT(functions); f++)
    for (int e = 0; e < HARNESS_COUNT(errors); e++)
      for (int wide = -1; wide <= (CUDNN_FAKE_ROUNDS | CUDNN_FAKE_WIDENS); wide++) {
        int nth = 1;
        while (life(functions[f].function, nth, errors[e], wide))
          nth++;
        ck_assert_msg(nth > (wide < 0 ? functions[f].least : 1), "%s was called %d times", functions[f].function,
                      nth - 1);
      }
}
END_TEST

START_TEST(a_run_that_cannot_be_queued) {
  cuda_convs *convs = NULL;
  const cuda_conv_shape shape = convs_shape(CUDA_CONV_DATA, PETRA_PRECISION_BF16, 1, 2, 4, 4, 2, 3, 3, 1, 1);
  convs_begin(1);
  ck_assert_int_eq(cuda_convs_create(NULL, true, PLANS_WORKSPACE_MAX, &convs), PETRA_OK);
  petra_cuda_host_fail("petra_cuda_host_call", 1, cudaErrorLaunchFailure);
  ck_assert_int_eq(convs_check_run(convs, &shape), PETRA_BACKEND);
  ck_assert_logged(
      "cuDNN: running a plan: convolution data gradient, x 1x4x4x2, filter 2x3x3x2, stride 1, pad 1, bf16: "
      "CUDNN_STATUS_EXECUTION_FAILED_CUDART (5003): the run cannot be queued");
  ck_assert_int_eq(harness_lines, 1);
  cuda_convs_destroy(convs);
  convs_end();
}
END_TEST

/* Conversions are launches, in the lane's order. */
START_TEST(a_conversion_that_fails) {
  cuda_convs *convs = NULL;
  const cuda_conv *conv = NULL;
  cuda_conv_shape shape = convs_shape(CUDA_CONV_FILTER, PETRA_PRECISION_BF16, 1, 2, 4, 4, 2, 3, 3, 1, 1);
  shape.wide_in = 1, shape.wide_out = 1;
  convs_begin(1);
  ck_assert_int_eq(cuda_convs_create(NULL, true, PLANS_WORKSPACE_MAX, &convs), PETRA_OK);
  ck_assert_int_eq(cuda_convs_find(convs, &shape, &conv), PETRA_OK);
  for (int nth = 1; nth <= 2; nth++) {
    harness_clear();
    petra_cuda_host_fail("petra_cuda_host_launch", nth, cudaErrorInvalidValue);
    ck_assert_int_eq(convs_check_run(convs, &shape), PETRA_BACKEND);
    ck_assert_logged(nth == 1 ? "cuda: to_bf16" : "cuda: from_bf16");
    ck_assert_int_eq(harness_lines, 1);
    petra_cuda_host_fail(NULL, 0, cudaSuccess);
    ck_cuda(cudaDeviceSynchronize());
  }
  cuda_convs_destroy(convs);
  convs_end();
}
END_TEST

START_TEST(too_little_scratch) {
  cuda_convs *convs = NULL;
  const cuda_conv *conv = NULL;
  const cuda_conv_shape shape = convs_shape(CUDA_CONV_DATA, PETRA_PRECISION_TF32, 1, 2, 4, 4, 2, 3, 3, 1, 1);
  convs_begin(1);
  ck_assert_int_eq(cuda_convs_create(NULL, true, PLANS_WORKSPACE_MAX, &convs), PETRA_OK);
  ck_assert_int_eq(cuda_convs_find(convs, &shape, &conv), PETRA_OK);
  const cuda_lane lane = {NULL, NULL, cuda_conv_workspace(conv) - 1, NULL};
  ck_assert_int_eq(cuda_conv_run(conv, &lane, NULL, NULL, NULL, NULL), PETRA_INTERNAL);
  ck_assert_logged("the lane has 1047 bytes of scratch, expected at least 1048: convolution data gradient");
  ck_assert_int_eq(harness_lines, 1);
  cuda_conv_shape wide = convs_shape(CUDA_CONV_FILTER, PETRA_PRECISION_BF16, 1, 2, 4, 4, 2, 3, 3, 1, 1);
  wide.wide_in = 1, wide.wide_out = 1;
  ck_assert_int_eq(cuda_convs_find(convs, &wide, &conv), PETRA_OK); /* 32 and 36 elements */
  harness_clear();
  ck_assert_int_eq(cuda_conv_run(conv, &lane, NULL, NULL, NULL, NULL), PETRA_INTERNAL);
  ck_assert_logged("expected at least 1560: convolution filter gradient, x 1x4x4x2, filter 2x3x3x2, stride 1, pad 1, "
                   "bf16, x f32, output f32");
  cuda_convs_destroy(convs);
  convs_end();
}
END_TEST

static bool refuse_nth(void *context, size_t bytes) {
  (void)bytes;
  return --*(int *)context == 0;
}

START_TEST(memory_that_runs_out) {
  const cuda_conv_shape shape = convs_shape(CUDA_CONV_FORWARD, PETRA_PRECISION_FP32, 1, 2, 4, 4, 2, 3, 3, 1, 1);
  for (int nth = 1, left = 0; left <= 0; nth++) {
    cuda_convs *convs = NULL;
    const cuda_conv *conv = NULL;
    convs_begin(1);
    left = nth;
    petra_mem_set_hook(refuse_nth, &left);
    petra_status status = cuda_convs_create(NULL, true, PLANS_WORKSPACE_MAX, &convs);
    if (status == PETRA_OK)
      status = cuda_convs_find(convs, &shape, &conv);
    petra_mem_set_hook(NULL, NULL);
    ck_assert_int_eq(status, left <= 0 ? PETRA_NO_MEMORY : PETRA_OK);
    ck_assert(left <= 0 || nth > 3); /* the handle, the convolution, the heuristics' results */
    cuda_convs_destroy(convs);
    convs_end();
  }
}
END_TEST

int main(void) {
  const TTest *tests[64];
  int count = search_tests(tests);
  count += measure_tests(tests + count);
  tests[count++] = convolutions_are_the_definition;
  tests[count++] = wide_convolutions_are_the_definition;
  tests[count++] = each_run_is_on_its_lane;
  tests[count++] = a_captured_run_runs_at_each_launch;
  tests[count++] = each_call_that_fails_is_one_line;
  tests[count++] = a_run_that_cannot_be_queued;
  tests[count++] = a_conversion_that_fails;
  tests[count++] = too_little_scratch;
  tests[count++] = memory_that_runs_out;
  return harness_run("cuda_cudnn", tests, count);
}
