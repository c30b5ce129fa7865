/* SPDX-License-Identifier: Apache-2.0 */
/* Records the actions of a run, for /trace/actions of run.h5 and for traces. Under the virtual clock it is an observer
 * and writes rows during the run. By the wall clock each process adds rows of its actions, and rank 0 gathers them
 * when the run is over. */
#pragma once

#include "base/archive.h"
#include "schedule/executor.h"
#include "record/run_h5.h"
#include "group/ranks.h"
#include "schedule/program.h"
#include "base/mem.h"

typedef struct petra_action_log petra_action_log;

/* Reads stages, microbatches and split_head of `program`. `program` and `run_h5` are borrowed. Under the virtual clock
 * the observer writes its rows to `run_h5`; if `run_h5` is NULL, it keeps them. */
petra_status petra_action_log_create(const petra_program_options *program, bool by_wall, petra_run_h5 *run_h5,
                                     petra_action_log **out);
void petra_action_log_destroy(petra_action_log *log); /* NULL is allowed */

/* Returns the observer. Under the virtual clock it observes the executor of all stages: rows are in the order in which
 * the actions start; actions that start at the same moment are in the order in which they were performed. A row is
 * written when the actions of all rows before it have ended. By the wall clock it receives the actions of this process
 * when they end, and keeps their rows in the order in which the actions were done. */
petra_observer *petra_action_log_observer(petra_action_log *log);

/* Returns the rows that are kept, in that order; they are valid until another row is added. */
const petra_trace_row *petra_action_log_rows(const petra_action_log *log, int64_t *count);

/* Reads or writes the rows of a stage, in a part of a checkpoint. Reading adds `later_ns` to the times. *there is true
 * if the checkpoint contains actions. If `log` is NULL, nothing is recorded here. */
petra_status petra_action_log_archive(petra_action_log *log, int32_t stage, int64_t later_ns, petra_archive *archive,
                                      bool *there);

/* Call this on all ranks. Rank 0 receives the rows of all ranks whose `gives` is true, in one order
 * (petra_merge_actions), with wall-clock times relative to the first start. The rows go into run.h5 in that order, and
 * to `trace` in the order in which the actions end. `run_h5` and `trace` may be NULL; on other ranks both must be
 * NULL. */
petra_status petra_action_log_gather(petra_action_log *log, petra_ranks *ranks, bool gives, petra_run_h5 *run_h5,
                                     petra_observer *trace);

/* Puts the actions of several processes in one order: the actions of each process in the order of that process, every
 * pass after the pass whose message it took, and otherwise by the time of the start. Clocks of hosts differ: in the
 * order of time alone, a message could be taken before it was sent. Process p of `count` has rows first[p] .. first[p +
 * 1] - 1, in the order in which it did the actions. PETRA_INTERNAL, logged, if there is no such order; then `rows` are
 * unchanged. */
petra_status petra_merge_actions(petra_trace_row *rows, const int64_t *first, int count,
                                 const petra_program_options *program);

/* --- trace.c ---
 * An observer that writes a trace for the viewers of Chrome and Perfetto (JSON in the Trace Event Format) during a run.
 * The trace has one process per device, named after its stages, with the threads F, B (for B, W and U) and
 * communication. It has arrows from an action to the action that uses its message, if the trace has both and both take
 * time; and two counters for each stage: the microbatches that it holds between F and B, and its memory. Times are
 * nanoseconds of the virtual clock, given as microseconds with three decimals. The file appears at `path` when it is
 * complete. */

typedef struct petra_trace_observer_options {
  const char *path;                     /* borrowed */
  const petra_program_options *program; /* borrowed */
  bool split_backward;                  /* W is a separate action, and ends what a stage holds */
  /* Returns the account of a stage (from 1). It is called when an action of the stage or of a neighbour has started.
   * NULL: memory is not known. */
  const petra_account *(*account)(const void *context, int32_t stage);
  const void *context;
} petra_trace_observer_options;

/* PETRA_IO, logged, if the file cannot be made. Warns if the trace may exceed 500 MB. */
petra_status petra_trace_observer_create(const petra_trace_observer_options *options, petra_observer **out);

/* Call this after the run: ends the file and renames it. */
petra_status petra_trace_observer_finish(petra_observer *observer);

/* Discards the file if it was not finished. NULL is allowed. */
void petra_trace_observer_destroy(petra_observer *observer);
