/* SPDX-License-Identifier: Apache-2.0 */
/* What is the `cpu` backend's own: blocked layouts, the cache of oneDNN's primitives, the handle. That its operations
 * are right is tested by the table of cases (test_backend). Run also with oneDNN held to AVX2 and to AVX
 * (tests/test_cpu_avx2), where the blocks are 8 wide and 1. */
#include "base/threads.h"
#include "cpu_tensors.h"

/* --- layouts, as cpu.h has them --- */

static int width; /* channels of a block */

static int block_of(int channels) {
  return channels == 3 ? 1 : width;
}

static int blocks(int count, int block) {
  return (count + block - 1) / block;
}

/* Where (a, b, p) of a tensor of (A, B, P) lies, P being the pixels or taps; *floats: all that are stored. */
static int place(const petra_tensor *t, int a, int b, int p, int pixels, int *floats) {
  const int rows = t->shape[0], columns = t->shape[1];
  int in = block_of(columns);
  if (t->kind == PETRA_TENSOR_ACTIVATION) { /* (N, C / block, H, W, block) */
    *floats = rows * blocks(columns, in) * in * pixels;
    return ((a * blocks(columns, in) + b / in) * pixels + p) * in + b % in;
  }
  if (t->kind == PETRA_TENSOR_FILTER) { /* (O / out, I / in, KH, KW, in, out); of images: in = I */
    const int out = block_of(rows);
    if (out > 1 && in == 1)
      in = columns;
    *floats = blocks(rows, out) * blocks(columns, in) * pixels * in * out;
    return (((a / out * blocks(columns, in) + b / in) * pixels + p) * in + b % in) * out + a % out;
  }
  *floats = t->kind == PETRA_TENSOR_VECTOR ? blocks(rows, 16) * 16 : rows * columns;
  return a * columns + b;
}

/* Numbers from 1 go where the layout has them, all else is 0, and they come back the same. */
static void check_layout(petra_tensor_kind kind, int rows, int columns, int h, int w) {
  petra_tensor *t = make(kind, rows, columns, h, w);
  float *host = malloc((size_t)t->elements * sizeof *host), *back = malloc((size_t)t->elements * sizeof *back);
  const float *stored = t->data;
  int floats = 0, used = 0;
  for (int64_t e = 0; e < t->elements; e++)
    host[e] = (float)(e + 1);
  must(petra_op_fill(backend, t, 7)); /* leaves zeros in the padding */
  must(petra_op_upload(backend, t, host, PETRA_HOST_F32));
  for (int e = 0; e < t->elements; e++) {
    const int at = place(t, e / (h * w) / columns, e / (h * w) % columns, e % (h * w), h * w, &floats);
    ck_assert_msg(stored[at] == host[e], "kind %d (%d, %d, %d, %d): element %d is not at %d", (int)kind, rows, columns,
                  h, w, e, at);
  }
  ck_assert_uint_eq(t->bytes, (size_t)floats * sizeof(float));
  for (int i = 0; i < floats; i++)
    used += stored[i] != 0;
  ck_assert_int_eq(used, t->elements);
  must(petra_op_download(backend, t, back, PETRA_HOST_F32));
  ck_assert_mem_eq(host, back, (size_t)t->elements * sizeof *back);
  free(host);
  free(back);
  release(t);
}

START_TEST(layouts) {
  static const int channels[] = {1, 2, 3, 4, 8, 16, 17, 20, 32, 40};
  for (int i = 0; i < HARNESS_COUNT(channels); i++) {
    check_layout(PETRA_TENSOR_ACTIVATION, 3, channels[i], 5, 7);
    check_layout(PETRA_TENSOR_MATRIX, 3, channels[i], 1, 1);
    check_layout(PETRA_TENSOR_VECTOR, channels[i], 1, 1, 1);
    for (int k = 0; k < HARNESS_COUNT(channels); k++)
      check_layout(PETRA_TENSOR_FILTER, channels[k], channels[i], 3, 2);
  }
  petra_tensor *mask = make(PETRA_TENSOR_MASK, 3, 17, 5, 7); /* laid out as its activation, one byte an element */
  ck_assert_uint_eq(mask->bytes, (size_t)(3 * blocks(17, width) * width * 35));
  release(mask);
}
END_TEST

/* --- the cache of primitives --- */

typedef struct conv_case {
  int n, in, h, w, out, kernel, stride, pad;
} conv_case;

/* Neighbours differ in one of the things that a primitive is made for; the last three have the same shapes. */
static const conv_case conv_cases[] = {
    {2, 16, 8, 6, 16, 3, 1, 1}, {3, 16, 8, 6, 16, 3, 1, 1}, {3, 20, 8, 6, 16, 3, 1, 1}, {3, 20, 6, 8, 16, 3, 1, 1},
    {3, 20, 6, 8, 40, 3, 1, 1}, {3, 20, 6, 8, 40, 1, 1, 0}, {3, 20, 6, 8, 40, 1, 2, 0}, {3, 20, 6, 8, 40, 1, 2, 1},
    {3, 3, 6, 8, 40, 7, 2, 3},  {3, 3, 6, 8, 3, 7, 2, 3},   {3, 20, 5, 5, 40, 1, 4, 0}, {3, 20, 5, 5, 40, 1, 4, 1},
    {3, 20, 5, 5, 40, 1, 3, 0}};

