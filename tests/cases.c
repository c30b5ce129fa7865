/* SPDX-License-Identifier: Apache-2.0 */
#include "cases.h"

#include <math.h>

enum { GUARD_BYTES = 64, GUARD = 0xA5 };

static const double coefficients[CASES_OPS] = {
#define CASES_COEFFICIENT(name, coefficient) [CASES_##name] = coefficient,
    CASE_TOLERANCES(CASES_COEFFICIENT)
#undef CASES_COEFFICIENT
};

#define CASES_ONE(name, coefficient) +1
_Static_assert(CASE_TOLERANCES(CASES_ONE) == CASES_OPS, "an operation of backend.h is missing in CASE_TOLERANCES");

const char *cases_op_name(cases_op op) {
  static const char *const names[] = {
#define CASES_NAME(prefix, name, ...) #name,
      PETRA_OPERATIONS(CASES_NAME, )
#undef CASES_NAME
  };
  return names[op];
}

void cases_begin(cases_run *run, petra_backend *backend, const char *name, bool narrow, bool oracle,
                 cases_record *record, int nan_input) {
  *run = (cases_run){.backend = backend,
                     .name = name,
                     .narrow = narrow,
                     .oracle = oracle,
                     .record = record,
                     .nan_input = nan_input,
                     .random = 20240229,
                     .hash = 0xcbf29ce484222325u};
  if (oracle)
    record->count = 0;
}

void cases_end(cases_run *run) {
  for (int i = 0; i < run->tensor_count; i++) {
    cases_tensor *t = &run->tensors[i];
    if (t->host && t->constant) {
      const double *now = cases_fetch(run, t->tensor);
      for (int64_t k = 0; k < t->tensor->elements; k++)
        cases_require(now[k] == t->host[k] || (isnan(now[k]) && isnan(t->host[k])),
                      "%s: input %d was changed at %lld: %g, it was %g", run->name, i, (long long)k, now[k],
                      t->host[k]);
    }
    petra_tensor_release(&t->tensor);
  }
  while (run->array_count > 0)
    free(run->arrays[--run->array_count]);
}

double *cases_array(cases_run *run, int64_t count) {
  cases_require(run->array_count < CASES_ARRAYS_MAX, "CASES_ARRAYS_MAX");
  double *array = calloc((size_t)count, sizeof *array);
  run->arrays[run->array_count++] = array;
  return array;
}

static double draw(cases_run *run) {
  run->random = run->random * 1664525u + 1013904223u;
  return (double)(run->random >> 8) / 8388608.0 - 1; /* 24 bits: exact in f32 */
}

double *cases_random(cases_run *run, int64_t count) {
  double *array = cases_array(run, count);
  for (int64_t i = 0; i < count; i++)
    array[i] = draw(run);
  return array;
}

double *cases_absolute(cases_run *run, const double *values, int64_t count) {
  double *array = cases_array(run, count);
  for (int64_t i = 0; i < count; i++)
    array[i] = fabs(values[i]);
  return array;
}

static petra_tensor *make(cases_run *run, petra_tensor_kind kind, int n, int c, int h, int w) {
  cases_require(run->tensor_count < CASES_TENSORS_MAX, "CASES_TENSORS_MAX");
  const int32_t shape[4] = {n, c, h, w};
  petra_tensor *tensor;
  cases_ok(petra_tensor_create(run->backend, kind, shape, NULL, PETRA_MEMORY_WORKSPACE, &tensor));
  run->tensors[run->tensor_count++].tensor = tensor;
  return tensor;
}

petra_tensor_kind cases_inner(const cases_run *run, petra_tensor_kind stream) {
  return !run->narrow ? stream : stream == PETRA_TENSOR_SEQUENCE ? PETRA_TENSOR_INNER_SEQUENCE : PETRA_TENSOR_INNER;
}

double cases_round(const cases_run *run, petra_tensor_kind kind, double value) {
  int exponent;
  if (!run->narrow || (!petra_kind_is_inner(kind) && kind != PETRA_TENSOR_FILTER) || !isfinite(value))
    return (double)(float)value;
  const double fraction = frexp(value, &exponent); /* 0.5 .. 1: 8 bits of it */
  return ldexp(rint(ldexp(fraction, 8)), exponent - 8);
}

/* A host array between guard bands. */
static void *guarded(size_t bytes) {
  unsigned char *memory = malloc(bytes + 2 * GUARD_BYTES);
  memset(memory, GUARD, bytes + 2 * GUARD_BYTES);
  return memory + GUARD_BYTES;
}

