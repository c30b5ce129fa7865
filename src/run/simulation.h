/* SPDX-License-Identifier: Apache-2.0 */
/* A simulated run (PETRA_RUN_SIMULATE): a method on the modelled cluster, no tensor touched. */
#pragma once

#include "exec/observer.h"
#include "record/run_h5.h"
#include "distributed/rank_times.h"
#include "run/run.h"
#include "schedule/schedule.h"
#include "sim/observer_critical.h"

/* The attribute `backend` of a simulated run's log, by which it is told from others before /simulate is written. */
#define PETRA_SIMULATION_BACKEND "none: costs only"

/* All of it stays the simulation's. */
typedef struct petra_simulated {
  const petra_plan *plan; /* with its program */
  /* As they stand in /simulate. Of a stage: utilization is that of its device's engines (with cluster.placement: of its
   * rank's one); lags are over all backwards, those
   * of the start included; in flight is what is forwarded and not yet backwarded; kept, whose graph or input is held: until
   * B, or W where it is split from B; bytes are sent by the stage over links: with chunks, none within a device. With replicas all
   * is of one of them, as they are alike. */
  petra_runlog_simulation figures;
  bool measured_link;            /* messages between ranks take what the profile measured */
  bool interval;                 /* the profile has quartiles */
  const petra_rank_times *times; /* by petra_profile_statistic: the mean and, with an interval, the quartiles */
  double host_busy;       /* share of the makespan that the busiest host issues actions; NaN: there are no hosts */
  int64_t runaway;        /* the microbatch that was the first to be one too many; -1: none */
  const char *accounting; /* of the accounts */
  const petra_account *accounts; /* per stage; NULL without a model */
  petra_critical_path path;      /* where it was asked for */
} petra_simulated;

/* Of a simulation, after petra_run_go. */
const petra_simulated *petra_run_simulated(const petra_run *run);

/* A schedule at unit costs, without links: forward, reconstruction and weight gradient take 1 ns, backward 2; `observers`
 * are told. *makespan_ns: the end of the last action. */
petra_status petra_simulate_units(const petra_schedule *schedule, const petra_program_options *program, bool recomputes,
                                  int engines, petra_observer *observers, int64_t *makespan_ns);
