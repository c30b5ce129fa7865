/* SPDX-License-Identifier: Apache-2.0 */
/* One action of worker_stage in three parts: its inputs, its computation, its results. */
#include "base/log.h"
#include "exec/worker_stage_private.h"

#include <math.h>
#include <stdio.h>

/* Sends a message of `action` to the stage above or below. */
static petra_status post(petra_worker_stage *worker, const petra_action *action, bool up, petra_message *message) {
  const petra_address to = {action->stage + (up ? 1 : -1), up ? PETRA_MESSAGE_FORWARD : PETRA_MESSAGE_BACKWARD,
                            action->microbatch};
  PETRA_TRY(petra_stage_send(petra_stages_get(&worker->stages, action->stage), up, action->microbatch, message));
  return worker->pipeline->transport->ops->post(worker->pipeline->transport, &to, message);
}

/* Gets the message to `action` from the stage below or above. */
static petra_status take(petra_worker_stage *worker, const petra_action *action, bool from_below, petra_message *out) {
  const petra_address at = {action->stage, from_below ? PETRA_MESSAGE_FORWARD : PETRA_MESSAGE_BACKWARD,
                            action->microbatch};
  PETRA_TRY(worker->pipeline->transport->ops->take(worker->pipeline->transport, &at, out));
  return petra_stage_receive(petra_stages_get(&worker->stages, action->stage), from_below, out);
}

/* Returns true if the action performs F, also within a fused B. */
static bool is_forward(const petra_worker_stage *worker, const petra_action *action) {
  return action->kind == PETRA_ACTION_FORWARD ||
         (action->kind == PETRA_ACTION_BACKWARD && petra_program_fused(&worker->plan->program, action->stage));
}

static bool has_loss(const petra_worker_stage *worker, const petra_action *action) {
  return petra_program_has_loss(&worker->plan->program, action->stage) && is_forward(worker, action);
}

static double rate_of(const petra_worker_stage *worker, int32_t stage, int64_t m) {
  const petra_plan *plan = worker->plan;
  return petra_lr_at(worker->options.lr, petra_program_rate_index(plan->method.program, &plan->program, stage, m));
}

/* --- prepare --- */

static petra_status prepare_forward(petra_worker_stage *worker, petra_task *task) {
  const petra_action *a = &task->action;
  const petra_label_row *row;
  if (a->stage == 1) {
    PETRA_TRY(petra_feed_input(worker, a->microbatch, &task->in.streams.tensor[0]));
  } else {
    PETRA_TRY(take(worker, a, true, &task->in));
    PETRA_NOTIFY(petra_stage_observer, worker->options.observers, input, observer, a->stage, a->microbatch,
                 &task->in.streams);
  }
  if (!has_loss(worker, a))
    return PETRA_OK;
  PETRA_TRY(petra_feed_labels(worker, a->stage, a->microbatch, &row));
  task->labels = *row;
  return PETRA_OK;
}

petra_status petra_task_prepare(petra_worker_stage *worker, petra_task *task) {
  const petra_action *a = &task->action;
  if (!petra_stages_get(&worker->stages, a->stage))
    return a->kind == PETRA_ACTION_EVALUATE
               ? PETRA_OK
               : petra_fail(PETRA_INTERNAL, "an action of stage %d, which is not in this process", a->stage);
  if (is_forward(worker, a))
    return prepare_forward(worker, task);
  if (a->kind == PETRA_ACTION_BACKWARD && !petra_program_has_loss(&worker->plan->program, a->stage))
    return take(worker, a, false, &task->in);
  if (a->kind == PETRA_ACTION_UPDATE)
    PETRA_NOTIFY(petra_stage_observer, worker->options.observers, updating, observer, a->stage, a->microbatch);
  return PETRA_OK;
}

/* --- compute --- */

static petra_status compute_pass(petra_worker_stage *worker, petra_task *task) {
  const petra_action *a = &task->action;
  petra_stage *stage = petra_stages_get(&worker->stages, a->stage);
  petra_status status;
  if (a->kind == PETRA_ACTION_FORWARD)
    status = petra_stage_forward(stage, a->microbatch, &task->in, task->labels.labels, task->labels.count, &task->out,
                                 &task->loss);
  else if (has_loss(worker, a))
    status = petra_stage_loss(stage, a->microbatch, &task->in, task->labels.labels, &task->out, &task->loss);
  else
    status = petra_stage_backward(stage, a->microbatch, &task->in, &task->out);
  petra_message_release(&task->in);
  task->result.version_read = petra_stage_version_read(stage);
  return status;
}

static petra_status compute_update(petra_worker_stage *worker, petra_task *task) {
  const petra_action *a = &task->action;
  petra_stage *stage = petra_stages_get(&worker->stages, a->stage);
  PETRA_TRY(petra_stage_update(stage, rate_of(worker, a->stage, a->microbatch)));
  task->result.version_written = petra_stage_version(stage);
  return PETRA_OK;
}

