/* SPDX-License-Identifier: Apache-2.0 */
/* An observer that writes a trace for the viewers of Chrome and Perfetto (JSON in the Trace Event Format) during a run.
 * The trace has one process per device, named after its stages, with the threads F, B (for B, W and U) and
 * communication. It has arrows from an action to the action that uses its message, if the trace has both and both take
 * time; and two counters for each stage, of the microbatches that it holds between F and B and of its memory. Times are
 * nanoseconds of the virtual clock, given as microseconds with three decimals. The file appears at `path` when it is
 * complete. */
#pragma once

#include "base/mem.h"
#include "schedule/executor.h"
#include "schedule/program.h"

typedef struct petra_trace_observer_options {
  const char *path;
  const petra_program_options *program; /* borrowed */
  bool split_backward;                  /* W is an action of its own, and ends what a stage holds */
  /* The account of a stage (from 1), asked for when an action of it or of a neighbour has started. NULL: memory is not
   * known. */
  const petra_account *(*account)(const void *context, int32_t stage);
  const void *context;
} petra_trace_observer_options;

/* PETRA_IO, logged, if the file cannot be made. Warns if the trace may exceed 500 MB. */
petra_status petra_trace_observer_create(const petra_trace_observer_options *options, petra_observer **out);

/* Call this after the run: ends the file and renames it. */
petra_status petra_trace_observer_finish(petra_observer *observer);

/* Discards the file if it was not finished. NULL is allowed. */
void petra_trace_observer_destroy(petra_observer *observer);
