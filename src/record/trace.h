/* SPDX-License-Identifier: Apache-2.0 */
/* Traces for Chrome's and Perfetto's viewers (the JSON of "Trace Event Format"): one process a stage, with the
 * threads F, B (B, W and U) and communication; arrows from an action to the one that its message feeds, but not of messages
 * that are still under way when the run ends; a counter of
 * the microbatches that a stage holds between F and B, one of its memory. Written as the run goes, in the order of
 * calls; times are nanoseconds of the virtual clock, given as microseconds with three decimals. The file appears at
 * `path` when it is complete. */
#pragma once

#include "base/mem.h"
#include "base/status.h"

#include <stdbool.h>
#include <stdint.h>

typedef struct petra_trace petra_trace;

typedef struct petra_trace_options {
  int32_t stages;
  bool fused_head;     /* the last stage's B is its F as well */
  bool split_backward; /* what a stage holds is given up by W, not by B */
} petra_trace_options;

/* An action that has ended. */
typedef struct petra_trace_action {
  int32_t stage; /* from 1 */
  char kind;     /* 'F', 'B', 'W', 'U' */
  int64_t microbatch, start_ns, end_ns;
  int64_t version_read, version_written; /* -1: none */
} petra_trace_action;

/* PETRA_IO, logged, if the file cannot be made. */
petra_status petra_trace_create(const char *path, const petra_trace_options *options, petra_trace **out);

petra_status petra_trace_add_action(petra_trace *trace, const petra_trace_action *action);

/* A message for stage `to` is sent at `now_ns`, or arrives. Only those that take time need to be told. */
petra_status petra_trace_add_message(petra_trace *trace, bool sent, int32_t to, bool backward, int64_t microbatch,
                                     int64_t now_ns);

/* From `now_ns` on the stage holds what the account says: a counter `memory` of bytes. The workspace is not in it:
 * it is that of evaluations, or lasts no longer than an action. */
petra_status petra_trace_add_memory(petra_trace *trace, int32_t stage, int64_t now_ns, const petra_account *account);

/* Ends the file and gives it its name; the trace is destroyed in any case. NULL is fine. */
petra_status petra_trace_close(petra_trace *trace);

/* Gives the file up. NULL is fine. */
void petra_trace_destroy(petra_trace *trace);
