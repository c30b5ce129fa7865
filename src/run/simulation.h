/* SPDX-License-Identifier: Apache-2.0 */
/* A simulated run (PETRA_RUN_SIMULATE): a method on the modelled cluster, without tensors. */
#pragma once

#include "schedule/executor.h"
#include "record/run_h5.h"
#include "sim/rank_times.h"
#include "run/run.h"
#include "schedule/schedule.h"
#include "sim/executor_virtual.h"
#include "sim/observer_critical.h"

/* The attribute `backend` in the log of a simulated run, which distinguishes it from others before /simulate is
 * written. */
#define PETRA_SIMULATION_BACKEND "none: costs only"

/* The results of a simulation, which owns them. */
typedef struct petra_simulated {
  const petra_plan *plan; /* with its program */
  /* The figures of /simulate. Per stage: utilization is the utilization of its device's engines (with
   * cluster.placement: of its rank's engine). Lags are over all backwards, including the backwards at the start.
   * in_flight_max counts microbatches whose F is done and whose B is not. kept_max counts microbatches whose graph or
   * input is stored: until B, or until W if W is split from B. Bytes are the bytes that the stage sends over links:
   * with chunks, none within a device. With replicas all figures are figures of one replica, because replicas are
   * alike. */
  petra_run_h5_simulation figures;
  /* The counts of each device or, with cluster.placement, of each rank, from 0. */
  const petra_device_counts *devices;
  int32_t device_count;
  bool measured_link;            /* durations of messages between ranks come from the profile */
  bool interval;                 /* the profile has quartiles */
  const petra_rank_times *times; /* by petra_profile_statistic: the mean and, with an interval, the quartiles */
  double host_busy;       /* share of the makespan in which the busiest host issues actions; NaN: there are no hosts */
  int64_t skipped;        /* microbatches in periods that were skipped (sim/executor_cycle.c) */
  int64_t runaway;        /* the first microbatch beyond the bound; -1: none */
  const char *accounting; /* the accounting of the memory accounts */
  const petra_account *accounts;        /* per stage; NULL without a model */
  const petra_account *device_accounts; /* per device; NULL without a model */
  petra_critical_path path;             /* the critical path, if it was requested */
} petra_simulated;

/* Returns the results of a simulation, after petra_run_go. */
const petra_simulated *petra_run_simulated(const petra_run *run);

/* Runs a schedule at unit costs, without links: forward, reconstruction and weight gradient take 1 ns, backward 2;
 * `observers` are notified. *makespan_ns is the end of the last action. */
petra_status petra_simulate_units(const petra_schedule *schedule, const petra_program_options *program, bool recomputes,
                                  int engines, petra_observer *observers, int64_t *makespan_ns);
