/* An executor decides when each action of a program runs and hands it to the worker: executor_virtual under a
 * virtual clock. */
#ifndef PETRA_EXEC_EXECUTOR_H
#define PETRA_EXEC_EXECUTOR_H

#include "exec/worker.h"
#include "schedule/program.h"

typedef struct petra_executor petra_executor;

/* One action as it ran. */
typedef struct petra_trace_row {
  petra_action action;
  int64_t start_ns, end_ns;
  petra_action_result result;
} petra_trace_row;

/* Told of every action when it ends, in the order of (end, stage, start of the action). May be NULL. */
typedef petra_status (*petra_trace_sink)(void *context, const petra_trace_row *row);

typedef struct petra_executor_ops {
  /* Runs the program to its end. The first failure of the worker or the sink ends the run and is returned;
   * PETRA_SCHEDULE, logged with the first action that waits, when nothing can go on. */
  petra_status (*run)(petra_executor *executor, const petra_program_ops *program, const petra_program_options *options,
                      petra_worker *worker, petra_trace_sink sink, void *context);
  int64_t (*now_ns)(const petra_executor *executor);
  void (*destroy)(petra_executor *executor);
} petra_executor_ops;

struct petra_executor {
  const petra_executor_ops *ops;
};

#endif
