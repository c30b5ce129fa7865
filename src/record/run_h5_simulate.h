/* SPDX-License-Identifier: Apache-2.0 */
/* The additions of a simulated run to run.h5: /simulate, and memory over time. Schema: docs/hdf5-schema.md. */
#pragma once

#include "record/run_h5.h"

/* Arrays have `stages` entries. */
typedef struct petra_runlog_simulation {
  int64_t makespan_ns, actions, microbatches;
  double makespan_s;            /* set by petra_runlog_simulated */
  double time_per_microbatch_s; /* NaN: too few microbatches */
  double low_s, high_s;         /* with all costs at their first, and third, quartile; NaN: not known */
  double bubble_fraction, wall_s;
  int32_t ranks;           /* of cluster.placement; 0: none, and the next two are not read */
  const int32_t *of_stage; /* the rank of each stage, from 0 */
  const double *rank_busy; /* share of the makespan in which each rank is in actions */
  int32_t stages;
  const double *utilization, *lag_mean;
  const int64_t *lag_max, *in_flight_max, *kept_max, *bytes_up, *bytes_down;
  const int64_t *bytes_exchanged; /* with replicas, of the one that is simulated; NULL: no replicas */
  /* The critical path; critical_kinds 0: not requested. */
  int critical_kinds;
  const char *const *critical_names;
  const int64_t *critical_ns;       /* per kind */
  const int64_t *critical_stage_ns; /* per stage */
} petra_runlog_simulation;

/* Memory over time: the maximum within each of `bins` bins of `width_ns`. */
typedef struct petra_runlog_memory_time {
  const char *accounting;
  int32_t bins, stages;
  int64_t width_ns;
  const int64_t *values; /* (bins, stages, categories, then their total) */
} petra_runlog_memory_time;

/* Call each at most once per run; they fail like the functions of run_h5.h. */
petra_status petra_runlog_simulated(petra_runlog *log, const petra_runlog_simulation *simulation);
petra_status petra_runlog_memory_over_time(petra_runlog *log, const petra_runlog_memory_time *memory);
