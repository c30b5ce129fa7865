/* SPDX-License-Identifier: Apache-2.0 */
#include "exec/deferred_work.h"

#include "base/log.h"

petra_status petra_deferred_work_init(petra_deferred_work *aside) {
  return petra_journal_create(&aside->journal);
}

void petra_deferred_work_fini(petra_deferred_work *aside) {
  petra_journal_destroy(aside->journal);
}

void petra_deferred_work_begin(petra_deferred_work *aside, petra_backend *backend) {
  petra_journal_begin(aside->journal, backend);
  aside->status = PETRA_OK;
  aside->failure[0] = 0;
}

void petra_deferred_work_enter(petra_deferred_work *aside, bool lines) {
  petra_journal_open(aside->journal);
  petra_lane_here()->failure = lines ? aside->failure : NULL;
}

void petra_deferred_work_leave(petra_deferred_work *aside) {
  petra_lane_here()->failure = NULL;
  petra_journal_close(aside->journal);
}

petra_status petra_deferred_work_end(petra_deferred_work *aside, petra_status before) {
  petra_status read_out = petra_journal_read_out(aside->journal);
  if (before != PETRA_OK)
    return before;
  if (aside->failure[0])
    petra_log(PETRA_LOG_ERROR, "%s", aside->failure);
  return aside->status != PETRA_OK ? aside->status : read_out;
}
