/* SPDX-License-Identifier: Apache-2.0 */
/* Writes the actions of a run into /trace/actions of run.h5 as it goes. */
#ifndef PETRA_RECORD_ACTION_LOG_H
#define PETRA_RECORD_ACTION_LOG_H

#include "exec/observer.h"
#include "record/run_h5.h"

/* Of `stages` stages, into `runlog`, which is borrowed. Rows are in the order of starts, those that start at one moment in
 * the order in which they were performed; a row is written when every one before it has ended. */
petra_status petra_action_log_create(petra_runlog *runlog, int32_t stages, petra_observer **out);
void petra_action_log_destroy(petra_observer *log);

#endif
