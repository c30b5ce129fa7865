/* SPDX-License-Identifier: Apache-2.0 */
#include "exec/deferred_work.h"

#include "base/log.h"

petra_status petra_aside_init(petra_aside *aside) {
  return petra_journal_create(&aside->journal);
}

void petra_aside_fini(petra_aside *aside) {
  petra_journal_destroy(aside->journal);
}

void petra_aside_begin(petra_aside *aside, petra_backend *backend) {
  petra_journal_begin(aside->journal, backend);
  aside->status = PETRA_OK;
  aside->failure[0] = 0;
}

void petra_aside_enter(petra_aside *aside, bool lines) {
  petra_journal_open(aside->journal);
  petra_lane_here()->failure = lines ? aside->failure : NULL;
}

void petra_aside_leave(petra_aside *aside) {
  petra_lane_here()->failure = NULL;
  petra_journal_close(aside->journal);
}

petra_status petra_aside_end(petra_aside *aside, petra_status before) {
  petra_status read_out = petra_journal_read_out(aside->journal);
  if (before != PETRA_OK)
    return before;
  if (aside->failure[0])
    petra_log(PETRA_LOG_ERROR, "%s", aside->failure);
  return aside->status != PETRA_OK ? aside->status : read_out;
}
