/* SPDX-License-Identifier: Apache-2.0 */
/* The worker of a rank in a rehearsal: nothing is computed, every action lasts as long as the virtual clock says, and messages
 * of the size that the costs say go to other ranks by the progress thread. A rank has several devices of the schedule at once, each
 * with one engine: an action begins when its device is free and its message has come, whatever the rank's other devices do,
 * and what it sends is sent at its end. Only the clock of the rank itself is one: where it is behind because of its own work
 * (and not because it slept or waited), its actions begin so much later.
 *
 * The actions of all stages are given to it, in the one order that all ranks go through (distributed/worker_ranks.h). */
#pragma once

#include "exec/observer.h"
#include "record/action_log.h"
#include "plan/placement.h"
#include "distributed/rank_times.h"
#include "sim/worker_cost.h"

/* Borrowed, all of it. */
typedef struct petra_worker_sleep_options {
  const petra_placement *placement;
  const petra_program_options *program;
  petra_worker_cost_options counting;
  int64_t forward_bytes, backward_bytes; /* of messages up and down; at least 4 are sent */
  petra_action_log *actions;             /* records its own actions, by the wall clock; NULL: nobody does */
  int64_t origin_ns;                     /* of the wall clock (base/clock.h): rows and times count from it */
  petra_rank_times *times;               /* told of its own actions */
} petra_worker_sleep_options;

petra_status petra_worker_sleep_create(const petra_worker_sleep_options *options, petra_worker **out);
void petra_worker_sleep_destroy(petra_worker *worker); /* NULL is allowed */
