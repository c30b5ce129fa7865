/* SPDX-License-Identifier: Apache-2.0 */
/* The rows of a run's probes in run.h5. */
#pragma once

#include "exec/network.h"
#include "probe/probe.h"
#include "record/run_h5_probe.h"

typedef struct petra_probe_log {
  const petra_network *network;
  petra_run_h5_probe *log; /* NULL: nothing was begun */
  petra_run_h5_parameter *parameters;
  const petra_probe_row *row;   /* the row that is being written */
  const petra_tensor **tensors; /* its gradients, [gradient][parameter] */
} petra_probe_log;

/* All is borrowed. `resumed`: the run is resumed with this `run_h5`. The log must stay in place until
 * petra_probe_log_fini; call that even on failure. */
petra_status petra_probe_log_init(petra_probe_log *log, const petra_network *network, petra_run_h5 *run_h5,
                                  bool resumed);

/* Is the `row` of petra_probe_options; `context` is the log. */
petra_status petra_probe_log_row(void *context, const petra_probe_row *row);

void petra_probe_log_fini(petra_probe_log *log);
