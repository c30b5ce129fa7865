/* SPDX-License-Identifier: Apache-2.0 */
/* What the files of the optimisers share. */
#ifndef PETRA_NN_OPTIM_PRIVATE_H
#define PETRA_NN_OPTIM_PRIVATE_H

#include "nn/optim.h"

/* The tensors of one step, parameter by parameter; those that an optimiser does not keep are NULL. */
typedef struct petra_optim_tensors {
  int count;
  petra_tensor *parameters[PETRA_BLOCK_TENSORS], *gradients[PETRA_BLOCK_TENSORS];
  petra_tensor *states[PETRA_OPTIMISER_STATES][PETRA_BLOCK_TENSORS];
  double decay[PETRA_BLOCK_TENSORS];
} petra_optim_tensors;

/* w of a weight that Muon takes as a matrix (index `i` of the tensors), by its rate. */
petra_status petra_muon_step(const petra_optim *optim, const petra_compute *compute, const petra_optim_tensors *tensors,
                             int i, double lr);

/* Adds what the same costs: FLOPs of its products and the elements that they read and write; of its other passes (18 over the
 * matrix) as elements that AdamW, with 7 passes, would take as long for. */
void petra_muon_cost(const petra_tensor_spec *spec, double *flops, double *passes, double *elements);

#endif
