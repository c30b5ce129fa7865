/* SPDX-License-Identifier: Apache-2.0 */
#include "checkpoint/checkpoints.h"

#include "base/clock.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/stop.h"
#include "base/seal.h"
#include "schedule/arrival.h"
#include "sim/worker_cost.h"

#include <math.h>
#include <stddef.h>
#include <string.h>
#include <xxhash.h>

typedef struct checkpoints {
  petra_observer base;
  petra_worker resuming; /* for the executor: counts the actions of the checkpoint, then passes the other actions on */
  petra_checkpoints_options options;
  petra_period period;                   /* between two checkpoints; 0: none are written */
  bool measures;                         /* the worker measures durations, which are stored */
  petra_worker *counting, *own_counting; /* counts for `resuming`; NULL: the run was not resumed, or it is borrowed */
  int64_t done;                          /* actions done */
  int64_t resumed;                       /* number of these actions that the checkpoint contains */
  int64_t resumed_order;                 /* `order` of petra_checkpoint_header */
  int64_t *measured;                     /* durations of all actions done, if they are measured; else NULL */
  int64_t measured_capacity;
  XXH64_state_t *order;    /* hash of all actions done */
  int64_t every, every_ns; /* `period` in microbatches that stage 1 reads, or in time; 0: unused */
  int64_t read;            /* microbatches that stage 1 has read */
  int64_t written;         /* value of `read` at the last checkpoint */
  int64_t written_done;    /* value of `done` at the last checkpoint */
  int64_t began, began_ns; /* by arrival: the values of `written` and of the clock when the run is resumed */
} checkpoints;

/* Limit of the duration of an action: a month. */
static const int64_t LONGEST_NS = INT64_C(2592000000000000);
/* Limit of a period, in microbatches or nanoseconds; no run is that long. */
static const double LONGEST = 1e18;

static const petra_program_options *program_of(const checkpoints *c) {
  return &c->options.plan->program;
}

/* Returns true if stage 1 reads a microbatch in an action of this kind. */
static bool is_first(const checkpoints *c, petra_action_kind kind) {
  bool fused = petra_program_fused(program_of(c), 1);
  return kind == (fused ? PETRA_ACTION_BACKWARD : PETRA_ACTION_FORWARD);
}

/* Counts the microbatches that stage 1 reads in these actions. */
static int64_t reads(const checkpoints *c, const petra_action *actions, int count) {
  int64_t found = 0;
  for (int i = 0; i < count; i++)
    found += actions[i].stage == 1 && is_first(c, actions[i].kind);
  return found;
}

static void add_to_order(XXH64_state_t *order, const petra_action *actions, int count) {
  for (int i = 0; i < count; i++) {
    const int64_t what[] = {actions[i].stage, (int64_t)actions[i].kind, actions[i].microbatch};
    XXH64_update(order, what, sizeof what);
  }
}

/* Returns true if stage 1 is about to read the first microbatch after a checkpoint is due. */
static bool is_due(const checkpoints *c, const petra_action *actions, int count) {
  return !c->options.by_arrival && c->every > 0 && c->read > 0 && c->read % c->every == 0 && c->read != c->written &&
         reads(c, actions, count) > 0;
}

/* Sets the line that a signal prints, when it is not known what the run does next. */
static void prepare_line(const checkpoints *c) {
  if (c->period.count == 0)
    petra_stop_say("stopped; the run writes no checkpoints (run.checkpoint_every: 0), so it cannot be resumed");
  else if (c->written > 0)
    petra_stop_say("stopping after the next checkpoint; a second signal ends the run at once, and --resume then starts "
                   "at microbatch %lld of %lld",
                   (long long)c->written, (long long)program_of(c)->microbatches);
  else
    petra_stop_say("stopping, after a checkpoint if the run has begun; a second signal ends the run at once, without a "
                   "checkpoint");
}

/* Prints the last line of a run that a signal ends. */
static petra_status stop(const checkpoints *c) {
  const char *command = c->options.command;
  if (c->written == 0)
    petra_stop_end("stopped before the run began; there is nothing to resume");
  else if (command && strlen(command) < PETRA_STOP_LINE - 100)
    petra_stop_end("stopped at microbatch %lld of %lld; resume it with: %s", (long long)c->written,
                   (long long)program_of(c)->microbatches, command);
  else
    petra_stop_end("stopped at microbatch %lld of %lld; resume it with the same command and --resume",
                   (long long)c->written, (long long)program_of(c)->microbatches);
  return PETRA_STOPPED;
}

