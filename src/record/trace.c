/* SPDX-License-Identifier: Apache-2.0 */
#include "record/trace.h"

#include "base/log.h"
#include "base/mem.h"
#include "io/file.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

enum { THREAD_FORWARD = 1, THREAD_BACKWARD = 2, THREAD_COMMUNICATION = 3 };

/* One end of an arrow ('s', 'f') or of the time that a message is under way ('b', 'e'). */
typedef struct end {
  char phase;
  int32_t stage;
  int thread;
  int64_t time_ns, microbatch;
} end;

/* Ends that wait for their other one. Those that still wait when the run ends are not in the trace. */
typedef struct waiting {
  end *ends;
  int64_t count, capacity;
} waiting;

struct petra_trace {
  petra_trace_options options;
  char *path, *temporary;
  FILE *file;
  bool started;             /* an event has been written: a comma precedes the next one */
  int64_t *held;            /* per stage: microbatches between F and B */
  waiting *arrows, *onways; /* by receiver and direction, see `channel` */
};

static petra_status fail_write(const petra_trace *trace) {
  return petra_fail(PETRA_IO, "%s: cannot be written: %s", trace->path, strerror(errno));
}

/* Begins an event: its phase, process and time. */
static void begin(petra_trace *trace, char phase, int32_t stage, int64_t time_ns) {
  fprintf(trace->file, "%s{\"ph\":\"%c\",\"pid\":%d,\"ts\":%lld.%03d", trace->started ? ",\n" : "", phase, stage,
          (long long)(time_ns / 1000), (int)(time_ns % 1000));
  trace->started = true;
}

static void name_stage(petra_trace *trace, int32_t stage) {
  static const char *const threads[] = {
      [THREAD_FORWARD] = "F", [THREAD_BACKWARD] = "B", [THREAD_COMMUNICATION] = "communication"};
  begin(trace, 'M', stage, 0);
  fprintf(trace->file, ",\"name\":\"process_name\",\"args\":{\"name\":\"stage %d\"}}", stage);
  begin(trace, 'M', stage, 0);
  fprintf(trace->file, ",\"name\":\"process_sort_index\",\"args\":{\"sort_index\":%d}}", stage);
  for (int thread = THREAD_FORWARD; thread <= THREAD_COMMUNICATION; thread++) {
    begin(trace, 'M', stage, 0);
    fprintf(trace->file, ",\"tid\":%d,\"name\":\"thread_name\",\"args\":{\"name\":\"%s\"}}", thread, threads[thread]);
  }
}

static size_t channels(const petra_trace_options *options) {
  return 2 * ((size_t)options->stages + 1);
}

/* Returns the index of messages to a stage in `arrows` and `onways`. */
static size_t channel(int32_t to, bool backward) {
  return 2 * (size_t)to + backward;
}

petra_status petra_trace_create(const char *path, const petra_trace_options *options, petra_trace **out) {
  petra_trace *trace;
  petra_status status;
  PETRA_TRY(petra_file_check_replaceable(path));
  PETRA_TRY(petra_allocate(&trace, 1, sizeof *trace));
  trace->options = *options;
  PETRA_TRY_GOTO(status, petra_allocate(&trace->held, (size_t)options->stages, sizeof *trace->held), fail);
  PETRA_TRY_GOTO(status, petra_allocate(&trace->arrows, channels(options), sizeof *trace->arrows), fail);
  PETRA_TRY_GOTO(status, petra_allocate(&trace->onways, channels(options), sizeof *trace->onways), fail);
  PETRA_TRY_GOTO(status, petra_duplicate_string(&trace->path, path), fail);
  PETRA_TRY_GOTO(status, petra_file_temporary_name(path, &trace->temporary), fail);
  trace->file = fopen(trace->temporary, "w");
  if (!trace->file) {
    status = petra_fail(PETRA_IO, "%s: cannot be made: %s", path, strerror(errno));
    goto fail;
  }
  fprintf(trace->file, "{\"displayTimeUnit\":\"ns\",\"traceEvents\":[\n");
  for (int32_t s = 1; s <= options->stages; s++)
    name_stage(trace, s);
  *out = trace;
  return PETRA_OK;
fail:
  petra_trace_destroy(trace);
  return status;
}

