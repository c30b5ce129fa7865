/* SPDX-License-Identifier: Apache-2.0 */
/* The executor of a rank under the wall clock, for program `arrival`, which has no order. Of the actions that its
 * stages can do, the rank does the one whose message arrived first (schedule/arrival.h), and it waits only for
 * messages. It does one action at a time, of any of its stages; at equal times B before F, then the higher stage. F of
 * a stage also waits while more than PETRA_TRANSPORT_AHEAD of its messages wait at the next stage, here or elsewhere.
 *
 * An evaluation goes through the ranks batch by batch, between actions. A rank passes on a batch when it is that
 * batch's turn, once all its stages have their snapshots. A stage takes no further snapshot (and does nothing else)
 * while the one before is in use.
 *
 * The rank is done when every microbatch has come back through all its stages and its part of every evaluation is over.
 * No rank waits for ever: docs/adr/0017.
 *
 * If there are cuts, stage 1 reads no microbatch behind a cut before the cut was written. So each rank finishes all
 * that was read, as at the end of the run, and no message is under way. The meetings of the progress thread
 * (group/progress_thread.h) are cuts as well; their places are the numbers of microbatches that stage 1 has read. */
#pragma once

#include "schedule/executor.h"
#include "exec/stages.h"
#include "exec/transport.h"
#include "group/progress_thread.h"

/* The places at which the pipeline is drained for a checkpoint. All zeros: none. */
typedef struct petra_executor_cuts {
  int64_t begin; /* microbatches that a checkpoint has done, and the executor's clock then; 0: from the beginning */
  int64_t begin_ns;
  int64_t every; /* microbatches between two cuts; 0: there are none */
  /* Is called on each rank when all its stages have done the first `microbatches` and nothing else. `met`: this is a
   * meeting, which ends with `end`. */
  petra_status (*write)(void *context, int64_t microbatches, int64_t now_ns, bool met, petra_meeting_end end);
  void *context;
} petra_executor_cuts;

/* All is borrowed. */
typedef struct petra_executor_arrival_options {
  petra_stages stages;        /* the stages that are here are neighbours */
  petra_transport *transport; /* transport_ranks', by arrival */
  petra_progress_thread *progress;
  petra_worker *evaluating; /* of worker_stage, with options.waves; actions go to the worker that `run` gets */
  int64_t origin_ns;        /* of the clock (base/clock.h): the executor's counts from it */
  petra_executor_cuts cuts;
  /* Is called between actions and while the rank waits; may be NULL. */
  petra_status (*between)(void *context);
  void *context;
} petra_executor_arrival_options;

/* Its `run` is for programs that are `arrival`; for others it logs and returns PETRA_UNSUPPORTED. */
petra_status petra_executor_arrival_create(const petra_executor_arrival_options *options, petra_executor **out);

/* Nanoseconds of the wall clock so far: spent waiting between actions, and on batches of evaluations. */
typedef struct petra_executor_arrival_times {
  int64_t waiting_ns, evaluating_ns;
} petra_executor_arrival_times;
petra_executor_arrival_times petra_executor_arrival_took(const petra_executor *executor);
