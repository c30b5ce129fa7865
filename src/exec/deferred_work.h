/* SPDX-License-Identifier: Apache-2.0 */
/* A piece of work that a thread pool does beside others, while its results are used in order. Its changes to accounts
 * and references, and the line of its failure, are deferred until its turn comes. */
#pragma once

#include "backend/tensor.h"
#include "base/log.h"

typedef struct petra_deferred_work {
  petra_journal *journal;
  petra_status status;
  char failure[PETRA_LANE_LINE];
} petra_deferred_work;

petra_status petra_deferred_work_init(petra_deferred_work *deferred);
void petra_deferred_work_fini(petra_deferred_work *deferred);

/* Begins another piece. */
void petra_deferred_work_begin(petra_deferred_work *deferred, petra_backend *backend);

/* The calling thread works for it between these two calls. With `lines` the lines of failures are kept. */
void petra_deferred_work_enter(petra_deferred_work *deferred, bool lines);
void petra_deferred_work_leave(petra_deferred_work *deferred);

/* Makes the deferred changes, in its turn and outside of all pieces. `before` is the status of the pieces before it; if
 * that is PETRA_OK, the failure of this one is logged and returned. */
petra_status petra_deferred_work_end(petra_deferred_work *deferred, petra_status before);
