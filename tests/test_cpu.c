/* SPDX-License-Identifier: Apache-2.0 */
/* What is the `cpu` backend's own: blocked layouts, the cache of oneDNN's primitives, the handle. That its operations
 * are right is tested by the table of cases (test_backend). Run also with oneDNN held to AVX2 (tests/test_cpu_avx2),
 * where the blocks are 8 wide. */
#include "harness.h"

#include "backend/ops.h"

#include <math.h>

static petra_backend *backend;

#define must(call) ck_assert_int_eq((call), PETRA_OK)

static petra_tensor *make(petra_tensor_kind kind, int a, int b, int c, int d) {
  const int32_t shape[4] = {a, b, c, d};
  petra_tensor *t;
  must(petra_tensor_create(backend, kind, shape, NULL, PETRA_MEMORY_WORKSPACE, &t));
  return t;
}

static uint32_t random_state;

static float next_random(void) { /* -1 .. 1 */
  random_state = random_state * 1664525u + 1013904223u;
  return (float)((double)(random_state >> 8) / 8388608.0 - 1);
}

static petra_tensor *randomised(petra_tensor *t) {
  float *host = malloc((size_t)t->elements * sizeof *host);
  for (int64_t i = 0; i < t->elements; i++)
    host[i] = next_random();
  must(petra_op_upload(backend, t, host, PETRA_HOST_F32));
  free(host);
  return t;
}

static petra_tensor *activation(int n, int c, int h, int w) {
  return randomised(make(PETRA_TENSOR_ACTIVATION, n, c, h, w));
}

static petra_tensor *vector(int n) {
  return make(PETRA_TENSOR_VECTOR, n, 1, 1, 1);
}

static void release(petra_tensor *t) {
  petra_tensor_release(&t);
}

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

static uint32_t hash_of(uint32_t hash, const petra_tensor *t) {
  for (size_t k = 0; k < t->bytes; k++)
    hash = hash * 31 + ((const unsigned char *)t->data)[k];
  return hash;
}

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
  must(petra_op_conv_backward_data(backend, &g, dy, w, dx));
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
  must(petra_op_conv_backward_data(backend, &g, dx, w, y));
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

/* --- bf16 --- */

/* What reads weights, a filter or a matrix, in both directions. */
typedef struct weight_reader {
  petra_tensor_kind kind;
  petra_tensor *x, *y, *dy, *dx;
} weight_reader;

static const petra_conv_geometry reader_geometry = {1, 1};

static petra_tensor *weights_for(const weight_reader *r) {
  return r->kind == PETRA_TENSOR_FILTER ? make(r->kind, 32, 32, 3, 3) : make(r->kind, 64, 64, 1, 1);
}

static petra_tensor *operand_for(const weight_reader *r) {
  return r->kind == PETRA_TENSOR_FILTER ? make(PETRA_TENSOR_INNER, 2, 32, 8, 8)
                                        : make(PETRA_TENSOR_INNER_SEQUENCE, 2, 5, 64, 1);
}

/* A hash of what comes out. */
static uint32_t read_weights(const weight_reader *r, const petra_tensor *w) {
  if (r->kind == PETRA_TENSOR_FILTER) {
    must(petra_op_conv_forward(backend, &reader_geometry, r->x, w, r->y));
    must(petra_op_conv_backward_data(backend, &reader_geometry, r->dy, w, r->dx));
  } else {
    must(petra_op_linear_forward(backend, &(petra_linear_forward){.x = r->x, .w = w, .y = r->y}));
    must(petra_op_linear_backward_data(backend, r->dy, w, r->dx));
  }
  return hash_of(hash_of(0, r->y), r->dx);
}

enum { WRITERS = 11 };

