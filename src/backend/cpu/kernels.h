/* The inner loops of the element-wise and norm operations, over contiguous memory, each compiled for several
 * instruction sets. They hold no OpenMP region; their callers share out the work. */
#ifndef PETRA_BACKEND_CPU_KERNELS_H
#define PETRA_BACKEND_CPU_KERNELS_H

#include "backend/backend.h"

#include <stdbool.h>
#include <stdint.h>

void cpu_kernel_axpy(float alpha, const float *x, float *y, int64_t count);
void cpu_kernel_add(const float *a, const float *b, float *y, int64_t count); /* y may be a or b */
double cpu_kernel_dot(const float *a, const float *b, int64_t count);
void cpu_kernel_relu_backward(const float *y, const float *dy, float *dx, int64_t count); /* dx may be dy */

typedef struct cpu_sgd_rates {
  float lr, momentum, decay;
  bool nesterov, first;
} cpu_sgd_rates;
void cpu_kernel_sgd(const cpu_sgd_rates *rates, const float *g, float *v, float *p, int64_t count);

/* Pieces of one block of channels: `rows` stretches of `pixels` pixels, `row_step` floats apart. */
typedef struct cpu_piece {
  int block;
  int64_t rows, pixels, row_step;
} cpu_piece;

/* Mean and sum of squared distances from that mean, of each of the block's channels. */
void cpu_kernel_norm_statistics(const cpu_piece *piece, const float *x, float *mean, float *square);

/* One block's channels: z = (x - mean) * factor + shift. */
typedef struct cpu_norm_channels {
  const float *mean, *factor, *shift;
} cpu_norm_channels;

void cpu_kernel_norm_apply(const cpu_piece *piece, const cpu_norm_channels *channels, bool relu, petra_join join,
                           const float *x, const float *addend, float *y);

/* With g = dy where act is not flat, else 0: the sums of g and of g * (x - mean). */
void cpu_kernel_norm_sums(const cpu_piece *piece, const cpu_norm_channels *channels, bool relu, const float *x,
                          const float *dy, float *sum, float *product);

/* dx = factor * (g - offset - (x - mean) * slope). */
void cpu_kernel_norm_backward(const cpu_piece *piece, const cpu_norm_channels *channels, bool relu, const float *offset,
                              const float *slope, const float *x, const float *dy, float *dx);

#endif
