/* SPDX-License-Identifier: Apache-2.0 */
/* The virtual executor: a discrete-event loop over devices with one or two engines and the network between them. With
 * two engines, F runs on the first; B (including the B of a fused head), W, U and E run on the second. All actions that
 * start at one moment reach the worker as one group. schedule/program.h states the rules by which an action waits. */
#pragma once

#include "config/config.h"
#include "schedule/executor.h"
#include "sim/cost.h"
#include "sim/link.h"

/* --- jitter.c --- */

/* Variations of the durations of actions: random durations, slow stages, pauses, failures. Every draw comes from a
 * counter-based stream named by (seed, stage, kind, microbatch), so that it does not depend on the order of events: two
 * methods, or two numbers of engines, see the same random draws. run.seed, cluster.jitter, cluster.stragglers,
 * cluster.pauses and cluster.failures of the config determine the variations. All laws have mean 1. normal is cut off
 * at 0 and scaled so that the mean stays 1; exponential is 1 - scale + scale * Exp(1). Pauses and failures come after
 * exponentially distributed times of work; with a mean of 0 they never come. A failure repeats the action from its
 * beginning after restart_s. */

/* Returns true if the config changes no duration. */
bool petra_jitter_is_none(const petra_config *config);

/* A cache of quantiles of the gamma law, so that not every draw needs a search; NULL for the other laws. It belongs to
 * one executor. Durations are the same with and without it. */
typedef struct petra_jitter_quantiles petra_jitter_quantiles;

/* Free with petra_free. */
petra_status petra_jitter_quantiles_create(const petra_config *config, petra_jitter_quantiles **out);

/* Computes the duration of an action that costs `cost_ns` (0 stays 0). `kind` < 16, stage < 2^17, microbatch < 2^39.
 * `quantiles`: NULL, or the quantiles of the config. Errors: PETRA_CONFIG, logged, if failures are so frequent that
 * the action hardly ever ends. */
petra_status petra_jitter_duration(const petra_config *config, petra_jitter_quantiles *quantiles, int32_t stage,
                                   int kind, int64_t microbatch, int64_t cost_ns, int64_t *out);

/* --- the executor --- */

/* Hosts issue the actions of devices, one at a time (docs/semantics/time.md#hosts). */
typedef struct petra_host_options {
  int32_t devices;   /* number of neighbouring devices that share a host; INT32_MAX: all; 0: there are no hosts */
  int64_t action_ns; /* time to issue an action */
  /* One entry per stage. Its members are not durations but the additional time to issue the kernels of each part;
   * NULL: none. Borrowed. */
  const petra_stage_cost *costs;
  /* Maximum number of actions of an engine that may be issued before they start; 0: an action is issued only when it is
   * ready to start. */
  int64_t ahead;
} petra_host_options;

typedef struct petra_executor_virtual_options {
  int engines; /* of each device: 1 or 2. With 2, joined actions are separate */
  /* A step with an F of f ns and a backward (B, W) of b ns takes f + b - overlap * min(f, b); 0 .. 1. */
  double overlap;
  petra_cost_rule rule;
  const petra_stage_cost *costs; /* `cost_count` costs, one per stage; with 1, all stages have the same cost */
  int32_t cost_count;
  /* Number of identical pipelines that run at the same time. Before an update a stage waits until its gradients have
   * been exchanged with its replicas. 0, 1: there are no replicas. */
  int32_t replicas;
  petra_fabric_options fabric; /* devices, replicas and event_kind are set by the executor */
  petra_host_options host;     /* not with a program by arrival */
  const petra_config *jitter;  /* turns costs into durations (jitter.c); NULL: the cost is the duration. Borrowed */
} petra_executor_virtual_options;

/* Returns the cost of a stage from 1. */
static inline const petra_stage_cost *petra_executor_virtual_cost(const petra_executor_virtual_options *options,
                                                                  int32_t stage) {
  return &options->costs[options->cost_count == 1 ? 0 : stage - 1];
}

/* Counts of the executor itself, per device (from 0). */
typedef struct petra_device_counts {
  int64_t busy_ns; /* sum over its engines */
  int64_t actions;
  int64_t in_flight_max; /* microbatches with a forward but no backward yet, over its stages */
  int64_t kept_max;      /* the same, but until the end of W if it is split from B */
} petra_device_counts;

/* Creates the executor, which copies the costs and the rest of `options`. */
petra_status petra_executor_virtual_create(const petra_executor_virtual_options *options, petra_executor **out);

/* The counts of the executor in a run. */
typedef struct petra_virtual_totals {
  int64_t actions;
  /* The first microbatch of an `arrival` run whose forward raised the number in flight above 2 (2 J - 1); -1: none. */
  int64_t runaway;
  int64_t skipped_microbatches; /* microbatches in the periods that the run skipped (executor_cycle.c) */
  int64_t host_ns;              /* how long the busiest host issued actions; 0 without hosts */
  petra_device_counts *counts;  /* per device */
} petra_virtual_totals;

/* Returns the totals of the last run. */
const petra_virtual_totals *petra_executor_virtual_totals(const petra_executor *executor);
