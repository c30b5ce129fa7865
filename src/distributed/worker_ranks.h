/* SPDX-License-Identifier: Apache-2.0 */
/* The worker of a rank. It receives the actions of all stages, in the one order that the schedule has under the virtual
 * clock, the same on every rank. The worker of the stages performs those of the stages that are here, and waits for the
 * messages of other ranks; all others are counted. So the order, and what depends on it (evaluations, the end), is the
 * same everywhere without communication. */
#pragma once

#include "schedule/executor.h"
#include "exec/stage_observer.h"
#include "exec/stages.h"
#include "exec/transport.h"
#include "record/action_log.h"
#include "distributed/rank_times.h"
#include "sim/worker_cost.h"

/* All is borrowed. */
typedef struct petra_worker_ranks_options {
  petra_stages stages;
  petra_worker *worker; /* worker_stage's */
  petra_worker_cost_options counting;
  const petra_program_options *program;
  petra_transport *transport;      /* transport_ranks' */
  petra_stage_observer *groups;    /* a list, or NULL; notified (begins, done) of the actions of all stages */
  petra_action_log *actions;       /* records its own actions, by the wall clock; NULL: none */
  int64_t origin_ns;               /* of the wall clock (base/clock.h): times of rows are relative to it */
  petra_progress_thread *progress; /* of the transport */
  petra_rank_times *times;         /* notified of its own actions */
  /* Is called now and then, between actions; may be NULL. */
  petra_status (*between)(void *context);
  void *context;
} petra_worker_ranks_options;

petra_status petra_worker_ranks_create(const petra_worker_ranks_options *options, petra_worker **out);
void petra_worker_ranks_destroy(petra_worker *worker);

/* Counts actions of all stages without performing them: those that a checkpoint has done, before any other. Valid as
 * long as the worker. */
petra_worker *petra_worker_ranks_counting(petra_worker *worker);

/* Nanoseconds spent so far in its own actions, and the parts spent waiting, and converting tensors to messages and
 * back. */
typedef struct petra_worker_ranks_times {
  int64_t busy_ns, waited_ns, copied_ns;
} petra_worker_ranks_times;
petra_worker_ranks_times petra_worker_ranks_took(const petra_worker *worker);
