/* SPDX-License-Identifier: Apache-2.0 */
/* Differences between gradients: the measures of docs/semantics/gradient-fidelity.md, over pairs of the three gradients
 * of a probe. */
#include "probe/probe_private.h"

#include "backend/backend.h"

#include <math.h>

#define PAIR_GRADIENTS(name, text, first, second) {PETRA_GRADIENT_##first, PETRA_GRADIENT_##second},
static const petra_gradient pairs[PETRA_PAIRS][2] = {PETRA_PAIR_LIST(PAIR_GRADIENTS)};
#undef PAIR_GRADIENTS

/* Sums over the elements of one tensor, or of several tensors concatenated. */
typedef struct products {
  double square[PETRA_GRADIENTS]; /* <x, x> */
  double product[PETRA_PAIRS];    /* <x, y> */
  double distance[PETRA_PAIRS];   /* <x - y, x - y> */
} products;

/* Computes <x - y, x - y> from the difference itself, in the scratch tensor `apart`. A result from the other sums would
 * be rounding error. */
static petra_status distance(petra_backend *backend, const petra_tensor *x, const petra_tensor *y, petra_tensor *apart,
                             double *out) {
  PETRA_TRY(petra_op_copy(backend, x, apart));
  PETRA_TRY(petra_op_axpy(backend, -1, y, apart));
  return petra_op_dot(backend, apart, apart, out);
}

/* Computes the sums of one tensor from its three gradients. */
static petra_status compute_products(const petra_compute *compute, const petra_tensor *const tensors[PETRA_GRADIENTS],
                                     products *out) {
  petra_backend *backend = compute->backend;
  PETRA_RELEASED petra_tensor *apart = NULL;
  products sums;
  PETRA_TRY(petra_compute_like(compute, tensors[0], PETRA_MEMORY_WORKSPACE, &apart));
  for (int g = 0; g < PETRA_GRADIENTS; g++)
    PETRA_TRY(petra_op_dot(backend, tensors[g], tensors[g], &sums.square[g]));
  for (int p = 0; p < PETRA_PAIRS; p++) {
    const petra_tensor *x = tensors[pairs[p][0]], *y = tensors[pairs[p][1]];
    PETRA_TRY(petra_op_dot(backend, x, y, &sums.product[p]));
    PETRA_TRY(distance(backend, x, y, apart, &sums.distance[p]));
  }
  *out = sums;
  return PETRA_OK;
}

static void add_products(products *sum, const products *one) {
  for (int g = 0; g < PETRA_GRADIENTS; g++)
    sum->square[g] += one->square[g];
  for (int p = 0; p < PETRA_PAIRS; p++) {
    sum->product[p] += one->product[p];
    sum->distance[p] += one->distance[p];
  }
}

/* Returns a measure of a pair; NaN if it would divide by a norm of 0. */
static double measure_of(const products *of, petra_measure measure, petra_pair pair) {
  double x = sqrt(of->square[pairs[pair][0]]), y = sqrt(of->square[pairs[pair][1]]);
  if (y == 0 || (measure == PETRA_MEASURE_COSINE && x == 0))
    return NAN;
  switch (measure) {
  case PETRA_MEASURE_COSINE:
    return of->product[pair] / x / y;
  case PETRA_MEASURE_NORM_RATIO:
    return x / y;
  case PETRA_MEASURE_RELATIVE_ERROR:
    return sqrt(of->distance[pair]) / y;
  case PETRA_MEASURES:
    break;
  }
  return NAN;
}

petra_status petra_probe_distance(const petra_compute *compute, const petra_streams *found, const petra_streams *truth,
                                  double *out) {
  double difference = 0, whole = 0;
  for (int i = 0; i < 2; i++) {
    const petra_tensor *expected = truth->tensor[i];
    PETRA_RELEASED petra_tensor *apart = NULL;
    double square, of_truth;
    if (!expected)
      continue;
    PETRA_TRY(petra_compute_like(compute, expected, PETRA_MEMORY_WORKSPACE, &apart));
    PETRA_TRY(distance(compute->backend, found->tensor[i], expected, apart, &square));
    PETRA_TRY(petra_op_dot(compute->backend, expected, expected, &of_truth));
    difference += square;
    whole += of_truth;
  }
  *out = sqrt(difference / whole);
  return PETRA_OK;
}

/* The mean of the values that are defined. */
typedef struct mean {
  double sum;
  int count;
} mean;

static void count_in(mean *m, double value) {
  if (!isfinite(value))
    return;
  m->sum += value;
  m->count++;
}

static double mean_of(const mean *m) {
  return m->count ? m->sum / m->count : NAN;
}

petra_status petra_probe_compare_stage(petra_probe *probe, petra_probe_window *window, int32_t j) {
  const int32_t stages = probe->stages;
  mean means[PETRA_MEASURES][PETRA_PAIRS] = {0};
  products whole = {0};
  for (int b = petra_probe_first(probe, j); b < petra_probe_end(probe, j); b++)
    for (int i = 0; i < window->sums[0][b].count; i++) {
      const petra_tensor *tensors[PETRA_GRADIENTS];
      products one;
      bool counts = !petra_block_parameter_is_invariant(probe->model, &probe->model->blocks[b], i);
      for (int g = 0; g < PETRA_GRADIENTS; g++)
        tensors[g] = window->sums[g][b].tensor[i];
      PETRA_TRY(compute_products(&probe->compute, tensors, &one));
      if (counts)
        add_products(&whole, &one);
      for (int m = 0; m < PETRA_MEASURES; m++)
        for (int p = 0; p < PETRA_PAIRS; p++) {
          double value = measure_of(&one, (petra_measure)m, (petra_pair)p);
          window->parameter[(m * PETRA_PAIRS + p) * probe->parameters + probe->offset[b] + i] = value;
          if (counts)
            count_in(&means[m][p], value);
        }
    }
  for (int p = 0; p < PETRA_PAIRS; p++) {
    window->concatenated[p * stages + j] = measure_of(&whole, PETRA_MEASURE_COSINE, (petra_pair)p);
    for (int m = 0; m < PETRA_MEASURES; m++)
      window->stage[(m * PETRA_PAIRS + p) * stages + j] = mean_of(&means[m][p]);
  }
  return PETRA_OK;
}
