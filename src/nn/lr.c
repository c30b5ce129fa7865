#include "nn/lr.h"

petra_lr petra_lr_from_config(const petra_config *config, int64_t batches_per_epoch) {
  petra_lr lr = {.base = config->optim.lr,
                 .batches = batches_per_epoch,
                 .warmup = config->lr.warmup_epochs * batches_per_epoch,
                 .milestones = config->lr.milestones,
                 .factor = config->lr.factor};
  if (config->optim.lr_scaling == PETRA_LR_GOYAL)
    lr.base *= (double)(config->data.batch * config->method.accumulate) / 256;
  return lr;
}

double petra_lr_at(const petra_lr *lr, int64_t index) {
  double rate = index < lr->warmup ? lr->base * (double)(index + 1) / (double)lr->warmup : lr->base;
  for (int64_t i = 0; i < lr->milestones.count; i++)
    if (index / lr->batches >= lr->milestones.values[i])
      rate *= lr->factor;
  return rate;
}