static void guarded_free(void *array, size_t bytes) {
  unsigned char *memory = (unsigned char *)array - GUARD_BYTES;
  for (size_t i = 0; i < GUARD_BYTES; i++)
    cases_require(memory[i] == GUARD && memory[GUARD_BYTES + bytes + i] == GUARD, "written outside of the host array");
  free(memory);
}

cases_tensor cases_given(cases_run *run, petra_tensor_kind kind, int n, int c, int h, int w, double *host) {
  petra_tensor *tensor = make(run, kind, n, c, h, w);
  cases_tensor *slot = &run->tensors[run->tensor_count - 1];
  slot->host = host;
  slot->constant = true;
  size_t count = (size_t)tensor->elements;
  for (size_t i = 0; i < count; i++)
    host[i] = cases_round(run, kind, host[i]);
  if (run->inputs == run->nan_input)
    host[(size_t)(fabs(draw(run)) * 0.999 * (double)count)] = NAN;
  if (run->inputs++ % 2 == 0) { /* both host types have their turn */
    double *wide = guarded(count * sizeof *wide);
    memcpy(wide, host, count * sizeof *wide);
    cases_ok(petra_op_upload(run->backend, tensor, wide, PETRA_HOST_F64));
    guarded_free(wide, count * sizeof *wide);
  } else {
    float *single = guarded(count * sizeof *single);
    for (size_t i = 0; i < count; i++)
      single[i] = (float)host[i];
    cases_ok(petra_op_upload(run->backend, tensor, single, PETRA_HOST_F32));
    guarded_free(single, count * sizeof *single);
  }
  return *slot;
}

cases_tensor cases_input(cases_run *run, petra_tensor_kind kind, int n, int c, int h, int w) {
  return cases_given(run, kind, n, c, h, w, cases_random(run, (int64_t)n * c * h * w));
}

petra_tensor *cases_output(cases_run *run, petra_tensor_kind kind, int n, int c, int h, int w) {
  petra_tensor *tensor = make(run, kind, n, c, h, w);
  if (kind != PETRA_TENSOR_MASK && kind != PETRA_TENSOR_QUANTISED)
    cases_ok(petra_op_fill(run->backend, tensor, NAN));
  return tensor;
}

void cases_changed(cases_run *run, const petra_tensor *tensor) {
  for (int i = 0; i < run->tensor_count; i++)
    if (run->tensors[i].tensor == tensor)
      run->tensors[i].constant = false;
}

double *cases_fetch(cases_run *run, const petra_tensor *tensor) {
  size_t count = (size_t)tensor->elements;
  double *result = cases_array(run, tensor->elements), *wide = guarded(count * sizeof *wide);
  float *single = guarded(count * sizeof *single);
  cases_ok(petra_op_download(run->backend, tensor, wide, PETRA_HOST_F64));
  cases_ok(petra_op_download(run->backend, tensor, single, PETRA_HOST_F32));
  for (size_t i = 0; i < count; i++)
    cases_require(single[i] == (float)wide[i] || (isnan(single[i]) && isnan(wide[i])),
                  "%s: %g as double but %g as float", run->name, wide[i], (double)single[i]);
  memcpy(result, wide, count * sizeof *wide);
  guarded_free(wide, count * sizeof *wide);
  guarded_free(single, count * sizeof *single);
  return result;
}

/* `ref` and `cpu` keep their numbers in host memory, padding included: as many are not 0 there as in the
 * elements. */
static void check_memory(cases_run *run, cases_op op, const petra_tensor *tensor, const double *found) {
  const char *name = run->backend->ops->name;
  if (strcmp(name, "ref") != 0 && strcmp(name, "cpu") != 0)
    return;
  const size_t bytes = run->backend->element_bytes[tensor->kind];
  int64_t elements = 0, numbers = 0;
  for (int64_t i = 0; i < tensor->elements; i++)
    elements += found[i] != 0;
  for (size_t i = 0; i < tensor->bytes / bytes; i++)
    numbers += bytes == sizeof(double)  ? ((const double *)tensor->data)[i] != 0
               : bytes == sizeof(float) ? ((const float *)tensor->data)[i] != 0
                                        : (((const uint16_t *)tensor->data)[i] & 0x7fff) != 0;
  cases_require(elements == numbers, "%s on %s: after %s the padding is not 0: %lld numbers, %lld of them elements",
                run->name, name, cases_op_name(op), (long long)numbers, (long long)elements);
}

