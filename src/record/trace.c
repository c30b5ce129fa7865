/* SPDX-License-Identifier: Apache-2.0 */
#include "record/action_log.h"

#include "base/log.h"
#include "base/mem.h"
#include "io/file.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

enum { THREAD_FORWARD = 1, THREAD_BACKWARD = 2, THREAD_COMMUNICATION = 3 };

/* One end of an arrow ('s', 'f') or of the time for which a message is under way ('b', 'e'). */
typedef struct end {
  char phase;
  int32_t stage;
  int thread;
  int64_t time_ns, earliest_ns; /* earliest: the start of the slice in which an arrow begins or ends */
  int64_t microbatch;
} end;

/* The ends whose other end is not known yet. */
typedef struct waiting {
  end *ends;
  int64_t count, capacity;
} waiting;

typedef struct trace {
  petra_observer base;
  petra_trace_observer_options options;
  int32_t stages;
  bool shared; /* a device has several stages */
  char *temporary;
  FILE *file;
  bool started;             /* an event has been written: a comma precedes the next one */
  int64_t *held;            /* per stage: microbatches between F and B */
  waiting *arrows, *onways; /* by receiver and direction, see `channel` */
  petra_account *reported;  /* per stage: the account that was written last; NULL: memory is not known */
} trace;

static petra_status check_written(const trace *t) {
  return ferror(t->file) ? petra_fail(PETRA_IO, "%s: cannot be written: %s", t->options.path, strerror(errno))
                         : PETRA_OK;
}

static void begin_on_device(trace *t, char phase, int32_t device, int64_t time_ns) {
  fprintf(t->file, "%s{\"ph\":\"%c\",\"pid\":%d,\"ts\":%lld.%03d", t->started ? ",\n" : "", phase, device,
          (long long)(time_ns / 1000), (int)(time_ns % 1000));
  t->started = true;
}

/* Begins an event: its phase, the process of the stage's device, and its time. */
static void begin(trace *t, char phase, int32_t stage, int64_t time_ns) {
  begin_on_device(t, phase, petra_program_device(t->options.program, stage), time_ns);
}

/* Begins a counter of a stage. Its name includes the stage if its device may have others. */
static void begin_counter(trace *t, int32_t stage, int64_t time_ns, const char *name) {
  begin(t, 'C', stage, time_ns);
  fputs(",\"name\":\"", t->file);
  if (t->shared)
    fprintf(t->file, "stage %d: ", stage);
  fprintf(t->file, "%s\",\"args\":{", name);
}

/* Names a device's process after its stages: `stage`, next[stage - 1], and so on until 0. */
static void name_stages(trace *t, int32_t device, int32_t stage, const int32_t *next) {
  begin_on_device(t, 'M', device, 0);
  fputs(",\"name\":\"process_name\",\"args\":{\"name\":\"", t->file);
  if (t->shared)
    fprintf(t->file, "device %d: ", device);
  fprintf(t->file, "stage%s %d", next[stage - 1] ? "s" : "", stage);
  for (int32_t more = next[stage - 1]; more; more = next[more - 1])
    fprintf(t->file, ", %d", more);
  fputs("\"}}", t->file);
}

static void name_device(trace *t, int32_t device, int32_t stage, const int32_t *next) {
  static const char *const threads[] = {
      [THREAD_FORWARD] = "F", [THREAD_BACKWARD] = "B", [THREAD_COMMUNICATION] = "communication"};
  name_stages(t, device, stage, next);
  begin_on_device(t, 'M', device, 0);
  fprintf(t->file, ",\"name\":\"process_sort_index\",\"args\":{\"sort_index\":%d}}", device);
  for (int thread = THREAD_FORWARD; thread <= THREAD_COMMUNICATION; thread++) {
    begin_on_device(t, 'M', device, 0);
    fprintf(t->file, ",\"tid\":%d,\"name\":\"thread_name\",\"args\":{\"name\":\"%s\"}}", thread, threads[thread]);
  }
}

