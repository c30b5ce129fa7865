/* SPDX-License-Identifier: Apache-2.0 */
/* bf16 of the `cpu` backend: its copies of weights are never out of date, sums with a stream round once, numbers are rounded to nearest, ties
 * to even. What it means for a training is tested by test_precision. */
#include "cpu_tensors.h"

#include <math.h>

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
    must(petra_op_conv_backward_data(backend, &reader_geometry, r->dy, w, NULL, r->dx));
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
  const petra_adam_step lion = {.count = 1,
                                .parameters = &w,
                                .means = &state[0],
                                .gradients = &other,
                                .weight_decay = &decay,
                                .beta1 = 0.9,
                                .beta2 = 0.99,
                                .lr = 0.25};
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
    must(petra_op_adam_step(backend, &lion));
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
  const int64_t held = petra_backend_memory_in_use(backend).filters;
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
  /* w and the fresh one, whose storage came again from the pool, in both directions, two bytes an element. The layout that the
   * processor requires may have padding: without AMX the matrix takes half as much again. */
  const int64_t copies = petra_backend_memory_in_use(backend).filters - held, unpadded = 2 * 2 * 2 * w->elements;
  ck_assert_int_ge(copies, unpadded);
  ck_assert_int_lt(copies, 2 * unpadded);
  petra_tensor *all[] = {r.x, r.y, r.dy, r.dx, w, other, state[0], state[1]};
  for (int i = 0; i < HARNESS_COUNT(all); i++)
    release(all[i]);
  free(host);
}

START_TEST(weights_are_never_out_of_date) {
  petra_backend *kept = backend;
  if (petra_backend_create(PETRA_BACKEND_CPU, PETRA_PRECISION_BF16, 2, true, &backend) != PETRA_OK) {
    ck_assert_logged("needs AVX512-BF16 or AMX-BF16");
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
    ck_assert_logged("needs AVX512-BF16 or AMX-BF16");
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
    ck_assert_logged("needs AVX512-BF16 or AMX-BF16");
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

int main(void) {
  const TTest *const tests[] = {weights_are_never_out_of_date, sums_round_once, rounding_to_bf16};
  if (petra_backend_create(PETRA_BACKEND_CPU, PETRA_PRECISION_FP32, 2, true, &backend) != PETRA_OK)
    return EXIT_FAILURE;
  int result = harness_run("cpu_bf16", tests, HARNESS_COUNT(tests));
  petra_backend_destroy(backend);
  return result;
}