/* Writes w through one of the operations that write weights; `state`: two tensors like it. */
static void write_weights(int writer, petra_tensor *w, petra_tensor *other, petra_tensor *const state[2],
                          const weight_reader *r) {
  const double decay = 0.5;
  const petra_sgd_step sgd = {1, &w, &state[0], &other, &decay, 0.25, 0.5, false, true};
  const petra_adam_step adam = {1, &w, &state[0], &state[1], &other, &decay, 0.9, 0.99, 1e-3, 0.25, 0.1, 0.9, 1};
  const petra_lion_step lion = {1, &w, &state[0], &other, &decay, 0.9, 0.99, 0.25};
  switch (writer) {
  case 0:
    randomised(w);
    break;
  case 1:
    must(petra_op_copy(backend, other, w));
    break;
  case 2:
    must(petra_op_fill(backend, w, 0.75));
    break;
  case 3:
    must(petra_op_axpy(backend, 0.5, other, w));
    break;
  case 4:
    must(petra_op_add(backend, w, other, w));
    break;
  case 5:
    must(petra_op_scale(backend, 0.5, w));
    break;
  case 6:
    must(petra_op_sgd_step(backend, &sgd));
    break;
  case 7:
    must(petra_op_fill(backend, state[1], 0.5)); /* squares */
    must(petra_op_adam_step(backend, &adam));
    break;
  case 8:
    must(petra_op_lion_step(backend, &lion));
    break;
  case 9: {
    const int rows = w->shape[0], columns = (int)(w->elements / rows);
    petra_tensor *work[] = {make(PETRA_TENSOR_MATRIX, rows, columns, 1, 1),
                            make(PETRA_TENSOR_MATRIX, rows, columns, 1, 1)};
    petra_tensor *gram[] = {make(PETRA_TENSOR_MATRIX, rows, rows, 1, 1), make(PETRA_TENSOR_MATRIX, rows, rows, 1, 1)};
    must(petra_op_orthogonalize(backend, &(petra_orthogonalize){other, w, {work[0], work[1]}, {gram[0], gram[1]}}));
    for (int i = 0; i < 2; i++) {
      release(work[i]);
      release(gram[i]);
    }
    break;
  }
  default:
    if (r->kind == PETRA_TENSOR_FILTER)
      must(petra_op_conv_backward_filter(backend, &reader_geometry, r->x, r->dy, w));
    else
      must(petra_op_linear_backward_weights(backend, r->x, r->dy, w, NULL));
  }
}

/* Weights in bf16 are kept as what reads them wants them. Whatever writes them, it then reads what was written: the results are
 * those of weights that were never read before. */
static void check_writers(petra_tensor_kind kind) {
  weight_reader r = {.kind = kind};
  random_state = 3;
  r.x = randomised(operand_for(&r));
  r.dy = randomised(operand_for(&r));
  r.y = operand_for(&r);
  r.dx = operand_for(&r);
  petra_tensor *w = randomised(weights_for(&r)), *other = randomised(weights_for(&r));
  petra_tensor *state[] = {weights_for(&r), weights_for(&r)};
  const int64_t held = petra_backend_held(backend).filters;
  float *host = malloc((size_t)w->elements * sizeof *host);
  for (int writer = 0; writer < WRITERS; writer++) {
    const uint32_t before = read_weights(&r, w);
    write_weights(writer, w, other, state, &r);
    const uint32_t found = read_weights(&r, w);
    ck_assert_uint_ne(found, before);
    petra_tensor *fresh = weights_for(&r);
    must(petra_op_download(backend, w, host, PETRA_HOST_F32));
    must(petra_op_upload(backend, fresh, host, PETRA_HOST_F32));
    ck_assert_msg(read_weights(&r, fresh) == found, "weights of kind %d were read as they were before writer %d",
                  (int)kind, writer);
    release(fresh);
  }
  /* w and the fresh one, whose storage came again from the pool, in both directions, two bytes an element */
  ck_assert_int_eq(petra_backend_held(backend).filters - held, 2 * 2 * 2 * w->elements);
  petra_tensor *all[] = {r.x, r.y, r.dy, r.dx, w, other, state[0], state[1]};
  for (int i = 0; i < HARNESS_COUNT(all); i++)
    release(all[i]);
  free(host);
}

START_TEST(weights_are_never_out_of_date) {
  petra_backend *kept = backend;
  if (petra_backend_create(PETRA_BACKEND_CPU, PETRA_PRECISION_BF16, 2, true, &backend) != PETRA_OK) {
    ck_assert_logged("needs a processor with AVX512-BF16 or AMX-BF16");
    backend = kept;
    return;
  }
  check_writers(PETRA_TENSOR_FILTER);
  check_writers(PETRA_TENSOR_MATRIX);
  petra_backend_destroy(backend);
  backend = kept;
}
END_TEST

/* A linear map in bf16 that is added to a stream or subtracted from it, with its bias, is the map alone, in float, and one addition or
 * subtraction: reconstruction takes away what was added. */