static petra_status write_one(checkpoints *c, petra_checkpoint_header *header) {
  PETRA_TRY(petra_worker_finish(c->options.worker)); /* the checkpoint contains the log */
  const int64_t began_ns = petra_clock_ns();
  c->options.run.pause(c->options.run.context);
  PETRA_TRY(petra_checkpoint_save(&c->options, header, c->measured));
  c->options.run.unpause(c->options.run.context, petra_clock_ns() - began_ns);
  c->written = header->read;
  c->written_done = c->done;
  prepare_line(c);
  if (*c->options.keeps_earlier) /* this has no effect after an agreement: the ranks do what they agreed on */
    petra_ranks_agreement_discard(c->options.ranks, false);
  return PETRA_OK;
}

static petra_status write_here(checkpoints *c) {
  return write_one(
      c, &(petra_checkpoint_header){
             .actions = c->done, .read = c->read, .arrived_ns = -1, .order = (int64_t)XXH64_digest(c->order)});
}

/* Is called before `count` actions that start together. It writes a checkpoint if one is due by time or requested by a
 * signal. The ranks may agree on another checkpoint immediately. */
static petra_status write_requested(checkpoints *c, int count) {
  for (;;) {
    bool agreed;
    petra_agreed then;
    int64_t waited_ns;
    PETRA_TRY(petra_ranks_agreement_reach(c->options.ranks, c->done, c->done + count, &agreed, &then, &waited_ns));
    if (waited_ns > 0)
      c->options.run.waited(c->options.run.context, waited_ns);
    if (!agreed)
      return PETRA_OK;
    if (c->read > 0 && c->written_done != c->done && then != PETRA_AGREED_DISCARD)
      PETRA_TRY(write_here(c));
    petra_ranks_agreement_leave(c->options.ranks, true);
    if (then != PETRA_AGREED_CONTINUE)
      return stop(c);
  }
}

static petra_status starting(petra_observer *base, int64_t now_ns, const petra_action *actions, int count) {
  checkpoints *c = (checkpoints *)base;
  (void)now_ns;
  PETRA_TRY(petra_stop_requested());
  if (c->done < c->resumed || c->options.by_arrival || c->period.count == 0)
    return PETRA_OK;
  PETRA_TRY(write_requested(c, count));
  if (!is_due(c, actions, count))
    return PETRA_OK;
  PETRA_TRY(write_here(c));
  petra_ranks_agreement_leave(c->options.ranks, false);
  return PETRA_OK;
}

static petra_status write_cut(void *context, int64_t microbatches, int64_t now_ns, bool agreed, petra_agreed then) {
  checkpoints *c = context;
  petra_checkpoint_header header = {
      .actions = petra_arrival_actions(program_of(c), microbatches), .read = microbatches, .arrived_ns = now_ns};
  if (microbatches > 0 && microbatches != c->written && then != PETRA_AGREED_DISCARD)
    PETRA_TRY(write_one(c, &header));
  petra_ranks_agreement_leave(c->options.ranks, agreed);
  return then == PETRA_AGREED_CONTINUE ? PETRA_OK : stop(c);
}

petra_pipeline_cuts petra_checkpoints_cuts(petra_observer *base) {
  checkpoints *c = (checkpoints *)base;
  return c ? (petra_pipeline_cuts){c->began, c->began_ns, c->every, write_cut, c} : (petra_pipeline_cuts){0};
}

/* Stores measured durations, because they cannot be measured again: in a resumed run, actions before the checkpoint
 * keep their durations. */
static petra_status remember(checkpoints *c, int count, const petra_action_result *results) {
  PETRA_TRY(petra_array_reserve(&c->measured, &c->measured_capacity, c->done + count, sizeof *c->measured));
  for (int i = 0; i < count; i++)
    c->measured[c->done + i] = results[i].measured_ns;
  return PETRA_OK;
}

