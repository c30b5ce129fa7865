/* SPDX-License-Identifier: Apache-2.0 */
/* Concurrent actions share tensors (a stream that passes through several stages is one tensor) and accounts (a message
 * counts under its receiver's). An action writes its changes to both into its journal. When all actions are done, the
 * journals are applied one after the other: accounts, with their peaks, and references are then as if the actions had
 * been done in that order. Until then a tensor that others may hold loses no reference. A tensor that the action made,
 * or that it alone holds, is released immediately, so that the action can reuse its storage. Whether an action is the
 * only holder of a tensor does not depend on the progress of others: references are only added to tensors that have a
 * holder, and none is removed. */
#pragma once

#include "backend/backend.h"
#include "base/lane.h"

typedef struct petra_journal petra_journal;

petra_status petra_journal_create(petra_journal **out);

/* Destroys the journal, which must have been applied. NULL is allowed. */
void petra_journal_destroy(petra_journal *journal);

/* Assigns the journal, which has been applied, to another action. */
void petra_journal_begin(petra_journal *journal, petra_backend *backend);

/* Opens the journal: the changes of the calling thread go into it until it is closed. */
void petra_journal_open(petra_journal *journal);
void petra_journal_close(petra_journal *journal);

/* Makes the changes in their order and empties the journal; no journal may be open in any thread. Errors:
 * PETRA_NO_MEMORY, logged before: a change could not be recorded, and was made in another order. */
petra_status petra_journal_apply(petra_journal *journal);

/* --- for tensor.c: the journal of the calling thread --- */

/* Returns the journal of the calling thread; NULL: changes are made immediately. */
petra_journal *petra_journal_here(void);
int64_t petra_journal_number(const petra_journal *journal); /* number of the action, from 1; each occurs once */

/* Record later changes. */
void petra_journal_add(petra_journal *journal, petra_backend *backend, petra_account *account,
                       petra_memory_category category, int64_t bytes);
void petra_journal_charge(petra_journal *journal, petra_tensor *tensor, petra_account *account,
                          petra_memory_category category);
void petra_journal_release(petra_journal *journal, petra_tensor *tensor);

/* --- deferred work ---
 * A piece of work that a thread pool does beside others, while its results are used in order. Its changes to accounts
 * and references, and the line of its failure, are deferred until its turn comes. */

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
