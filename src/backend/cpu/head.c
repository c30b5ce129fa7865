/* SPDX-License-Identifier: Apache-2.0 */
/* The head on plain row-major matrices: the fully connected layer by CBLAS, and the loss. */
#include "config.h"

#include "backend/cpu/cpu.h"
#include "backend/element.h"

#include <cblas.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

void cpu_blas_init(void) {
#ifdef HAVE_OPENBLAS_SET_NUM_THREADS
  openblas_set_num_threads(1);
#endif
}

void cpu_blas_describe(char *text, size_t size) {
#ifdef HAVE_OPENBLAS_SET_NUM_THREADS
  /* "OpenBLAS 0.3.21 NO_LAPACKE ...": name and version only. */
  char config[128];
  snprintf(config, sizeof config, "%s", openblas_get_config());
  char *space = strchr(config, ' ');
  space = space ? strchr(space + 1, ' ') : NULL;
  if (space)
    *space = 0;
  snprintf(text, size, "%.64s (%.32s), 1 thread", config, openblas_get_corename());
#else
  snprintf(text, size, "CBLAS");
#endif
}

/* What the product is added to: y = join(addend, b). */
static void set_rows(const petra_linear_forward *a, int64_t rows, int64_t out) {
  const float *b = a->b ? cpu_read(a->b) : NULL, *addend = a->join == PETRA_JOIN_NONE ? NULL : cpu_read(a->addend);
  float *y = cpu_data(a->y);
  for (int64_t i = 0; i < rows; i++)
    for (int64_t o = 0; o < out; o++)
      y[i * out + o] =
          (float)petra_element_join(a->join, false, b ? (double)b[o] : 0, addend ? (double)addend[i * out + o] : 0);
}

petra_status cpu_linear_forward(petra_backend *backend, const petra_linear_forward *a) {
  (void)backend;
  const int n = (int)petra_tensor_rows(a->x), in = petra_tensor_columns(a->x), out = a->w->shape[0];
  set_rows(a, n, out);
  cblas_sgemm(CblasRowMajor, CblasNoTrans, CblasTrans, n, out, in, a->join == PETRA_JOIN_SUBTRACT ? -1 : 1,
              cpu_read(a->x), in, cpu_read(a->w), in, 1, cpu_data(a->y), out);
  return PETRA_OK;
}

petra_status cpu_linear_backward_data(petra_backend *backend, const petra_tensor *dy, const petra_tensor *w,
                                      petra_tensor *dx) {
  (void)backend;
  const int n = (int)petra_tensor_rows(dy), in = w->shape[1], out = w->shape[0];
  cblas_sgemm(CblasRowMajor, CblasNoTrans, CblasNoTrans, n, in, out, 1, cpu_read(dy), out, cpu_read(w), in, 0,
              cpu_data(dx), in);
  return PETRA_OK;
}

petra_status cpu_linear_backward_weights(petra_backend *backend, const petra_tensor *x, const petra_tensor *dy,
                                         petra_tensor *dw, petra_tensor *db) {
  (void)backend;
  const int n = (int)petra_tensor_rows(x), in = dw->shape[1], out = dw->shape[0];
  cblas_sgemm(CblasRowMajor, CblasTrans, CblasNoTrans, out, in, n, 1, cpu_read(dy), out, cpu_read(x), in, 0,
              cpu_data(dw), in);
  for (int o = 0; db && o < out; o++) {
    double sum = 0;
    for (int i = 0; i < n; i++)
      sum += (double)cpu_read(dy)[(int64_t)i * out + o];
    cpu_data(db)[o] = (float)sum;
  }
  return PETRA_OK;
}

/* log of the sum of exp over one row, in double. */
static double log_sum_exp(const float *row, int classes) {
  double largest = (double)row[0], sum = 0;
  for (int j = 1; j < classes; j++)
    if ((double)row[j] > largest)
      largest = (double)row[j];
  for (int j = 0; j < classes; j++)
    sum += exp((double)row[j] - largest);
  return largest + log(sum);
}

/* Classes that are better than the label; a NaN is never worse than anything. */
static int rank_of(const float *row, int classes, int label) {
  int better = 0;
  for (int j = 0; j < classes; j++)
    if (j != label && !(row[label] > row[j] || (row[label] == row[j] && label < j)))
      better++;
  return better;
}

petra_status cpu_cross_entropy(petra_backend *backend, petra_cross_entropy *a) {
  (void)backend;
  const int64_t n = petra_tensor_rows(a->logits);
  const int classes = petra_tensor_columns(a->logits);
  double loss = 0;
  a->top1 = a->top5 = 0;
  for (int64_t i = 0; i < n; i++) {
    const float *row = cpu_read(a->logits) + i * classes;
    const int label = a->labels[i];
    double log_sum = log_sum_exp(row, classes);
    loss += log_sum - (double)row[label];
    int rank = rank_of(row, classes, label);
    a->top1 += rank < 1;
    a->top5 += rank < 5;
    for (int j = 0; a->dlogits && j < classes; j++)
      cpu_data(a->dlogits)[i * classes + j] =
          (float)((exp((double)row[j] - log_sum) - (j == label ? 1 : 0)) / (double)n);
  }
  a->loss = loss / (double)n;
  return PETRA_OK;
}
