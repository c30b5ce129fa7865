/* SPDX-License-Identifier: Apache-2.0 */
#include "exec/deferred_work.h"

#include "base/log.h"

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
