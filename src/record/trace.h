/* SPDX-License-Identifier: Apache-2.0 */
/* An observer that writes a trace for Chrome's and Perfetto's viewers (the JSON of "Trace Event Format") as a run goes: one process a
 * stage, with the threads F, B (B, W and U) and communication; arrows from an action to the one that its message feeds, but not of
 * messages that are still under way when the run ends; a counter of the microbatches that a stage holds between F and B, one of its
 * memory. Times are nanoseconds of the virtual clock, given as microseconds with three decimals. The file appears at `path` when it
 * is complete. */
#pragma once

#include "base/mem.h"
#include "exec/observer.h"
#include "schedule/program.h"

typedef struct petra_trace_observer_options {
  const char *path;
  const petra_program_options *program; /* borrowed */
  bool split_backward;                  /* W is an action of its own, and ends what a stage holds */
  /* The account of a stage (from 1), asked for when an action of it or of a neighbour has started. NULL: memory is not known. */
  const petra_account *(*account)(const void *context, int32_t stage);
  const void *context;
} petra_trace_observer_options;

/* PETRA_IO, logged, if the file cannot be made. Warns if the trace may exceed 500 MB. */
petra_status petra_trace_observer_create(const petra_trace_observer_options *options, petra_observer **out);

/* Call this after the run: ends the file and renames it. */
petra_status petra_trace_observer_finish(petra_observer *observer);

/* Gives the file up if it was not finished. NULL is allowed. */
void petra_trace_observer_destroy(petra_observer *observer);
