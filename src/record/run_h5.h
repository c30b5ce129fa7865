/* SPDX-License-Identifier: Apache-2.0 */
/* run.h5: the log of a run. Schema: docs/hdf5-schema.md. Readable with h5py while the run goes on and after a
 * kill: earliest format, file locking off, flushed at least every 5 s. A failed write (full disk) is one
 * error line; the file is then abandoned as it is (H5dont_atexit: nothing more is written). */
#pragma once

#include "base/mem.h"
#include "config/config.h"
#include "base/status.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct petra_runlog petra_runlog;

/* Attributes of the root. */
typedef struct petra_runlog_about {
  const char *command;   /* the command line */
  const char *backend;   /* name and description */
  const char *libraries; /* names and versions */
  const char *config;    /* the expanded config, YAML */
  uint64_t seed;
  int64_t batches;           /* microbatches of an epoch; 0: nothing is trained */
  bool actions;              /* petra_runlog_action_row will be called: /trace/actions is made */
  bool recalibrates;         /* /epoch has the columns of a recalibration */
  petra_sample_kind samples; /* what the run reads: tokens_per_s in place of images_per_s */
  const void *image;         /* petra_runlog_image's of a log to go on with, in place of a new one; NULL: a new one */
  size_t image_bytes;
} petra_runlog_about;

/* One row of /model/stages. */
typedef struct petra_runlog_stage {
  int32_t stage; /* from 1 */
  const char *name;
  int32_t reversible; /* 0 or 1 */
  int64_t parameters;
  int64_t forward_flops;                 /* of one sample */
  int64_t forward_bytes, backward_bytes; /* messages sent up, sent down, per microbatch */
  int32_t delay;                         /* microbatches between a forward and its backward: tau_j; 0 without delay */
} petra_runlog_stage;

/* One row of /train. top1 is the fraction of the microbatch classified right. */
typedef struct petra_runlog_train {
  int64_t microbatch;
  int32_t epoch; /* from 0 */
  double lr, loss, top1;
  double wall_s, virtual_s; /* since the start of the run: when the loss was known; when the last stage began */
} petra_runlog_train;

/* One row of /epoch; eval_* are NaN where there was no evaluation, those of a recalibration (columns that a log without one has
 * not) where there was none. */
typedef struct petra_runlog_epoch {
  int32_t epoch; /* from 0 */
  double train_loss, train_top1, eval_loss, eval_top1, eval_top5, lr, wall_s;
  double rate; /* images_per_s or tokens_per_s */
  double eval_loss_recalibrated, eval_top1_recalibrated, eval_top5_recalibrated;
} petra_runlog_epoch;

/* One row of /trace/actions: an action as it ran under the virtual clock. */
typedef struct petra_runlog_action {
  int64_t start_ns, end_ns;
  int32_t stage; /* from 1 */
  int32_t kind;  /* place in petra_runlog_kinds */
  int64_t microbatch;
  int64_t version_read, version_written; /* updates of the stage's weights; -1: none written */
} petra_runlog_action;

/* The letters of the kinds, in the order of petra_action_kind. */
enum { PETRA_RUNLOG_KINDS = 5 };
extern const char *const petra_runlog_kinds[PETRA_RUNLOG_KINDS];

/* Creates `path` (DIR/run.h5). An older file there is replaced only after the new one could be created: it is
 * made as DIR/.run.h5.tmp and renamed. The strings of `about` are not NULL. PETRA_IO, PETRA_NO_MEMORY. */
petra_status petra_runlog_create(const char *path, const petra_runlog_about *about, petra_runlog **out);

/* The functions below return PETRA_IO after a failed write: with its line the first time, silently from then
 * on. The process must ignore SIGXFSZ if a file size limit is to come back as such an error. */

/* Once a run. */
petra_status petra_runlog_stages(petra_runlog *log, const petra_runlog_stage *rows, int32_t count);
petra_status petra_runlog_train_row(petra_runlog *log, const petra_runlog_train *row);
petra_status petra_runlog_epoch_row(petra_runlog *log, const petra_runlog_epoch *row);
petra_status petra_runlog_action_row(petra_runlog *log, const petra_runlog_action *row);

/* /memory/peak_bytes (J, category) and /memory/total_peak_bytes (J), overwritten at each call. accounts[j] is
 * that of stage j + 1. */
petra_status petra_runlog_memory(petra_runlog *log, const petra_account *accounts, int32_t stages);

/* /memory/backend_bytes (R, 3): what the backend of each process held at the end, as petra_backend_memory has it. Once a run. */
enum { PETRA_RUNLOG_BACKEND_PARTS = 3 };
typedef struct petra_runlog_backend {
  int64_t tensors, filters, scratch;
} petra_runlog_backend;
petra_status petra_runlog_backends(petra_runlog *log, const petra_runlog_backend *rows, int32_t count);

