/* SPDX-License-Identifier: Apache-2.0 */
/* What a training run tells: rows of run.h5, a line per epoch, progress. An observer of the worker. */
#pragma once

#include "backend/backend.h"
#include "base/progress.h"
#include "exec/stage_observer.h"
#include "group/ranks.h"
#include "record/run_h5.h"
#include "schedule/program.h"

typedef struct petra_training_log petra_training_log;

typedef struct petra_training_log_options {
  petra_runlog *runlog; /* borrowed; NULL: no rows are written */
  const petra_program_ops *program;
  const petra_program_options *program_options; /* borrowed */
  bool print_epochs;                            /* a line per epoch on stdout */
  bool recalibrates;                            /* evaluations have recalibrated scores */
  petra_sample_kind samples;                    /* what the losses are over: images, tokens */
  petra_progress_style progress;
} petra_training_log_options;

petra_status petra_training_log_create(const petra_training_log_options *options, petra_training_log **out);
void petra_training_log_destroy(petra_training_log *log);

petra_stage_observer *petra_training_log_observer(petra_training_log *log);

/* The rows of /epoch so far; `count` of them. Valid until the log is destroyed. */
const petra_runlog_epoch *petra_training_log_epochs(const petra_training_log *log, int64_t *count);

/* Mean loss over all labels (images, tokens) whose loss came back in the run, NaN if none did; *microbatches: how many losses. */
double petra_training_log_mean_loss(const petra_training_log *log, int64_t *microbatches);

/* What it knows, in a checkpoint; one that is read into must be new. Times go on where they were. */
petra_status petra_training_log_archive(petra_training_log *log, petra_archive *archive);

/* How many rows of /epoch one in a checkpoint, which is read, has. */
petra_status petra_training_log_archived(petra_archive *archive, int64_t *epochs);

/* What is between these, in pairs, is not in the images (tokens) per second: a checkpoint. An evaluation begins and ends such a pause, too. */
void petra_training_log_pause(petra_training_log *log);
void petra_training_log_go_on(petra_training_log *log);

/* Ends the progress; after a failure without a last line, so that the error is what stands last. */
void petra_training_log_finish(petra_training_log *log, bool succeeded);

/* Writes what the backends hold beside the accounts of the stages: a row for each rank into the log of rank 0 (NULL on the others). All
 * ranks come here. */
petra_status petra_backend_memory_write(petra_backend *backend, petra_ranks *ranks, petra_runlog *runlog);
