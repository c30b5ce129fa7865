/* SPDX-License-Identifier: Apache-2.0 */
/* Convolutions and matrix products of the host: values, scratch, order. */
#include "test_cuda_runtime.h"

#include "backend/cuda/cuda_libraries.h"
#include "cuda_host/arithmetic.h"

static float *device_floats(int64_t count, uint32_t seed) {
  float *values;
  ck_cuda(cudaMalloc((void **)&values, (size_t)count * sizeof *values));
  for (int64_t i = 0; i < count; i++) /* memory of this device can be written from the host */
    values[i] = (float)((int)((seed += 2654435761u) >> 20) - 2048) / 1024;
  return values;
}

static cuda_lane lane_on(cudaStream_t stream, size_t scratch) {
  cuda_lane lane = {.stream = stream, .scratch_bytes = scratch};
  ck_cuda(cudaMalloc(&lane.scratch, scratch));
  memset(lane.scratch, 0, scratch);
  return lane;
}

START_TEST(rounding) {
  ck_assert_float_eq(host_round_to(1.0f + 0x1p-11f, 10), 1.0f);
  ck_assert_float_eq(host_round_to(1.0f + 0x1p-11f + 0x1p-20f, 10), 1.0f + 0x1p-10f);
  ck_assert_float_eq(host_round_to(1.0f + 3 * 0x1p-11f, 10), 1.0f + 0x1p-9f);
  ck_assert_float_eq(host_round_to(-1.0f - 0x1p-8f - 0x1p-20f, 7), -1.0f - 0x1p-7f);
  ck_assert(isnan(host_round_to(NAN, 7)));
  ck_assert_float_eq(host_from_bf16(0xc040), -3.0f);
}
END_TEST

/* The three kinds against the definition, in another order of loops. */
static double expected(const cuda_conv_shape *s, const float *x, const float *w, const float *y, int64_t at) {
  double sum = 0;
  int64_t left = at, c = 0, j = 0, i = 0, n = 0, o = 0, q = 0, p = 0, b = 0, a = 0;
  bool fx = s->kind == CUDA_CONV_DATA, fw = s->kind == CUDA_CONV_FILTER, fy = s->kind == CUDA_CONV_FORWARD;
#define DIGIT(v, size) (v = left % (size), left /= (size))
  if (fx)
    DIGIT(c, s->c), DIGIT(j, s->w), DIGIT(i, s->h), DIGIT(n, s->n);
  if (fw)
    DIGIT(c, s->c), DIGIT(b, s->kw), DIGIT(a, s->kh), DIGIT(o, s->o);
  if (fy)
    DIGIT(o, s->o), DIGIT(q, s->ow), DIGIT(p, s->oh), DIGIT(n, s->n);
#undef DIGIT
#define EACH(v, size, fixed) for (int64_t v##_ = (fixed) ? v : 0; v##_ < ((fixed) ? v + 1 : (size)); v##_++)
  EACH(o, s->o, fw || fy)
  EACH(c, s->c, fw || fx)
  EACH(b, s->kw, fw) EACH(a, s->kh, fw) EACH(n, s->n, fx || fy) EACH(p, s->oh, fy) EACH(q, s->ow, fy) {
    int64_t row = p_ * s->stride + a_ - s->pad, column = q_ * s->stride + b_ - s->pad;
    if (row < 0 || row >= s->h || column < 0 || column >= s->w || (fx && (row != i || column != j)))
      continue;
    double vx = fx ? 1 : x[((n_ * s->h + row) * s->w + column) * s->c + c_];
    double vw = fw ? 1 : w[((o_ * s->kh + a_) * s->kw + b_) * s->c + c_];
    double vy = fy ? 1 : y[((n_ * s->oh + p_) * s->ow + q_) * s->o + o_];
    sum += vx * vw * vy;
  }
#undef EACH
  return sum;
}

