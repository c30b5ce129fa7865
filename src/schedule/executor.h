/* SPDX-License-Identifier: Apache-2.0 */
/* An executor decides when each action of a program runs, passes it to the worker and notifies the observers:
 * executor_virtual under a virtual clock. */
#pragma once

#include "schedule/observer.h"
#include "schedule/program.h"

typedef struct petra_executor petra_executor;

typedef struct petra_executor_ops {
  /* Runs the program to its end; `observers` may be NULL. The first failure of the worker or an observer ends the run
   * and is returned. PETRA_SCHEDULE, logged with the first action that waits, if no action can begin. */
  petra_status (*run)(petra_executor *executor, const petra_program_ops *program, const petra_program_options *options,
                      petra_worker *worker, petra_observer *observers);
  int64_t (*now_ns)(const petra_executor *executor);
  void (*destroy)(petra_executor *executor);
} petra_executor_ops;

struct petra_executor {
  const petra_executor_ops *ops;
};

static inline void petra_executor_destroy(petra_executor *executor) {
  if (executor)
    executor->ops->destroy(executor);
}
