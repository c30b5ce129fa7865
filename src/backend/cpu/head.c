/* SPDX-License-Identifier: Apache-2.0 */
/* The head on plain row-major matrices: the fully connected layer by CBLAS, and the loss. */
#include "config.h"

#include "backend/cpu/cpu.h"

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

petra_status cpu_linear_forward(petra_backend *backend, const petra_tensor *x, const petra_tensor *w,
                                const petra_tensor *b, petra_tensor *y) {
  (void)backend;
  const int n = x->shape[0], in = x->shape[1], out = w->shape[0];
  for (int i = 0; i < n; i++)
    memcpy(cpu_data(y) + (int64_t)i * out, cpu_read(b), (size_t)out * sizeof(float));
  cblas_sgemm(CblasRowMajor, CblasNoTrans, CblasTrans, n, out, in, 1, cpu_read(x), in, cpu_read(w), in, 1, cpu_data(y),
              out);
  return PETRA_OK;
}

petra_status cpu_linear_backward(petra_backend *backend, const petra_tensor *x, const petra_tensor *w,
                                 const petra_tensor *dy, petra_tensor *dx, petra_tensor *dw, petra_tensor *db) {
  (void)backend;
  const int n = x->shape[0], in = x->shape[1], out = w->shape[0];
  cblas_sgemm(CblasRowMajor, CblasNoTrans, CblasNoTrans, n, in, out, 1, cpu_read(dy), out, cpu_read(w), in, 0,
              cpu_data(dx), in);
  cblas_sgemm(CblasRowMajor, CblasTrans, CblasNoTrans, out, in, n, 1, cpu_read(dy), out, cpu_read(x), in, 0,
              cpu_data(dw), in);
  for (int o = 0; o < out; o++) {
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
  const int n = a->logits->shape[0], classes = a->logits->shape[1];
  double loss = 0;
  a->top1 = a->top5 = 0;
  for (int i = 0; i < n; i++) {
    const float *row = cpu_read(a->logits) + (int64_t)i * classes;
    const int label = a->labels[i];
    double log_sum = log_sum_exp(row, classes);
    loss += log_sum - (double)row[label];
    int rank = rank_of(row, classes, label);
    a->top1 += rank < 1;
    a->top5 += rank < 5;
    for (int j = 0; a->dlogits && j < classes; j++)
      cpu_data(a->dlogits)[(int64_t)i * classes + j] =
          (float)((exp((double)row[j] - log_sum) - (j == label ? 1 : 0)) / n);
  }
  a->loss = loss / n;
  return PETRA_OK;
}