petra_status petra_task_compute(petra_worker_stage *worker, petra_task *task) {
  petra_stage *stage = petra_stages_get(&worker->stages, task->action.stage);
  if (!stage)
    return PETRA_OK;
  task->result = (petra_action_result){petra_stage_version(stage), -1, 0, 0};
  switch (task->action.kind) {
  case PETRA_ACTION_FORWARD:
  case PETRA_ACTION_BACKWARD:
    return compute_pass(worker, task);
  case PETRA_ACTION_UPDATE:
    return compute_update(worker, task);
  case PETRA_ACTION_WEIGHT_GRADIENT:
    return petra_stage_weight_gradient(stage, task->action.microbatch);
  case PETRA_ACTION_EVALUATE:
    return PETRA_OK;
  case PETRA_ACTION_KINDS:
    break;
  }
  return PETRA_INTERNAL;
}

/* --- the losses of training microbatches ---
 * A device may complete a loss after the end of the action that computes it. */

/* Checks the loss of a stage and, in a local program, adds it to the sums of its epoch. */
static petra_status count_loss(petra_worker_stage *worker, int32_t stage, int64_t m, const petra_loss *loss) {
  const int64_t epoch = m / worker->plan->program.batches;
  char of[48] = "";
  if (worker->local)
    snprintf(of, sizeof of, " of stage %d", stage);
  if (!isfinite(loss->loss))
    return petra_fail(PETRA_NOT_FINITE,
                      "microbatch %lld (epoch %lld): the loss%s is %s with learning rate %g; the run has diverged: "
                      "expected a finite loss, try a smaller optim.lr",
                      (long long)m, (long long)epoch, of, isnan(loss->loss) ? "not a number" : "infinite",
                      rate_of(worker, stage, m));
  if (!worker->local)
    return PETRA_OK;
  petra_stage_losses *sums = &worker->local[(stage - 1) * worker->epochs + epoch];
  sums->loss += loss->loss * loss->images;
  sums->top1 += loss->top1;
  sums->labels += loss->images;
  return PETRA_OK;
}

static petra_status report(petra_worker_stage *worker, int64_t m, const petra_loss *loss, int64_t virtual_ns) {
  const double lr = rate_of(worker, worker->stages.count, m);
  PETRA_TRY(count_loss(worker, worker->stages.count, m, loss));
  PETRA_NOTIFY(petra_stage_observer, worker->options.observers, loss, observer, m, loss, lr, virtual_ns);
  return PETRA_OK;
}

petra_status petra_losses_report_late(petra_worker_stage *worker) {
  petra_late_loss late = worker->late;
  petra_cross_entropy found;
  worker->late.loss.images = 0;
  if (late.loss.images == 0)
    return PETRA_OK;
  PETRA_TRY(petra_backend_collect(worker->backend, late.loss.ticket, &found));
  late.loss = (petra_loss){.loss = found.loss, .top1 = found.top1, .top5 = found.top5, .images = late.loss.images};
  return report(worker, late.microbatch, &late.loss, late.virtual_ns);
}

/* Notifies the observers of the network's loss, or keeps it if the device still computes it. The loss of a stage below
 * the last one counts in `local`. */
static petra_status report_loss(petra_worker_stage *worker, const petra_task *task) {
  const petra_action *action = &task->action;
  if (action->stage < worker->stages.count)
    return count_loss(worker, action->stage, action->microbatch, &task->loss);
  if (task->loss.ticket) {
    worker->new_late = (petra_late_loss){task->loss, task->action.microbatch, task->virtual_ns};
    return PETRA_OK;
  }
  PETRA_TRY(petra_losses_report_late(worker));
  return report(worker, task->action.microbatch, &task->loss, task->virtual_ns);
}

petra_status petra_losses_put_off(petra_worker_stage *worker) {
  if (worker->new_late.loss.images == 0)
    return PETRA_OK;
  PETRA_TRY(petra_losses_report_late(worker));
  worker->late = worker->new_late;
  worker->new_late.loss.images = 0;
  return PETRA_OK;
}

/* --- conclude --- */

static petra_status conclude_backward(petra_worker_stage *worker, petra_task *task) {
  const petra_action *a = &task->action;
  if (!is_forward(worker, a))
    PETRA_NOTIFY(petra_stage_observer, worker->options.observers, reconstructed, observer, a->stage, a->microbatch,
                 &task->out.streams);
  if (petra_program_sends_down(&worker->plan->program, a->stage))
    return post(worker, a, false, &task->out);
  petra_message_release(&task->out);
  return PETRA_OK;
}

petra_status petra_task_conclude(petra_worker_stage *worker, petra_task *task) {
  const petra_action *a = &task->action;
  if (a->kind == PETRA_ACTION_EVALUATE)
    return petra_evaluations_reach(worker, a->stage, a->microbatch);
  if (has_loss(worker, a)) {
    petra_feed_drop_labels(worker, a->stage, a->microbatch);
    PETRA_TRY(report_loss(worker, task));
  }
  if (a->kind == PETRA_ACTION_FORWARD && a->stage < worker->stages.count)
    PETRA_TRY(post(worker, a, true, &task->out));
  if (a->kind == PETRA_ACTION_BACKWARD)
    PETRA_TRY(conclude_backward(worker, task));
  if (is_forward(worker, a))
    PETRA_NOTIFY(petra_stage_observer, worker->options.observers, forwarded, observer, a->stage, a->microbatch);
  return PETRA_OK;
}

void petra_task_release(petra_task *task) {
  petra_message_release(&task->in);
  petra_message_release(&task->out);
}
