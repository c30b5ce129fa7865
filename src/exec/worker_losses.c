/* SPDX-License-Identifier: Apache-2.0 */
/* The losses of training microbatches. A device may complete one after the action that computes it is over. */
#include "base/log.h"
#include "exec/worker_stage_private.h"

#include <math.h>
#include <stdio.h>

static double rate_of(const petra_worker_stage *worker, int32_t stage, int64_t m) {
  const petra_worker_stage_options *options = &worker->options;
  return petra_lr_at(options->lr, petra_program_rate_index(options->program, options->program_options, stage, m));
}

/* Checks the loss of a stage and, in a local program, adds it to the sums of its epoch. */
static petra_status count_loss(petra_worker_stage *worker, int32_t stage, int64_t m, const petra_loss *loss) {
  const int64_t epoch = m / worker->options.program_options->batches;
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
  const petra_worker_stage_options *options = &worker->options;
  const double lr = rate_of(worker, options->stages.count, m);
  PETRA_TRY(count_loss(worker, options->stages.count, m, loss));
  PETRA_NOTIFY(petra_stage_observer, options->observers, loss, observer, m, loss, lr, virtual_ns);
  return PETRA_OK;
}

petra_status petra_losses_report_late(petra_worker_stage *worker) {
  petra_late_loss late = worker->late;
  petra_cross_entropy found;
  worker->late.loss.images = 0;
  if (late.loss.images == 0)
    return PETRA_OK;
  PETRA_TRY(petra_backend_collect(worker->options.backend, late.loss.ticket, &found));
  late.loss = (petra_loss){.loss = found.loss, .top1 = found.top1, .top5 = found.top5, .images = late.loss.images};
  return report(worker, late.microbatch, &late.loss, late.virtual_ns);
}

petra_status petra_losses_report(petra_worker_stage *worker, const petra_task *task) {
  const petra_action *action = &task->action;
  if (!petra_worker_stage_is_last(worker, action->stage))
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
