/* SPDX-License-Identifier: Apache-2.0 */
/* The executor of a rank under the wall clock, for the program `arrival`, which has no fixed order. Of the actions that
 * its stages can do, the rank does the action whose message arrived first (schedule/arrival.h), and it waits only for
 * messages. It does one action at a time, of any of its stages; at equal times the higher stage first, of one stage B
 * before F. F of a stage also waits while more than PETRA_TRANSPORT_AHEAD of its messages wait at the next stage, here
 * or elsewhere.
 *
 * An evaluation goes through the ranks batch by batch, between actions. A rank passes a batch on when it is that
 * batch's turn and all stages of the rank have their snapshots. A stage takes no further snapshot (and does nothing
 * else) while its previous snapshot is in use.
 *
 * The rank is done when every microbatch has come back through all its stages and its part of every evaluation is over.
 * No rank waits for ever: docs/adr/0017.
 *
 * If there are cuts, stage 1 reads no microbatch behind a cut before the cut was written. So each rank finishes all
 * microbatches that were read, as at the end of the run, and no message is in transit. A checkpoint on which the ranks
 * agree (group/progress_thread.h) is also a cut; its position is the number of microbatches that stage 1 has read. */
#include "distributed/execution_private.h"

#include "base/clock.h"
#include "base/log.h"
#include "base/mem.h"
#include "schedule/arrival.h"

#include <stdio.h>
#include <string.h>

/* A message that waits. */
typedef struct arrived {
  int64_t number, came_ns;
} arrived;

/* Messages for stages of this rank, in the order in which they arrived. */
typedef struct queue {
  arrived *items;
  int64_t count, capacity;
} queue;

typedef struct stage_state {
  petra_arrival_stage due;
  queue forward, backward;
  int64_t forwards, backwards, evaluations; /* done */
} stage_state;

typedef struct executor_arrival {
  petra_executor base;
  petra_execution *execution;
  petra_worker *evaluating;
  int64_t origin_ns;
  petra_pipeline_cuts cuts;
  int32_t first, last; /* of the stages that are here */
  /* State of the run in progress. */
  const petra_program_options *program;
  petra_worker *worker;
  petra_observer *observers;
  stage_state *state; /* per stage of the network, from 0 */
  petra_arrival_source source;
  int64_t limit;               /* microbatches up to the next cut, or to the end */
  bool awaits_position;        /* stage 1 reads nothing until the ranks agree on the position of a checkpoint */
  bool agreed;                 /* the ranks have agreed on the next cut */
  petra_agreed then;           /* what the ranks do after it */
  int64_t free_since_ns;       /* stage 1: the end of its last action */
  int64_t last_end_ns;         /* of an action, by the executor's clock; kept after a run */
  int64_t evaluated;           /* evaluations that are over here */
  int64_t evaluation_since_ns; /* if stage 1 is here: the time from which its next batch can go */
} executor_arrival;

/* The next work of a rank: an action, or the next batch of an evaluation. */
typedef struct candidate {
  petra_action action;
  bool batch;
  int64_t came_ns; /* INT64_MAX: nothing */
} candidate;

static bool here(const executor_arrival *x, int32_t stage) {
  return stage >= x->first && stage <= x->last;
}

static stage_state *state_of(const executor_arrival *x, int32_t stage) {
  return &x->state[stage - 1];
}

static petra_status put(queue *q, int64_t number, int64_t came_ns) {
  PETRA_TRY(petra_array_reserve(&q->items, &q->capacity, q->count + 1, sizeof *q->items));
  q->items[q->count++] = (arrived){number, came_ns};
  return PETRA_OK;
}

static void drop_first(queue *q) {
  q->count--;
  memmove(q->items, q->items + 1, (size_t)q->count * sizeof *q->items);
}

/* --- the candidates --- */

/* Returns the queue of a pass whose message comes from this rank itself: for B of a split head, from the F of the same
 * stage. NULL if the message comes from another rank, or from the source. */
static queue *own_queue(const executor_arrival *x, int32_t stage, bool backward) {
  if (backward)
    return stage == x->program->stages || here(x, stage + 1) ? &state_of(x, stage)->backward : NULL;
  return stage > 1 && here(x, stage - 1) ? &state_of(x, stage)->forward : NULL;
}

