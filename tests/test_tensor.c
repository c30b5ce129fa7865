/* SPDX-License-Identifier: Apache-2.0 */
/* Tensors and their pool, the registry, and what happens when memory runs out. */
#include "harness.h"

#include "backend/backend.h"
#include "backend/registry.h"
#include "base/mem.h"

static const int32_t shape_a[4] = {2, 20, 3, 5}, shape_b[4] = {2, 17, 3, 5};

static petra_backend *open_backend(petra_backend_kind kind) {
  petra_backend *backend = NULL;
  ck_assert_int_eq(petra_backend_create(kind, PETRA_PRECISION_FP32, 1, true, &backend), PETRA_OK);
  return backend;
}

static petra_tensor *make(petra_backend *backend, petra_tensor_kind kind, const int32_t shape[4],
                          petra_account *account, petra_memory_category category) {
  petra_tensor *t = NULL;
  ck_assert_int_eq(petra_tensor_create(backend, kind, shape, account, category, &t), PETRA_OK);
  return t;
}

static const petra_backend_kind kinds[] = {PETRA_BACKEND_REF, PETRA_BACKEND_CPU}; /* looped over by _i */

START_TEST(fields) {
  petra_backend *backend = open_backend(kinds[_i]);
  petra_tensor *t = make(backend, PETRA_TENSOR_ACTIVATION, shape_a, NULL, PETRA_MEMORY_GRAPH);
  ck_assert_ptr_eq(t->backend, backend);
  ck_assert_int_eq(t->kind, PETRA_TENSOR_ACTIVATION);
  ck_assert_mem_eq(t->shape, shape_a, sizeof shape_a);
  ck_assert_int_eq(t->elements, 2 * 20 * 3 * 5);
  ck_assert_uint_ge(t->bytes, (size_t)t->elements * sizeof(float));
  double squares = -1; /* new storage holds 0, padding included */
  ck_assert_int_eq(petra_op_dot(backend, t, t, &squares), PETRA_OK);
  ck_assert_double_eq(squares, 0);
  petra_tensor_release(&t);
  ck_assert_ptr_null(t);
  petra_tensor_release(&t); /* NULL is allowed */
  ck_assert_ptr_null(petra_tensor_retain(NULL));
  petra_backend_destroy(backend);
  petra_backend_destroy(NULL);
}
END_TEST

START_TEST(pool_reuse) {
  petra_backend *backend = open_backend(kinds[_i]);
  petra_tensor *first = make(backend, PETRA_TENSOR_ACTIVATION, shape_a, NULL, PETRA_MEMORY_GRAPH), *old = first;
  void *data = first->data;
  petra_tensor_release(&first);
  petra_tensor *mask = make(backend, PETRA_TENSOR_MASK, shape_a, NULL, PETRA_MEMORY_GRAPH);
  petra_tensor *other = make(backend, PETRA_TENSOR_ACTIVATION, shape_b, NULL, PETRA_MEMORY_GRAPH);
  ck_assert_ptr_ne(mask->data, data); /* another kind, another shape: not this one */
  ck_assert_ptr_ne(other->data, data);
  petra_tensor *again = make(backend, PETRA_TENSOR_ACTIVATION, shape_a, NULL, PETRA_MEMORY_WORKSPACE);
  ck_assert_ptr_eq(again, old);
  ck_assert_ptr_eq(again->data, data);
  ck_assert_int_eq(again->references, 1);
  ck_assert_int_eq(again->category, PETRA_MEMORY_WORKSPACE);
  petra_tensor *second = make(backend, PETRA_TENSOR_ACTIVATION, shape_a, NULL, PETRA_MEMORY_GRAPH);
  ck_assert_ptr_ne(second->data, data); /* in use */
  const int64_t made = (int64_t)(mask->bytes + other->bytes + again->bytes + second->bytes);
  ck_assert_int_eq(petra_backend_memory_in_use(backend).tensors, made);
  petra_tensor_release(&mask);
  petra_tensor_release(&other);
  petra_tensor_release(&again);
  petra_tensor_release(&second);
  ck_assert_int_eq(petra_backend_memory_in_use(backend).tensors, made); /* for the next */
  ck_assert_int_eq(petra_backend_memory_in_use(backend).filters, kinds[_i] == PETRA_BACKEND_CPU ? 0 : -1);
  petra_backend_destroy(backend);
}
END_TEST

/* Storage of one kind must not come back as another: so many shapes that some of all kinds are in one
 * bucket. */
