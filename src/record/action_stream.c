/* SPDX-License-Identifier: Apache-2.0 */
#include "record/action_stream.h"

#include "base/log.h"
#include "base/mem.h"

typedef struct stream {
  petra_observer base;
  petra_action_stream_options options;
  FILE *out;
  bool begun;
} stream;

static petra_status check(const petra_action_stream_options *options) {
  const petra_program_options *program = options->program_options;
  const int64_t tags = 2 * (int64_t)program->stages * program->microbatches;
  if (options->program->locked)
    return petra_fail(PETRA_SCHEDULE,
                      "--chakra: in program %s a round waits for the whole network, which the nodes of a device cannot "
                      "express; expected a method with another program",
                      options->program->name);
  if (tags > INT32_MAX)
    return petra_fail(PETRA_SCHEDULE,
                      "--chakra: %lld messages; the format has %d tags for them; expected fewer microbatches",
                      (long long)tags, INT32_MAX);
  return PETRA_OK;
}

/* Writes "method NAME", "run DEVICES ENGINES BY_ARRIVAL SPLIT_BACKWARD CREDIT" and, for each stage, "stage DEVICE
 * FORWARD_BYTES BACKWARD_BYTES FUSED HAS_LOSS SENDS_DOWN". Devices are counted from 0. */
static void write_facts(const petra_action_stream_options *options, FILE *out) {
  const petra_program_options *program = options->program_options;
  const petra_executor_virtual_options *executor = options->executor;
  fprintf(out, "method %s\nrun %d %d %d %d %lld\n", options->method, petra_program_devices(program),
          (int)executor->engines, options->program->arrival, executor->rule.split_backward, (long long)program->credit);
  for (int32_t stage = 1; stage <= program->stages; stage++) {
    const petra_stage_cost *cost = petra_executor_virtual_cost(executor, stage);
    fprintf(out, "stage %d %lld %lld %d %d %d\n", petra_program_device(program, stage) - 1,
            (long long)cost->forward_bytes, (long long)cost->backward_bytes, petra_program_fused(program, stage),
            petra_program_has_loss(program, stage), petra_program_sends_down(program, stage));
  }
}

/* Writes the order of each device, if the program has orders: "order DEVICE ROUND ACTION JOINED". */
static void write_orders(const petra_action_stream_options *options, FILE *out) {
  const petra_program_options *program = options->program_options;
  for (int32_t device = 1; !options->program->arrival && device <= petra_program_devices(program); device++) {
    petra_cursor cursor = {0};
    petra_action action;
    int64_t round;
    while (petra_program_next(options->program, program, device, &cursor, &action, &round)) {
      char text[40];
      petra_action_print(&action, text, sizeof text);
      fprintf(out, "order %d %lld %s %d\n", device - 1, (long long)round, text, cursor.joined);
    }
  }
}

/* The orders of ranks are known when the simulation starts. */
static void begin(stream *s) {
  if (!s->begun) {
    write_facts(&s->options, s->out);
    write_orders(&s->options, s->out);
  }
  s->begun = true;
}

/* Writes "end ACTION NANOSECONDS". The reader reports its own errors, and ends; the simulation then ends, too. */
static petra_status ended(petra_observer *base, const petra_trace_row *row) {
  stream *s = (stream *)base;
  char text[40];
  begin(s);
  petra_action_print(&row->action, text, sizeof text);
  return fprintf(s->out, "end %s %lld\n", text, (long long)(row->end_ns - row->start_ns)) < 0 ? PETRA_CHILD : PETRA_OK;
}

petra_status petra_action_stream_create(const petra_action_stream_options *options, petra_observer **out) {
  static const petra_observer_ops ops = {.ended = ended};
  PETRA_FREED stream *s = NULL;
  PETRA_TRY(check(options));
  PETRA_TRY(petra_allocate(&s, 1, sizeof *s));
  s->base.ops = &ops;
  s->options = *options;
  PETRA_TRY(options->open(&s->out));
  *out = petra_take(&s); /* the base of the stream */
  return PETRA_OK;
}

void petra_action_stream_finish(petra_observer *observer) {
  stream *s = (stream *)observer;
  begin(s);
  fputs("complete\n", s->out);
}

void petra_action_stream_destroy(petra_observer *observer) {
  petra_free(observer);
}
