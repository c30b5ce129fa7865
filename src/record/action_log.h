/* SPDX-License-Identifier: Apache-2.0 */
/* Records the actions of a run, for /trace/actions of run.h5 and for traces. Under the virtual clock it is an observer and writes rows as
 * the run goes on. By the wall clock each process adds rows of its own actions, which are gathered when the run is over. */
#pragma once

#include "base/archive.h"
#include "exec/observer.h"
#include "record/run_h5.h"
#include "group/ranks.h"
#include "schedule/program.h"

typedef struct petra_action_log petra_action_log;

/* Of `program` stages, microbatches and split_head are read. Both are borrowed. `runlog`: where the observer writes; NULL: rows are added
 * by petra_action_log_add. */
petra_status petra_action_log_create(const petra_program_options *program, petra_runlog *runlog,
                                     petra_action_log **out);
void petra_action_log_destroy(petra_action_log *log); /* NULL is allowed */

/* For the executor of all stages. Rows are in the order of starts, those that start at one moment in the order in which they were
 * performed; a row is written when every row before it has ended. */
petra_observer *petra_action_log_observer(petra_action_log *log);

/* Adds an action of this process, in the order in which it was done. */
petra_status petra_action_log_add(petra_action_log *log, const petra_trace_row *row);

/* The added rows of a stage, in a part of a checkpoint. When it is read, `later_ns` is added to the times; *there: whether actions were
 * recorded. `log` NULL: nothing is recorded here. */
petra_status petra_action_log_archive(petra_action_log *log, int32_t stage, int64_t later_ns, petra_archive *archive,
                                      bool *there);

/* At all ranks: gives rank 0 the added rows of all that `gives`, as one order (petra_merge_actions), by the wall clock from the first start on. They go
 * into run.h5 in that order, and to `trace` in that of their ends. Either may be NULL, as both are on the other ranks. */
petra_status petra_action_log_gather(petra_action_log *log, petra_ranks *ranks, bool gives, petra_runlog *runlog,
                                     petra_observer *trace);

/* Puts the actions of several processes in one order: those of each process in its own order, every pass after the one whose message it
 * took, and otherwise by the time of the start. The clocks of hosts differ: by them alone a message might be taken before it was sent.
 * Process p of `count` has rows first[p] .. first[p + 1] - 1, in the order in which it did them. PETRA_INTERNAL, logged, if there is no
 * such order; `rows` are unchanged then. */
petra_status petra_merge_actions(petra_trace_row *rows, const int64_t *first, int count,
                                 const petra_program_options *program);
