/* SPDX-License-Identifier: Apache-2.0 */
/* Linear layers and the loss. Products of matrices, which belong to a head and are small, use CBLAS in one thread.
 * Products of sequences use oneDNN: in fp32 its sgemm, which divides the rows among the threads, in bf16 its
 * primitives. */
#include "backend/cpu/cpu.h"
#include "backend/cpu/cpu_kernels.h"
#include "backend/cpu/onednn.h"

#include <math.h>

/* Number of rows that one thread processes at once, so that the results for these rows stay in its cache. With more
 * threads the number is smaller. */
enum { ROWS_MAX = 256, ROWS_LEAST = 32 };

static int64_t rows_at_once(const petra_backend *backend, const petra_tensor *x) {
  const int64_t rows = petra_tensor_rows(x), share = (rows + backend->threads - 1) / backend->threads;
  if (x->kind == PETRA_TENSOR_MATRIX)
    return rows;
  return share > ROWS_MAX ? ROWS_MAX : share < ROWS_LEAST ? ROWS_LEAST : share;
}

static petra_status multiply(const petra_tensor *rows, const cpu_product *product) {
  if (petra_kind_is_sequence(rows->kind))
    return cpu_onednn_product(product);
  cpu_blas_product(product);
  return PETRA_OK;
}

/* Computes the product, whose rows are the rows of `rows`, some of them at once. `joined` (NULL: nothing): the rows to
 * which they are added. */
static petra_status multiply_rows(petra_backend *backend, const petra_tensor *rows, const cpu_product *product,
                                  const petra_linear_forward *joined) {
  const int64_t step = rows_at_once(backend, rows);
  int status = PETRA_OK;
  cpu_use_threads(backend);
#pragma omp parallel for schedule(static) num_threads(product->m > step ? backend->threads : 1) reduction(max : status)
  for (int64_t first = 0; first < product->m; first += step) {
    cpu_product part = *product;
    part.m = cpu_minimum(step, product->m - first);
    part.a.at += first * part.a.step;
    part.c.at += first * part.c.step;
    if (joined)
      cpu_kernel_join_rows(joined->join, joined->b ? cpu_read(joined->b) : NULL,
                           joined->join == PETRA_JOIN_NONE ? NULL : cpu_read(joined->addend) + first * part.c.step,
                           part.m, part.n, part.c.at);
    cpu_use_threads(backend);
    status = cpu_worse(status, multiply(rows, &part));
  }
  return (petra_status)status;
}

/* y = sign * addend, which is exact. */
static void place(petra_backend *backend, float sign, const petra_tensor *addend, petra_tensor *y) {
  const float *from = cpu_read(addend);
  float *to = cpu_data(y);
#pragma omp parallel for simd schedule(static) num_threads(cpu_threads(backend, y->elements))
  for (int64_t i = 0; i < y->elements; i++)
    to[i] = sign * from[i];
}

/* The forward for x in bf16. oneDNN rounds x w^T + b to float before it adds this to y, so that a sum and the
 * difference that inverts it use the same number. For a subtraction the sign of y is changed before and after. */
static petra_status forward_narrow(petra_backend *backend, const petra_linear_forward *a) {
  const bool joins = a->join != PETRA_JOIN_NONE, subtracts = a->join == PETRA_JOIN_SUBTRACT;
  if (subtracts || (joins && a->y != a->addend))
    place(backend, subtracts ? -1 : 1, a->addend, a->y);
  const cpu_primitive_task task = {.pass = CPU_FORWARD, .adds = joins, .x = a->x, .w = a->w, .y = a->y, .b = a->b};
  PETRA_TRY(cpu_primitive_do(backend, &task, a->y));
  return subtracts ? cpu_scale(backend, -1, a->y) : PETRA_OK;
}

petra_status cpu_linear_forward(petra_backend *backend, const petra_linear_forward *a) {
  if (cpu_layout_of(a->x)->narrow)
    return forward_narrow(backend, a);
  const int64_t in = a->w->shape[1], out = a->w->shape[0];
  const cpu_product product = {.m = petra_tensor_rows(a->x),
                               .n = out,
                               .k = in,
                               .alpha = a->join == PETRA_JOIN_SUBTRACT ? -1 : 1,
                               .beta = 1,
                               .a = {cpu_read(a->x), in, false},
                               .b = {cpu_read(a->w), in, true},
                               .c = {cpu_data(a->y), out}};
  return multiply_rows(backend, a->x, &product, a);
}

petra_status cpu_linear_backward_data(petra_backend *backend, const petra_tensor *dy, const petra_tensor *w,
                                      petra_tensor *dx) {
  if (cpu_layout_of(dy)->narrow)
    return cpu_primitive_do(backend, &(cpu_primitive_task){.pass = CPU_BACKWARD_DATA, .x = dx, .w = w, .y = dy}, dx);
  const int64_t in = w->shape[1], out = w->shape[0];
  const cpu_product product = {.m = petra_tensor_rows(dy),
                               .n = in,
                               .k = out,
                               .alpha = 1,
                               .a = {cpu_read(dy), out, false},
                               .b = {cpu_read(w), in, false},
                               .c = {cpu_data(dx), in}};
  return multiply_rows(backend, dy, &product, NULL);
}

/* Sums `columns` columns of dy from `first` on, in the order of the rows; bf16 numbers are summed a few rows at a
 * time. */
