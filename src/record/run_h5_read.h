/* SPDX-License-Identifier: Apache-2.0 */
/* Reads run.h5, also during the run: for the subcommands about runs and for tests. */
#pragma once

#include "record/run_h5.h"

#include <stdbool.h>

/* The contents of a run's file. The summary owns all of it. */
typedef struct petra_run_h5_summary {
  int32_t schema_version;
  char *petra_version, *git_commit, *created, *command, *backend, *libraries, *config;
  char *network, *optimiser, *data; /* descriptions by the PyTorch runtime, in words; NULL: none */
  char *training; /* by the PyTorch runtime, all that decides the training: lines "KEY: VALUE"; NULL: not in the log */
  uint64_t seed;
  int64_t batches; /* microbatches per epoch; 0: not in the log */
  bool complete;   /* the run has ended; false also for old files without this mark */

  int64_t microbatches;          /* rows of /train */
  petra_run_h5_train last_train; /* the last row; zeros if there is none */

  int64_t epochs; /* rows of /epoch */
  petra_run_h5_epoch *epoch;
  petra_sample_kind samples; /* samples of the rates; images without /epoch */
  bool recalibrated;         /* the rows have the columns of a recalibration */

  int32_t stages; /* rows of /model/stages; 0 if it is not written yet */
  petra_run_h5_stage *stage;
  char *stage_names; /* storage of stage[].name */

  int32_t memory_stages;     /* J of /memory/peak_bytes; 0 if it is not written yet */
  int64_t *peak_bytes;       /* (J, PETRA_MEMORY_CATEGORIES) */
  int64_t *total_peak_bytes; /* (J) */

  int64_t local_epochs;            /* epochs of /local; 0 if it is not written */
  double *local_loss, *local_top1; /* (local_epochs, stages) */

  int32_t ranks;     /* of an executed run; 0 if /ranks is not written */
  int32_t places;    /* ranks of each replica, one after the other; without replicas all */
  int32_t placed;    /* number of stages of of_stage; a run of cluster.stages has no /model/stages */
  int64_t *of_stage; /* (placed): the rank of each stage of replica 0, from 0 */
  int64_t *time_ns;  /* (ranks, PETRA_RUN_H5_RANK_TIMES): as in petra_rank_summary */
  int64_t *sent;     /* (ranks, PETRA_RUN_H5_RANK_SENT) */

  /* Microbatches of a simulation; NULL, like the next two, for other runs. */
  int64_t *simulated;
  double *makespan_s, *time_per_microbatch_s; /* time_per_microbatch_s: NaN without a steady state */

  double *pace_microbatch_s;        /* (PETRA_PACE_COLUMNS); NULL, like the next two, if /pace is not written */
  double *pace_stage_s, *pace_busy; /* (placed, PETRA_PACE_COLUMNS), (places, PETRA_PACE_COLUMNS) */
} petra_run_h5_summary;

/* If columns of a group differ in length (the file was being written), the shortest length counts. PETRA_IO: cannot be
 * opened. PETRA_DATA: not an HDF5 file, damaged, not the log of a run, another schema. */
petra_status petra_run_h5_summary_read(const char *path, petra_run_h5_summary **out);
void petra_run_h5_summary_destroy(petra_run_h5_summary *summary);
