/* SPDX-License-Identifier: Apache-2.0 */
/* Computes the times at which the losses of a training begin on the modelled cluster, and the bytes that were sent
 * until then; no tensor is touched. */
#pragma once

#include "config/config.h"

typedef struct petra_loss_request {
  int64_t count;   /* the losses of microbatches 0 .. count - 1 are simulated */
  int64_t batches; /* number of microbatches in an epoch of the training */
  int64_t logged;  /* number of losses in its log: a training that --resume made longer has more than its config says */
} petra_loss_request;

typedef struct petra_loss_times {
  int64_t count;
  int64_t *start_ns; /* time at which the last stage begins the action that computes the loss; -1: it never does */
  int64_t *bytes;    /* bytes that were sent between devices by then, including bytes between replicas */
} petra_loss_times;

/* Call petra_loss_times_fini even on failure. Errors: errors in the config, as returned by petra_run_open. */
petra_status petra_loss_times_simulate(const petra_config *config, const petra_loss_request *request,
                                       petra_loss_times *out);
void petra_loss_times_fini(petra_loss_times *times);
