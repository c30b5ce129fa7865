/* SPDX-License-Identifier: Apache-2.0 */
#include "run/run_private.h"

#include "base/mem.h"
#include "base/text.h"

#include <unistd.h>

/* --- open --- */

static petra_status agree(petra_run *run, petra_status status) {
  PETRA_FREED char *text = NULL;
  size_t size;
  if (status == PETRA_OK && run->ranks->count > 1)
    status = petra_text_print(run->ops->compare, run, "what the ranks compare", &text, &size);
  return petra_ranks_agree(run->ranks, status, text);
}

/* Creates the trace. With ranks, the actions of all ranks are added to it when the run is over; without ranks, it
 * observes the executor. */
static petra_status create_trace(petra_run *run) {
  const petra_trace_observer_options options = {.path = run->options.trace,
                                                .program = &run->plan.program,
                                                .split_backward = run->plan.method.program->split_backward,
                                                .account = run->account,
                                                .context = run};
  PETRA_TRY(petra_trace_observer_create(&options, &run->trace));
  if (!petra_run_executes(run))
    PETRA_OBSERVERS_ADD(petra_observer, &run->observers, run->trace);
  return PETRA_OK;
}

petra_status petra_run_place(petra_run *run) {
  char stages[64];
  PETRA_TRY(petra_placement_init(&run->placement, &run->plan, run->ranks));
  if (!petra_run_executes(run))
    return PETRA_OK;
  petra_placement_describe(&run->placement, &run->plan, stages, sizeof stages);
  petra_ranks_rename(run->ranks, stages);
  return petra_rank_times_init(&run->times, &run->plan.program);
}

static petra_status open_folder(petra_run *run) {
  petra_run_h5_about about = {.command = run->options.command_line, .backend = run->ops->backend, .libraries = ""};
  const petra_folder_use use = run->options.resume      ? PETRA_FOLDER_RESUME
                               : run->options.overwrite ? PETRA_FOLDER_OVERWRITE
                                                        : PETRA_FOLDER_NEW;
  PETRA_TRY(petra_folder_open(&run->folder, run->config, run->options.output, use));
  return run->ops->begin ? run->ops->begin(run, &about) : petra_folder_begin(&run->folder, &run->plan, &about);
}

/* Creates the log of actions. Ranks record their own actions, which run.h5 and the trace receive when the run is
 * over. */
static petra_status create_actions(petra_run *run) {
  const bool logs = run->config->run.trace_actions;
  if (petra_run_executes(run))
    return logs || run->options.trace ? petra_action_log_create(&run->plan.program, true, NULL, &run->actions)
                                      : PETRA_OK;
  if (!logs || !run->folder.run_h5)
    return PETRA_OK;
  PETRA_TRY(petra_action_log_create(&run->plan.program, false, run->folder.run_h5, &run->actions));
  PETRA_OBSERVERS_ADD(petra_observer, &run->observers, petra_action_log_observer(run->actions));
  return PETRA_OK;
}

/* The trace is created before the folder. */
static petra_status open_records(petra_run *run) {
  if (run->options.trace && petra_run_is_first(run) && (run->options.files || run->simulation))
    PETRA_TRY(create_trace(run));
  if (run->options.files)
    PETRA_TRY(open_folder(run));
  if (run->ops->observe)
    PETRA_TRY(run->ops->observe(run));
  return create_actions(run);
}

static petra_status open_all(petra_run *run) {
  const petra_status status = open_records(run);
  return run->ops->follow ? run->ops->follow(run, status) : petra_ranks_agree(run->ranks, status, NULL);
}