static petra_status name_devices(trace *t) {
  const int32_t devices = petra_program_devices(t->options.program);
  /* The first stage of each device, and for each stage the next stage on its device; 0: there is none. */
  PETRA_FREED int32_t *first = NULL, *next = NULL;
  PETRA_TRY(petra_allocate(&first, (size_t)devices, sizeof *first));
  PETRA_TRY(petra_allocate(&next, (size_t)t->stages, sizeof *next));
  for (int32_t stage = t->stages; stage >= 1; stage--) {
    int32_t *head = &first[petra_program_device(t->options.program, stage) - 1];
    next[stage - 1] = *head;
    *head = stage;
  }
  for (int32_t device = 1; device <= devices; device++)
    name_device(t, device, first[device - 1], next);
  return PETRA_OK;
}

/* --- messages --- */

static size_t channels(const trace *t) {
  return 2 * ((size_t)t->stages + 1);
}

static void write_end(trace *t, const end *e, int32_t to, bool backward) {
  const bool arrow = e->phase == 's' || e->phase == 'f';
  const long long id = (long long)((e->microbatch * (t->stages + 1) + to) * 2 + backward); /* one for each message */
  begin(t, e->phase, e->stage, e->time_ns);
  fprintf(t->file, ",\"tid\":%d,\"cat\":\"%s\",\"name\":\"%s%s", e->thread, arrow ? "message" : "communication",
          backward ? "backward" : "forward", arrow ? "" : " message");
  if (!arrow && t->shared)
    fprintf(t->file, " to stage %d", to);
  fprintf(t->file, "\",\"id\":%lld%s}", id, e->phase == 'f' ? ",\"bp\":\"e\"" : "");
}

/* Writes both ends of an arrow or message. In an executed run, the action that uses a message may begin before the
 * slice of its sender ends; the arrow then starts earlier in that slice. There is no arrow if the slice begins too
 * late, because no viewer draws an arrow backwards in time. There is no arrow either if a slice takes no time, because
 * viewers do not attach arrows to such a slice. */
static void write_ends(trace *t, end first, const end *second, int32_t to, bool backward) {
  if (first.time_ns > second->time_ns)
    first.time_ns = second->time_ns;
  if (first.time_ns < first.earliest_ns || second->time_ns < second->earliest_ns)
    return;
  write_end(t, &first, to, backward);
  write_end(t, second, to, backward);
}

/* Writes an end together with its other end if that is known; otherwise keeps the end until then. */
static petra_status add_end(trace *t, waiting *all, int32_t to, bool backward, const end *now) {
  waiting *here = &all[2 * (size_t)to + backward];
  const bool starts = now->phase == 's' || now->phase == 'b';
  for (int64_t i = 0; i < here->count; i++) {
    const end other = here->ends[i];
    if (other.microbatch != now->microbatch || other.phase == now->phase)
      continue;
    here->count--;
    memmove(&here->ends[i], &here->ends[i + 1], (size_t)(here->count - i) * sizeof *here->ends);
    write_ends(t, starts ? *now : other, starts ? &other : now, to, backward);
    return PETRA_OK;
  }
  PETRA_TRY(petra_array_reserve(&here->ends, &here->capacity, here->count + 1, sizeof *here->ends));
  here->ends[here->count++] = *now;
  return PETRA_OK;
}

/* Messages overlap under way, so they are asynchronous events of the receiver's process and not slices. */
static petra_status message(petra_observer *base, char phase, const petra_packet *packet, int64_t now_ns) {
  trace *t = (trace *)base;
  const end now = {phase, packet->stage, THREAD_COMMUNICATION, now_ns, now_ns, packet->microbatch};
  if (packet->exchange) /* the trace does not show replicas, so such a message has no end in it */
    return PETRA_OK;
  PETRA_TRY(add_end(t, t->onways, packet->stage, packet->backward, &now));
  return check_written(t);
}

static petra_status sent(petra_observer *base, int32_t from, const petra_packet *packet, int64_t now_ns) {
  (void)from;
  return message(base, 'b', packet, now_ns);
}

static petra_status arrived(petra_observer *base, const petra_packet *packet, int64_t now_ns) {
  return message(base, 'e', packet, now_ns);
}

/* --- actions --- */

/* Adds an arrow's start ('s') or end ('f'). Its time lies within its slice, or before the slice if the slice takes no
 * time. */
