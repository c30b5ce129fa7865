/* SPDX-License-Identifier: Apache-2.0 */
/* A rehearsal: run.mode: execute with cluster.stages in place of a model. The processes of mpirun go through the schedule and
 * send each other messages as in a training run, and sleep where that would compute (run/worker_sleep.h). Opened, run to its
 * end, closed; all ranks come to each. */
#ifndef PETRA_RUN_REHEARSAL_H
#define PETRA_RUN_REHEARSAL_H

#include "run/folder.h"
#include "distributed/pace.h"

typedef struct petra_rehearsal_options {
  petra_records records; /* without an output: run.output/run.name */
  bool resume;           /* is refused */
  petra_ranks *ranks;    /* borrowed */
} petra_rehearsal_options;

/* At rank 0. */
typedef struct petra_rehearsed {
  const petra_plan *plan; /* with its program */
  const char *directory;
  petra_pace_seconds pace; /* measured, and what petra simulate says */
} petra_rehearsed;

typedef struct petra_rehearsal petra_rehearsal;

/* Everything that can be wrong is found before anything is written. Config and options are borrowed. */
petra_status petra_rehearsal_open(const petra_config *config, const petra_rehearsal_options *options,
                                  petra_rehearsal **out);
petra_status petra_rehearsal_go(petra_rehearsal *rehearsal);
/* Writes what the ranks did and completes run.h5. */
petra_status petra_rehearsal_close(petra_rehearsal *rehearsal);
void petra_rehearsal_destroy(petra_rehearsal *rehearsal); /* NULL is fine */

/* After petra_rehearsal_close. */
const petra_rehearsed *petra_rehearsal_result(const petra_rehearsal *rehearsal);

#endif
