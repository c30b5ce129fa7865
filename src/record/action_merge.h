/* SPDX-License-Identifier: Apache-2.0 */
/* The actions that several processes did, as one order: each process's in its own order, every pass behind the one whose
 * message it took, and otherwise by the time of the start. The clocks of hosts differ; an order by them alone might have a
 * message taken before it was sent. */
#ifndef PETRA_RECORD_ACTION_MERGE_H
#define PETRA_RECORD_ACTION_MERGE_H

#include "exec/observer.h"
#include "schedule/program.h"

/* Puts `rows` in order: process p of `count` has first[p] .. first[p + 1] - 1, in the order in which it did them. Of
 * `options` stages, microbatches and split_head are read. PETRA_INTERNAL, logged, where there is no such order: `rows` are
 * as they were then. */
petra_status petra_merge_actions(petra_trace_row *rows, const int64_t *first, int count,
                                 const petra_program_options *options);

#endif