/* The padding is 0: the sums over all memory are those of the elements. */
static void check_padding(cases_run *run, cases_op op, const petra_tensor *tensor, const double *found) {
  double squares = 0, sum = 0, absolute = 0, dot_squares, dot_ones;
  for (int64_t i = 0; i < tensor->elements; i++) {
    squares += found[i] * found[i];
    sum += found[i];
    absolute += fabs(found[i]);
  }
  petra_tensor *ones;
  cases_ok(petra_tensor_create(run->backend, tensor->kind, tensor->shape, NULL, PETRA_MEMORY_WORKSPACE, &ones));
  cases_ok(petra_op_fill(run->backend, ones, 1));
  cases_ok(petra_op_dot(run->backend, tensor, tensor, &dot_squares));
  cases_ok(petra_op_dot(run->backend, tensor, ones, &dot_ones));
  petra_tensor_release(&ones);
  check_memory(run, op, tensor, found);
  if (!isfinite(squares)) {
    cases_require(!isfinite(dot_squares) && !isfinite(dot_ones), "%s: dot lost a NaN", run->name);
    return;
  }
  /* Both sums are in double, in another order. */
  double tolerance = 0x1p-52 * (double)tensor->elements;
  cases_require(fabs(dot_squares - squares) <= tolerance * squares && fabs(dot_ones - sum) <= tolerance * absolute,
                "%s on %s: after %s the padding is not 0: squares %.17g, of the elements %.17g; sum %.17g, %.17g",
                run->name, run->backend->ops->name, cases_op_name(op), dot_squares, squares, dot_ones, sum);
}

/* The oracle's value for this output: stored by the oracle, read by the others. */
static double of_oracle(cases_run *run, double found) {
  cases_record *r = run->record;
  if (!run->oracle) {
    cases_require(run->at < r->count, "%s: more outputs than on ref fp64", run->name);
    return r->values[run->at++];
  }
  if (r->count == r->capacity) {
    r->capacity = 2 * r->capacity + 1024;
    r->values = realloc(r->values, r->capacity * sizeof *r->values);
  }
  return r->values[r->count++] = found;
}

static void add_to_hash(cases_run *run, double value) {
  uint64_t bits;
  if (isnan(value))
    value = NAN; /* which NaN does not matter */
  memcpy(&bits, &value, sizeof bits);
  run->hash = (run->hash ^ bits) * 0x100000001b3u;
  run->hash ^= run->hash >> 29;
}

/* A library may multiply a NaN by the zeros of the padding, where ref leaves these out: NaN then also comes to elements that do not
 * depend on it. The contract asks for it only where they do. */
static bool may_spread(cases_op op) {
  return op == CASES_conv_forward || op == CASES_conv_backward_data || op == CASES_conv_backward_filter;
}

static void compare(cases_run *run, cases_op op, int64_t index, double found, double expected, double tolerance) {
  double oracle = of_oracle(run, found);
  if (!run->oracle)
    expected = oracle;
  add_to_hash(run, found);
  bool spread = !run->oracle && isnan(found) && run->nan_input >= 0 && may_spread(op);
  bool good = spread || found == expected || fabs(found - expected) <= tolerance || (isnan(found) && isnan(expected));
  cases_require(good, "%s, NaN in input %d, %s %s: %s gives [%lld] = %.9g, expected %.9g within %.3g", run->name,
                run->nan_input, run->backend->ops->name,
                petra_config_choice_name("device.precision", (int)run->backend->precision), cases_op_name(op),
                (long long)index, found, expected, tolerance);
}

void cases_expect(cases_run *run, cases_op op, const petra_tensor *tensor, const double *expected, const double *scale,
                  double terms) {
  const double *found = cases_fetch(run, tensor);
  double epsilon = run->backend->precision == PETRA_PRECISION_FP64 ? 0x1p-52 : 0x1p-23;
  double relative = coefficients[op] * epsilon * sqrt(terms);
  const bool half = run->backend->element_bytes[tensor->kind] < sizeof(float);
  for (int64_t i = 0; i < tensor->elements; i++) {
    double tolerance = relative * (scale ? scale[i] : fabs(expected[i]));
    if (half) /* half of the last of 8 bits, of what may already be off */
      tolerance += 0x1p-8 * (fabs(expected[i]) + tolerance);
    compare(run, op, i, found[i], expected[i], tolerance);
  }
  check_padding(run, op, tensor, found);
  run->checks[op]++;
}

void cases_expect_double(cases_run *run, cases_op op, double found, double expected, double scale, double terms) {
  compare(run, op, 0, found, expected, coefficients[op] * 0x1p-52 * sqrt(terms) * scale);
  run->checks[op]++;
}
