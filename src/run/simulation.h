/* A simulated run: a method on the modelled cluster, no tensor touched. Opened, run to its end, closed. */
#ifndef PETRA_RUN_SIMULATION_H
#define PETRA_RUN_SIMULATION_H

#include "io/runlog.h"
#include "run/plan.h"
#include "sim/observer_critical.h"

typedef struct petra_simulated_stage {
  double utilization; /* of its device's engines */
  double lag_mean;    /* over all backwards, those of the start included */
  int64_t lag_max;
  int64_t in_flight_max;        /* forwarded and not yet backwarded */
  int64_t kept_max;             /* whose graph or input is held: until B, or W where it is split from B */
  int64_t bytes_up, bytes_down; /* sent by the stage over links; with chunks, none within a device */
} petra_simulated_stage;

/* All of it stays the simulation's. */
typedef struct petra_simulated {
  const petra_plan *plan; /* with its program */
  int64_t makespan_ns, actions;
  double time_per_microbatch_s; /* NaN where the run is too short for it */
  double bubble_fraction, wall_s;
  int64_t runaway;                    /* the microbatch that was the first to be one too many; -1: none */
  const petra_simulated_stage *stage; /* plan->stages of them */
  const char *accounting;             /* of the accounts */
  const petra_account *accounts;      /* per stage; NULL without a model */
  bool critical;                      /* the critical path was asked for */
  petra_critical_path path;
  const int64_t *critical_stage_ns; /* per stage */
} petra_simulated;

typedef struct petra_simulation_options {
  const char *output;       /* folder for run.h5 and config.yaml; NULL: nothing is written */
  const char *trace;        /* file for a trace of the virtual clock; NULL: none */
  const char *memory;       /* "measured", "paper" or "strict"; NULL: measured, where there is a model */
  const char *command_line; /* for the log */
  bool critical_path;
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
const char *petra_simulation_directory(const petra_simulation *simulation); /* NULL: nothing is written */

/* /simulate and /memory/peak_bytes. */
petra_status petra_simulated_write(const petra_simulated *result, petra_runlog *runlog);

#endif
