/* SPDX-License-Identifier: Apache-2.0 */
/* The executor of a rank under the wall clock, for program `arrival`, which has no order: the rank does, of what its stages can
 * do, what came first (schedule/arrival.h), and waits for messages alone. One action at a time, of whichever of its stages;
 * where two came at one moment, B before F, then the higher stage. F of a stage waits as well while more than PETRA_TRANSPORT_AHEAD of its
 * messages wait at the next stage, here or elsewhere.
 *
 * An evaluation goes through the ranks batch by batch, between actions: a rank passes on a batch that came when it is that
 * batch's turn, once all its stages have their snapshots. A stage takes no further snapshot (and does nothing else) while the
 * one before is in use.
 *
 * The rank is done when every microbatch has come back through all its stages and its part of every evaluation is over.
 * No rank waits for ever: docs/adr/0017.
 *
 * Where there are cuts, stage 1 reads no microbatch behind one before it was written: so each rank comes to the end of all
 * that was read, as at the end of the run, and nothing is under way. The progress thread's meetings (group/progress_thread.h) are cuts as well;
 * their places are the microbatches that stage 1 has read. */
#pragma once

#include "exec/executor.h"
#include "exec/stages.h"
#include "exec/transport.h"
#include "group/progress_thread.h"

/* Where the pipeline is drained for a checkpoint. Zeros: nowhere. */
typedef struct petra_executor_cuts {
  int64_t begin; /* microbatches that a checkpoint has done, and the executor's clock then; 0: from the beginning */
  int64_t begin_ns;
  int64_t every; /* microbatches between two cuts; 0: there are none */
  /* On each rank, when all its stages have done the first `microbatches` and nothing else. `met`: at a meeting, which ends so. */
  petra_status (*write)(void *context, int64_t microbatches, int64_t now_ns, bool met, petra_meeting_end end);
  void *context;
} petra_executor_cuts;

/* Borrowed, all of it. */
typedef struct petra_executor_wall_options {
  petra_stages stages;        /* those that are here are neighbours */
  petra_transport *transport; /* transport_ranks', by arrival */
  petra_progress_thread *progress;
  petra_worker *evaluating; /* worker_stage's, with options.waves; actions go to the worker that `run` is given */
  int64_t origin_ns;        /* of the clock (base/clock.h): the executor's counts from it */
  petra_executor_cuts cuts;
  /* Called between actions and while the rank waits; may be NULL. */
  petra_status (*between)(void *context);
  void *context;
} petra_executor_wall_options;

/* Its `run` is for programs that are `arrival`: PETRA_UNSUPPORTED, logged, for others. */
petra_status petra_executor_wall_create(const petra_executor_wall_options *options, petra_executor **out);

/* Nanoseconds of the wall clock so far: between actions, waiting; in batches of evaluations. */
typedef struct petra_executor_wall_times {
  int64_t waiting_ns, evaluating_ns;
} petra_executor_wall_times;
petra_executor_wall_times petra_executor_wall_took(const petra_executor *executor);