/* Returns the first message that waits for a pass of the stage; came_ns is INT64_MAX if there is none. */
static arrived first_message(const executor_arrival *x, int32_t stage, bool backward) {
  const queue *own = own_queue(x, stage, backward);
  arrived found = {-1, INT64_MAX};
  if (own)
    return own->count > 0 ? own->items[0] : found;
  if (stage == 1 && !backward)
    return x->source.offered < x->limit && !x->awaits_position && petra_arrival_offers(&x->source, x->program)
               ? (arrived){x->source.offered, x->free_since_ns}
               : found;
  petra_transport_ranks_first(x->execution, stage, backward ? PETRA_MESSAGE_BACKWARD : PETRA_MESSAGE_FORWARD,
                              &found.number, &found.came_ns);
  return found;
}

/* Returns true if there is room for what the pass sends. */
static bool has_room(const executor_arrival *x, int32_t stage, bool backward) {
  const int32_t to = backward ? stage - 1 : stage + 1;
  if (to < 1 || to > x->program->stages)
    return true;
  if (here(x, to))
    return backward || state_of(x, to)->forward.count <= PETRA_TRANSPORT_AHEAD;
  return petra_transport_ranks_room(x->execution, to, backward ? PETRA_MESSAGE_BACKWARD : PETRA_MESSAGE_FORWARD);
}

/* Replaces *best by a pass if its message arrived earlier. */
static void consider_pass(const executor_arrival *x, int32_t stage, bool backward, candidate *best) {
  const arrived message = first_message(x, stage, backward);
  const bool fused = petra_program_fused(x->program, stage);
  if (message.came_ns >= best->came_ns || !has_room(x, stage, backward || fused))
    return;
  *best = (candidate){{stage, backward || fused ? PETRA_ACTION_BACKWARD : PETRA_ACTION_FORWARD, message.number},
                      false,
                      message.came_ns};
}

/* Considers the next batch of an evaluation. */
static void consider_batch(const executor_arrival *x, candidate *best) {
  int64_t number, came_ns = x->evaluation_since_ns;
  if (!petra_worker_stage_evaluates(x->evaluating))
    return;
  if (x->first > 1 && !petra_transport_ranks_first(x->execution, x->first, PETRA_MESSAGE_EVALUATION, &number, &came_ns))
    return;
  if (came_ns < best->came_ns && (x->last == x->program->stages ||
                                  petra_transport_ranks_room(x->execution, x->last + 1, PETRA_MESSAGE_EVALUATION)))
    *best = (candidate){.batch = true, .came_ns = came_ns};
}

/* Chooses U first, and E unless the previous snapshot is in use; then the work whose message arrived first. */
static candidate choose(const executor_arrival *x) {
  candidate best = {.came_ns = INT64_MAX};
  petra_action due;
  for (int32_t j = x->last; j >= x->first; j--) {
    const stage_state *s = state_of(x, j);
    due.stage = j;
    if (!petra_arrival_due(&s->due, &due))
      continue;
    if (due.kind == PETRA_ACTION_UPDATE || s->evaluations == x->evaluated)
      return (candidate){due, false, 0};
  }
  for (int32_t j = x->last; j >= x->first; j--) {
    if (petra_arrival_due(&state_of(x, j)->due, &due))
      continue;
    consider_pass(x, j, true, &best);
    consider_pass(x, j, false, &best);
  }
  consider_batch(x, &best);
  return best;
}

/* --- the execution --- */

/* Removes the message that the action takes from its queue. */
static void take(executor_arrival *x, const petra_action *action) {
  stage_state *s = state_of(x, action->stage);
  const bool fused = petra_program_fused(x->program, action->stage);
  const bool forward = action->kind == PETRA_ACTION_FORWARD || (action->kind == PETRA_ACTION_BACKWARD && fused);
  if (!forward && action->kind != PETRA_ACTION_BACKWARD)
    return;
  queue *own = own_queue(x, action->stage, !forward);
  if (own)
    drop_first(own);
  s->forwards += forward;
  s->backwards += action->kind == PETRA_ACTION_BACKWARD;
  if (forward && action->stage == 1)
    x->source.offered++;
}

