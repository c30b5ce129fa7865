/* SPDX-License-Identifier: Apache-2.0 */
/* The content of a checkpoint: one walk over the state of a run writes it or reads it back. */
#pragma once

#include "probe/probe.h"
#include "checkpoint/manifest.h"
#include "distributed/execution.h"
#include "plan/pipeline.h"
#include "record/training_log.h"

/* All is borrowed. */
typedef struct petra_checkpoint_state {
  const petra_checkpoint_files *files;
  const char *config;               /* the expanded config */
  petra_pipeline *const *pipelines; /* of each replica; NULL: in another process */
  int replicas;
  petra_execution *execution; /* all its ranks call these functions at the same place of the schedule */
  petra_probe *probe;         /* NULL: none */
  const int64_t *data;        /* of petra_checkpoint_begin */
  petra_training_log *log;
  petra_runlog *runlog; /* NULL: another rank writes run.h5 and checkpoint.h5 */
} petra_checkpoint_state;

/* Writes a checkpoint, and computes log_bytes, clock_ns, batches and data of `begin`. `measured_ns`: of all actions
 * done, or NULL. The previous checkpoint stays valid until this one is complete. */
petra_status petra_checkpoint_save(const petra_checkpoint_state *state, petra_checkpoint_begin *begin,
                                   int64_t *measured_ns);

/* Reads the stages and other state of this process from an open checkpoint.h5 and its parts; removes the parts that it
 * does not name. All ranks return together. PETRA_DATA: names file and item, and what does not match. */
petra_status petra_checkpoint_load(const petra_checkpoint_state *state, const petra_checkpoint_begin *begin,
                                   petra_archive *archive);
