/* SPDX-License-Identifier: Apache-2.0 */
#include "record/trace_observer.h"

#include "base/log.h"
#include "base/mem.h"

#include <string.h>

typedef struct trace_observer {
  petra_observer base;
  petra_trace_observer_options options;
  int32_t stages;
  petra_trace *trace;
  petra_account *reported; /* per stage: last account in the trace; NULL: memory is not known */
} trace_observer;

/* Adds a stage's memory to the trace, if it has changed. */
static petra_status report_memory(trace_observer *o, int32_t stage, int64_t now_ns) {
  if (stage < 1 || stage > o->stages)
    return PETRA_OK;
  const petra_account *now = o->options.account(o->options.context, stage);
  petra_account *reported = &o->reported[stage - 1];
  /* The workspace, which is the last category, does not count. */
  if (memcmp(now->bytes, reported->bytes, PETRA_MEMORY_WORKSPACE * sizeof *now->bytes) == 0)
    return PETRA_OK;
  *reported = *now;
  return petra_trace_add_memory(o->trace, stage, now_ns, now);
}

static petra_status started(petra_observer *base, int64_t now_ns, const petra_action *actions,
                            const petra_action_result *results, int count) {
  trace_observer *o = (trace_observer *)base;
  (void)results;
  for (int i = 0; o->reported && i < count; i++)
    for (int32_t stage = actions[i].stage - 1; stage <= actions[i].stage + 1; stage++)
      PETRA_TRY(report_memory(o, stage, now_ns));
  return PETRA_OK;
}

static petra_status ended(petra_observer *base, const petra_trace_row *row) {
  trace_observer *o = (trace_observer *)base;
  const petra_trace_action action = {.stage = row->action.stage,
                                     .kind = petra_action_letter(row->action.kind),
                                     .microbatch = row->action.microbatch,
                                     .start_ns = row->start_ns,
                                     .end_ns = row->end_ns,
                                     .version_read = row->result.version_read,
                                     .version_written = row->result.version_written};
  /* E takes no time and is no part of the schedule. */
  return row->action.kind == PETRA_ACTION_EVALUATE ? PETRA_OK : petra_trace_add_action(o->trace, &action);
}

static petra_status message(petra_observer *base, bool sent, const petra_packet *packet, int64_t now_ns) {
  petra_trace *trace = ((trace_observer *)base)->trace;
  if (packet->exchange) /* it has no end in the trace, which does not show replicas */
    return PETRA_OK;
  return petra_trace_add_message(trace, sent, packet->stage, packet->backward, packet->microbatch, now_ns);
}

static petra_status sent(petra_observer *base, int32_t from, const petra_packet *packet, int64_t now_ns) {
  (void)from;
  return message(base, true, packet, now_ns);
}

static petra_status arrived(petra_observer *base, const petra_packet *packet, int64_t now_ns) {
  return message(base, false, packet, now_ns);
}

/* Expected size of a trace. Measured: an F or B with its arrows and counters takes 440 bytes, with a message that takes
 * time 650, with the memory of its stage 250 more; a U takes 110. */
enum { PASS_BYTES = 650, UPDATE_BYTES = 110, MEMORY_BYTES = 250 };
static const double large_bytes = 500e6;

/* Warns if the trace will be large: viewers fail above some hundred MB, and disks fill up. */
static void warn_large(const petra_trace_observer_options *options) {
  const petra_program_options *program = options->program;
  const double passes = (double)program->microbatches * program->stages * (options->split_backward ? 3 : 2),
               updates = (double)program->microbatches / (double)program->accumulate * program->stages;
  const double bytes = passes * (PASS_BYTES + (options->account ? MEMORY_BYTES : 0)) + updates * UPDATE_BYTES;
  if (bytes > large_bytes)
    petra_log(PETRA_LOG_WARNING,
              "--trace: the file may grow to about %.2g GB, for %.3g actions; run.max_microbatches limits them",
              1e-9 * bytes, passes + updates);
}

petra_status petra_trace_observer_create(const petra_trace_observer_options *options, petra_observer **out) {
  static const petra_observer_ops ops = {.started = started, .ended = ended, .sent = sent, .arrived = arrived};
  const petra_program_options *program = options->program;
  const petra_trace_options trace = {
      .stages = program->stages, .fused_head = !program->split_head, .split_backward = options->split_backward};
  trace_observer *o;
  PETRA_TRY(petra_allocate(&o, 1, sizeof *o));
  o->base.ops = &ops;
  o->options = *options;
  o->stages = program->stages;
  petra_status status = petra_trace_create(options->path, &trace, &o->trace);
  if (status == PETRA_OK)
    warn_large(options);
  if (status == PETRA_OK && options->account)
    status = petra_allocate(&o->reported, (size_t)o->stages, sizeof *o->reported);
  if (status != PETRA_OK)
    petra_trace_observer_destroy(&o->base);
  else
    *out = &o->base;
  return status;
}

petra_status petra_trace_observer_finish(petra_observer *base) {
  trace_observer *o = (trace_observer *)base;
  petra_trace *trace = o->trace;
  o->trace = NULL;
  return petra_trace_close(trace);
}

void petra_trace_observer_destroy(petra_observer *base) {
  trace_observer *o = (trace_observer *)base;
  if (!o)
    return;
  petra_trace_destroy(o->trace);
  petra_free(o->reported);
  petra_free(o);
}
