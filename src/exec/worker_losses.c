/* SPDX-License-Identifier: Apache-2.0 */
/* The losses of training microbatches. A device may complete one after the action that computes it is over. */
#include "base/log.h"
#include "exec/worker_stage_private.h"

#include <math.h>

static petra_status report(petra_worker_stage *worker, int64_t m, const petra_loss *loss, int64_t virtual_ns) {
  const petra_worker_stage_options *options = &worker->options;
  double lr = petra_lr_at(
      options->lr, petra_program_rate_index(options->program, options->program_options, options->stages.count, m));
  if (!isfinite(loss->loss))
    return petra_fail(PETRA_NOT_FINITE,
                      "microbatch %lld (epoch %lld): the loss is %s with learning rate %g; the run has diverged: "
                      "expected a finite loss, try a smaller optim.lr",
                      (long long)m, (long long)(m / options->program_options->batches),
                      isnan(loss->loss) ? "not a number" : "infinite", lr);
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