static petra_status started(petra_observer *base, int64_t now_ns, const petra_action *actions,
                            const petra_action_result *results, int count) {
  checkpoints *c = (checkpoints *)base;
  (void)now_ns;
  c->read += reads(c, actions, count);
  add_to_order(c->order, actions, count);
  if (c->done < c->resumed && c->done + count == c->resumed &&
      (c->read != c->written || (int64_t)XXH64_digest(c->order) != c->resumed_order))
    return petra_fail(PETRA_DATA,
                      "%s: item /begin: its %lld actions read %lld microbatches, but the first actions of this run "
                      "differ and read %lld; expected a checkpoint of this run",
                      c->options.files->path, (long long)c->resumed, (long long)c->written, (long long)c->read);
  if (c->measures && c->done >= c->resumed)
    PETRA_TRY(remember(c, count, results));
  c->done += count;
  return PETRA_OK;
}

/* --- a run that is resumed ---
 * The actions of the checkpoint are only counted; then the worker performs the others. So the virtual clock, messages
 * under way and all random draws have the same state as before, and the file contains nothing of the executor. */

static checkpoints *of_worker(petra_worker *resuming) {
  return (checkpoints *)((char *)resuming - offsetof(checkpoints, resuming));
}

static petra_status perform(petra_worker *base, int64_t virtual_ns, const petra_action *actions, int count,
                            petra_action_result *results) {
  const checkpoints *c = of_worker(base);
  const bool was_done = c->done < c->resumed;
  petra_worker *worker = was_done ? c->counting : c->options.worker;
  if (was_done && c->done + count > c->resumed)
    return petra_fail(PETRA_DATA,
                      "%s: item /begin: its %lld actions end in the middle of actions that start together; expected a "
                      "checkpoint of this run",
                      c->options.files->path, (long long)c->resumed);
  PETRA_TRY(worker->ops->perform(worker, virtual_ns, actions, count, results));
  for (int i = 0; was_done && c->measures && i < count; i++)
    results[i].measured_ns = c->measured[c->done + i];
  return PETRA_OK;
}

static petra_status finish(petra_worker *base) {
  const checkpoints *c = of_worker(base);
  if (c->done < c->resumed)
    return petra_fail(PETRA_DATA,
                      "%s: item /begin: %lld actions, but the run has %lld; expected a checkpoint of this run",
                      c->options.files->path, (long long)c->resumed, (long long)c->done);
  return petra_worker_finish(c->options.worker);
}

static petra_status read_measured(checkpoints *c, petra_archive *archive) {
  PETRA_TRY(petra_archive_require(archive, "measured_ns", PETRA_ARCHIVE_I64, c->resumed));
  PETRA_TRY(petra_allocate(&c->measured, (size_t)c->resumed, sizeof *c->measured));
  c->measured_capacity = c->resumed;
  PETRA_TRY(petra_archive_integers(archive, "measured_ns", c->measured, c->resumed));
  for (int64_t i = 0; i < c->resumed; i++)
    PETRA_TRY(petra_archive_within(archive, "measured_ns", "a duration", c->measured[i], 0, LONGEST_NS));
  return PETRA_OK;
}

static petra_status resume(checkpoints *c) {
  const petra_plan *plan = c->options.plan;
  petra_checkpoint_header header;
  bool other_length;
  PETRA_TRY(petra_checkpoint_read_header(c->options.resume, plan, c->options.by_arrival, &header, &other_length));
  c->written = header.read;
  c->written_done = header.actions;
  if (c->options.by_arrival) { /* all actions are done, and nothing of the executor is under way */
    c->began = header.read;
    c->began_ns = header.arrived_ns;
    return petra_checkpoint_load(&c->options, &header);
  }
  c->resumed = header.actions;
  c->resumed_order = header.order;
  if (c->measures)
    PETRA_TRY(read_measured(c, c->options.resume));
  if (!c->options.counting)
    PETRA_TRY(petra_worker_cost_create(&plan->method, &plan->program, &c->own_counting));
  c->counting = c->options.counting ? c->options.counting : c->own_counting;
  return petra_checkpoint_load(&c->options, &header);
}

/* --- check if a run does the actions of another run --- */

typedef struct order_check {
  petra_observer base;
  XXH64_state_t *order;
  int64_t left; /* number of actions that remain to be compared */
} order_check;

