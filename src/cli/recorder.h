/* Records a run as it goes, for `petra train` and `petra simulate` alike: what each stage holds in memory
 * into the trace, and the actions into /trace/actions of run.h5. It stands between the executor and the
 * worker, since both are told at starts. */
#ifndef PETRA_CLI_RECORDER_H
#define PETRA_CLI_RECORDER_H

#include "exec/executor.h"
#include "io/runlog.h"
#include "io/trace.h"

typedef struct petra_recorder_options {
  petra_worker *worker; /* does the actions; borrowed, as all of this */
  int32_t stages;
  petra_trace *trace; /* NULL: none */
  /* The account of a stage (from 1), asked for the trace. NULL: memory is not known. */
  const petra_account *(*account)(const void *context, int32_t stage);
  const void *account_context;
  petra_runlog *runlog; /* NULL: actions are not logged */
} petra_recorder_options;

typedef struct petra_recorder petra_recorder;

petra_status petra_recorder_create(const petra_recorder_options *options, petra_recorder **out);
void petra_recorder_destroy(petra_recorder *recorder);

/* What the executor is given in the place of the worker. */
petra_worker *petra_recorder_worker(petra_recorder *recorder);

/* To be called for each action that ends. Rows of the log are in the order of starts, those that start at one
 * moment in the order in which they were performed; a row is written when every one before it has ended. */
petra_status petra_recorder_ended(petra_recorder *recorder, const petra_trace_row *row);

#endif
