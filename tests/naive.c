/* SPDX-License-Identifier: Apache-2.0 */
#include "naive.h"

#include <math.h>

naive_conv_sizes naive_conv_sizes_of(int n, int c, int h, int w, int o, int kernel, int stride, int pad) {
  return (naive_conv_sizes){
      n, c, h, w, o, kernel, stride, pad, (h + 2 * pad - kernel) / stride + 1, (w + 2 * pad - kernel) / stride + 1};
}

/* One output element and its gradients. */
static void conv_point(const naive_conv_sizes *s, int n, int o, int i, int j, const double *x, const double *w,
                       const double *dy, double *y, double *dx, double *dw) {
  int at_y = ((n * s->o + o) * s->oh + i) * s->ow + j;
  for (int c = 0; c < s->c; c++)
    for (int kh = 0; kh < s->kernel; kh++)
      for (int kw = 0; kw < s->kernel; kw++) {
        int row = i * s->stride + kh - s->pad, column = j * s->stride + kw - s->pad;
        if (row < 0 || row >= s->h || column < 0 || column >= s->w)
          continue;
        int at_x = ((n * s->c + c) * s->h + row) * s->w + column;
        int at_w = ((o * s->c + c) * s->kernel + kh) * s->kernel + kw;
        y[at_y] += w[at_w] * x[at_x];
        dx[at_x] += w[at_w] * dy[at_y];
        dw[at_w] += x[at_x] * dy[at_y];
      }
}

void naive_conv(const naive_conv_sizes *s, const double *x, const double *w, const double *dy, double *y, double *dx,
                double *dw) {
  for (int n = 0; n < s->n; n++)
    for (int o = 0; o < s->o; o++)
      for (int i = 0; i < s->oh; i++)
        for (int j = 0; j < s->ow; j++)
          conv_point(s, n, o, i, j, x, w, dy, y, dx, dw);
}

/* Index of sample k (of n * plane) of channel c. */
static int sample(const naive_norm_sizes *s, int c, int k) {
  return (k / s->plane * s->c + c) * s->plane + k % s->plane;
}

void naive_norm_statistics(const naive_norm_sizes *s, const double *x, double *mean, double *variance,
                           double *scale_mean) {
  int count = s->n * s->plane;
  for (int c = 0; c < s->c; c++) {
    mean[c] = variance[c] = scale_mean[c] = 0;
    for (int k = 0; k < count; k++) {
      mean[c] += x[sample(s, c, k)] / count;
      scale_mean[c] += fabs(x[sample(s, c, k)]) / count;
    }
    for (int k = 0; k < count; k++) {
      double value = x[sample(s, c, k)];
      variance[c] += (value - mean[c]) * (value - mean[c]) / count;
    }
  }
}

static double relu_of(double x) {
  return x < 0 ? 0 : x; /* NaN stays */
}

void naive_norm_apply(const naive_norm_sizes *s, const double *x, const double *scale, const double *shift,
                      const double *mean, const double *variance, bool relu, petra_join join, const double *addend,
                      double *y, double *scale_y) {
  for (int i = 0; i < s->n * s->c * s->plane; i++) {
    int c = i / s->plane % s->c;
    double deviation = sqrt(variance[c] + 1e-5);
    double z = scale[c] * (x[i] - mean[c]) / deviation + shift[c], act = relu ? relu_of(z) : z;
    y[i] = act;
    if (join == PETRA_JOIN_ADD)
      y[i] = addend[i] + act;
    if (join == PETRA_JOIN_SUBTRACT)
      y[i] = addend[i] - act;
    if (join == PETRA_JOIN_ADD_ACTIVATE)
      y[i] = relu ? relu_of(addend[i] + z) : addend[i] + z;
    scale_y[i] = fabs(scale[c]) * (fabs(x[i]) + fabs(mean[c])) / deviation + fabs(shift[c]) +
                 (join == PETRA_JOIN_NONE ? 0 : fabs(addend[i]));
  }
}

/* The gradient of z: what comes through the activation. A z that is NaN lets nothing through. */
static void through(const naive_norm_sizes *s, const double *x, const double *scale, const double *shift,
                    const double *mean, const double *variance, bool relu, const double *dy, double *dz) {
  for (int i = 0; i < s->n * s->c * s->plane; i++) {
    int c = i / s->plane % s->c;
    double z = scale[c] * (x[i] - mean[c]) / sqrt(variance[c] + 1e-5) + shift[c];
    dz[i] = !relu || z > 0 ? dy[i] : 0;
  }
}