static petra_status check_started(petra_observer *base, int64_t now_ns, const petra_action *actions,
                                  const petra_action_result *results, int count) {
  order_check *c = (order_check *)base;
  (void)now_ns, (void)results;
  add_to_order(c->order, actions, count);
  c->left -= count;
  return c->left > 0 ? PETRA_OK : PETRA_STOPPED; /* the remaining actions do not matter */
}

petra_status petra_checkpoints_check_order(const petra_plan *plan, const petra_executor_virtual_options *executor,
                                           const petra_checkpoint_header *header, const char *path) {
  static const petra_observer_ops ops = {.started = check_started};
  order_check c = {.base.ops = &ops, .left = header->actions};
  PETRA_TRY(petra_xxh64_create(&c.order));
  const petra_status status = petra_worker_cost_run(executor, &plan->method, &plan->program, &c.base, NULL);
  const int64_t order = (int64_t)XXH64_digest(c.order);
  XXH64_freeState(c.order);
  PETRA_TRY(c.left <= 0 ? PETRA_OK : status);
  if (c.left == 0 && order == header->order)
    return PETRA_OK;
  return petra_config_fail(
      plan->config, "run.epochs",
      "%lld microbatches in all, but the run that wrote %s had another number: near its end, the shorter run omits "
      "actions that the longer run has already done; expected a run of the same length, or one from the beginning",
      (long long)plan->program.microbatches, path);
}

int64_t petra_checkpoints_every(const petra_period *every, int64_t batches) {
  const double microbatches = every->count * (every->unit == PETRA_PERIOD_EPOCHS ? (double)batches : 1);
  return every->unit == PETRA_PERIOD_MINUTES ? 0 : (int64_t)fmin(microbatches, LONGEST);
}

static void set_period(checkpoints *c) {
  const petra_period *every = &c->period;
  c->every = petra_checkpoints_every(every, program_of(c)->batches);
  if (every->unit == PETRA_PERIOD_MINUTES)
    c->every_ns = (int64_t)fmax(fmin(60e9 * every->count, LONGEST), every->count > 0);
}

/* From here on signals request checkpoints. A signal that came earlier has reported that the run has not begun, and
 * ends the run here; with several processes it ends the run at the first checkpoint on which they agree. */
static petra_status begin_watch(checkpoints *c) {
  petra_ranks *ranks = c->options.ranks;
  const bool writes = c->period.count > 0;
  if (!writes || !ranks->progress)
    PETRA_TRY(petra_stop_requested());
  prepare_line(c);
  if (!writes)
    return PETRA_OK;
  petra_stop_defer(true);
  if (*c->options.keeps_earlier)
    petra_ranks_agreement_discard(ranks, c->written == 0);
  petra_ranks_agreement_start(ranks, c->every_ns, c->options.by_arrival ? c->began : c->resumed);
  return PETRA_OK;
}

PETRA_DESTROYS(petra_checkpoints_destroy, petra_observer)

petra_status petra_checkpoints_create(const petra_checkpoints_options *options, petra_observer **out,
                                      petra_worker **worker) {
  static const petra_observer_ops ops = {.starting = starting, .started = started};
  static const petra_worker_ops worker_ops = {.perform = perform, .finish = finish};
  checkpoints *c;
  PETRA_TRY(petra_allocate(&c, 1, sizeof *c));
  c->base.ops = &ops;
  c->resuming.ops = &worker_ops;
  c->options = *options;
  c->period = options->plan->config->run.checkpoint_every;
  c->measures = options->plan->config->cluster.cost.model == PETRA_COST_MEASURED;
  set_period(c);
  PETRA_DESTROYED(petra_checkpoints_destroy) petra_observer *base = &c->base;
  PETRA_TRY(petra_xxh64_create(&c->order));
  if (options->resume)
    PETRA_TRY(resume(c));
  PETRA_TRY(begin_watch(c));
  *out = petra_take(&base);
  *worker = c->resumed > 0 ? &c->resuming : options->worker;
  return PETRA_OK;
}

void petra_checkpoints_destroy(petra_observer *base) {
  checkpoints *c = (checkpoints *)base;
  if (!c)
    return;
  petra_worker_cost_destroy(c->own_counting);
  XXH64_freeState(c->order);
  PETRA_FREE_ALL(c->measured, c);
}
