/* SPDX-License-Identifier: Apache-2.0 */
/* Actions that are done side by side share tensors (a stream that passes through several stages is one tensor) and
 * accounts (a message counts under its receiver's). What an action does to either goes into its journal, and the journals
 * are read out one after the other when all actions are done: accounts, with their peaks, and references are then as if
 * the actions had been done in that order.
 *
 * Until then a tensor that others may hold loses no reference. One that the action made, or alone holds, is given back at
 * once, so that its storage serves the action again. Whether an action is alone with a tensor does not depend on how far
 * others are: a reference is taken from one that is held, and none goes. */
#ifndef PETRA_BACKEND_JOURNAL_H
#define PETRA_BACKEND_JOURNAL_H

#include "backend/backend.h"

typedef struct petra_journal petra_journal;

petra_status petra_journal_create(petra_journal **out);

/* It must have been read out. NULL is allowed. */
void petra_journal_destroy(petra_journal *journal);

/* It is another action's from now on; it has been read out. */
void petra_journal_begin(petra_journal *journal, petra_backend *backend);

/* The calling thread's changes go into it until it is closed. */
void petra_journal_open(petra_journal *journal);
void petra_journal_close(petra_journal *journal);

/* Makes the changes, in their order, and empties it; no journal is open in any thread. PETRA_NO_MEMORY, logged before: one
 * could not be written down, and was made in another order. */
petra_status petra_journal_read_out(petra_journal *journal);

/* --- for tensor.c: the journal of the calling thread --- */

/* NULL: changes are made at once. */
petra_journal *petra_journal_here(void);
int64_t petra_journal_number(const petra_journal *journal); /* of the action, from 1; each comes once */

/* Later changes. */
void petra_journal_add(petra_journal *journal, petra_backend *backend, petra_account *account,
                       petra_memory_category category, int64_t bytes);
void petra_journal_charge(petra_journal *journal, petra_tensor *tensor, petra_account *account,
                          petra_memory_category category);
void petra_journal_release(petra_journal *journal, petra_tensor *tensor);

#endif
