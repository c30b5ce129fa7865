/* SPDX-License-Identifier: Apache-2.0 */
/* What is in a checkpoint: one walk over the state of a run, which writes it or reads it back. */
#pragma once

#include "probe/probe.h"
#include "checkpoint/manifest.h"
#include "distributed/execution.h"
#include "plan/pipeline.h"
#include "record/training_log.h"

/* Borrowed, all of it. */
typedef struct petra_checkpoint_state {
  const petra_checkpoint_files *files;
  const char *config;               /* the expanded config */
  petra_pipeline *const *pipelines; /* of each replica; NULL: in another process */
  int replicas;
  petra_execution *execution; /* all its ranks come here at the same place of the schedule */
  petra_probe *probe;         /* NULL: none */
  const int64_t *data;        /* of petra_checkpoint_begin */
  petra_training_log *log;
  petra_runlog *runlog; /* NULL: this is not the rank that writes run.h5 and checkpoint.h5 */
} petra_checkpoint_state;

/* Writes a checkpoint; log_bytes, clock_ns, batches and data of `begin` are found here. `measured_ns`: of all actions done, or NULL. Until it is whole,
 * the one before is. */
petra_status petra_checkpoint_save(const petra_checkpoint_state *state, petra_checkpoint_begin *begin,
                                   int64_t *measured_ns);

/* Reads the stages that are here, and what else is kept here, from an open checkpoint.h5 and its parts; the parts that it does
 * not name are removed. All ranks return together. PETRA_DATA: file and item, and what does not go together. */
petra_status petra_checkpoint_load(const petra_checkpoint_state *state, const petra_checkpoint_begin *begin,
                                   petra_archive *archive);