START_TEST(pool_kinds) {
  enum { SHAPES = 1000 };
  petra_backend *backend = open_backend(kinds[_i]);
  for (int n = 1; n <= SHAPES; n++) {
    const int32_t shape[4] = {1 + n % 3, 1 + n % 5, 1 + n % 7, 1 + n % 11};
    petra_tensor *matrix = make(backend, PETRA_TENSOR_MATRIX, shape, NULL, PETRA_MEMORY_GRAPH);
    petra_tensor_release(&matrix);
    for (int kind = 0; kind < PETRA_TENSOR_KINDS; kind++) {
      petra_tensor *t = make(backend, (petra_tensor_kind)kind, shape, NULL, PETRA_MEMORY_GRAPH);
      ck_assert(t->kind == (petra_tensor_kind)kind && t->shape[3] == 1 + n % 11);
      petra_tensor_release(&t);
    }
  }
  petra_backend_destroy(backend);
}
END_TEST

static bool refuse_all(void *context, size_t bytes) {
  (void)bytes;
  ++*(int *)context;
  return true;
}

START_TEST(references) {
  petra_backend *backend = open_backend(kinds[_i]);
  petra_account account = {0};
  petra_tensor *t = make(backend, PETRA_TENSOR_VECTOR, (const int32_t[]){7, 1, 1, 1}, &account, PETRA_MEMORY_MOMENTUM);
  petra_tensor *held = petra_tensor_retain(t), *old = t;
  ck_assert_ptr_eq(held, t);
  ck_assert_int_eq(t->references, 2);
  petra_tensor_release(&t);
  ck_assert_int_eq(held->references, 1);
  ck_assert_int_eq(account.total_bytes, (int64_t)held->bytes); /* counted once, and still */
  petra_tensor *fresh = make(backend, PETRA_TENSOR_VECTOR, (const int32_t[]){7, 1, 1, 1}, NULL, PETRA_MEMORY_GRAPH);
  ck_assert_ptr_ne(fresh, old); /* not free while one reference is left */
  petra_tensor_release(&held);
  ck_assert_int_eq(account.total_bytes, 0);
  petra_tensor_release(&fresh);
  int requested = 0; /* a steady state allocates nothing */
  petra_mem_set_hook(refuse_all, &requested);
  for (int i = 0; i < 10; i++) {
    t = make(backend, PETRA_TENSOR_VECTOR, (const int32_t[]){7, 1, 1, 1}, NULL, PETRA_MEMORY_GRAPH);
    petra_tensor_release(&t);
  }
  petra_mem_set_hook(NULL, NULL);
  ck_assert_int_eq(requested, 0);
  petra_backend_destroy(backend);
}
END_TEST

START_TEST(accounts) {
  petra_backend *backend = open_backend(kinds[_i]);
  petra_account one = {0}, two = {0};
  petra_tensor *a = make(backend, PETRA_TENSOR_ACTIVATION, shape_a, &one, PETRA_MEMORY_GRAPH);
  petra_tensor *b = make(backend, PETRA_TENSOR_ACTIVATION, shape_b, &one, PETRA_MEMORY_MESSAGES);
  const int64_t bytes_a = (int64_t)a->bytes, bytes_b = (int64_t)b->bytes;
  ck_assert_int_eq(one.bytes[PETRA_MEMORY_GRAPH], bytes_a);
  ck_assert_int_eq(one.bytes[PETRA_MEMORY_MESSAGES], bytes_b);
  ck_assert_int_eq(one.total_bytes, bytes_a + bytes_b);
  petra_tensor_charge(b, &two, PETRA_MEMORY_INPUT_BUFFER);
  ck_assert_int_eq(one.bytes[PETRA_MEMORY_MESSAGES], 0);
  ck_assert_int_eq(one.peak_bytes[PETRA_MEMORY_MESSAGES], bytes_b);
  ck_assert_int_eq(one.total_bytes, bytes_a);
  ck_assert_int_eq(one.total_peak_bytes, bytes_a + bytes_b);
  ck_assert_int_eq(two.bytes[PETRA_MEMORY_INPUT_BUFFER], bytes_b);
  ck_assert_int_eq(two.total_peak_bytes, bytes_b);
  petra_tensor_charge(a, &one, PETRA_MEMORY_WEIGHT_BUFFER); /* a move inside one account is no new peak */
  ck_assert_int_eq(one.bytes[PETRA_MEMORY_GRAPH], 0);
  ck_assert_int_eq(one.bytes[PETRA_MEMORY_WEIGHT_BUFFER], bytes_a);
  ck_assert_int_eq(one.total_peak_bytes, bytes_a + bytes_b);
  petra_tensor_charge(a, NULL, PETRA_MEMORY_WORKSPACE);
  ck_assert_int_eq(one.total_bytes, 0);
  petra_tensor_release(&a);
  petra_tensor_release(&b);
  ck_assert_int_eq(two.total_bytes, 0);
  a = make(backend, PETRA_TENSOR_ACTIVATION, shape_a, &two, PETRA_MEMORY_GRADIENTS); /* from the pool: counted anew */
  ck_assert_int_eq(two.bytes[PETRA_MEMORY_GRADIENTS], bytes_a);
  petra_tensor_release(&a);
  petra_backend_destroy(backend);
}
END_TEST

