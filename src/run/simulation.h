/* SPDX-License-Identifier: Apache-2.0 */
/* A simulated run: a method on the modelled cluster, no tensor touched. Opened, run to its end, closed. */
#ifndef PETRA_RUN_SIMULATION_H
#define PETRA_RUN_SIMULATION_H

#include "exec/observer.h"
#include "record/run_h5_simulate.h"
#include "run/folder.h"
#include "plan/plan.h"
#include "schedule/schedule.h"
#include "sim/observer_critical.h"

/* The attribute `backend` of a simulated run's log, by which it is told from others before /simulate is written. */
#define PETRA_SIMULATION_BACKEND "none: costs only"

/* All of it stays the simulation's. */
typedef struct petra_simulated {
  const petra_plan *plan; /* with its program */
  const char *directory;  /* NULL: nothing is written */
  /* As they stand in /simulate. Of a stage: utilization is that of its device's engines (with cluster.placement: of its
   * rank's one); lags are over all backwards, those
   * of the start included; in flight is what is forwarded and not yet backwarded; kept, whose graph or input is held: until
   * B, or W where it is split from B; bytes are sent by the stage over links: with chunks, none within a device. With replicas all
   * is of one of them, as they are alike. */
  petra_runlog_simulation figures;
  bool measured_link;     /* messages between ranks take what the profile measured */
  double host_busy;       /* share of the makespan that the busiest host issues actions; NaN: there are no hosts */
  int64_t runaway;        /* the microbatch that was the first to be one too many; -1: none */
  const char *accounting; /* of the accounts */
  const petra_account *accounts; /* per stage; NULL without a model */
  petra_critical_path path;      /* where it was asked for */
} petra_simulated;

typedef struct petra_simulation_options {
  petra_records records; /* without an output nothing is written */
  const char *memory;    /* "measured", "paper" or "strict"; NULL: measured, where there is a model */
  bool critical_path;
  bool times_alone; /* memory is not counted */
} petra_simulation_options;

typedef struct petra_simulation petra_simulation;

/* Everything that can be wrong is found before anything is written. Config and options are borrowed. */
petra_status petra_simulation_open(const petra_config *config, const petra_simulation_options *options,
                                   petra_simulation **out);
/* Runs the program to its end, and measures. */
petra_status petra_simulation_go(petra_simulation *simulation);
/* Completes the log, where there is one. */
petra_status petra_simulation_close(petra_simulation *simulation);
/* NULL is fine. */
void petra_simulation_destroy(petra_simulation *simulation);

/* After petra_simulation_go. */
const petra_simulated *petra_simulation_result(const petra_simulation *simulation);

/* A schedule at unit costs, without links: forward, reconstruction and weight gradient take 1 ns, backward 2; `observers`
 * are told. *makespan_ns: the end of the last action. */
petra_status petra_simulate_units(const petra_schedule *schedule, const petra_program_options *program, bool recomputes,
                                  int engines, petra_observer *observers, int64_t *makespan_ns);

#endif
