/* SPDX-License-Identifier: Apache-2.0 */
/* The log of a training run: rows of run.h5, a line per epoch, progress. It is an observer of the worker. */
#pragma once

#include "base/progress.h"
#include "exec/stage_observer.h"
#include "io/weights.h"
#include "record/run_h5.h"
#include "schedule/program.h"

typedef struct petra_training_log petra_training_log;

typedef struct petra_training_log_options {
  petra_run_h5 *run_h5;   /* borrowed; NULL: no rows are written */
  const petra_plan *plan; /* borrowed; with its program */
  bool print_epochs;      /* prints a line per epoch on stdout */
  petra_progress_style progress;
} petra_training_log_options;

petra_status petra_training_log_create(const petra_training_log_options *options, petra_training_log **out);
void petra_training_log_destroy(petra_training_log *log);

petra_stage_observer *petra_training_log_observer(petra_training_log *log);

/* Returns the rows of /epoch so far; *count is their number. They are valid until the log is destroyed. */
const petra_run_h5_epoch *petra_training_log_epochs(const petra_training_log *log, int64_t *count);

/* Returns the best evaluation in the rows of a log; epoch 0: none. */
petra_weights_moment petra_best_of(const petra_run_h5_epoch *rows, int64_t count, petra_sample_kind samples);

/* Returns the mean loss over all labels (images, tokens) whose loss came back in the run, NaN if no loss came back;
 * *microbatches is the number of losses. */
double petra_training_log_mean_loss(const petra_training_log *log, int64_t *microbatches);

/* Reads or writes the state of the log, in a checkpoint. When it reads, the log must be new. Times continue from their
 * values in the checkpoint. */
petra_status petra_training_log_archive(petra_training_log *log, petra_archive *archive);

/* Returns the number of rows of /epoch in a checkpoint, which is being read. */
petra_status petra_training_log_archived(petra_archive *archive, int64_t *epochs);

/* Call these in pairs around work that is not training, such as a checkpoint. Images (tokens) per second exclude its
 * time. An evaluation is such a pause, too. */
void petra_training_log_pause(petra_training_log *log);
void petra_training_log_go_on(petra_training_log *log);

/* Ends the progress display; after a failure without a last line, so that the error comes last. */
void petra_training_log_finish(petra_training_log *log, bool succeeded);
