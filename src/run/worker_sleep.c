/* SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE /* clock_nanosleep */
#include "run/worker_sleep.h"

#include "base/clock.h"
#include "base/log.h"
#include "base/mem.h"
#include "group/progress_thread.h"

#include <stdio.h>
#include <string.h>
#include <time.h>

enum { AHEAD = 2, LEAST_BYTES = 4 };    /* as in distributed/transport_ranks.c; minimum size of a message */
static const int64_t AGAIN_NS = 100000; /* until the next look for room */
static const int64_t LONGEST_NAP_NS = 250000000;

/* A message within the rank, which can be taken from `there_ns` on. */
typedef struct local_message {
  int64_t microbatch, there_ns;
} local_message;

/* Messages of one direction for one stage. */
typedef struct mailbox {
  petra_channel *channel; /* NULL: within the rank, or between other ranks */
  int64_t taken;          /* by the schedule */
  local_message *local;   /* messages within the rank that wait */
  int64_t count, capacity;
} mailbox;

/* A message that is sent when its action has ended. */
typedef struct outgoing {
  mailbox *to;
  int64_t due_ns, microbatch;
  int64_t done; /* number of messages that the receiver must have taken before */
  size_t bytes;
} outgoing;

typedef struct worker_sleep {
  petra_worker base;
  petra_worker_sleep_options options;
  petra_worker *counting;
  petra_progress_thread *progress;
  mailbox *mailboxes; /* per stage: from below, from above */
  int64_t *free_ns;   /* per device: the end of its last action */
  int64_t waited_ns;  /* when the rank last woke up, or received what it waited for */
  outgoing *queue;    /* by due_ns */
  int64_t queue_count, queue_capacity;
} worker_sleep;

static mailbox *mailbox_of(worker_sleep *w, int32_t stage, bool backward) {
  return &w->mailboxes[2 * (stage - 1) + backward];
}

static bool here(const worker_sleep *w, int32_t stage) {
  return petra_placement_has(w->options.placement, stage);
}

/* --- messages --- */

/* Sends the messages that are due and have room; *next_ns is when to look again. Messages of one channel leave in their
 * order. */
static petra_status send_due(worker_sleep *w, int64_t *next_ns) {
  int64_t kept = 0;
  const int64_t now_ns = petra_clock_ns();
  *next_ns = INT64_MAX;
  for (int64_t i = 0; i < w->queue_count; i++) {
    const outgoing l = w->queue[i];
    void *buffer = NULL;
    bool behind = false; /* another message waits for this channel */
    for (int64_t k = 0; k < kept; k++)
      behind = behind || w->queue[k].to == l.to;
    if (l.due_ns <= now_ns && !behind)
      PETRA_TRY(petra_channel_try_buffer(l.to->channel, l.done, "room for a message", &buffer));
    if (buffer) {
      PETRA_TRY(petra_channel_send(l.to->channel, l.microbatch, l.bytes));
      continue;
    }
    const int64_t again_ns = l.due_ns <= now_ns ? now_ns + AGAIN_NS : l.due_ns;
    if (again_ns < *next_ns)
      *next_ns = again_ns;
    w->queue[kept++] = l;
  }
  w->queue_count = kept;
  return PETRA_OK;
}

static petra_status post(worker_sleep *w, int32_t to, bool backward, int64_t microbatch, int64_t due_ns) {
  mailbox *l = mailbox_of(w, to, backward);
  const int64_t bytes = backward ? w->options.backward_bytes : w->options.forward_bytes;
  if (here(w, to)) {
    PETRA_TRY(petra_array_reserve(&l->local, &l->capacity, l->count + 1, sizeof *l->local));
    l->local[l->count++] = (local_message){microbatch, due_ns};
    return PETRA_OK;
  }
  PETRA_TRY(petra_array_reserve(&w->queue, &w->queue_capacity, w->queue_count + 1, sizeof *w->queue));
  int64_t at = w->queue_count++;
  for (; at > 0 && w->queue[at - 1].due_ns > due_ns; at--)
    w->queue[at] = w->queue[at - 1];
  w->queue[at] = (outgoing){.to = l,
                            .due_ns = due_ns,
                            .microbatch = microbatch,
                            .done = l->taken - AHEAD,
                            .bytes = (size_t)(bytes > LEAST_BYTES ? bytes : LEAST_BYTES)};
  return PETRA_OK;
}

static petra_status take_local(mailbox *l, const petra_action *action, int64_t *there_ns) {
  for (int64_t i = 0; i < l->count; i++)
    if (l->local[i].microbatch == action->microbatch) {
      *there_ns = l->local[i].there_ns;
      l->local[i] = l->local[--l->count];
      return PETRA_OK;
    }
  return petra_fail(PETRA_INTERNAL, "stage %d: microbatch %lld has no message", action->stage,
                    (long long)action->microbatch);
}

