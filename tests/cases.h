/* SPDX-License-Identifier: Apache-2.0 */
/* The frame of the table of cases that tests every operation of backend.h on every backend.
 *
 * A case is a function that makes inputs, calls operations through ops.c and says with cases_expect what must
 * come out, computed from the definitions (naive.h). It is run on every backend with the same inputs, which
 * are rounded to f32: ref in fp64 is held against the definitions, every other backend against what ref in
 * fp64 gave. For backends whose inner tensors are of bf16 the table is gone through a second time, with `narrow`: inputs
 * that are inner tensors or filters are then bf16 numbers, so that all of them compute from the same. */
#pragma once

#include "harness.h"

#include "backend/backend.h"

#include "case_tolerances.h"

/* The operations of backend.h. */
typedef enum cases_op {
#define CASES_ENUM(prefix, name, ...) prefix##name,
  PETRA_OPERATIONS(CASES_ENUM, CASES_)
#undef CASES_ENUM
      CASES_OPS
} cases_op;

const char *cases_op_name(cases_op op);

/* Outputs of ref fp64 in the order in which a case expects them. */
typedef struct cases_record {
  double *values;
  size_t count, capacity;
} cases_record;

enum { CASES_TENSORS_MAX = 24, CASES_ARRAYS_MAX = 64 };

typedef struct cases_tensor {
  petra_tensor *tensor;
  double *host;  /* inputs: what was uploaded; outputs: NULL */
  bool constant; /* must be the same at the end of the case */
} cases_tensor;

typedef struct cases_run {
  petra_backend *backend;
  const char *name; /* of the case, for messages */
  bool narrow;      /* inner tensors are of their own kind, and they and filters hold numbers of bf16 */
  bool oracle;      /* this is ref fp64 on one thread: fills the record instead of reading it */
  cases_record *record;
  size_t at;     /* place in the record */
  int nan_input; /* number of the input that gets one NaN; -1: none */
  int inputs;    /* made so far */
  uint32_t random;
  uint64_t hash;         /* of the bits of all outputs so far */
  int checks[CASES_OPS]; /* outputs checked, by operation */
  cases_tensor tensors[CASES_TENSORS_MAX];
  int tensor_count;
  void *arrays[CASES_ARRAYS_MAX];
  int array_count;
} cases_run;

/* Before and after the function of a case. The end checks that constant inputs were left alone. */
void cases_begin(cases_run *run, petra_backend *backend, const char *name, bool narrow, bool oracle,
                 cases_record *record, int nan_input);
void cases_end(cases_run *run);

/* Zeroed numbers that live until the end of the case. */
double *cases_array(cases_run *run, int64_t count);

/* `count` numbers in -1 .. 1 that are exact in f32. */
double *cases_random(cases_run *run, int64_t count);

/* The absolute values of `values`. */
double *cases_absolute(cases_run *run, const double *values, int64_t count);

/* The kind of what is inner in this run, where streams are of kind `stream`: ACTIVATION or SEQUENCE. */
petra_tensor_kind cases_inner(const cases_run *run, petra_tensor_kind stream);

/* The number that a tensor of this kind would hold in this run. */
double cases_round(const cases_run *run, petra_tensor_kind kind, double value);

/* A tensor with these contents (taken over; a NaN is put in when the run asks for one here). */
cases_tensor cases_given(cases_run *run, petra_tensor_kind kind, int n, int c, int h, int w, double *host);

/* A tensor of random numbers. */
cases_tensor cases_input(cases_run *run, petra_tensor_kind kind, int n, int c, int h, int w);

/* A tensor whose elements are NaN, so that what an operation leaves out is seen (masks: as they come). */
petra_tensor *cases_output(cases_run *run, petra_tensor_kind kind, int n, int c, int h, int w);

/* An operation was told to write to this input. */
void cases_changed(cases_run *run, const petra_tensor *tensor);

/* The contents, read through guard bands and in both host types. Lives until the end of the case. */
double *cases_fetch(cases_run *run, const petra_tensor *tensor);

/* The output `tensor` of `op` is as expected within the tolerance of case_tolerances.h (scale NULL:
 * |expected|) and, where its elements are bf16, one rounding to these, NaN exactly where NaN is expected, and its padding is 0. */
void cases_expect(cases_run *run, cases_op op, const petra_tensor *tensor, const double *expected, const double *scale,
                  double terms);

/* The same for a number that `op` computes in double on every backend. */
void cases_expect_double(cases_run *run, cases_op op, double found, double expected, double scale, double terms);

/* As ck_assert_msg, which writes a record at every call: too slow for every element. */
#define cases_require(condition, ...)                                                                                  \
  do {                                                                                                                 \
    if (!(condition))                                                                                                  \
      ck_abort_msg(__VA_ARGS__);                                                                                       \
  } while (0)

/* A call that must succeed. */
#define cases_ok(call) cases_require((call) == PETRA_OK, "%s", #call)

/* The table: the cases of the files cases_*.c, each ended by one without a function. */
typedef struct cases_entry {
  void (*function)(cases_run *run, const int *parameters);
  const char *name;
  int parameters[10];
} cases_entry;

extern const cases_entry cases_basic[], cases_shuffle[], cases_conv[], cases_norm[], cases_pool[], cases_head[],
    cases_optim[], cases_sequence[], cases_quantise[];
