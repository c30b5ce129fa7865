/* SPDX-License-Identifier: Apache-2.0 */
/* run.h5: the log of a run. Schema: docs/hdf5-schema.md. h5py can read it during the run and after a kill: earliest
 * format, file locking off, flushed at least every 5 s. A failed write (full disk) logs one line; the file then stays
 * as it is (H5dont_atexit: nothing more is written). */
#pragma once

#include "backend/backend.h"
#include "base/mem.h"
#include "config/config.h"
#include "base/status.h"
#include "group/ranks.h"
#include "schedule/executor.h"
#include "setup/plan.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct petra_run_h5 petra_run_h5;

/* Attributes of the root. */
typedef struct petra_run_h5_about {
  const char *command;   /* the command line */
  const char *backend;   /* name and description */
  const char *libraries; /* names and versions */
  const char *config;    /* the expanded config, YAML */
  uint64_t seed;
  int64_t batches;          /* microbatches per epoch; 0: no training */
  bool actions;             /* creates /trace/actions, for petra_run_h5_action_row */
  const int32_t *device_of; /* with `actions`: the device of each stage, from 1; NULL: a stage is a device */
  int32_t stages;
  bool recalibrates;         /* /epoch has the columns of a recalibration */
  petra_sample_kind samples; /* kind of samples: tokens_per_s instead of images_per_s for tokens */
  const void *image;         /* image (petra_run_h5_image) of a log to resume; NULL: a new log */
  size_t image_bytes;
} petra_run_h5_about;

/* One row of /train. top1 is the fraction of the microbatch that was classified correctly. */
typedef struct petra_run_h5_train {
  int64_t microbatch;
  int32_t epoch; /* from 0 */
  double lr, loss, top1;
  /* seconds since the start of the run: the wall time of the loss, and the virtual time at which the last stage's
   * action started */
  double wall_s, virtual_s;
} petra_run_h5_train;

/* One row of /epoch. eval_* are NaN without an evaluation; the columns of a recalibration are NaN without a
 * recalibration, and a log without recalibrations does not have them. */
typedef struct petra_run_h5_epoch {
  int32_t epoch; /* from 0 */
  double train_loss, train_top1, eval_loss, eval_top1, eval_top5, lr, wall_s;
  double rate; /* images_per_s or tokens_per_s */
  double eval_loss_recalibrated, eval_top1_recalibrated, eval_top5_recalibrated;
} petra_run_h5_epoch;

/* Creates `path` (DIR/run.h5). It is created as DIR/.run.h5.tmp and then renamed, so an older file is replaced only if
 * the creation succeeds. The strings of `about` are not NULL. PETRA_IO, PETRA_NO_MEMORY. */
petra_status petra_run_h5_create(const char *path, const petra_run_h5_about *about, petra_run_h5 **out);

/* After a failed write the functions below return PETRA_IO; only the first one logs a line. The process must ignore
 * SIGXFSZ, so that a file size limit causes such an error. */

/* Writes /model/stages. Call it once per run. */
petra_status petra_run_h5_stages(petra_run_h5 *log, const petra_stage_summary *rows, int32_t count);
petra_status petra_run_h5_train_row(petra_run_h5 *log, const petra_run_h5_train *row);
petra_status petra_run_h5_epoch_row(petra_run_h5 *log, const petra_run_h5_epoch *row);
petra_status petra_run_h5_action_row(petra_run_h5 *log, const petra_trace_row *row);

/* Writes /memory/peak_bytes (J, category) and /memory/total_peak_bytes (J), once per run. accounts[j] belongs to stage
 * j + 1. */
petra_status petra_run_h5_memory(petra_run_h5 *log, const petra_account *accounts, int32_t stages);

/* Writes /local, once per run of a local program: the mean training loss and the fraction of correct labels of every
 * stage in every epoch, by epoch and stage; NaN if an epoch has no loss. */
typedef struct petra_run_h5_local {
  const double *train_loss, *train_top1;
} petra_run_h5_local;
petra_status petra_run_h5_locals(petra_run_h5 *log, const petra_run_h5_local *values, int64_t epochs, int32_t stages);

/* Writes /memory/backend_bytes (R, 3): the memory of each process's backend at the end. Call it once per run. */
enum { PETRA_RUN_H5_BACKEND_PARTS = 3 };
petra_status petra_run_h5_backends(petra_run_h5 *log, const petra_backend_memory *rows, int32_t count);

