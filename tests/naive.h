/* SPDX-License-Identifier: Apache-2.0 */
/* The operations of backend.h written straight from their definitions, on dense arrays in the logical order.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "backend/backend.h"

typedef struct naive_conv_sizes {
  int n, c, h, w, o, kernel, stride, pad, oh, ow;
} naive_conv_sizes;

naive_conv_sizes naive_conv_sizes_of(int n, int c, int h, int w, int o, int kernel, int stride, int pad);

/* y = conv(x, w); dx and dw of the sum of dy * y. Outputs start as 0. */
void naive_conv(const naive_conv_sizes *s, const double *x, const double *w, const double *dy, double *y, double *dx,
                double *dw);

/* An activation of a norm: element (n, c, i) is at (n * c_count + c) * plane + i. */
typedef struct naive_norm_sizes {
  int n, c, plane;
} naive_norm_sizes;

/* scale_* are the sums of absolute values that the errors are relative to; the variance, a sum of squares, is
 * its own: a mean far from 0 must not cost it digits. */
void naive_norm_statistics(const naive_norm_sizes *s, const double *x, double *mean, double *variance,
                           double *scale_mean);
void naive_norm_apply(const naive_norm_sizes *s, const double *x, const double *scale, const double *shift,
                      const double *mean, const double *variance, bool relu, petra_join join, const double *addend,
                      double *y, double *scale_y);

/* By the full matrix of derivatives dz_j / dx_i; dz (as x) is given back as well. */
void naive_norm_backward(const naive_norm_sizes *s, const double *x, const double *scale, const double *shift,
                         const double *mean, const double *variance, bool relu, const double *dy, double *dz,
                         double *dx, double *dscale, double *dshift, double *scale_dx, double *scale_dscale,
                         double *scale_dshift);

/* The smallest |z|: how far the ReLU is from changing sides. */
double naive_norm_margin(const naive_norm_sizes *s, const double *x, const double *scale, const double *shift);

typedef struct naive_pool_sizes {
  int planes, h, w, window, stride, pad, oh, ow;
} naive_pool_sizes;

void naive_max_pool(const naive_pool_sizes *s, const double *x, const double *dy, double *y, double *dx);

/* Loss of one image and its gradient; the number of classes that are not worse than the label. */
double naive_cross_entropy(const double *logits, int classes, int label, double *gradient, int *better);