petra_status petra_run_open(const petra_config *config, const petra_run_options *options, petra_run **out) {
  static const petra_run_ops *const kinds[] = {
      [PETRA_RUN_TRAIN] = &petra_run_training, [PETRA_RUN_SIMULATE] = &petra_run_simulating};
  PETRA_DESTROYED(petra_run_destroy) petra_run *run = NULL;
  PETRA_TRY(petra_allocate(&run, 1, sizeof *run));
  run->config = config;
  run->options = *options;
  run->ops = kinds[options->kind];
  run->one = PETRA_RANKS_ONE;
  run->ranks = options->ranks ? options->ranks : &run->one;
  run->stored = options->files;
  if (!petra_run_is_first(run))
    run->options.files = run->options.print = false;
  run->main.network.backend = options->backend;
  run->folder.open = -1;
  PETRA_TRY(agree(run, run->ops->prepare(run)));
  if (run->ops->connect)
    PETRA_TRY(run->ops->connect(run));
  PETRA_TRY(open_all(run));
  *out = petra_take(&run);
  return PETRA_OK;
}

/* --- go --- */

void petra_run_observe(petra_run *run, petra_observer *observer) {
  PETRA_OBSERVERS_ADD(petra_observer, &run->observers, observer);
}

void petra_run_observe_stages(petra_run *run, petra_stage_observer *observer) {
  PETRA_OBSERVERS_ADD(petra_stage_observer,
                      run->others ? &run->loss_observers : &run->stage_observers[run->placement.replica], observer);
}

void petra_run_wrap(petra_run *run, petra_worker *(*wrap)(void *context, petra_worker *worker), void *context) {
  run->wrap = wrap;
  run->wrap_context = context;
}

petra_status petra_run_go(petra_run *run) {
  petra_worker *worker;
  PETRA_TRY(run->ops->start(run, &worker));
  if (run->wrap)
    worker = run->wrap(run->wrap_context, worker);
  if (!run->executor)
    PETRA_TRY(petra_executor_virtual_create(run->clock, &run->executor));
  if (petra_run_is_first(run) && !run->options.plan)
    petra_plan_warn_idle(&run->plan);
  return run->ops->finish(
      run, run->executor->ops->run(run->executor, run->program, run->program_options, worker, run->observers));
}

void petra_run_restore(petra_run *run) {
  if (!run)
    return;
  petra_run_release_room(run);
  petra_folder_restore(&run->folder);
}

void petra_run_drop_worker(petra_run *run) {
  for (int i = 1; run->others && i < run->placement.replicas; i++)
    petra_pipeline_stop(&run->others[i - 1]);
  petra_pipeline_stop(&run->main);
}

/* --- close --- */

static petra_status write_all(petra_run *run) {
  PETRA_TRY(run->ops->write(run));
  if (run->trace)
    PETRA_TRY(petra_trace_observer_finish(run->trace));
  if (!run->folder.run_h5)
    return PETRA_OK;
  PETRA_TRY(petra_folder_complete(&run->folder));
  return !run->checkpoint.path || run->config->run.keep_checkpoint ? PETRA_OK
                                                                   : petra_folder_remove_checkpoint(&run->folder);
}

petra_status petra_run_close(petra_run *run) {
  PETRA_TRY(write_all(run));
  return petra_ranks_agree(run->ranks, PETRA_OK, NULL); /* all ranks wait for rank 0 */
}

void petra_run_destroy(petra_run *run) {
  if (!run)
    return;
  petra_executor_destroy(run->executor);
  run->ops->destroy(run);
  petra_trace_observer_destroy(run->trace);
  petra_action_log_destroy(run->actions);
  petra_folder_fini(&run->folder);
  petra_rank_times_fini(&run->times);
  petra_placement_fini(&run->placement);
  petra_cluster_fini(&run->cluster);
  if (!run->options.plan)
    petra_plan_fini(&run->plan);
  petra_free(run);
}

const petra_plan *petra_run_plan(const petra_run *run) {
  return &run->plan;
}

petra_network *petra_run_network(petra_run *run) {
  return &run->main.network;
}

const petra_training_log *petra_run_log(const petra_run *run) {
  return run->log;
}

const char *petra_run_directory(const petra_run *run) {
  return run->folder.path;
}

bool petra_run_has_checkpoint(const petra_run *run) {
  return run->stored && access(run->checkpoint.path, F_OK) == 0;
}

int64_t petra_run_now_ns(const petra_run *run) {
  return run->executor ? run->executor->ops->now_ns(run->executor) : 0;
}
