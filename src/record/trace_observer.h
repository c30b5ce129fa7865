/* SPDX-License-Identifier: Apache-2.0 */
/* Writes a trace for Chrome's or Perfetto's viewer (record/trace.h) during a run: actions, messages, memory. */
#pragma once

#include "exec/observer.h"
#include "record/trace.h"
#include "schedule/program.h"

typedef struct petra_trace_observer_options {
  const char *path;
  const petra_program_options *program; /* borrowed */
  bool split_backward;                  /* W is a separate action */
  /* Returns the account of a stage (from 1); called when an action of it or of a neighbour has started. NULL: memory is
   * not known. */
  const petra_account *(*account)(const void *context, int32_t stage);
  const void *context;
} petra_trace_observer_options;

petra_status petra_trace_observer_create(const petra_trace_observer_options *options, petra_observer **out);

/* Call this after the run: ends the file and renames it. */
petra_status petra_trace_observer_finish(petra_observer *observer);

/* Abandons the file if it was not finished. NULL is allowed. */
void petra_trace_observer_destroy(petra_observer *observer);
