/* SPDX-License-Identifier: Apache-2.0 */
/* The optimiser: SGD with momentum, weight decay that leaves out batch-norm parameters and biases; its learning rate. */
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

/* The learning rate as a function of an index: the global tick in lockstep programs, a microbatch in others. */
typedef struct petra_lr {
  double base;               /* after scaling */
  int64_t batches;           /* microbatches per epoch */
  int64_t warmup;            /* indices of the linear warm-up: warmup_epochs * batches */
  petra_int_list milestones; /* epochs; borrowed from the config */
  double factor;
} petra_lr;

/* Base rate: lr, times r * batch * k / 256 (r replicas) with lr_scaling: goyal (Goyal et al. 2017). */
petra_lr petra_lr_from_config(const petra_config *config, int64_t batches_per_epoch);

/* base * (index + 1) / warmup while index < warmup, else base; times factor for every milestone that the epoch
 * floor(index / batches) has reached. */
double petra_lr_at(const petra_lr *lr, int64_t index);

#endif
