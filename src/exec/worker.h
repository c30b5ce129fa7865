/* SPDX-License-Identifier: Apache-2.0 */
/* A worker does the actions: worker_stage on real tensors, with the messages of its transport; sim's worker_cost by
 * counting. The executor tells it only what to do next, in an order in which every input is there. */
#pragma once

#include "schedule/action.h"

typedef struct petra_worker petra_worker;

/* What an action read and wrote: versions count the updates of the stage's weights; -1 where nothing is read or
 * written. */
typedef struct petra_action_result {
  int64_t version_read, version_written;
  int64_t measured_ns; /* how long it really took, which is then its virtual duration; 0: the executor prices it */
  int64_t priced_ns;   /* what the executor says, when it asks for the action, that it will last; read, not written */
} petra_action_result;

typedef struct petra_worker_ops {
  /* Does a group of actions that start at the same moment and are independent of each other (other stages, or the two
   * engines of one): the result is bit-identical in whatever order they are done. `virtual_ns` is the moment. */
  petra_status (*perform)(petra_worker *worker, int64_t virtual_ns, const petra_action *actions, int count,
                          petra_action_result *results);
  /* Optional: what the worker has not told yet of what it did (losses that a device still computes). At the end of a
   * run, and before its state is written down. */
  petra_status (*finish)(petra_worker *worker);
} petra_worker_ops;

struct petra_worker {
  const petra_worker_ops *ops;
};

static inline petra_status petra_worker_finish(petra_worker *worker) {
  return worker->ops->finish ? worker->ops->finish(worker) : PETRA_OK;
}
