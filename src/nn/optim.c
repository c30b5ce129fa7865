/* SPDX-License-Identifier: Apache-2.0 */
#include "nn/optim.h"

#include "backend/ops.h"

petra_optim petra_optim_from_config(const petra_config *config) {
  return (petra_optim){.momentum = config->optim.momentum,
                       .weight_decay = config->optim.weight_decay,
                       .nesterov = config->optim.nesterov,
                       .decay_norm_and_bias = config->optim.decay_norm_and_bias};
}

double petra_optim_decay(const petra_optim *optim, const petra_model *model, const petra_block *block, int index) {
  petra_tensor_spec spec;
  petra_block_parameter(model, block, index, &spec);
  return spec.decay || optim->decay_norm_and_bias ? optim->weight_decay : 0;
}

petra_status petra_optim_step(const petra_optim *optim, const petra_compute *compute, const petra_model *model,
                              const petra_block *block, double lr, bool first, const petra_tensor_set *parameters,
                              const petra_tensor_set *velocities, const petra_tensor_set *gradients) {
  double decay[PETRA_BLOCK_TENSORS];
  for (int i = 0; i < parameters->count; i++)
    decay[i] = petra_optim_decay(optim, model, block, i);
  const petra_sgd_step step = {.count = parameters->count,
                               .parameters = parameters->tensor,
                               .velocities = velocities->tensor,
                               .gradients = gradients->tensor,
                               .weight_decay = decay,
                               .lr = lr,
                               .momentum = optim->momentum,
                               .nesterov = optim->nesterov,
                               .first = first};
  return petra_op_sgd_step(compute->backend, &step);
}

petra_lr petra_lr_from_config(const petra_config *config, int64_t batches_per_epoch) {
  petra_lr lr = {.base = config->optim.lr,
                 .batches = batches_per_epoch,
                 .warmup = config->lr.warmup_epochs * batches_per_epoch,
                 .milestones = config->lr.milestones,
                 .factor = config->lr.factor};
  if (config->optim.lr_scaling == PETRA_LR_GOYAL)
    lr.base *= (double)(config->cluster.replicas * config->data.batch * config->method.accumulate) / 256;
  return lr;
}

double petra_lr_at(const petra_lr *lr, int64_t index) {
  double rate = index < lr->warmup ? lr->base * (double)(index + 1) / (double)lr->warmup : lr->base;
  for (int64_t i = 0; i < lr->milestones.count; i++)
    if (index / lr->batches >= lr->milestones.values[i])
      rate *= lr->factor;
  return rate;
}