static void sum_columns(const petra_tensor *dy, int64_t first, int64_t columns, double sum[CPU_COLUMNS]) {
  const int64_t rows = petra_tensor_rows(dy), out = petra_tensor_columns(dy);
  float piece[ROWS_LEAST * CPU_COLUMNS];
  double part[CPU_COLUMNS];
  if (!cpu_layout_of(dy)->narrow) {
    cpu_kernel_sum_columns(cpu_read(dy) + first, rows, out, columns, sum);
    return;
  }
  memset(sum, 0, CPU_COLUMNS * sizeof *sum);
  for (int64_t row = 0; row < rows; row += ROWS_LEAST) {
    const int64_t count = cpu_minimum(ROWS_LEAST, rows - row);
    cpu_kernel_widen_rows(cpu_element(dy, row * out + first), out, count, columns, piece, columns);
    cpu_kernel_sum_columns(piece, count, columns, columns, part);
    for (int64_t c = 0; c < columns; c++)
      sum[c] += part[c];
  }
}

/* Computes db: one thread sums each column. */
static void sum_rows(const petra_backend *backend, const petra_tensor *dy, petra_tensor *db) {
  const int64_t out = petra_tensor_columns(dy);
#pragma omp parallel for schedule(static) num_threads(cpu_threads(backend, dy->elements))
  for (int64_t first = 0; first < out; first += CPU_COLUMNS) {
    double sum[CPU_COLUMNS];
    const int64_t columns = cpu_minimum(CPU_COLUMNS, out - first);
    sum_columns(dy, first, columns, sum);
    for (int64_t c = 0; c < columns; c++)
      cpu_data(db)[first + c] = (float)sum[c];
  }
}

petra_status cpu_linear_backward_weights(petra_backend *backend, const petra_tensor *x, const petra_tensor *dy,
                                         petra_tensor *dw, petra_tensor *db) {
  const int64_t in = dw->shape[1], out = dw->shape[0];
  if (db)
    sum_rows(backend, dy, db);
  if (cpu_layout_of(dy)->narrow)
    return cpu_primitive_do(backend, &(cpu_primitive_task){.pass = CPU_BACKWARD_WEIGHTS, .x = x, .w = dw, .y = dy}, dw);
  const cpu_product product = {.m = out,
                               .n = in,
                               .k = petra_tensor_rows(x),
                               .alpha = 1,
                               .a = {cpu_read(dy), out, true},
                               .b = {cpu_read(x), in, false},
                               .c = {cpu_data(dw), in}};
  cpu_use_threads(backend);
  return multiply(x, &product);
}

/* --- the loss: matrices have few rows; the rows of a sequence are divided among the threads --- */

static double log_sum_exp(const float *row, int classes) {
  double largest = (double)row[0], sum = 0;
  for (int j = 1; j < classes; j++)
    if ((double)row[j] > largest)
      largest = (double)row[j];
  for (int j = 0; j < classes; j++)
    sum += exp((double)row[j] - largest);
  return largest + log(sum);
}

/* The loss of a matrix, which belongs to a head. */
static void of_images(petra_cross_entropy *a) {
  const int64_t n = petra_tensor_rows(a->logits);
  const int classes = petra_tensor_columns(a->logits);
  double loss = 0;
  a->top1 = a->top5 = 0;
  for (int64_t i = 0; i < n; i++) {
    const float *row = cpu_read(a->logits) + i * classes;
    const int label = a->labels[i];
    double log_sum = log_sum_exp(row, classes);
    loss += log_sum - (double)row[label];
    const int rank = (int)cpu_kernel_rank(row, classes, label);
    a->top1 += rank < 1;
    a->top5 += rank < 5;
    for (int j = 0; a->dlogits && j < classes; j++)
      cpu_data(a->dlogits)[i * classes + j] =
          (float)((exp((double)row[j] - log_sum) - (j == label ? 1 : 0)) / (double)n);
  }
  a->loss = loss / (double)n;
}

/* The loss of a sequence: the losses of its rows are added in their order. */
static petra_status of_tokens(petra_backend *backend, petra_cross_entropy *a) {
  const int64_t n = petra_tensor_rows(a->logits), classes = petra_tensor_columns(a->logits);
  void *scratch;
  PETRA_TRY(cpu_scratch(backend, (size_t)n * sizeof(double), &scratch));
  double *losses = scratch, loss = 0;
  int32_t top1 = 0, top5 = 0;
#pragma omp parallel for schedule(static) num_threads(cpu_threads(backend, a->logits->elements)) reduction(+ : top1, top5)
  for (int64_t i = 0; i < n; i++) {
    const float *row = cpu_read(a->logits) + i * classes;
    const int32_t label = a->labels[i];
    float *gradient = a->dlogits ? cpu_data(a->dlogits) + i * classes : NULL;
    const int64_t rank = cpu_kernel_rank(row, classes, label);
    losses[i] = cpu_kernel_log_sum_exp(row, classes, label, 1 / (double)n, gradient) - (double)row[label];
    top1 += rank < 1;
    top5 += rank < 5;
  }
  for (int64_t i = 0; i < n; i++)
    loss += losses[i];
  a->loss = loss / (double)n;
  a->top1 = top1;
  a->top5 = top5;
  return PETRA_OK;
}

petra_status cpu_cross_entropy(petra_backend *backend, petra_cross_entropy *a) {
  if (petra_kind_is_sequence(a->logits->kind))
    return of_tokens(backend, a);
  of_images(a);
  return PETRA_OK;
}