/* Records the results of an action at its end. */
static petra_status end_action(executor_arrival *x, const petra_action *action, int64_t end_ns) {
  const int32_t stage = action->stage, last = x->program->stages;
  const bool forward = action->kind == PETRA_ACTION_FORWARD, backward = action->kind == PETRA_ACTION_BACKWARD;
  petra_arrival_count(&state_of(x, stage)->due, x->program, action);
  if (forward && stage == last)
    PETRA_TRY(put(&state_of(x, stage)->backward, action->microbatch, end_ns));
  else if (forward && here(x, stage + 1))
    PETRA_TRY(put(&state_of(x, stage + 1)->forward, action->microbatch, end_ns));
  if (backward && stage > 1 && here(x, stage - 1))
    PETRA_TRY(put(&state_of(x, stage - 1)->backward, action->microbatch, end_ns));
  if (action->kind == PETRA_ACTION_EVALUATE) {
    state_of(x, stage)->evaluations++;
    x->evaluation_since_ns = end_ns;
  }
  if (stage == 1) {
    x->source.finished += backward;
    x->free_since_ns = end_ns;
  }
  return PETRA_OK;
}

/* Returns true if stage 1 reads a microbatch in this action. */
static bool reads(const executor_arrival *x, const petra_action *action) {
  const bool fused = petra_program_fused(x->program, 1);
  return action->stage == 1 && action->kind == (fused ? PETRA_ACTION_BACKWARD : PETRA_ACTION_FORWARD);
}

static petra_status perform(executor_arrival *x, const petra_action *action) {
  x->awaits_position =
      reads(x, action) && !petra_agreement_may_pass(x->execution->ranks->progress, x->source.offered + 1);
  if (x->awaits_position)
    return PETRA_OK;
  petra_trace_row row = {.action = *action, .start_ns = petra_clock_ns() - x->origin_ns};
  take(x, action);
  PETRA_NOTIFY(petra_observer, x->observers, starting, observer, row.start_ns, action, 1);
  PETRA_TRY(x->worker->ops->perform(x->worker, row.start_ns, action, 1, &row.result));
  PETRA_NOTIFY(petra_observer, x->observers, started, observer, row.start_ns, action, &row.result, 1);
  const int64_t end_ns = petra_clock_ns();
  x->last_end_ns = row.end_ns = end_ns - x->origin_ns;
  PETRA_TRY(end_action(x, action, end_ns));
  PETRA_NOTIFY(petra_observer, x->observers, ended, observer, &row);
  return PETRA_OK;
}

static petra_status evaluate(executor_arrival *x) {
  bool ended;
  const int64_t begin_ns = petra_clock_ns();
  PETRA_TRY(petra_worker_stage_evaluate(x->evaluating, &ended));
  x->evaluation_since_ns = petra_clock_ns();
  x->execution->took.evaluating_ns += x->evaluation_since_ns - begin_ns;
  x->evaluated += ended;
  return PETRA_OK;
}

/* Waits for a message or for room, and names what it waits for. */
static petra_status wait_for_message(executor_arrival *x, int64_t events) {
  const int64_t begin_ns = petra_clock_ns();
  const stage_state *low = state_of(x, x->first), *high = state_of(x, x->last);
  char forward[96] = "", backward[96] = "", what[200];
  if (x->first > 1 && low->forwards < x->limit)
    snprintf(forward, sizeof forward, "the forward message %lld of stage %d", (long long)low->forwards, x->first);
  if (x->last < x->program->stages && high->backwards < x->limit)
    snprintf(backward, sizeof backward, "the backward message %lld of stage %d", (long long)high->backwards, x->last);
  snprintf(what, sizeof what, "%s%s%s", forward, *forward && *backward ? " or " : "", backward);
  petra_status status = petra_progress_thread_wait_event(x->execution->ranks->progress, events,
                                                         *what ? what : "an evaluation's message or its room");
  x->execution->took.between_ns += petra_clock_ns() - begin_ns;
  return status;
}

/* Returns true if all work on the microbatches that stage 1 may read up to the next cut is done. */
static bool is_done(const executor_arrival *x) {
  petra_action due;
  for (int32_t j = x->first; j <= x->last; j++) {
    const stage_state *s = state_of(x, j);
    if (s->backwards < x->limit || petra_arrival_due(&s->due, &due) || s->evaluations > x->evaluated)
      return false;
  }
  return true;
}

/* Looks whether the ranks have agreed on a checkpoint. No rank has read beyond the agreed position. If that position is
 * the next cut, or the end, the agreed checkpoint comes after it on all ranks, however late they receive the
 * message. */
static void look_for_agreement(executor_arrival *x) {
  const int64_t position = petra_agreement_position(x->execution->ranks->progress, &x->then);
  if (position < 0 || position >= x->limit)
    return;
  x->limit = position;
  x->agreed = true;
  x->awaits_position = false;
}