static void check_convolution(const cuda_rig *rig, cuda_convs *convs, cuda_conv_shape shape) {
  cuda_lane lane = lane_on(rig->stream[0], 1 << 16);
  int64_t sizes[3] = {(int64_t)shape.n * shape.h * shape.w * shape.c, (int64_t)shape.o * shape.kh * shape.kw * shape.c,
                      (int64_t)shape.n * shape.oh * shape.ow * shape.o};
  float *x = device_floats(sizes[0], 1), *w = device_floats(sizes[1], 2), *y = device_floats(sizes[2], 3);
  const cuda_conv *conv, *again;
  ck_assert_int_eq(cuda_convs_find(convs, &shape, &conv), PETRA_OK);
  ck_assert_int_eq(cuda_convs_find(convs, &shape, &again), PETRA_OK);
  ck_assert_ptr_eq(conv, again);
  ck_assert_uint_gt(cuda_conv_workspace(conv), 0);
  float *out = shape.kind == CUDA_CONV_FORWARD ? y : shape.kind == CUDA_CONV_DATA ? x : w, before = out[0];
  ck_assert_int_eq(cuda_conv_run(conv, &lane, x, w, y, NULL), PETRA_OK);
  ck_assert_float_eq(out[0], before); /* queued */
  ck_cuda(cudaStreamSynchronize(lane.stream));
  for (int64_t i = 0; i < sizes[out == x ? 0 : out == w ? 1 : 2]; i++)
    ck_assert_float_eq_tol(out[i], (float)expected(&shape, x, w, y, i), 1e-5f);
  ck_assert_int_eq(((unsigned char *)lane.scratch)[lane.scratch_bytes - 1], 0xff); /* what it held is lost */
  lane.scratch_bytes = cuda_conv_workspace(conv) - 1;
  ck_assert_int_eq(cuda_conv_run(conv, &lane, x, w, y, NULL), PETRA_INTERNAL);
  ck_assert_logged("bytes of scratch");
  ck_cuda(cudaFree(lane.scratch));
  ck_cuda(cudaFree(x));
  ck_cuda(cudaFree(w));
  ck_cuda(cudaFree(y));
}

START_TEST(convolutions) {
  cuda_rig rig;
  petra_log_set_sink(harness_capture, NULL); /* this file's own */
  rig_begin(&rig, 1);
  cuda_convs *convs;
  const cuda_conv *conv;
  ck_assert_int_eq(cuda_convs_create(NULL, true, 1 << 20, &convs), PETRA_OK);
  for (int32_t kind = CUDA_CONV_FORWARD; kind <= CUDA_CONV_FILTER; kind++) {
    check_convolution(&rig, convs,
                      (cuda_conv_shape){kind, PETRA_PRECISION_FP32, 2, 3, 6, 5, 4, 3, 3, 1, 1, 6, 5, 0, 0});
    check_convolution(&rig, convs,
                      (cuda_conv_shape){kind, PETRA_PRECISION_FP32, 2, 2, 7, 7, 3, 3, 3, 2, 1, 4, 4, 0, 0});
    check_convolution(&rig, convs,
                      (cuda_conv_shape){kind, PETRA_PRECISION_FP32, 1, 2, 6, 6, 3, 1, 1, 2, 0, 3, 3, 0, 0});
  }
  cuda_conv_shape wrong = {CUDA_CONV_FORWARD, PETRA_PRECISION_FP32, 1, 1, 4, 4, 1, 3, 3, 1, 1, 4, 5, 0, 0};
  ck_assert_int_eq(cuda_convs_find(convs, &wrong, &conv), PETRA_UNSUPPORTED);
  ck_assert_logged("y 4 x 5");
  cuda_convs_destroy(convs);
  rig_end(&rig);
}
END_TEST

