/* SPDX-License-Identifier: Apache-2.0 */
#include "nn/optim.h"

#include <math.h>

/* Checks a key of other schedules; `empty` is the value that has no effect. */
static petra_status check_unused(const petra_config *config, const char *key, bool empty) {
  bool changed;
  PETRA_TRY(petra_config_changed(config, key, &changed));
  if (!changed || empty)
    return PETRA_OK;
  return petra_config_fail(config, key, "not a key of lr.schedule: %s; expected its default",
                           petra_config_choice_name("lr.schedule", (int)config->lr.schedule));
}

petra_status petra_lr_check(const petra_config *config) {
  const petra_lr_schedule schedule = config->lr.schedule;
  const long long epochs = config->lr.epochs, warmup = config->lr.warmup_epochs, decay = config->lr.decay_epochs;
  const char *name = petra_config_choice_name("lr.schedule", (int)schedule);
  if (schedule != PETRA_LR_WSD)
    PETRA_TRY(check_unused(config, "lr.decay_epochs", false));
  if (schedule == PETRA_LR_STEP) {
    PETRA_TRY(check_unused(config, "lr.epochs", false));
    return check_unused(config, "lr.final", false);
  }
  PETRA_TRY(check_unused(config, "lr.milestones", config->lr.milestones.count == 0));
  PETRA_TRY(check_unused(config, "lr.factor", false));
  if (epochs <= warmup)
    return petra_config_fail(config, "lr.epochs",
                             "%lld with lr.schedule: %s and lr.warmup_epochs: %lld; expected the epochs of the whole "
                             "schedule, more than %lld",
                             epochs, name, warmup, warmup);
  if (schedule == PETRA_LR_WSD && (decay < 1 || decay > epochs - warmup))
    return petra_config_fail(config, "lr.decay_epochs",
                             "%lld with lr.schedule: wsd; expected 1 to the %lld epochs after the warm-up", decay,
                             epochs - warmup);
  return PETRA_OK;
}

petra_lr petra_lr_from_config(const petra_config *config, int64_t batches_per_epoch) {
  petra_lr lr = {.base = config->optim.lr,
                 .batches = batches_per_epoch,
                 .warmup = config->lr.warmup_epochs * batches_per_epoch,
                 .config = config,
                 .end = config->lr.epochs * batches_per_epoch};
  lr.decay = config->lr.schedule == PETRA_LR_WSD ? config->lr.decay_epochs * batches_per_epoch : lr.end - lr.warmup;
  if (config->optim.lr_scaling == PETRA_LR_GOYAL)
    lr.base *= (double)(config->cluster.replicas * config->data.batch * config->method.accumulate) / 256;
  return lr;
}

/* Returns the share of the rate that remains in a falling schedule. */
static double share_at(const petra_lr *lr, int64_t index) {
  const double pi = 3.14159265358979323846;
  const double x = fmin(fmax((double)(index - (lr->end - lr->decay)) / (double)lr->decay, 0), 1);
  const double left = lr->config->lr.schedule == PETRA_LR_COSINE ? (1 + cos(pi * x)) / 2 : 1 - sqrt(x);
  return lr->config->lr.final + (1 - lr->config->lr.final) * left;
}

double petra_lr_at(const petra_lr *lr, int64_t index) {
  double rate = index < lr->warmup ? lr->base * (double)(index + 1) / (double)lr->warmup : lr->base;
  const petra_int_list *milestones = &lr->config->lr.milestones;
  if (lr->config->lr.schedule != PETRA_LR_STEP)
    return rate * share_at(lr, index);
  for (int64_t i = 0; i < milestones->count; i++)
    if (index / lr->batches >= milestones->values[i])
      rate *= lr->config->lr.factor;
  return rate;
}
