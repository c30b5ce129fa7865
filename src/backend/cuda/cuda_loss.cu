/* SPDX-License-Identifier: Apache-2.0 */
/* Cross entropy: a block for each row (an image, or a position of a sequence), then one block for the sums over
 * rows. */
#include "backend/cuda/cuda_device.h"

#include <math.h>

enum {
  CUDA_LOSS_THREADS = 128,
  CUDA_LOSS_FEW = 32,   /* number of classes for which more threads would only wait for each other */
  CUDA_LOSS_SUMS = 1024 /* maximum number of threads that sum over the rows */
};

typedef struct cuda_row_loss {
  double loss;
  int32_t better; /* number of classes that are not worse than the label */
} cuda_row_loss;

typedef struct cuda_loss_args {
  cuda_cross_entropy_args a;
  cuda_row_loss *row;
} cuda_loss_args;

size_t cuda_cross_entropy_scratch(int32_t n) {
  return (size_t)n * sizeof(cuda_row_loss);
}

/* A tie goes to the lower class. A class whose logit is NaN is not worse than any other class, and no class is worse
 * than a label whose logit is NaN: a network that has diverged must not look accurate. */
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
  maximum = cuda_block_largest(shared, maximum);
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

/* Each thread sums every PETRA_THREADS-th row; then the block adds these sums in pairs. Thousands of positions of a
 * sequence are added quickly, in an order that depends on their number alone. */
PETRA_KERNEL(cuda_batch_loss_kernel, const cuda_loss_args a) {
  PETRA_SHARED double shared[CUDA_LOSS_SUMS];
  double loss = 0, top1 = 0, top5 = 0;
  PETRA_UNROLL_SOME for (int32_t i = PETRA_THREAD; i < a.a.n; i += PETRA_THREADS) {
    const cuda_row_loss row = a.row[i];
    loss += row.loss;
    top1 += row.better < 1;
    top5 += row.better < 5;
  }
  loss = cuda_block_sum(shared, loss);
  top1 = cuda_block_sum(shared, top1);
  top5 = cuda_block_sum(shared, top5);
  if (PETRA_THREAD == 0) {
    a.a.result->loss = loss / a.a.n;
    a.a.result->top1 = (int32_t)top1;
    a.a.result->top5 = (int32_t)top5;
  }
}

/* A power of two: those that have a row, and no more than a block can have. */
static int sum_threads(int32_t n) {
  int threads = CUDA_LOSS_FEW;
  while (threads < n && threads < CUDA_LOSS_SUMS)
    threads *= 2;
  return threads;
}

petra_status cuda_cross_entropy_launch(const cuda_lane *lane, const void *arguments) {
  const cuda_cross_entropy_args *a = (const cuda_cross_entropy_args *)arguments;
  const cuda_loss_args kernel = {*a, (cuda_row_loss *)lane->scratch};
  PETRA_LAUNCH_BLOCK(lane, cuda_row_loss_kernel, a->n, a->classes <= CUDA_LOSS_FEW ? CUDA_LOSS_FEW : CUDA_LOSS_THREADS,
                     kernel);
  PETRA_LAUNCH_BLOCK(lane, cuda_batch_loss_kernel, 1, sum_threads(a->n), kernel);
  return cuda_launched("cross_entropy");
}