/* One product of one channel: 1 + 2^-11 is not seen by tf32, and bf16 inputs are 16 bits each. */
START_TEST(precisions_of_convolutions) {
  cuda_rig rig;
  rig_begin(&rig, 1);
  cuda_convs *convs;
  cuda_lane lane = lane_on(rig.stream[0], 1 << 16);
  ck_assert_int_eq(cuda_convs_create(NULL, true, 1 << 20, &convs), PETRA_OK);
  float *x = device_floats(1, 1), *w = device_floats(1, 2), *y = device_floats(1, 3);
  const float results[4] = {3 + 3 * 0x1p-11f, 0, 3, -3};
  for (int precision = PETRA_PRECISION_FP32; precision <= HOST_BF16; precision++) {
    const cuda_conv *conv;
    cuda_conv_shape shape = {CUDA_CONV_FORWARD, precision, 1, 1, 1, 1, 1, 1, 1, 1, 0, 1, 1, 0, 0};
    *x = 1 + 0x1p-11f;
    *w = 3;
    if (precision == HOST_BF16) {
      memcpy(x, &(uint16_t){0x3f80}, 2);
      memcpy(w, &(uint16_t){0xc040}, 2);
    }
    petra_status status = cuda_convs_find(convs, &shape, &conv);
    ck_assert_int_eq(status, precision == PETRA_PRECISION_FP64 ? PETRA_UNSUPPORTED : PETRA_OK);
    if (status != PETRA_OK)
      continue;
    ck_assert_int_eq(cuda_conv_run(conv, &lane, x, w, y, NULL), PETRA_OK);
    ck_cuda(cudaStreamSynchronize(lane.stream));
    ck_assert_float_eq(precision == HOST_BF16 ? host_from_bf16(*(uint16_t *)y) : *y, results[precision]);
  }
  /* x in float is rounded as it is read, a sum in float is not; no other precision has either, nor a data gradient x */
  cuda_conv_shape wide = {CUDA_CONV_FORWARD, HOST_BF16, 1, 1, 1, 1, 1, 1, 1, 1, 0, 1, 1, 1, 1};
  const cuda_conv *conv;
  *x = 1 + 0x1p-7f + 0x1p-11f;
  memcpy(w, &(uint16_t){0x3f81}, 2);
  ck_assert_int_eq(cuda_convs_find(convs, &wide, &conv), PETRA_OK);
  ck_assert_int_eq(cuda_conv_run(conv, &lane, x, w, y, NULL), PETRA_OK);
  ck_cuda(cudaStreamSynchronize(lane.stream));
  ck_assert_float_eq(*y, 1 + 0x1p-6f + 0x1p-14f);
  wide.precision = PETRA_PRECISION_FP32;
  ck_assert_int_eq(cuda_convs_find(convs, &wide, &conv), PETRA_UNSUPPORTED);
  wide.precision = HOST_BF16, wide.kind = CUDA_CONV_DATA;
  ck_assert_int_eq(cuda_convs_find(convs, &wide, &conv), PETRA_UNSUPPORTED);
  cuda_convs_destroy(convs);
  float *all[3] = {x, w, y};
  for (int i = 0; i < 3; i++)
    ck_cuda(cudaFree(all[i]));
  ck_cuda(cudaFree(lane.scratch));
  rig_end(&rig);
}
END_TEST

START_TEST(products) {
  cuda_rig rig;
  rig_begin(&rig, 1);
  enum { M = 3, N = 4, K = 5 };
  cuda_lane lane = lane_on(rig.stream[0], CUDA_BLAS_SCRATCH);
  cuda_blas *blas;
  float *a = device_floats(M * K, 1), *b = device_floats(K * N, 2), *c = device_floats(M * N, 3), old[M * N];
  ck_assert_int_eq(cuda_blas_create(PETRA_PRECISION_FP64, &blas), PETRA_UNSUPPORTED);
  for (int variant = 0; variant < 24; variant++) {
    const petra_precision precision =
        variant < 8 ? PETRA_PRECISION_FP32 : (petra_precision)(variant < 16 ? HOST_TF32 : HOST_BF16);
    const int bits = variant < 8 ? 23 : variant < 16 ? 10 : 7;
    ck_assert_int_eq(cuda_blas_create(precision, &blas), PETRA_OK);
    cuda_product product = {a, b, c, M, N, K, variant & 1, variant & 2, variant & 1 ? -1 : 1, variant & 4 ? 0.5f : 0};
    memcpy(old, c, sizeof old);
    if (!(variant & 4))
      c[0] = NAN; /* beta 0 does not read c */
    ck_assert_int_eq(cuda_blas_product(blas, &lane, &product), PETRA_OK);
    ck_cuda(cudaStreamSynchronize(lane.stream));
    for (int i = 0; i < M * N; i++) {
      double sum = (double)product.beta * old[i];
      for (int k = 0; k < K; k++) {
        float left = variant & 1 ? a[k * M + i / N] : a[i / N * K + k],
              right = variant & 2 ? b[i % N * K + k] : b[k * N + i % N];
        sum += (double)product.alpha * (bits < 23 ? host_round_to(left, bits) : left) *
               (bits < 23 ? host_round_to(right, bits) : right);
      }
      ck_assert_float_eq_tol(c[i], (float)sum, 1e-5f);
    }
    cuda_blas_destroy(blas);
  }
  ck_assert_int_eq(((unsigned char *)lane.scratch)[CUDA_BLAS_SCRATCH - 1], 0xff);
  float *all[3] = {a, b, c};
  for (int i = 0; i < 3; i++)
    ck_cuda(cudaFree(all[i]));
  ck_cuda(cudaFree(lane.scratch));
  rig_end(&rig);
}
END_TEST

int library_tests(const TTest **tests) {
  int count = 0;
  tests[count++] = rounding;
  tests[count++] = convolutions;
  tests[count++] = precisions_of_convolutions;
  tests[count++] = products;
  return count;
}
