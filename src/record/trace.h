/* SPDX-License-Identifier: Apache-2.0 */
/* Traces for Chrome's and Perfetto's viewers (the JSON of "Trace Event Format"). Each stage is a process with the
 * threads F, B (B, W and U) and communication. Arrows lead from an action to the one that receives its message, except
 * for messages that are still under way when the run ends. Counters show the microbatches that a stage stores between F
 * and B, and its memory. Events are written during the run, in the order of calls; times are nanoseconds of the virtual
 * clock, printed as microseconds with three decimals. The file appears at `path` when it is complete. */
#pragma once

#include "base/mem.h"
#include "base/status.h"

#include <stdbool.h>
#include <stdint.h>

typedef struct petra_trace petra_trace;

typedef struct petra_trace_options {
  int32_t stages;
  bool fused_head;     /* the last stage's B includes its F */
  bool split_backward; /* W, not B, releases what a stage stores */
} petra_trace_options;

/* An action that has ended. */
typedef struct petra_trace_action {
  int32_t stage; /* from 1 */
  char kind;     /* 'F', 'B', 'W', 'U' */
  int64_t microbatch, start_ns, end_ns;
  int64_t version_read, version_written; /* -1: none */
} petra_trace_action;

/* Returns PETRA_IO, logged, if the file cannot be created. */
petra_status petra_trace_create(const char *path, const petra_trace_options *options, petra_trace **out);

petra_status petra_trace_add_action(petra_trace *trace, const petra_trace_action *action);

/* Adds the sending of a message for stage `to`, or its arrival, at `now_ns`. Only needed for messages that take
 * time. */
petra_status petra_trace_add_message(petra_trace *trace, bool sent, int32_t to, bool backward, int64_t microbatch,
                                     int64_t now_ns);

/* Adds the stage's memory from `now_ns` on, as in the account, to the counter `memory` in bytes. The workspace is
 * excluded, because it belongs to evaluations or lasts no longer than an action. */
petra_status petra_trace_add_memory(petra_trace *trace, int32_t stage, int64_t now_ns, const petra_account *account);

/* Ends the file and renames it; the trace is destroyed in any case. NULL is allowed. */
petra_status petra_trace_close(petra_trace *trace);

/* Abandons the file. NULL is allowed. */
void petra_trace_destroy(petra_trace *trace);