static petra_status arrow(trace *t, char phase, const petra_trace_row *row, int32_t to, bool backward) {
  const int64_t inside_ns = phase == 'f' && row->end_ns > row->start_ns ? row->start_ns : row->end_ns - 1;
  const int thread = row->action.kind == PETRA_ACTION_FORWARD ? THREAD_FORWARD : THREAD_BACKWARD;
  return add_end(t, t->arrows, to, backward,
                 &(end){phase, row->action.stage, thread, inside_ns, row->start_ns, row->action.microbatch});
}

static petra_status arrows(trace *t, const petra_trace_row *row, bool fused) {
  const int32_t stage = row->action.stage, last = t->stages;
  const bool forward = row->action.kind == PETRA_ACTION_FORWARD, backward = row->action.kind == PETRA_ACTION_BACKWARD;
  if (stage > 1 && (forward || (backward && fused)))
    PETRA_TRY(arrow(t, 'f', row, stage, false));
  if (stage < last && backward)
    PETRA_TRY(arrow(t, 'f', row, stage, true));
  if (stage < last && forward)
    PETRA_TRY(arrow(t, 's', row, stage + 1, false));
  if (stage > 1 && backward)
    PETRA_TRY(arrow(t, 's', row, stage - 1, true));
  return PETRA_OK;
}

static void count_in_use(trace *t, const petra_trace_row *row, bool fused) {
  const petra_action_kind kind = row->action.kind;
  const bool ends = kind == (t->options.split_backward ? PETRA_ACTION_WEIGHT_GRADIENT : PETRA_ACTION_BACKWARD);
  int64_t *held = &t->held[row->action.stage - 1];
  if (fused || (kind != PETRA_ACTION_FORWARD && !ends))
    return;
  *held += ends ? -1 : 1;
  begin_counter(t, row->action.stage, row->end_ns, "held between F and B");
  fprintf(t->file, "\"microbatches\":%lld}}", (long long)*held);
}

static petra_status ended(petra_observer *base, const petra_trace_row *row) {
  trace *t = (trace *)base;
  const petra_action *a = &row->action;
  const char kind = petra_action_letter(a->kind);
  const bool fused = petra_program_fused(t->options.program, a->stage);
  const int64_t start_ns = petra_trace_row_start_ns(row), duration_ns = row->end_ns - start_ns;
  if (a->kind == PETRA_ACTION_EVALUATE) /* E takes no time and is not part of the schedule. */
    return PETRA_OK;
  begin(t, 'X', a->stage, start_ns);
  fprintf(
      t->file,
      ",\"tid\":%d,\"dur\":%lld.%03d,\"cat\":\"%c\",\"name\":\"%d%c%lld\",\"args\":{\"stage\":%d,\"microbatch\":%lld",
      a->kind == PETRA_ACTION_FORWARD ? THREAD_FORWARD : THREAD_BACKWARD, (long long)(duration_ns / 1000),
      (int)(duration_ns % 1000), kind, a->stage, kind, (long long)a->microbatch, a->stage, (long long)a->microbatch);
  if (row->result.version_read >= 0)
    fprintf(t->file, ",\"version_read\":%lld", (long long)row->result.version_read);
  if (row->result.version_written >= 0)
    fprintf(t->file, ",\"version_written\":%lld", (long long)row->result.version_written);
  fputs("}}", t->file);
  PETRA_TRY(arrows(t, row, fused));
  count_in_use(t, row, fused);
  return check_written(t);
}

/* --- memory --- */

/* Writes the memory of a stage if it has changed. The workspace, which is the last category, is not included: it
 * belongs to evaluations, or lasts no longer than an action. */
static petra_status write_memory(trace *t, int32_t stage, int64_t now_ns) {
  if (stage < 1 || stage > t->stages)
    return PETRA_OK;
  const petra_account *now = t->options.account(t->options.context, stage);
  petra_account *reported = &t->reported[stage - 1];
  const int64_t *bytes = now->bytes;
  if (memcmp(bytes, reported->bytes, PETRA_MEMORY_WORKSPACE * sizeof *bytes) == 0)
    return PETRA_OK;
  *reported = *now;
  begin_counter(t, stage, now_ns, "memory (bytes)");
  fprintf(t->file, "\"model\":%lld",
          (long long)(bytes[PETRA_MEMORY_PARAMETERS] + bytes[PETRA_MEMORY_GRADIENTS] + bytes[PETRA_MEMORY_MOMENTUM] +
                      bytes[PETRA_MEMORY_STATISTICS]));
  for (int c = PETRA_MEMORY_INPUT_BUFFER; c < PETRA_MEMORY_WORKSPACE; c++)
    fprintf(t->file, ",\"%s\":%lld", petra_memory_category_name((petra_memory_category)c), (long long)bytes[c]);
  fputs("}}", t->file);
  return check_written(t);
}

