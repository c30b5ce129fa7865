/* SPDX-License-Identifier: Apache-2.0 */
/* Simulates every method on the network, costs, links and length of one config.
 *
 * All methods have the devices of the config's own method, and the stages per device that they need: one, or two in a
 * loop or a V (in a loop method.chunks, if it is set). A method with as many stages as the config's has these stages.
 * For any other, a network is cut by stages.partition: balanced; equal costs (cluster.stages, or cost models unit and
 * constant) and cluster.message.gradient_bytes are multiplied by the ratio of the numbers of stages, so that the work of
 * the whole network stays the same.
 *
 * The comparison uses only accumulate, chunks and credit of the section `method`. A method by arrival without a credit
 * gets 2 J - 1 for J stages: as many microbatches as a method in lockstep has in flight at its first stage. */
#pragma once

#include "config/config.h"
#include "schedule/method.h"

typedef struct petra_method_figures {
  petra_method method;
  char reason[512]; /* "KEY: why it cannot run with this config"; "": it can */
  int32_t stages, devices;
  bool exact;                   /* its gradients: synchronous; else delayed */
  double time_per_microbatch_s; /* NaN: too few microbatches for a steady state */
  double bubble_fraction;
  int64_t lag_max;        /* of all stages, in updates */
  int64_t peak_bytes;     /* of the device with the largest peak; -1 without a model */
  int64_t kept_max;       /* maximum number of microbatches that a device keeps at one moment, over its stages */
  double device_kept_max; /* the same in microbatches of the whole device: divided by its stages */
} petra_method_figures;

/* Fills `out`, one entry for each preset (petra_method_count), by increasing time per microbatch; those that cannot run
 * are last. *devices and *stages are those of the config. Errors: those of a simulation of the config as it is, which is opened
 * first. */
petra_status petra_compare_methods(const petra_config *config, petra_method_figures *out, int32_t *devices,
                                   int32_t *stages);
