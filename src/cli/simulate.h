/* What a simulated run measured, for its report. */
#ifndef PETRA_CLI_SIMULATE_H
#define PETRA_CLI_SIMULATE_H

#include "cli/setup.h"
#include "io/runlog.h"
#include "sim/executor_critical.h"

typedef struct petra_simulated_stage {
  double utilization; /* of its device's engines */
  double lag_mean;    /* over all backwards, those of the start included */
  int64_t lag_max;
  int64_t in_flight_max;        /* forwarded and not yet backwarded */
  int64_t kept_max;             /* whose graph or input is held: until B, or W where it is split from B */
  int64_t bytes_up, bytes_down; /* sent by the stage over links; with chunks, none within a device */
} petra_simulated_stage;

typedef struct petra_simulated {
  const petra_setup *setup;
  const petra_program_options *program;
  int64_t makespan_ns, actions;
  double time_per_microbatch_s; /* NaN where the run is too short for it */
  double bubble_fraction, wall_s;
  int64_t runaway;                    /* the microbatch that was the first to be one too many; -1: none */
  const petra_simulated_stage *stage; /* program->stages of them */
  const char *accounting;             /* of the accounts */
  const petra_account *accounts;      /* per stage; NULL without a model */
  bool critical;                      /* the critical path was asked for */
  petra_critical_path path;
  const int64_t *critical_stage_ns; /* per stage */
} petra_simulated;

petra_status petra_simulated_print_json(const petra_simulated *result);
petra_status petra_simulated_print_table(const petra_simulated *result);

/* /simulate and /memory/peak_bytes. */
petra_status petra_simulated_write(const petra_simulated *result, petra_runlog *runlog);

#endif
