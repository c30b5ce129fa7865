/* SPDX-License-Identifier: Apache-2.0 */
#include "backend/journal.h"

#include "backend/pool.h"
#include "base/lane.h"
#include "base/mem.h"
#include "base/log.h"

#include <assert.h>

typedef enum change_kind { ADD, CHARGE, RELEASE } change_kind;

typedef struct change {
  change_kind kind;
  petra_memory_category category;
  petra_tensor *tensor;   /* CHARGE, RELEASE */
  petra_account *account; /* ADD, CHARGE */
  int64_t bytes;          /* ADD */
} change;

struct petra_journal {
  int64_t number;
  petra_status status; /* of recording */
  change *changes;
  int64_t count, capacity;
};

petra_status petra_journal_create(petra_journal **out) {
  return petra_allocate(out, 1, sizeof **out);
}

void petra_journal_destroy(petra_journal *journal) {
  if (!journal)
    return;
  assert(journal->count == 0);
  petra_free(journal->changes);
  petra_free(journal);
}

petra_journal *petra_journal_here(void) {
  return petra_lane_here()->journal;
}

int64_t petra_journal_number(const petra_journal *journal) {
  return journal->number;
}

void petra_journal_begin(petra_journal *journal, petra_backend *backend) {
  assert(journal->count == 0);
  journal->number = petra_tensor_pool_number(backend);
  journal->status = PETRA_OK;
}

void petra_journal_open(petra_journal *journal) {
  petra_lane_here()->journal = journal;
}

void petra_journal_close(petra_journal *journal) {
  assert(petra_lane_here()->journal == journal);
  (void)journal;
  petra_lane_here()->journal = NULL;
}

static void make(const change *c) {
  petra_tensor *tensor = c->tensor;
  switch (c->kind) {
  case ADD:
    petra_account_add(c->account, c->category, c->bytes);
    break;
  case CHARGE:
    petra_tensor_charge(tensor, c->account, c->category);
    break;
  case RELEASE:
    petra_tensor_release(&tensor);
    break;
  }
}

static void make_all(petra_journal *journal) {
  for (int64_t i = 0; i < journal->count; i++)
    make(&journal->changes[i]);
  journal->count = 0;
}

petra_status petra_journal_apply(petra_journal *journal) {
  assert(!petra_journal_here());
  make_all(journal);
  return journal->status;
}

/* Without memory all changes are made immediately, while no other thread does the same. Only in this case changes are
 * made while journals are open; in the end everything is released. */
static void write_down(petra_journal *journal, petra_backend *backend, const change *c) {
  if (journal->status == PETRA_OK)
    journal->status = petra_array_reserve(&journal->changes, &journal->capacity, journal->count + 1, sizeof *c);
  if (journal->count < journal->capacity) {
    journal->changes[journal->count++] = *c;
    return;
  }
  petra_tensor_pool_lock(backend);
  petra_lane_here()->journal = NULL;
  make_all(journal);
  make(c);
  petra_lane_here()->journal = journal;
  petra_tensor_pool_unlock(backend);
}

void petra_journal_add(petra_journal *journal, petra_backend *backend, petra_account *account,
                       petra_memory_category category, int64_t bytes) {
  const change c = {.kind = ADD, .account = account, .category = category, .bytes = bytes};
  if (account)
    write_down(journal, backend, &c);
}

void petra_journal_charge(petra_journal *journal, petra_tensor *tensor, petra_account *account,
                          petra_memory_category category) {
  const change c = {.kind = CHARGE, .tensor = tensor, .account = account, .category = category};
  write_down(journal, tensor->backend, &c);
}

void petra_journal_release(petra_journal *journal, petra_tensor *tensor) {
  const change c = {.kind = RELEASE, .tensor = tensor};
  write_down(journal, tensor->backend, &c);
}

/* --- deferred work --- */

petra_status petra_deferred_work_init(petra_deferred_work *deferred) {
  return petra_journal_create(&deferred->journal);
}

void petra_deferred_work_fini(petra_deferred_work *deferred) {
  petra_journal_destroy(deferred->journal);
}

void petra_deferred_work_begin(petra_deferred_work *deferred, petra_backend *backend) {
  petra_journal_begin(deferred->journal, backend);
  deferred->status = PETRA_OK;
  deferred->failure[0] = 0;
}

void petra_deferred_work_enter(petra_deferred_work *deferred, bool lines) {
  petra_journal_open(deferred->journal);
  petra_lane_here()->failure = lines ? deferred->failure : NULL;
}

void petra_deferred_work_leave(petra_deferred_work *deferred) {
  petra_lane_here()->failure = NULL;
  petra_journal_close(deferred->journal);
}

petra_status petra_deferred_work_end(petra_deferred_work *deferred, petra_status before) {
  petra_status read_out = petra_journal_apply(deferred->journal);
  if (before != PETRA_OK)
    return before;
  if (deferred->failure[0])
    petra_log(PETRA_LOG_ERROR, "%s", deferred->failure);
  return deferred->status != PETRA_OK ? deferred->status : read_out;
}