/* Sample i of channel c: dx_i is the sum over j of dz_j dz_j/dx_i, where x_i acts on z_j itself (i = j),
 * through the mean (1 / count) and through the variance (2 (x_i - mean) / count). */
static void norm_point(const naive_norm_sizes *s, int c, int i, const double *x, double scale, double mean,
                       double deviation, const double *dz, double *dx, double *scale_dx) {
  int at = sample(s, c, i), count = s->n * s->plane;
  double dmean = 1.0 / count, dvariance = 2 * (x[at] - mean) / count, cube = deviation * deviation * deviation;
  dx[at] = scale_dx[at] = 0;
  for (int j = 0; j < count; j++) {
    int other = sample(s, c, j);
    dx[at] += dz[other] * scale * (((i == j) - dmean) / deviation - (x[other] - mean) * dvariance / (2 * cube));
    scale_dx[at] +=
        fabs(dz[other] * scale) *
        (((i == j) + dmean) / deviation + (fabs(x[other]) + fabs(mean)) * (fabs(x[at]) + fabs(mean)) / (count * cube));
  }
}

void naive_norm_backward(const naive_norm_sizes *s, const double *x, const double *scale, const double *shift,
                         const double *mean, const double *variance, bool relu, const double *dy, double *dz,
                         double *dx, double *dscale, double *dshift, double *scale_dx, double *scale_dscale,
                         double *scale_dshift) {
  through(s, x, scale, shift, mean, variance, relu, dy, dz);
  for (int c = 0; c < s->c; c++) {
    double m = mean[c], deviation = sqrt(variance[c] + 1e-5);
    dscale[c] = dshift[c] = scale_dscale[c] = scale_dshift[c] = 0;
    for (int j = 0; j < s->n * s->plane; j++) {
      int at = sample(s, c, j);
      dshift[c] += dz[at];
      scale_dshift[c] += fabs(dz[at]);
      dscale[c] += dz[at] * (x[at] - m) / deviation;
      scale_dscale[c] += fabs(dz[at]) * (fabs(x[at]) + fabs(m)) / deviation;
      norm_point(s, c, j, x, scale[c], m, deviation, dz, dx, scale_dx);
    }
  }
}

double naive_norm_margin(const naive_norm_sizes *s, const double *x, const double *scale, const double *shift) {
  double least = 1;
  for (int c = 0; c < s->c; c++) {
    double mean = 0, variance = 0;
    int count = s->n * s->plane;
    for (int k = 0; k < count; k++)
      mean += x[sample(s, c, k)] / count;
    for (int k = 0; k < count; k++)
      variance += pow(x[sample(s, c, k)] - mean, 2) / count;
    for (int k = 0; k < count; k++)
      least = fmin(least, fabs(scale[c] * (x[sample(s, c, k)] - mean) / sqrt(variance + 1e-5) + shift[c]));
  }
  return least;
}

/* The first maximum of a window, the first NaN if there is one; gives its index in the plane. */
static int winner(const naive_pool_sizes *s, const double *x, int i, int j) {
  int best = -1;
  for (int k = 0; k < s->window * s->window; k++) {
    int row = i * s->stride - s->pad + k / s->window, column = j * s->stride - s->pad + k % s->window;
    if (row < 0 || row >= s->h || column < 0 || column >= s->w)
      continue;
    int at = row * s->w + column;
    if (best < 0 || x[at] > x[best] || (isnan(x[at]) && !isnan(x[best])))
      best = at;
  }
  return best;
}

void naive_max_pool(const naive_pool_sizes *s, const double *x, const double *dy, double *y, double *dx) {
  for (int i = 0; i < s->planes * s->h * s->w; i++)
    dx[i] = 0;
  for (int p = 0; p < s->planes; p++)
    for (int k = 0; k < s->oh * s->ow; k++) {
      int at = p * s->h * s->w + winner(s, x + p * s->h * s->w, k / s->ow, k % s->ow);
      y[p * s->oh * s->ow + k] = x[at];
      dx[at] += dy[p * s->oh * s->ow + k];
    }
}

double naive_cross_entropy(const double *logits, int classes, int label, double *gradient, int *better) {
  double sum = 0;
  *better = 0;
  for (int k = 0; k < classes; k++) {
    sum += exp(logits[k]);
    bool worse = logits[k] < logits[label] || (logits[k] == logits[label] && k > label);
    *better += k != label && !worse;
  }
  for (int k = 0; k < classes; k++)
    gradient[k] = exp(logits[k]) / sum - (k == label ? 1 : 0);
  return log(sum) - logits[label];
}
