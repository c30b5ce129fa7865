/* SPDX-License-Identifier: Apache-2.0 */
/* The virtual executor: a discrete-event loop over devices with one or two engines and the network between them.
 * With two engines F runs on the first; B (a fused head too), W, U and E on the second. All actions that start at
 * one moment reach the worker as one group. The rules by which an action waits are those of schedule/program.h. */
#ifndef PETRA_SIM_EXECUTOR_VIRTUAL_H
#define PETRA_SIM_EXECUTOR_VIRTUAL_H

#include "exec/executor.h"
#include "sim/cost.h"
#include "sim/jitter.h"
#include "sim/link.h"

/* Hosts, which issue the actions of devices, one at a time (docs/semantics/time.md#hosts). */
typedef struct petra_host_options {
  int32_t devices;   /* neighbouring devices that share one; INT32_MAX: all; 0: there are none */
  int64_t action_ns; /* to issue an action */
  /* What the kernels of a stage's parts take besides, in the place of their durations: per stage; NULL: nothing. Borrowed. */
  const petra_stage_cost *costs;
  int64_t ahead; /* 0: an action is issued when it could start; else as many of an engine are issued and not started */
} petra_host_options;

typedef struct petra_executor_virtual_options {
  int engines; /* of each device: 1 or 2 */
  petra_cost_rule rule;
  const petra_stage_cost *costs; /* per stage, `cost_count` of them; 1: the same for all */
  int32_t cost_count;
  /* Pipelines that do the same at the same time; before an update a stage waits until its gradients have been exchanged with
   * its replicas. 0, 1: there is one. */
  int32_t replicas;
  petra_fabric_options fabric;        /* devices, replicas and event_kind are set by the executor */
  petra_host_options host;            /* not with a program by arrival */
  const petra_jitter_options *jitter; /* makes durations of costs; NULL: the cost is the duration. Borrowed */
} petra_executor_virtual_options;

/* What the executor itself counted, per device (from 0). */
typedef struct petra_device_counts {
  int64_t busy_ns; /* over its engines */
  int64_t actions;
  int64_t in_flight_max; /* microbatches forwarded and not yet backwarded, over its stages */
} petra_device_counts;

/* Costs are copied; the rest of `options` is too. */
petra_status petra_executor_virtual_create(const petra_executor_virtual_options *options, petra_executor **out);

/* After a run: actions done, counts of every device, and the microbatch whose forward was the first to bring more than
 * 2 (2 J - 1) in flight in an `arrival` run (-1: none). */
int64_t petra_executor_virtual_actions(const petra_executor *executor);
const petra_device_counts *petra_executor_virtual_counts(const petra_executor *executor);
int64_t petra_executor_virtual_runaway(const petra_executor *executor);

/* How long the busiest host issued actions; 0 without hosts. */
int64_t petra_executor_virtual_host_ns(const petra_executor *executor);

#endif
