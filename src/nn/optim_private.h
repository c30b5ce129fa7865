/* SPDX-License-Identifier: Apache-2.0 */
/* Definitions that the files of the optimisers share. */
#pragma once

#include "nn/optim.h"

/* The first of the optimiser's states that do not have the parameter's shape: averages of G G^T and G^T G, then the
 * bases (optim.h). */
enum { PETRA_ROTATION_AVERAGES = 2, PETRA_ROTATION_BASES = 4 };

/* The tensors of one step, parameter by parameter. Those that an optimiser does not keep are NULL. */
typedef struct petra_optim_tensors {
  int count;
  petra_tensor *parameters[PETRA_BLOCK_TENSORS], *gradients[PETRA_BLOCK_TENSORS];
  petra_tensor *states[PETRA_OPTIMISER_STATES][PETRA_BLOCK_TENSORS];
  double decay[PETRA_BLOCK_TENSORS];
} petra_optim_tensors;

/* Creates a copy of gradient `i` to which the weight is added, times its decay. */
petra_status petra_optim_decayed(const petra_compute *compute, const petra_optim_tensors *t, int i, petra_tensor **out);

/* Updates all tensors by LARS, after `steps` steps. */
petra_status petra_lars_step(const petra_optim *optim, const petra_compute *compute, const petra_optim_tensors *tensors,
                             double lr, int64_t steps);

/* Updates a weight that Muon treats as a matrix (index `i` of the tensors) with its rate. */
petra_status petra_muon_step(const petra_optim *optim, const petra_compute *compute, const petra_optim_tensors *tensors,
                             int i, double lr);

/* Updates a weight that basis rotation treats as a matrix, after `steps` steps. */
petra_status petra_rotation_step(const petra_optim *optim, const petra_compute *compute,
                                 const petra_optim_tensors *tensors, int i, double lr, int64_t steps);

/* Returns true if basis rotation rotates a side of a matrix: 0, that of its rows, or 1, that of its columns. */
bool petra_rotation_has(const petra_optim *optim, int64_t rows, int64_t columns, int side);

/* Adds the cost of a step of basis rotation: FLOPs of products, and elements that they read and write. */
void petra_rotation_cost(const petra_optim *optim, const petra_tensor_spec *spec, double *flops, double *passes);

/* Adds the cost of Muon's step: FLOPs of its products and the elements that they read and write. Its other passes (18
 * over the matrix) count as the elements for which AdamW, with 7 passes, would take as long. */
void petra_muon_cost(const petra_tensor_spec *spec, double *flops, double *passes, double *elements);