START_TEST(sums_round_once) {
  enum { N = 2, T = 35, IN = 65, OUT = 100, COUNT = N * T * OUT };
  petra_backend *kept = backend;
  if (petra_backend_create(PETRA_BACKEND_CPU, PETRA_PRECISION_BF16, 2, true, &backend) != PETRA_OK) {
    ck_assert_logged("needs a processor with AVX512-BF16 or AMX-BF16");
    backend = kept;
    return;
  }
  random_state = 5;
  petra_tensor *x = randomised(make(PETRA_TENSOR_INNER_SEQUENCE, N, T, IN, 1));
  petra_tensor *w = randomised(make(PETRA_TENSOR_MATRIX, OUT, IN, 1, 1)), *b = randomised(vector(OUT));
  petra_tensor *addend = randomised(make(PETRA_TENSOR_SEQUENCE, N, T, OUT, 1));
  petra_tensor *y = make(PETRA_TENSOR_SEQUENCE, N, T, OUT, 1);
  float *before = malloc(COUNT * sizeof *before), *alone = malloc(COUNT * sizeof *alone);
  float *found = malloc(COUNT * sizeof *found);
  for (int biased = 0; biased < 2; biased++) {
    petra_linear_forward f = {.x = x, .w = w, .b = biased ? b : NULL, .y = y};
    must(petra_op_linear_forward(backend, &f));
    must(petra_op_download(backend, y, alone, PETRA_HOST_F32));
    for (int subtracts = 0; subtracts < 2; subtracts++)
      for (int aliased = 0; aliased < 2; aliased++) {
        must(petra_op_download(backend, addend, before, PETRA_HOST_F32));
        f.join = subtracts ? PETRA_JOIN_SUBTRACT : PETRA_JOIN_ADD;
        f.addend = addend;
        f.y = aliased ? addend : y;
        must(petra_op_linear_forward(backend, &f));
        must(petra_op_download(backend, f.y, found, PETRA_HOST_F32));
        for (int i = 0; i < COUNT; i++) {
          const float expected = subtracts ? before[i] - alone[i] : before[i] + alone[i];
          ck_assert_msg(found[i] == expected, "bias %d, subtracts %d, in place %d: [%d] = %.9g, expected %.9g", biased,
                        subtracts, aliased, i, (double)found[i], (double)expected);
        }
      }
  }
  petra_tensor *all[] = {x, w, b, addend, y};
  for (int i = 0; i < HARNESS_COUNT(all); i++)
    release(all[i]);
  free(before);
  free(alone);
  free(found);
  petra_backend_destroy(backend);
  backend = kept;
}
END_TEST

/* Activations become inner tensors by rounding to nearest, ties to even. */
START_TEST(rounding_to_bf16) {
  enum { N = 8 };
  static const float given[N] = {1 + 0x1p-8f,     1 + 0x3p-8f, 1 + 0x1.02p-8f, -1 - 0x1p-8f,
                                 0x1.fffffep127f, INFINITY,    0x1p-133f,      -0.0f};
  static const float expected[N] = {1, 1 + 0x1p-6f, 1 + 0x1p-7f, -1, INFINITY, INFINITY, 0x1p-133f, -0.0f};
  petra_backend *kept = backend;
  float found[N];
  if (petra_backend_create(PETRA_BACKEND_CPU, PETRA_PRECISION_BF16, 1, true, &backend) != PETRA_OK) {
    ck_assert_logged("needs a processor with AVX512-BF16 or AMX-BF16");
    backend = kept;
    return;
  }
  petra_tensor *x = make(PETRA_TENSOR_ACTIVATION, 1, N, 1, 1), *y = make(PETRA_TENSOR_INNER, 1, N, 1, 1);
  for (int copied = 0; copied < 2; copied++) {
    must(petra_op_upload(backend, copied ? x : y, given, PETRA_HOST_F32));
    if (copied)
      must(petra_op_copy(backend, x, y));
    must(petra_op_download(backend, y, found, PETRA_HOST_F32));
    ck_assert_mem_eq(found, expected, sizeof found);
  }
  must(petra_op_copy(backend, y, x)); /* and back, without a loss */
  must(petra_op_download(backend, x, found, PETRA_HOST_F32));
  ck_assert_mem_eq(found, expected, sizeof found);
  release(x);
  release(y);
  petra_backend_destroy(backend);
  backend = kept;
}
END_TEST

START_TEST(handle) {
  char text[512];
  backend->ops->describe(backend, text, sizeof text);
  ck_assert_ptr_nonnull(strstr(text, "oneDNN "));
  ck_assert_ptr_nonnull(strstr(text, "2 threads"));
  /* oneDNN 3 names the instructions of later processors avx10_1_512. */
  ck_assert_int_eq(strstr(text, "avx512_core") || strstr(text, "avx10_1_512") ? 16 : 8, width);
}
END_TEST

int main(void) {
  const TTest *const tests[] = {
      layouts,         primitives_are_found_again, same_to_the_bit, weights_are_never_out_of_date,
      sums_round_once, rounding_to_bf16,           handle};
  if (petra_backend_create(PETRA_BACKEND_CPU, PETRA_PRECISION_FP32, 2, true, &backend) != PETRA_OK)
    return EXIT_FAILURE;
  petra_tensor *two = make(PETRA_TENSOR_ACTIVATION, 1, 2, 1, 1);
  width = (int)(two->bytes / sizeof(float));
  release(two);
  int result = harness_run("cpu", tests, HARNESS_COUNT(tests));
  petra_backend_destroy(backend);
  return result;
}
