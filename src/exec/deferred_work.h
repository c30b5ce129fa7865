/* SPDX-License-Identifier: Apache-2.0 */
/* A piece of work that is done beside others by a crew, as its result is taken afterwards: what it changes of accounts and
 * references, and the line of its failure, wait until its turn comes. */
#pragma once

#include "backend/journal.h"
#include "base/lane.h"

typedef struct petra_aside {
  petra_journal *journal;
  petra_status status;
  char failure[PETRA_LANE_LINE];
} petra_aside;

petra_status petra_aside_init(petra_aside *aside);
void petra_aside_fini(petra_aside *aside);

/* Another piece begins. */
void petra_aside_begin(petra_aside *aside, petra_backend *backend);

/* Between the two the calling thread works for it, where `lines`: with lines of failures held back. */
void petra_aside_enter(petra_aside *aside, bool lines);
void petra_aside_leave(petra_aside *aside);

/* In its turn, outside of all: makes its changes. `before` is the status of the pieces before it; if these went well its
 * failure is logged and returned. */
petra_status petra_aside_end(petra_aside *aside, petra_status before);