START_TEST(bad_shapes) {
  static const int32_t shapes[][4] = {{0, 1, 1, 1},  {1, 0, 1, 1},  {1, 1, 0, 1},   {1, 1, 1, 0},
                                      {-1, 1, 1, 1}, {2, -3, 1, 1}, {1, 1, -1, -1}, {INT32_MIN, 1, 1, 1}};
  static const int32_t huge[4] = {INT32_MAX, INT32_MAX, INT32_MAX, INT32_MAX};
  petra_backend *backend = open_backend(kinds[_i]);
  petra_account account = {0};
  petra_tensor *t = NULL;
  for (int i = 0; i < HARNESS_COUNT(shapes); i++) {
    char expected[80];
    snprintf(expected, sizeof expected, "shape (%d, %d, %d, %d)", shapes[i][0], shapes[i][1], shapes[i][2],
             shapes[i][3]);
    harness_clear();
    ck_assert_int_eq(petra_tensor_create(backend, PETRA_TENSOR_ACTIVATION, shapes[i], &account, PETRA_MEMORY_GRAPH, &t),
                     PETRA_SHAPE);
    ck_assert_int_eq(harness_lines, 1);
    ck_assert_logged(expected);
    ck_assert_logged("has no elements");
  }
  harness_clear();
  ck_assert_int_eq(petra_tensor_create(backend, PETRA_TENSOR_ACTIVATION, huge, &account, PETRA_MEMORY_GRAPH, &t),
                   PETRA_SHAPE);
  ck_assert_int_eq(harness_lines, 1);
  ck_assert_logged("has more elements than can be counted");
  ck_assert_ptr_null(t);
  ck_assert_int_eq(account.total_peak_bytes, 0);
  petra_backend_destroy(backend);
}
END_TEST

/* --- memory runs out --- */

typedef struct failing {
  int count, at; /* allocations so far; the one that fails */
} failing;

static bool fail_at(void *context, size_t bytes) {
  failing *f = context;
  (void)bytes;
  return f->count++ == f->at;
}

enum { SCENE_TENSORS = 14 };

/* Every tensor kind and every operation that takes memory; the first failure ends it. */
static petra_status scene(petra_backend *backend, petra_account *account) {
  static const struct {
    petra_tensor_kind kind;
    int32_t shape[4];
  } made[SCENE_TENSORS] = {{PETRA_TENSOR_ACTIVATION, {2, 3, 5, 4}},  {PETRA_TENSOR_FILTER, {20, 3, 3, 3}},
                           {PETRA_TENSOR_ACTIVATION, {2, 20, 5, 4}}, {PETRA_TENSOR_ACTIVATION, {2, 3, 5, 4}},
                           {PETRA_TENSOR_FILTER, {20, 3, 3, 3}},     {PETRA_TENSOR_VECTOR, {20, 1, 1, 1}},
                           {PETRA_TENSOR_VECTOR, {20, 1, 1, 1}},     {PETRA_TENSOR_VECTOR, {20, 1, 1, 1}},
                           {PETRA_TENSOR_VECTOR, {20, 1, 1, 1}},     {PETRA_TENSOR_ACTIVATION, {2, 20, 5, 4}},
                           {PETRA_TENSOR_MASK, {2, 20, 2, 2}},       {PETRA_TENSOR_ACTIVATION, {2, 20, 2, 2}},
                           {PETRA_TENSOR_MATRIX, {2, 20, 1, 1}},     {PETRA_TENSOR_MATRIX, {2, 20, 1, 1}}};
  const petra_conv_geometry conv = {1, 1};
  const petra_pool_geometry pool = {2, 2, 0};
  petra_tensor *t[SCENE_TENSORS] = {0};
  petra_status status = PETRA_OK;
  double value;
  for (int i = 0; i < SCENE_TENSORS; i++)
    PETRA_TRY_GOTO(status,
                   petra_tensor_create(backend, made[i].kind, made[i].shape, account, PETRA_MEMORY_WORKSPACE, &t[i]),
                   done);
  PETRA_TRY_GOTO(status, petra_op_conv_forward(backend, &conv, t[0], t[1], t[2]), done);
  PETRA_TRY_GOTO(status, petra_op_conv_backward_data(backend, &conv, t[2], t[1], NULL, t[3]), done);
  PETRA_TRY_GOTO(status, petra_op_conv_backward_filter(backend, &conv, t[0], t[2], t[4]), done);
  const petra_norm_forward forward = {t[2], t[5], t[6], true, PETRA_JOIN_NONE, NULL, t[9], t[7], t[8], NULL};
  PETRA_TRY_GOTO(status, petra_op_norm_forward(backend, &forward), done);
  PETRA_TRY_GOTO(status, petra_op_max_pool_forward(backend, &pool, t[9], t[11], t[10]), done);
  PETRA_TRY_GOTO(status, petra_op_max_pool_backward(backend, &pool, t[11], t[10], t[9]), done);
  PETRA_TRY_GOTO(status, petra_op_average_pool_forward(backend, t[9], t[12], 0), done);
  PETRA_TRY_GOTO(status, petra_op_copy(backend, t[12], t[13]), done);
  PETRA_TRY_GOTO(status, petra_op_dot(backend, t[2], t[2], &value), done);
done:
  for (int i = 0; i < SCENE_TENSORS; i++)
    petra_tensor_release(&t[i]);
  return status;
}