static petra_status started(petra_observer *base, int64_t now_ns, const petra_action *actions,
                            const petra_action_result *results, int count) {
  trace *t = (trace *)base;
  (void)results;
  for (int i = 0; t->reported && i < count; i++)
    for (int32_t stage = actions[i].stage - 1; stage <= actions[i].stage + 1; stage++)
      PETRA_TRY(write_memory(t, stage, now_ns));
  return PETRA_OK;
}

/* --- the file --- */

/* Expected size of a trace. Measured: an F or B with its arrows and counters takes 450 bytes, or 660 bytes with a
 * message that takes time; the memory of its stage takes 250 bytes more; a U takes 120 bytes. */
enum { PASS_BYTES = 660, UPDATE_BYTES = 120, MEMORY_BYTES = 250 };
static const double large_bytes = 500e6;

/* Warns of a trace that will be large: viewers fail above a few hundred MB, and disks fill up. */
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
  trace *t;
  petra_status status;
  PETRA_TRY(petra_file_check_replaceable(options->path));
  PETRA_TRY(petra_allocate(&t, 1, sizeof *t));
  t->base.ops = &ops;
  t->options = *options;
  t->stages = options->program->stages;
  t->shared = petra_program_devices(options->program) < t->stages;
  PETRA_TRY_GOTO(status, petra_allocate(&t->held, (size_t)t->stages, sizeof *t->held), fail);
  PETRA_TRY_GOTO(status, petra_allocate(&t->arrows, channels(t), sizeof *t->arrows), fail);
  PETRA_TRY_GOTO(status, petra_allocate(&t->onways, channels(t), sizeof *t->onways), fail);
  if (options->account)
    PETRA_TRY_GOTO(status, petra_allocate(&t->reported, (size_t)t->stages, sizeof *t->reported), fail);
  PETRA_TRY_GOTO(status, petra_file_temporary_name(t->options.path, &t->temporary), fail);
  t->file = fopen(t->temporary, "w");
  if (!t->file)
    PETRA_TRY_GOTO(status, petra_fail(PETRA_IO, "%s: cannot be made: %s", t->options.path, strerror(errno)), fail);
  fprintf(t->file, "{\"displayTimeUnit\":\"ns\",\"traceEvents\":[\n");
  PETRA_TRY_GOTO(status, name_devices(t), fail);
  warn_large(options);
  *out = &t->base;
  return PETRA_OK;
fail:
  petra_trace_observer_destroy(&t->base);
  return status;
}

petra_status petra_trace_observer_finish(petra_observer *base) {
  trace *t = (trace *)base;
  fputs("\n]}\n", t->file);
  bool failed = fflush(t->file) != 0 || ferror(t->file);
  failed = fclose(t->file) != 0 || failed;
  t->file = NULL;
  if (failed || rename(t->temporary, t->options.path) != 0)
    return petra_fail(PETRA_IO, "%s: cannot be written: %s", t->options.path, strerror(errno));
  petra_free(t->temporary);
  t->temporary = NULL;
  return PETRA_OK;
}

static void free_waiting(const trace *t, waiting *all) {
  for (size_t i = 0; all && i < channels(t); i++)
    petra_free(all[i].ends);
  petra_free(all);
}

void petra_trace_observer_destroy(petra_observer *base) {
  trace *t = (trace *)base;
  if (!t)
    return;
  if (t->file)
    fclose(t->file);
  if (t->temporary)
    unlink(t->temporary);
  PETRA_FREE_ALL(t->temporary, t->held, t->reported);
  free_waiting(t, t->arrows);
  free_waiting(t, t->onways);
  petra_free(t);
}
