/* SPDX-License-Identifier: Apache-2.0 */
/* Cross entropy: a block for each row (an image, or a position of a sequence), then one block for the sums over rows. */
#include "backend/cuda/grid.h"

#include <math.h>

enum {
  CUDA_LOSS_THREADS = 128,
  CUDA_LOSS_FEW = 32 /* classes, for which more threads than that would only wait for each other */
};

typedef struct cuda_row_loss {
  double loss;
  int32_t better; /* classes that are not worse than the label */
} cuda_row_loss;

typedef struct cuda_loss_args {
  cuda_cross_entropy_args a;
  cuda_row_loss *row;
} cuda_loss_args;

size_t cuda_cross_entropy_scratch(int32_t n) {
  return (size_t)n * sizeof(cuda_row_loss);
}

/* The larger of two; a NaN is larger than everything. */
PETRA_DEVICE double cuda_larger(double a, double b) {
  return isnan(a) || b <= a ? a : b;
}

PETRA_DEVICE double cuda_block_larger(double *shared, double value) {
  shared[PETRA_THREAD] = value;
  for (int half = PETRA_THREADS / 2; half > 0; half /= 2) {
    PETRA_SYNC();
    if (PETRA_THREAD < half)
      shared[PETRA_THREAD] = cuda_larger(shared[PETRA_THREAD], shared[PETRA_THREAD + half]);
  }
  PETRA_SYNC();
  value = shared[0];
  PETRA_SYNC();
  return value;
}

/* A tie goes to the lower class. A NaN is worse than nothing and nothing is worse than it, so that a network that has
 * diverged does not look accurate. */
PETRA_DEVICE bool cuda_not_worse(float logit, int32_t k, float of_label, int32_t label) {
  const bool worse = logit < of_label || (logit == of_label && k > label);
  return k != label && !worse;
}

PETRA_KERNEL(cuda_row_loss_kernel, const cuda_loss_args a) {
  PETRA_SHARED double shared[CUDA_LOSS_THREADS];
  const int32_t classes = a.a.classes, label = a.a.labels[PETRA_BLOCK];
  const float *logits = a.a.logits + PETRA_BLOCK * classes;
  const float of_label = logits[label];
  double maximum = -INFINITY, sum = 0, better = 0;
  for (int32_t k = PETRA_THREAD; k < classes; k += PETRA_THREADS) {
    maximum = cuda_larger(maximum, logits[k]);
    better += cuda_not_worse(logits[k], k, of_label, label);
  }
  maximum = cuda_block_larger(shared, maximum);
  for (int32_t k = PETRA_THREAD; k < classes; k += PETRA_THREADS)
    sum += exp(logits[k] - maximum);
  sum = cuda_block_sum(shared, sum);
  better = cuda_block_sum(shared, better);
  if (a.a.dlogits)
    for (int32_t k = PETRA_THREAD; k < classes; k += PETRA_THREADS)
      a.a.dlogits[PETRA_BLOCK * classes + k] = (float)((exp(logits[k] - maximum) / sum - (k == label)) / a.a.n);
  if (PETRA_THREAD == 0) {
    a.row[PETRA_BLOCK].loss = log(sum) - (of_label - maximum);
    a.row[PETRA_BLOCK].better = (int32_t)better;
  }
}

/* In the order of the rows, as every backend sums: the threads only fetch. */
PETRA_KERNEL(cuda_batch_loss_kernel, const cuda_loss_args a) {
  PETRA_SHARED double loss[CUDA_LOSS_THREADS];
  PETRA_SHARED int32_t better[CUDA_LOSS_THREADS];
  double sum = 0;
  int32_t top1 = 0, top5 = 0;
  for (int32_t first = 0; first < a.a.n; first += CUDA_LOSS_THREADS) {
    if (first + PETRA_THREAD < a.a.n) {
      loss[PETRA_THREAD] = a.row[first + PETRA_THREAD].loss;
      better[PETRA_THREAD] = a.row[first + PETRA_THREAD].better;
    }
    PETRA_SYNC();
    for (int i = 0; PETRA_THREAD == 0 && i < CUDA_LOSS_THREADS && first + i < a.a.n; i++) {
      sum += loss[i];
      top1 += better[i] < 1;
      top5 += better[i] < 5;
    }
    PETRA_SYNC();
  }
  if (PETRA_THREAD == 0) {
    a.a.result->loss = sum / a.a.n;
    a.a.result->top1 = top1;
    a.a.result->top5 = top5;
  }
}

petra_status cuda_cross_entropy_launch(const cuda_lane *lane, const void *arguments) {
  const cuda_cross_entropy_args *a = (const cuda_cross_entropy_args *)arguments;
  const cuda_loss_args kernel = {*a, (cuda_row_loss *)lane->scratch};
  PETRA_LAUNCH_BLOCK(lane, cuda_row_loss_kernel, a->n, a->classes <= CUDA_LOSS_FEW ? CUDA_LOSS_FEW : CUDA_LOSS_THREADS,
                     kernel);
  PETRA_LAUNCH_BLOCK(lane, cuda_batch_loss_kernel, 1, CUDA_LOSS_THREADS, kernel);
  return cuda_launched("cross_entropy");
}