START_TEST(out_of_memory) {
  failing f = {0};
  int failures = 0;
  for (;; failures++) {
    f = (failing){.at = failures};
    petra_account account = {0};
    petra_backend *backend = NULL;
    harness_clear();
    petra_mem_set_hook(fail_at, &f);
    petra_status status = petra_backend_create(kinds[_i], PETRA_PRECISION_FP32, 1, true, &backend);
    if (status == PETRA_OK)
      status = scene(backend, &account);
    petra_mem_set_hook(NULL, NULL);
    ck_assert_int_eq(account.total_bytes, 0);
    if (status == PETRA_OK) {
      petra_backend_destroy(backend);
      break;
    }
    ck_assert_int_eq(status, PETRA_NO_MEMORY);
    ck_assert_int_eq(harness_lines, 1);
    ck_assert_logged("out of memory");
    if (backend) /* it is still of use */
      ck_assert_int_eq(scene(backend, &account), PETRA_OK);
    petra_backend_destroy(backend);
    ck_assert_int_lt(failures, 1000);
  }
  /* At least: a backend, its pool, 14 tensors with their storage. */
  ck_assert_int_ge(failures, 2 + 2 * SCENE_TENSORS);
}
END_TEST

/* --- registry --- */

START_TEST(registry) {
  static const struct {
    petra_backend_kind kind;
    petra_precision precision;
    const char *name;
  } choices[] = {{PETRA_BACKEND_AUTO, PETRA_PRECISION_FP32, "cpu"},
                 {PETRA_BACKEND_AUTO, PETRA_PRECISION_FP64, "ref"},
                 {PETRA_BACKEND_REF, PETRA_PRECISION_FP32, "ref"},
                 {PETRA_BACKEND_REF, PETRA_PRECISION_FP64, "ref"},
                 {PETRA_BACKEND_CPU, PETRA_PRECISION_FP32, "cpu"}};
  for (int i = 0; i < HARNESS_COUNT(choices); i++) {
    petra_backend *backend = NULL;
    ck_assert_int_eq(petra_backend_create(choices[i].kind, choices[i].precision, 2, true, &backend), PETRA_OK);
    ck_assert_str_eq(backend->ops->name, choices[i].name);
    ck_assert_int_eq(backend->precision, choices[i].precision);
    ck_assert_int_eq(backend->threads, 2);
    char text[256] = "";
    backend->ops->describe(backend, text, sizeof text);
    ck_assert_ptr_nonnull(strstr(text, "2 threads"));
    petra_backend_destroy(backend);
  }
  petra_backend *backend = NULL;
  harness_clear();
  ck_assert_int_eq(petra_backend_create(PETRA_BACKEND_CPU, PETRA_PRECISION_FP64, 1, true, &backend), PETRA_UNSUPPORTED);
  ck_assert_ptr_null(backend);
  ck_assert_int_eq(harness_lines, 1);
  ck_assert_logged("fp64 with device.backend: cpu, which computes in fp32, bf16; expected device.backend: ref");
}
END_TEST

