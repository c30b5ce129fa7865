/* SPDX-License-Identifier: Apache-2.0 */
/* A worker performs the actions: worker_stage on real tensors, with the messages of its transport; sim's worker_cost by
 * counting. The executor only says what to do next, in an order in which every input is there. */
#pragma once

#include "schedule/action.h"

typedef struct petra_worker petra_worker;
struct petra_cycle;

/* The versions that an action read and wrote. Versions count the updates of the stage's weights; -1 if nothing is read
 * or written. */
typedef struct petra_action_result {
  int64_t version_read, version_written;
  int64_t measured_ns; /* real duration, which becomes the virtual one; 0: the executor prices it */
  int64_t priced_ns;   /* duration by the prices of the executor, in a step the part of it; an input of the worker */
} petra_action_result;

typedef struct petra_worker_ops {
  /* Performs a group of actions that start at the same moment, `virtual_ns`, and are independent of each other (of
   * other stages, or of the two engines of one), except that a W may follow its B. The result is bit-identical for every other order. */
  petra_status (*perform)(petra_worker *worker, int64_t virtual_ns, const petra_action *actions, int count,
                          petra_action_result *results);
  /* Optional: reports the results that the worker has not reported yet (losses that a device still computes). Called at
   * the end of a run, and before its state is saved. */
  petra_status (*finish)(petra_worker *worker);
  /* As of an observer. NULL: the worker performs every action. */
  void (*state)(petra_worker *worker, struct petra_cycle *cycle);
} petra_worker_ops;

struct petra_worker {
  const petra_worker_ops *ops;
};

static inline petra_status petra_worker_finish(petra_worker *worker) {
  return worker->ops->finish ? worker->ops->finish(worker) : PETRA_OK;
}