/* Returns a unique number for each message of a run, which identifies its arrow and its time under way. */
static long long message_id(const petra_trace *trace, int32_t to, bool backward, int64_t microbatch) {
  return (long long)((microbatch * (trace->options.stages + 1) + to) * 2 + backward);
}

static void write_end(petra_trace *trace, const end *e, int32_t to, bool backward) {
  const bool arrow = e->phase == 's' || e->phase == 'f';
  begin(trace, e->phase, e->stage, e->time_ns);
  fprintf(trace->file, ",\"tid\":%d,\"cat\":\"%s\",\"name\":\"%s%s\",\"id\":%lld%s}", e->thread,
          arrow ? "message" : "communication", backward ? "backward" : "forward", arrow ? "" : " message",
          message_id(trace, to, backward, e->microbatch), e->phase == 'f' ? ",\"bp\":\"e\"" : "");
}

/* Writes an end and its other one, if that exists; otherwise keeps it until then. */
static petra_status add_end(petra_trace *trace, waiting *all, int32_t to, bool backward, const end *now) {
  waiting *here = &all[channel(to, backward)];
  const bool starts = now->phase == 's' || now->phase == 'b';
  for (int64_t i = 0; i < here->count; i++) {
    const end other = here->ends[i];
    if (other.microbatch != now->microbatch || other.phase == now->phase)
      continue;
    here->count--;
    memmove(&here->ends[i], &here->ends[i + 1], (size_t)(here->count - i) * sizeof *here->ends);
    write_end(trace, starts ? now : &other, to, backward);
    write_end(trace, starts ? &other : now, to, backward);
    return PETRA_OK;
  }
  PETRA_TRY(petra_array_reserve(&here->ends, &here->capacity, here->count + 1, sizeof *here->ends));
  here->ends[here->count++] = *now;
  return PETRA_OK;
}

/* Adds an arrow's start ('s') or end ('f'); its time lies within the slice that it belongs to. */
static petra_status arrow(petra_trace *trace, char phase, const petra_trace_action *action, int thread, int32_t to,
                          bool backward) {
  const int64_t inside_ns = phase == 'f' || action->end_ns == action->start_ns ? action->start_ns : action->end_ns - 1;
  const end now = {
      .phase = phase, .stage = action->stage, .thread = thread, .time_ns = inside_ns, .microbatch = action->microbatch};
  return add_end(trace, trace->arrows, to, backward, &now);
}

static petra_status arrows(petra_trace *trace, const petra_trace_action *action, int thread) {
  int32_t stage = action->stage, last = trace->options.stages;
  bool fused = stage == last && trace->options.fused_head;
  if (action->kind == 'F' || (action->kind == 'B' && fused)) {
    if (stage > 1)
      PETRA_TRY(arrow(trace, 'f', action, thread, stage, false));
  } else if (action->kind == 'B' && stage < last) {
    PETRA_TRY(arrow(trace, 'f', action, thread, stage, true));
  }
  if (action->kind == 'F' && stage < last)
    PETRA_TRY(arrow(trace, 's', action, thread, stage + 1, false));
  if (action->kind == 'B' && stage > 1)
    PETRA_TRY(arrow(trace, 's', action, thread, stage - 1, true));
  return PETRA_OK;
}

static void count_in_use(petra_trace *trace, const petra_trace_action *action) {
  bool fused = action->stage == trace->options.stages && trace->options.fused_head;
  int64_t *held = &trace->held[action->stage - 1];
  if (fused)
    return;
  if (action->kind == 'F')
    ++*held;
  else if (action->kind == (trace->options.split_backward ? 'W' : 'B'))
    --*held;
  else
    return;
  begin(trace, 'C', action->stage, action->end_ns);
  fprintf(trace->file, ",\"name\":\"held between F and B\",\"args\":{\"microbatches\":%lld}}", (long long)*held);
}

