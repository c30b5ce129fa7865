/* SPDX-License-Identifier: Apache-2.0 */
/* The loss. Matrices have few rows; the rows of a sequence are divided among the threads. */
#include "backend/cpu/cpu.h"
#include "backend/cpu/kernels.h"

#include <math.h>

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
