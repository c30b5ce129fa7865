/* The learning rate as a function of an index: the global tick in lockstep programs, a microbatch in others. */
#ifndef PETRA_NN_LR_H
#define PETRA_NN_LR_H

#include "base/config.h"

typedef struct petra_lr {
  double base;               /* after scaling */
  int64_t batches;           /* microbatches per epoch */
  int64_t warmup;            /* indices of the linear warm-up: warmup_epochs * batches */
  petra_int_list milestones; /* epochs; borrowed from the config */
  double factor;
} petra_lr;

/* Base rate: lr, times batch * k / 256 with lr_scaling: goyal (Goyal et al. 2017). */
petra_lr petra_lr_from_config(const petra_config *config, int64_t batches_per_epoch);

/* base * (index + 1) / warmup while index < warmup, else base; times factor for every milestone that the epoch
 * floor(index / batches) has reached. */
double petra_lr_at(const petra_lr *lr, int64_t index);

#endif