static petra_status run_to_limit(executor_arrival *x) {
  for (;;) {
    int64_t events;
    PETRA_TRY(petra_progress_thread_look(x->execution->ranks->progress, &events));
    look_for_agreement(x);
    if (is_done(x))
      return PETRA_OK;
    PETRA_TRY(petra_loss_relay_poll(x->execution->relay));
    const candidate next = choose(x);
    if (next.came_ns == INT64_MAX)
      PETRA_TRY(wait_for_message(x, events));
    else
      PETRA_TRY(next.batch ? evaluate(x) : perform(x, &next.action));
  }
}

/* Writes a cut. Meanwhile the ranks wait for each other, which counts as waiting between actions. */
static petra_status cut(executor_arrival *x) {
  const int64_t waited_ns = petra_progress_thread_counts_now(x->execution->ranks->progress).wait_ns;
  PETRA_TRY(x->cuts.write(x->cuts.context, x->limit, petra_clock_ns() - x->origin_ns, x->agreed,
                          x->agreed ? x->then : PETRA_AGREED_CONTINUE));
  x->agreed = false;
  x->execution->took.between_ns += petra_progress_thread_counts_now(x->execution->ranks->progress).wait_ns - waited_ns;
  x->free_since_ns = petra_clock_ns();
  return PETRA_OK;
}

static petra_status run_all(executor_arrival *x) {
  const int64_t all = x->program->microbatches, every = x->cuts.every;
  for (;;) {
    const int64_t next = every > 0 ? (x->limit / every + 1) * every : all;
    x->limit = next < all ? next : all;
    PETRA_TRY(run_to_limit(x));
    if (x->limit == all)
      return petra_worker_finish(x->worker);
    PETRA_TRY(cut(x));
  }
}

/* Returns the state of a stage that has done the first `microbatches` microbatches and nothing else. */
static stage_state drained(const executor_arrival *x, int64_t microbatches) {
  stage_state s = {.due = petra_arrival_stage_new(), .forwards = microbatches, .backwards = microbatches};
  s.due.backwards = microbatches % x->program->accumulate;
  return s;
}

static petra_status run(petra_executor *base, const petra_program_ops *program, const petra_program_options *options,
                        petra_worker *worker, petra_observer *observers) {
  executor_arrival *x = (executor_arrival *)base;
  const size_t stages = (size_t)options->stages;
  if (!program->arrival)
    return petra_fail(PETRA_UNSUPPORTED, "program %s has a fixed order; expected a program by arrival", program->name);
  x->program = options;
  x->worker = worker;
  x->observers = observers;
  x->limit = x->cuts.begin;
  x->source = (petra_arrival_source){x->limit, x->limit};
  x->evaluated = 0;
  x->free_since_ns = x->evaluation_since_ns = petra_clock_ns();
  PETRA_TRY(petra_allocate(&x->state, stages, sizeof *x->state));
  for (size_t j = 0; j < stages; j++)
    x->state[j] = drained(x, x->limit);
  petra_status status = run_all(x);
  for (size_t j = 0; j < stages; j++) {
    PETRA_FREE_ALL(x->state[j].forward.items, x->state[j].backward.items);
  }
  petra_free(x->state);
  x->state = NULL;
  return status;
}

static int64_t now_ns(const petra_executor *base) {
  return ((const executor_arrival *)base)->last_end_ns;
}

static void destroy(petra_executor *base) {
  petra_free(base);
}

petra_status petra_execution_executor(petra_execution *e, petra_worker *stages, const petra_pipeline_cuts *cuts,
                                      petra_executor **out) {
  static const petra_executor_ops ops = {.run = run, .now_ns = now_ns, .destroy = destroy};
  int64_t began_ns = petra_clock_ns(); /* the time of rank 0 */
  executor_arrival *x;
  PETRA_TRY(petra_ranks_share(e->ranks, &began_ns, sizeof began_ns));
  PETRA_TRY(petra_allocate(&x, 1, sizeof *x));
  x->base.ops = &ops;
  x->execution = e;
  x->evaluating = stages;
  x->origin_ns = began_ns + e->origin_ns - cuts->begin_ns;
  x->cuts = *cuts;
  x->first = petra_stages_first(&e->stages); /* the stages that are here are neighbours */
  x->last = x->first + petra_stages_here(&e->stages) - 1;
  *out = e->executor = &x->base;
  return PETRA_OK;
}