/* Waits for a message of another rank; meanwhile it sends what is due. */
static petra_status take_from_channel(worker_sleep *w, mailbox *l, const petra_action *action, int64_t *there_ns) {
  char what[96];
  const void *data = NULL;
  size_t size;
  snprintf(what, sizeof what, "the message of microbatch %lld for stage %d", (long long)action->microbatch,
           action->stage);
  while (!data) {
    int64_t next_ns;
    const int64_t began_ns = petra_clock_ns();
    PETRA_TRY(send_due(w, &next_ns));
    PETRA_TRY(petra_channel_take_until(l->channel, action->microbatch, next_ns, what, &data, &size, there_ns));
    if (!data || *there_ns > began_ns)
      w->waited_ns = petra_clock_ns();
  }
  return petra_channel_done(l->channel, action->microbatch);
}

/* Returns true if the action takes a message, and which one. */
static bool takes(const worker_sleep *w, const petra_action *action, bool *backward) {
  const int32_t stage = action->stage;
  *backward = action->kind == PETRA_ACTION_BACKWARD && !petra_program_fused(w->options.program, stage);
  if (*backward)
    return !petra_program_has_loss(w->options.program, stage);
  return stage > 1 && (action->kind == PETRA_ACTION_FORWARD || action->kind == PETRA_ACTION_BACKWARD);
}

static petra_status take(worker_sleep *w, const petra_action *action, int64_t *there_ns) {
  bool backward;
  *there_ns = 0;
  if (!takes(w, action, &backward))
    return PETRA_OK;
  mailbox *l = mailbox_of(w, action->stage, backward);
  l->taken++;
  if (!here(w, action->stage))
    return PETRA_OK;
  return here(w, backward ? action->stage + 1 : action->stage - 1) ? take_local(l, action, there_ns)
                                                                   : take_from_channel(w, l, action, there_ns);
}

/* --- actions --- */

/* Sleeps; meanwhile it sends what is due, and checks the other ranks. */
static petra_status sleep_until(worker_sleep *w, int64_t until_ns) {
  int64_t next_ns;
  for (;;) {
    PETRA_TRY(send_due(w, &next_ns));
    const int64_t now_ns = petra_clock_ns();
    if (now_ns >= until_ns)
      return PETRA_OK;
    PETRA_TRY(petra_progress_thread_check(w->progress, "the end of an action"));
    int64_t wake_ns = next_ns < until_ns ? next_ns : until_ns;
    wake_ns = wake_ns < now_ns + LONGEST_NAP_NS ? wake_ns : now_ns + LONGEST_NAP_NS;
    const struct timespec wake = {wake_ns / 1000000000, wake_ns % 1000000000};
    clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &wake, NULL);
    w->waited_ns = petra_clock_ns();
  }
}

static petra_status record(worker_sleep *w, const petra_action *action, const petra_action_result *result,
                           int64_t price_ns, int64_t start_ns, int64_t end_ns) {
  const int64_t origin_ns = w->options.origin_ns;
  petra_rank_times_add(w->options.times, action, start_ns - origin_ns, end_ns - origin_ns, price_ns);
  const petra_trace_row row = {*action, start_ns - origin_ns, end_ns - origin_ns, *result,
                               end_ns - start_ns - price_ns};
  return w->options.actions ? petra_action_log_add(w->options.actions, &row) : PETRA_OK;
}

static petra_status send_results(worker_sleep *w, const petra_action *action, int64_t end_ns) {
  if (action->kind == PETRA_ACTION_FORWARD && action->stage < w->options.program->stages)
    return post(w, action->stage + 1, false, action->microbatch, end_ns);
  if (action->kind == PETRA_ACTION_BACKWARD && petra_program_sends_down(w->options.program, action->stage))
    return post(w, action->stage - 1, true, action->microbatch, end_ns);
  return PETRA_OK;
}