/* A hash of the results of the three convolutions. */
static uint32_t convolve(const conv_case *c) {
  const int oh = (c->h + 2 * c->pad - c->kernel) / c->stride + 1, ow = (c->w + 2 * c->pad - c->kernel) / c->stride + 1;
  const petra_conv_geometry g = {c->stride, c->pad};
  random_state = 7;
  petra_tensor *x = activation(c->n, c->in, c->h, c->w), *dy = activation(c->n, c->out, oh, ow);
  petra_tensor *w = randomised(make(PETRA_TENSOR_FILTER, c->out, c->in, c->kernel, c->kernel));
  petra_tensor *y = make(PETRA_TENSOR_ACTIVATION, c->n, c->out, oh, ow);
  petra_tensor *dx = make(PETRA_TENSOR_ACTIVATION, c->n, c->in, c->h, c->w);
  petra_tensor *dw = make(PETRA_TENSOR_FILTER, c->out, c->in, c->kernel, c->kernel);
  must(petra_op_conv_forward(backend, &g, x, w, y));
  must(petra_op_conv_backward_data(backend, &g, dy, w, NULL, dx));
  must(petra_op_conv_backward_filter(backend, &g, x, dy, dw));
  const uint32_t hash = hash_of(hash_of(hash_of(0, y), dx), dw);
  petra_tensor *all[] = {x, dy, w, y, dx, dw};
  for (int i = 0; i < HARNESS_COUNT(all); i++)
    release(all[i]);
  return hash;
}

/* A primitive that is found is the one that was asked for: after all others, and in a handle that has no other, the
 * results are the same. */
START_TEST(primitives_are_found_again) {
  uint32_t first[HARNESS_COUNT(conv_cases)];
  petra_backend *kept = backend;
  for (int i = 0; i < HARNESS_COUNT(conv_cases); i++)
    first[i] = convolve(&conv_cases[i]);
  for (int i = 0; i < HARNESS_COUNT(conv_cases); i++) {
    ck_assert_uint_eq(convolve(&conv_cases[i]), first[i]);
    must(petra_backend_create(PETRA_BACKEND_CPU, PETRA_PRECISION_FP32, 2, true, &backend));
    ck_assert_uint_eq(convolve(&conv_cases[i]), first[i]);
    petra_backend_destroy(backend);
    backend = kept;
  }
}
END_TEST

/* --- the handle --- */

/* A hash of the results of conv, norm and dot at a size where all threads work. */
static uint32_t run_once(void) {
  random_state = 99;
  petra_conv_geometry g = {1, 1};
  petra_tensor *x = activation(8, 32, 16, 16), *y = activation(8, 32, 16, 16), *dx = activation(8, 32, 16, 16);
  petra_tensor *w = randomised(make(PETRA_TENSOR_FILTER, 32, 32, 3, 3)), *dw = make(PETRA_TENSOR_FILTER, 32, 32, 3, 3);
  petra_tensor *v[6];
  for (int i = 0; i < 6; i++)
    v[i] = randomised(vector(32));
  double dot;
  must(petra_op_conv_forward(backend, &g, x, w, y));
  petra_norm_forward f = {.x = y, .scale = v[0], .shift = v[1], .relu = true, .y = dx, .mean = v[2], .variance = v[3]};
  must(petra_op_norm_forward(backend, &f));
  petra_norm_backward b = {.x = y,
                           .scale = v[0],
                           .shift = v[1],
                           .mean = v[2],
                           .variance = v[3],
                           .relu = true,
                           .dy = x,
                           .dx = dx,
                           .dscale = v[4],
                           .dshift = v[5]};
  must(petra_op_norm_backward(backend, &b));
  must(petra_op_conv_backward_filter(backend, &g, x, dx, dw));
  must(petra_op_conv_backward_data(backend, &g, dx, w, NULL, y));
  must(petra_op_dot(backend, y, dx, &dot));
  uint32_t hash = 0;
  petra_tensor *all[] = {y, dx, dw, v[4], v[5], x, w, v[0], v[1], v[2], v[3]};
  for (int i = 0; i < 5; i++)
    hash = hash_of(hash, all[i]);
  for (size_t k = 0; k < sizeof dot; k++)
    hash = hash * 31 + ((unsigned char *)&dot)[k];
  for (int i = 0; i < 11; i++)
    release(all[i]);
  return hash;
}

START_TEST(same_to_the_bit) {
  uint32_t first = run_once();
  for (int i = 0; i < 5; i++)
    ck_assert_uint_eq(run_once(), first);
  petra_backend *other, *kept = backend; /* and with another handle's primitives */
  must(petra_backend_create(PETRA_BACKEND_CPU, PETRA_PRECISION_FP32, 2, true, &other));
  backend = other;
  ck_assert_uint_eq(run_once(), first);
  backend = kept;
  petra_backend_destroy(other);
}
END_TEST

START_TEST(handle) {
  char text[512];
  backend->ops->describe(backend, text, sizeof text);
  ck_assert_ptr_nonnull(strstr(text, "oneDNN "));
  ck_assert_ptr_nonnull(strstr(text, petra_threads_openmp() ? " OpenMP, 2 threads" : "no OpenMP, 1 thread"));
  /* oneDNN 3 names the instructions of later processors avx10_1_512. */
  const bool wide = strstr(text, "ISA avx512_core") || strstr(text, "ISA avx10_1_512");
  ck_assert_int_eq(wide ? 16 : strstr(text, "ISA avx2") ? 8 : 1, width);
}
END_TEST

int main(void) {
  const TTest *const tests[] = {layouts, primitives_are_found_again, same_to_the_bit, handle};
  if (petra_backend_create(PETRA_BACKEND_CPU, PETRA_PRECISION_FP32, 2, true, &backend) != PETRA_OK)
    return EXIT_FAILURE;
  petra_tensor *one = make(PETRA_TENSOR_ACTIVATION, 1, 1, 1, 1);
  width = (int)(one->bytes / sizeof(float));
  release(one);
  int result = harness_run("cpu", tests, HARNESS_COUNT(tests));
  petra_backend_destroy(backend);
  return result;
}