/* What a rank of an executed run did: times of the wall clock between its first action and the end of the run. */
enum { PETRA_RUNLOG_RANK_TIMES = 4, PETRA_RUNLOG_RANK_SENT = 2 };
typedef struct petra_runlog_rank {
  char host[64];
  /* In actions, but for the other two; turning tensors into messages and back; waiting for messages and for room; all. */
  int64_t computing_ns, copying_ns, waiting_ns, wall_ns;
  int64_t messages, bytes; /* sent to other ranks */
} petra_runlog_rank;

/* /ranks, once a run: what `ranks` ranks did, and which of them (from 0) has each stage of replica 0. Every replica has `places`
 * ranks, one after the other. */
petra_status petra_runlog_ranks(petra_runlog *log, const petra_runlog_rank *rows, int32_t ranks, int32_t places,
                                const int32_t *of_stage, int32_t stages);

/* The columns of /pace: how fast an executed run went, and what was predicted; NaN if one is not known. Low and high: with all costs at their first, and third, quartile. */
typedef enum {
  PETRA_PACE_MEASURED,
  PETRA_PACE_PREDICTED,
  PETRA_PACE_LOW,
  PETRA_PACE_HIGH,
  PETRA_PACE_COLUMNS
} petra_pace_column;

typedef struct petra_runlog_pace {
  int32_t stages, ranks;
  double microbatch_s[PETRA_PACE_COLUMNS];
  double (*stage_s)[PETRA_PACE_COLUMNS]; /* per stage: seconds in actions of a microbatch */
  double (*busy)[PETRA_PACE_COLUMNS]; /* per rank: share of the time between the first action and the last one's end */
} petra_runlog_pace;

/* Once a run; fails as the functions of run_h5.h. */
petra_status petra_runlog_pace_write(petra_runlog *log, const petra_runlog_pace *pace);

/* /simulate of a simulated run. Arrays have `stages` entries. */
typedef struct petra_runlog_simulation {
  int64_t makespan_ns, actions, microbatches;
  double makespan_s;            /* set by petra_runlog_simulated */
  double time_per_microbatch_s; /* NaN: too few microbatches */
  double low_s, high_s;         /* the same with all costs at their first, and third, quartile; NaN: not known */
  double bubble_fraction, wall_s;
  int32_t ranks;           /* of cluster.placement; 0: none, and the next two are not read */
  const int32_t *of_stage; /* the rank of each stage, from 0 */
  const double *rank_busy; /* share of the makespan that each rank is in actions */
  int32_t stages;
  const double *utilization, *lag_mean;
  const int64_t *lag_max, *in_flight_max, *kept_max, *bytes_up, *bytes_down;
  const int64_t *bytes_exchanged; /* with replicas, of the one that is simulated; NULL: there are none */
  /* The critical path; critical_kinds 0: not asked for. */
  int critical_kinds;
  const char *const *critical_names;
  const int64_t *critical_ns;       /* per kind */
  const int64_t *critical_stage_ns; /* per stage */
} petra_runlog_simulation;

/* Memory over time: the highest level within each of `bins` bins of `width_ns`. */
typedef struct petra_runlog_memory_time {
  const char *accounting;
  int32_t bins, stages;
  int64_t width_ns;
  const int64_t *values; /* (bins, stages, categories and then their total) */
} petra_runlog_memory_time;

/* Each at most once a run; they fail as the functions of run_h5.h. */
petra_status petra_runlog_simulated(petra_runlog *log, const petra_runlog_simulation *simulation);
petra_status petra_runlog_memory_over_time(petra_runlog *log, const petra_runlog_memory_time *memory);

/* Seconds of wall time after which the row functions flush; 5 by default. For tests. */
void petra_runlog_set_flush_interval(petra_runlog *log, double seconds);

/* Writes what is buffered. Called by the row functions when a buffer is full, or when 5 s would have gone by
 * at the next row, were it to take as long as the last one. */
petra_status petra_runlog_flush(petra_runlog *log);

/* Sets the attribute `complete`, which is 0 until then: the run has come to its end and all its results are written.
 * The last call before petra_runlog_close. */
petra_status petra_runlog_complete(petra_runlog *log);

/* Flushes, and gives the bytes of the file, with all rows so far. Free with petra_free. */
petra_status petra_runlog_image(petra_runlog *log, char **image, size_t *bytes);

/* Flushes, closes, frees. After a failed write it only frees, and returns PETRA_OK. NULL is allowed. */
petra_status petra_runlog_close(petra_runlog *log);
