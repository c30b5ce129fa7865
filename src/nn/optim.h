/* The optimiser's settings: SGD with momentum, weight decay that leaves out batch-norm parameters and biases. */
#ifndef PETRA_NN_OPTIM_H
#define PETRA_NN_OPTIM_H

#include "nn/tensors.h"

typedef struct petra_optim {
  double momentum, weight_decay;
  bool nesterov, decay_norm_and_bias;
} petra_optim;

petra_optim petra_optim_from_config(const petra_config *config);

/* Weight decay of the block's parameter `index`. */
double petra_optim_decay(const petra_optim *optim, const petra_model *model, const petra_block *block, int index);

/* One step of a block with the given rate (petra_sgd_step in backend/backend.h has the equations). `first`: no step was
 * made before. */
petra_status petra_optim_step(const petra_optim *optim, const petra_compute *compute, const petra_model *model,
                              const petra_block *block, double lr, bool first, const petra_tensor_set *parameters,
                              const petra_tensor_set *velocities, const petra_tensor_set *gradients);

#endif