/* Performs an action, or the joined ones of a step, which start and end together. */
static petra_status perform_step(worker_sleep *w, int64_t virtual_ns, const petra_action *actions, int count,
                                 petra_action_result *results) {
  int64_t *free_ns = &w->free_ns[petra_program_device(w->options.program, actions->stage) - 1], start_ns = *free_ns;
  int64_t price_ns[PETRA_STEP_ACTIONS], sum_ns = 0;
  for (int i = 0; i < count; i++) {
    int64_t there_ns;
    sum_ns += price_ns[i] = results[i].priced_ns;
    PETRA_TRY(w->counting->ops->perform(w->counting, virtual_ns, &actions[i], 1, &results[i]));
    PETRA_TRY(take(w, &actions[i], &there_ns));
    start_ns = there_ns > start_ns ? there_ns : start_ns;
  }
  if (!here(w, actions->stage))
    return PETRA_OK;
  PETRA_TRY(sleep_until(w, start_ns));
  const int64_t from_ns = start_ns > w->waited_ns ? start_ns : w->waited_ns, now_ns = petra_clock_ns();
  start_ns += now_ns > from_ns ? now_ns - from_ns : 0; /* its own work since it last slept or waited */
  *free_ns = start_ns + sum_ns;
  for (int i = 0; i < count; i++) {
    PETRA_TRY(record(w, &actions[i], &results[i], price_ns[i], start_ns, *free_ns));
    PETRA_TRY(send_results(w, &actions[i], *free_ns));
  }
  return PETRA_OK;
}

/* A device has one engine, so its actions that start together are one step. */
static petra_status perform(petra_worker *base, int64_t virtual_ns, const petra_action *actions, int count,
                            petra_action_result *results) {
  worker_sleep *w = (worker_sleep *)base;
  for (int i = 0, joined; i < count; i += joined) {
    const int32_t device = petra_program_device(w->options.program, actions[i].stage);
    joined = 1;
    while (joined < PETRA_STEP_ACTIONS && i + joined < count &&
           petra_program_device(w->options.program, actions[i + joined].stage) == device)
      joined++;
    PETRA_TRY(perform_step(w, virtual_ns, &actions[i], joined, &results[i]));
  }
  return PETRA_OK;
}

/* Waits until the last of its actions has ended and everything is sent. */
static petra_status finish(petra_worker *base) {
  worker_sleep *w = (worker_sleep *)base;
  int64_t end_ns = 0;
  for (int32_t d = 0; d < petra_program_devices(w->options.program); d++)
    if (w->free_ns[d] > end_ns)
      end_ns = w->free_ns[d];
  PETRA_TRY(sleep_until(w, end_ns));
  while (w->queue_count > 0)
    PETRA_TRY(sleep_until(w, petra_clock_ns() + AGAIN_NS));
  return PETRA_OK;
}

/* --- creation --- */

/* Opens the channel of messages for a stage, if exactly one of the two stages is here. */
static petra_status open_channel(worker_sleep *w, int32_t from, int32_t to, int64_t bytes) {
  const petra_placement *placement = w->options.placement;
  mailbox *l = mailbox_of(w, to, from > to);
  const int id = (int)(l - w->mailboxes);
  const size_t capacity = (size_t)(bytes > LEAST_BYTES ? bytes : LEAST_BYTES);
  if (here(w, from) == here(w, to))
    return PETRA_OK;
  return here(w, from) ? petra_channel_open_out(w->progress, placement->rank_of[to - 1], id, capacity, &l->channel)
                       : petra_channel_open_in(w->progress, placement->rank_of[from - 1], id, capacity, &l->channel);
}

petra_status petra_worker_sleep_create(const petra_worker_sleep_options *options, petra_worker **out) {
  static const petra_worker_ops ops = {.perform = perform, .finish = finish};
  const int32_t stages = options->program->stages;
  worker_sleep *w;
  petra_status status;
  PETRA_TRY(petra_allocate(&w, 1, sizeof *w));
  w->base.ops = &ops;
  w->options = *options;
  w->progress = options->placement->ranks->progress;
  PETRA_TRY_GOTO(status, petra_worker_cost_create(&options->counting, &w->counting), fail);
  PETRA_TRY_GOTO(status, petra_allocate(&w->mailboxes, 2 * (size_t)stages, sizeof *w->mailboxes), fail);
  PETRA_TRY_GOTO(status, petra_allocate(&w->free_ns, (size_t)stages, sizeof *w->free_ns), fail);
  for (int32_t d = 0; d < stages; d++)
    w->free_ns[d] = options->origin_ns;
  for (int32_t j = 1; j < stages; j++) {
    PETRA_TRY_GOTO(status, open_channel(w, j, j + 1, options->forward_bytes), fail);
    PETRA_TRY_GOTO(status, open_channel(w, j + 1, j, options->backward_bytes), fail);
  }
  *out = &w->base;
  return PETRA_OK;
fail:
  petra_worker_sleep_destroy(&w->base);
  return status;
}

void petra_worker_sleep_destroy(petra_worker *base) {
  worker_sleep *w = (worker_sleep *)base;
  if (!w)
    return;
  petra_worker_cost_destroy(w->counting);
  for (int32_t i = 0; w->mailboxes && i < 2 * w->options.program->stages; i++)
    petra_free(w->mailboxes[i].local);
  petra_free(w->mailboxes);
  petra_free(w->free_ns);
  petra_free(w->queue);
  petra_free(w);
}