petra_status petra_trace_add_action(petra_trace *trace, const petra_trace_action *action) {
  int thread = action->kind == 'F' ? THREAD_FORWARD : THREAD_BACKWARD;
  int64_t duration_ns = action->end_ns - action->start_ns;
  begin(trace, 'X', action->stage, action->start_ns);
  fprintf(trace->file,
          ",\"tid\":%d,\"dur\":%lld.%03d,\"cat\":\"%c\",\"name\":\"%d%c%lld\",\"args\":{\"microbatch\":%lld", thread,
          (long long)(duration_ns / 1000), (int)(duration_ns % 1000), action->kind, action->stage, action->kind,
          (long long)action->microbatch, (long long)action->microbatch);
  if (action->version_read >= 0)
    fprintf(trace->file, ",\"version_read\":%lld", (long long)action->version_read);
  if (action->version_written >= 0)
    fprintf(trace->file, ",\"version_written\":%lld", (long long)action->version_written);
  fputs("}}", trace->file);
  PETRA_TRY(arrows(trace, action, thread));
  count_in_use(trace, action);
  return ferror(trace->file) ? fail_write(trace) : PETRA_OK;
}

petra_status petra_trace_add_message(petra_trace *trace, bool sent, int32_t to, bool backward, int64_t microbatch,
                                     int64_t now_ns) {
  /* Messages overlap under way, so they are asynchronous events of the receiver's process and no slices. */
  const end now = {.phase = sent ? 'b' : 'e',
                   .stage = to,
                   .thread = THREAD_COMMUNICATION,
                   .time_ns = now_ns,
                   .microbatch = microbatch};
  PETRA_TRY(add_end(trace, trace->onways, to, backward, &now));
  return ferror(trace->file) ? fail_write(trace) : PETRA_OK;
}

petra_status petra_trace_add_memory(petra_trace *trace, int32_t stage, int64_t now_ns, const petra_account *account) {
  int64_t model = account->bytes[PETRA_MEMORY_PARAMETERS] + account->bytes[PETRA_MEMORY_GRADIENTS] +
                  account->bytes[PETRA_MEMORY_MOMENTUM] + account->bytes[PETRA_MEMORY_STATISTICS];
  begin(trace, 'C', stage, now_ns);
  fprintf(trace->file, ",\"name\":\"memory (bytes)\",\"args\":{\"model\":%lld", (long long)model);
  for (int c = PETRA_MEMORY_INPUT_BUFFER; c < PETRA_MEMORY_WORKSPACE; c++)
    fprintf(trace->file, ",\"%s\":%lld", petra_memory_category_name((petra_memory_category)c),
            (long long)account->bytes[c]);
  fputs("}}", trace->file);
  return ferror(trace->file) ? fail_write(trace) : PETRA_OK;
}

petra_status petra_trace_close(petra_trace *trace) {
  petra_status status = PETRA_OK;
  if (!trace)
    return PETRA_OK;
  fputs("\n]}\n", trace->file);
  bool failed = fflush(trace->file) != 0 || ferror(trace->file);
  failed = fclose(trace->file) != 0 || failed;
  trace->file = NULL;
  if (failed || rename(trace->temporary, trace->path) != 0)
    status = fail_write(trace);
  if (status == PETRA_OK) {
    petra_free(trace->temporary);
    trace->temporary = NULL;
  }
  petra_trace_destroy(trace);
  return status;
}

static void free_waiting(const petra_trace *trace, waiting *all) {
  for (size_t i = 0; all && i < channels(&trace->options); i++)
    petra_free(all[i].ends);
  petra_free(all);
}

void petra_trace_destroy(petra_trace *trace) {
  if (!trace)
    return;
  if (trace->file)
    fclose(trace->file);
  if (trace->temporary)
    unlink(trace->temporary);
  petra_free(trace->temporary);
  petra_free(trace->path);
  petra_free(trace->held);
  free_waiting(trace, trace->arrows);
  free_waiting(trace, trace->onways);
  petra_free(trace);
}