enum { PETRA_RUN_H5_RANK_TIMES = 4, PETRA_RUN_H5_RANK_SENT = 2 }; /* of petra_rank_summary */

/* Writes /ranks, once per run: the rows of `ranks` ranks, and the rank (from 0) of each stage of replica 0. Every
 * replica has `places` ranks, one after the other. */
petra_status petra_run_h5_ranks(petra_run_h5 *log, const petra_rank_summary *rows, int32_t ranks, int32_t places,
                                const int32_t *of_stage, int32_t stages);

/* The columns of /pace: the speed of an executed run, and the predicted speed; NaN if it is not known. The low and the
 * high column are predictions with all costs at their first or third quartile. */
typedef enum {
  PETRA_PACE_MEASURED,
  PETRA_PACE_PREDICTED,
  PETRA_PACE_LOW,
  PETRA_PACE_HIGH,
  PETRA_PACE_COLUMNS
} petra_pace_column;

typedef struct petra_run_h5_pace {
  int32_t stages, ranks;
  double *microbatch_s;                  /* (PETRA_PACE_COLUMNS) */
  double (*stage_s)[PETRA_PACE_COLUMNS]; /* per stage: seconds in actions of a microbatch */
  double (*busy)[PETRA_PACE_COLUMNS]; /* per rank: share of the time between the first action and the last one's end */
} petra_run_h5_pace;

/* Call it once per run; its errors are the errors of the functions above. */
petra_status petra_run_h5_pace_write(petra_run_h5 *log, const petra_run_h5_pace *pace);

/* /simulate of a simulated run. Arrays have `stages` entries. */
typedef struct petra_run_h5_simulation {
  int64_t makespan_ns, actions, microbatches;
  double makespan_s;
  double time_per_microbatch_s; /* NaN: too few microbatches */
  double low_s, high_s;         /* with all costs at their first, and third, quartile; NaN: not known */
  double bubble_fraction, wall_s;
  /* number of ranks in cluster.placement; 0: there are none, and the next two members are NULL */
  int32_t ranks;
  const int32_t *of_stage; /* the rank of each stage, from 0 */
  const double *rank_busy; /* share of the makespan in which each rank is in actions */
  int32_t stages;
  const double *utilization, *lag_mean;
  const int64_t *lag_max, *in_flight_max, *kept_max, *bytes_up, *bytes_down;
  const int64_t *bytes_exchanged; /* with replicas: bytes of the simulated replica; NULL: no replicas */
  /* The critical path. The members are 0 and NULL if it was not requested. */
  int critical_kinds;
  const char *const *critical_names;
  const int64_t *critical_ns;       /* per kind */
  const int64_t *critical_stage_ns; /* per stage */
} petra_run_h5_simulation;

/* Memory over time: the maximum within each of `bins` bins of `width_ns`. */
typedef struct petra_run_h5_memory_time {
  const char *accounting;
  int32_t bins, stages;
  int64_t width_ns;
  const int64_t *values; /* (bins, stages, categories and their total) */
} petra_run_h5_memory_time;

/* Call each at most once per run; their errors are the errors of the functions above. */
petra_status petra_run_h5_simulated(petra_run_h5 *log, const petra_run_h5_simulation *simulation);
petra_status petra_run_h5_memory_over_time(petra_run_h5 *log, const petra_run_h5_memory_time *memory);

/* Sets the seconds of wall time after which the row functions flush; 5 by default. For tests. */
void petra_run_h5_set_flush_interval(petra_run_h5 *log, double seconds);

/* Writes the buffered rows. The row functions call this when a buffer is full, or when more than 5 s would have passed
 * at the next row if it took as long as the last row. */
petra_status petra_run_h5_flush(petra_run_h5 *log);

/* Sets the attribute `complete`, which is 0 before: the run has ended and all its results are written. This must be the
 * last call before petra_run_h5_close. */
petra_status petra_run_h5_complete(petra_run_h5 *log);

/* Flushes, and returns the bytes of the file, with all rows so far. Free with petra_free. */
petra_status petra_run_h5_image(petra_run_h5 *log, char **image, size_t *bytes);

/* Flushes, closes, frees. After a failed write it only frees, and returns PETRA_OK. NULL is allowed. */
petra_status petra_run_h5_close(petra_run_h5 *log);

/* Names and versions of the libraries, for `petra info` and the log: "HDF5 1.10.8, libyaml 0.2.5, ...". */
void petra_libraries_describe(char *text, size_t size);