static const petra_backend_kind all[] = {PETRA_BACKEND_REF, PETRA_BACKEND_CPU, PETRA_BACKEND_CUDA};

/* Tensors that no backend pads have elements of the table's size. AUTO asks for sizes without looking for a device:
 * backends that share a precision must agree on them. */
static void check_sizes(petra_backend *backend, petra_precision precision, const size_t *bytes) {
  static const int32_t shapes[PETRA_TENSOR_KINDS][4] = {{2, 3, 5, 5},  {3, 3, 3, 3}, {4, 5, 1, 1},
                                                        {16, 1, 1, 1}, {2, 3, 5, 5}, {2, 3, 5, 5},
                                                        {2, 5, 3, 1},  {2, 5, 3, 1}, {2, 12, 1, 1}};
  for (int k = 0; k < PETRA_TENSOR_KINDS; k++) {
    petra_tensor *t = make(backend, (petra_tensor_kind)k, shapes[k], NULL, PETRA_MEMORY_WORKSPACE);
    ck_assert_uint_eq(t->bytes, (size_t)t->elements * bytes[k]);
    if (!petra_kind_is_inner((petra_tensor_kind)k))
      ck_assert_int_eq(petra_element_bytes(PETRA_BACKEND_AUTO, precision, (petra_tensor_kind)k), (int64_t)bytes[k]);
    petra_tensor_release(&t);
  }
  petra_backend_destroy(backend);
}

/* One line that names what the backend computes in and who has the precision. */
static void check_refusal(petra_backend_kind kind, petra_precision precision, const char *names) {
  petra_backend *backend = NULL;
  char text[256];
  ck_assert(!petra_precision_check(kind, precision, text, sizeof text));
  ck_assert_ptr_nonnull(strstr(text, names));
  const char *expected = strstr(text, "; expected");
  for (int i = 0; i < HARNESS_COUNT(all); i++)
    ck_assert_int_eq(strstr(expected, petra_config_choice_name("device.backend", (int)all[i])) != NULL,
                     petra_precision_find(all[i], precision) != NULL);
  harness_clear();
  ck_assert_int_eq(petra_backend_create(kind, precision, 1, true, &backend), PETRA_UNSUPPORTED);
  ck_assert_int_eq(petra_backend_create_dry(kind, precision, &backend), PETRA_UNSUPPORTED);
  ck_assert_int_eq(harness_lines, 2);
  ck_assert_logged(text);
}

/* What the table has can be made, but for a device that may not be there; what it has not is refused. */
START_TEST(precisions) {
  for (int i = 0; i < HARNESS_COUNT(all) * (PETRA_PRECISION_BF16 + 1); i++) {
    const petra_backend_kind kind = all[i % HARNESS_COUNT(all)];
    const petra_precision precision = (petra_precision)(i / HARNESS_COUNT(all));
    const size_t *bytes = petra_precision_find(kind, precision);
    petra_backend *backend = NULL;
    char names[64];
    petra_precision_list(kind, names, sizeof names);
    ck_assert_int_eq(strstr(names, petra_config_choice_name("device.precision", (int)precision)) != NULL,
                     bytes != NULL);
    if (!bytes) {
      check_refusal(kind, precision, names);
      continue;
    }
    ck_assert_int_eq(petra_backend_create_dry(kind, precision, &backend), PETRA_OK);
    check_sizes(backend, precision, bytes);
    if (kind != PETRA_BACKEND_CUDA) {
      const petra_status created = petra_backend_create(kind, precision, 1, true, &backend);
      if (created == PETRA_UNSUPPORTED && precision == PETRA_PRECISION_BF16) { /* the processor has none */
        ck_assert_logged("needs AVX512-BF16 or AMX-BF16");
        continue;
      }
      ck_assert_int_eq(created, PETRA_OK);
      check_sizes(backend, precision, bytes);
    }
  }
}
END_TEST

int main(void) {
  TCase *tcase = tcase_create("tensor");
  const TTest *const both[] = {fields, pool_reuse, pool_kinds, references, accounts, bad_shapes, out_of_memory};
  for (int i = 0; i < HARNESS_COUNT(both); i++)
    tcase_add_loop_test(tcase, both[i], 0, HARNESS_COUNT(kinds));
  tcase_add_test(tcase, registry);
  tcase_add_test(tcase, precisions);
  return harness_run_case("tensor", tcase);
}
