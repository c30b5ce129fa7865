/* SPDX-License-Identifier: Apache-2.0 */
/* A piece of work that is done beside others by a crew, as its result is taken afterwards: what it changes of accounts and
 * references, and the line of its failure, wait until its turn comes. */
#pragma once

#include "backend/journal.h"
#include "base/lane.h"

typedef struct petra_deferred_work {
  petra_journal *journal;
  petra_status status;
  char failure[PETRA_LANE_LINE];
} petra_deferred_work;

petra_status petra_deferred_work_init(petra_deferred_work *aside);
void petra_deferred_work_fini(petra_deferred_work *aside);

/* Another piece begins. */
void petra_deferred_work_begin(petra_deferred_work *aside, petra_backend *backend);

/* Between the two the calling thread works for it, where `lines`: with lines of failures held back. */
void petra_deferred_work_enter(petra_deferred_work *aside, bool lines);
void petra_deferred_work_leave(petra_deferred_work *aside);

/* In its turn, outside of all: makes its changes. `before` is the status of the pieces before it; if these went well its
 * failure is logged and returned. */
petra_status petra_deferred_work_end(petra_deferred_work *aside, petra_status before);
