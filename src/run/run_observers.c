/* SPDX-License-Identifier: Apache-2.0 */
/* Who is told of a run: probe, training log, trace, weights of the best evaluation, action log. */
#include "run/run_private.h"

#include "base/clock.h"
#include "record/trace_observer.h"

#include <stddef.h>

static petra_status create_probe(petra_run *run) {
  const petra_probe_options options = {.config = run->config,
                                       .backend = run->main.network.backend,
                                       .model = &run->plan.model,
                                       .partition = &run->plan.partition,
                                       .method = &run->plan.method,
                                       .program = run->plan.method.program,
                                       .program_options = &run->plan.program,
                                       .replicas = (int)run->config->cluster.replicas,
                                       .stages = petra_network_stages(&run->main.network),
                                       .context = run->folder.runlog ? &run->probe_log : run->options.context,
                                       .row = run->folder.runlog ? petra_probe_log_row : run->options.probe_row};
  if (run->config->probe.per_epoch == 0)
    return PETRA_OK;
  if (run->execution)
    return petra_execution_add_probe(run->execution, &options, &run->stage_observers, &run->probe);
  PETRA_TRY(petra_probe_create(&options, &run->probe));
  if (!run->replicas) /* which all tell the probe */
    PETRA_OBSERVERS_ADD(petra_stage_observer, &run->stage_observers, petra_probe_observer(run->probe, 0));
  return PETRA_OK;
}

static const petra_account *account_of(const void *context, int32_t stage) {
  return petra_stage_account(((const petra_run *)context)->main.network.stage[stage - 1]);
}

petra_status petra_run_create_trace(petra_run *run) {
  const petra_trace_observer_options options = {.path = run->options.trace,
                                                .program = &run->plan.program,
                                                .split_backward = run->plan.method.program->split_backward,
                                                .account = run->execution ? NULL : account_of,
                                                .context = run};
  PETRA_TRY(petra_trace_observer_create(&options, &run->trace));
  if (!run->execution)
    PETRA_OBSERVERS_ADD(petra_observer, &run->observers, run->trace);
  return PETRA_OK;
}

/* After the first loss, as each stage has then done something. If a signal has come before, the meeting that it asked for puts
 * the earlier run back. */
static petra_status remove_earlier(petra_observer *base, int64_t now_ns, const petra_action *actions,
                                   const petra_action_result *results, int count) {
  petra_run *run = (petra_run *)((char *)base - offsetof(petra_run, begun));
  int64_t losses;
  (void)now_ns, (void)actions, (void)results, (void)count;
  if (!run->folder.aside)
    return PETRA_OK;
  petra_training_log_mean_loss(run->log, &losses);
  if (losses == 0 || !petra_execution_unbegun(run->execution, false))
    return PETRA_OK;
  const int64_t began_ns = petra_clock_ns();
  petra_training_log_pause(run->log);
  PETRA_TRY(petra_folder_begun(&run->folder));
  petra_training_log_go_on(run->log);
  petra_execution_paused(run->execution, petra_clock_ns() - began_ns);
  return PETRA_OK;
}

petra_status petra_run_create_observers(petra_run *run) {
  static const petra_observer_ops begun = {.started = remove_earlier};
  const petra_training_log_options log = {.runlog = run->folder.runlog,
                                          .program = run->plan.method.program,
                                          .program_options = &run->plan.program,
                                          .print_epochs = run->options.print,
                                          .recalibrates = run->config->data.recalibrate > 0,
                                          .samples = petra_samples_of(run->config),
                                          .progress = run->options.progress};
  PETRA_TRY(create_probe(run));
  PETRA_TRY(petra_training_log_create(&log, &run->log));
  if (petra_run_keeps_best(run) && !run->best) /* rank 0 has its own */
    PETRA_TRY(petra_best_create(&run->main.network, NULL, -1, &run->best));
  petra_stage_observer *notified = NULL, *relay, **list = run->execution ? &notified : &run->stage_observers;
  if (!run->options.ranks || run->options.ranks->rank == 0)
    PETRA_OBSERVERS_ADD(petra_stage_observer, list, petra_training_log_observer(run->log));
  if (run->best)
    PETRA_OBSERVERS_ADD(petra_stage_observer, list, petra_best_observer(run->best));
  if (run->execution) {
    PETRA_TRY(petra_execution_relay(run->execution, notified, run->best, &relay));
    PETRA_OBSERVERS_ADD(petra_stage_observer, &run->stage_observers, relay);
  }
  if (run->execution && (run->config->run.trace_actions || run->options.trace))
    PETRA_TRY(petra_action_log_create(&run->plan.program, NULL, &run->actions));
  if (!run->execution && run->config->run.trace_actions && run->folder.runlog) {
    PETRA_TRY(petra_action_log_create(&run->plan.program, run->folder.runlog, &run->actions));
    PETRA_OBSERVERS_ADD(petra_observer, &run->observers, petra_action_log_observer(run->actions));
  }
  run->begun.ops = &begun;
  if (run->folder.aside)
    PETRA_OBSERVERS_ADD(petra_observer, &run->observers, &run->begun);
  return PETRA_OK;
}
