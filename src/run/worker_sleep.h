/* SPDX-License-Identifier: Apache-2.0 */
/* The worker of a rank in a rehearsal. It computes nothing: every action lasts as long as the virtual clock says, and
 * messages with the sizes of the cost model go to other ranks by the progress thread.
 *
 * A rank has several devices of the schedule at once, each with one engine. An action begins when its device is free
 * and its message has arrived, whatever the rank's other devices do; its results are sent at its end. The devices share
 * only the rank's own time: if the rank is late because of its own work (not because it slept or waited), its actions
 * begin later by that amount.
 *
 * The worker receives the actions of all stages, in the one order that all ranks go through
 * (distributed/worker_ranks.h). */
#pragma once

#include "schedule/executor.h"
#include "record/action_log.h"
#include "setup/placement.h"
#include "distributed/rank_times.h"
#include "sim/worker_cost.h"

/* All is borrowed. */
typedef struct petra_worker_sleep_options {
  const petra_placement *placement;
  const petra_program_options *program;
  petra_worker_cost_options counting;
  int64_t forward_bytes, backward_bytes; /* size of messages up and down; at least 4 bytes are sent */
  petra_action_log *actions;             /* records its own actions, by the wall clock; NULL: none */
  int64_t origin_ns;                     /* of the wall clock (base/clock.h): rows and times are relative to it */
  petra_rank_times *times;               /* notified of its own actions */
} petra_worker_sleep_options;

petra_status petra_worker_sleep_create(const petra_worker_sleep_options *options, petra_worker **out);
void petra_worker_sleep_destroy(petra_worker *worker); /* NULL is allowed */
