/* SPDX-License-Identifier: Apache-2.0 */
/* The actions of an executed run, which its ranks recorded, in the files of rank 0. */
#ifndef PETRA_RECORD_ACTIONS_GATHER_H
#define PETRA_RECORD_ACTIONS_GATHER_H

#include "exec/observer.h"
#include "record/run_h5.h"
#include "group/ranks.h"
#include "schedule/program.h"

/* To rank 0: the `count` actions that each rank recorded, as one order (record/action_merge.h), by the wall clock from the first one on: into
 * run.h5 in that order, to `trace` in that of their ends. Either may be NULL, as both are on the other ranks. Of `program`
 * stages, microbatches and split_head are read. */
petra_status petra_actions_gather(petra_ranks *ranks, const petra_program_options *program, const petra_trace_row *rows,
                                  int64_t count, petra_runlog *runlog, petra_observer *trace);

#endif
