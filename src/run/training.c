/* SPDX-License-Identifier: Apache-2.0 */
/* The part of a run that a training adds: data, stages on tensors, observers, checkpoints; with ranks also the
 * execution by several processes. */
#include "run/run_private.h"

#include "base/clock.h"
#include "base/mem.h"
#include "base/utf8.h"
#include "exec/worker_replicas.h"
#include "run/banner.h"

#include <stddef.h>
#include <string.h>

/* --- open --- */

/* Gets a data set: *out is the given set, or the set that the config names. */
static petra_status open_set(petra_run *run, petra_split split, const petra_dataset *given, petra_dataset **opened,
                             const petra_dataset **out) {
  if (!given)
    PETRA_TRY(petra_dataset_open(run->config, split, opened));
  *out = given ? given : *opened;
  return petra_plan_check_data(&run->plan, *out);
}

/* Computes the number of microbatches, and the options of the program. */
static petra_status plan_program(petra_run *run) {
  const petra_config *config = run->config;
  PETRA_TRY(petra_plan_check_batch(config, run->train_set));
  const int64_t batches = run->train_set->count / petra_plan_microbatch_samples(config);
  const int64_t microbatches = petra_plan_microbatches(config, batches);
  PETRA_TRY(petra_plan_check_norms(&run->plan));
  PETRA_TRY(petra_plan_program(&run->plan, microbatches, batches));
  PETRA_TRY(petra_plan_load_profile(&run->plan));
  PETRA_TRY(petra_best_check(config, microbatches / batches));
  run->lr = petra_lr_from_config(config, batches);
  return petra_plan_check_training(&run->plan, microbatches);
}

static const petra_account *account_of(const void *run, int32_t stage) {
  return petra_stage_account(((const petra_run *)run)->main.network.stage[stage - 1]);
}

/* Opens the networks of replicas 1, 2, ..., which an emulated run has in this process as well. */
static petra_status open_others(petra_run *run) {
  PETRA_TRY(petra_allocate(&run->others, (size_t)run->placement.replicas - 1, sizeof *run->others));
  for (int i = 1; i < run->placement.replicas; i++) {
    petra_network *network = &run->others[i - 1].network;
    run->pipelines[i] = &run->others[i - 1];
    const petra_status status = petra_network_open(network, &run->plan, &run->placement, i, run->main.network.backend);
    network->borrows_backend = true;
    PETRA_TRY(status);
    PETRA_TRY(petra_network_initialise(network));
  }
  return PETRA_OK;
}

static petra_status open_networks(petra_run *run) {
  const size_t replicas = (size_t)run->placement.replicas;
  PETRA_TRY(petra_network_open(&run->main.network, &run->plan, &run->placement, run->placement.replica,
                               run->options.backend));
  PETRA_TRY(petra_network_initialise(&run->main.network));
  PETRA_TRY(petra_allocate(&run->pipelines, replicas, sizeof(petra_pipeline *)));
  PETRA_TRY(petra_allocate(&run->stage_observers, replicas, sizeof(petra_stage_observer *)));
  run->pipelines[run->placement.replica] = &run->main;
  return replicas > 1 && !petra_run_executes(run) ? open_others(run) : PETRA_OK;
}

static petra_status prepare(petra_run *run) {
  const petra_run_options *options = &run->options;
  const int64_t equal = run->config->cluster.stages;
  if (equal > 0)
    return petra_config_fail(run->config, "cluster.stages",
                             "%lld stages without a model cannot be trained; expected 0, or petra simulate",
                             (long long)equal);
  PETRA_TRY(petra_plan_init(&run->plan, run->config));
  PETRA_TRY(petra_plan_read_order(&run->plan));
  PETRA_TRY(open_set(run, PETRA_SPLIT_TRAIN, options->train, &run->train_opened, &run->train_set));
  if (run->config->run.eval_every > 0)
    PETRA_TRY(open_set(run, PETRA_SPLIT_EVAL, options->evaluation, &run->eval_opened, &run->eval_set));
  PETRA_TRY(plan_program(run));
  if (options->program)
    run->plan.method.program = options->program;
  if (!petra_run_executes(run))
    run->account = account_of;
  PETRA_TRY(petra_run_place(run));
  if (petra_run_executes(run))
    PETRA_TRY(petra_execution_create(&run->placement, &run->plan, &run->times, &run->execution));
  PETRA_TRY(open_networks(run));
  run->program = run->plan.method.program;
  run->program_options = &run->plan.program;
  run->clock = &run->cluster.executor;
  return petra_cluster_init(&run->cluster, &run->plan);
}

static petra_status compare(const void *context, FILE *out) {
  const petra_run *run = context;
  const petra_consistency all = {.network = &run->main.network,
                                 .cluster = &run->cluster,
                                 .train = run->train_set,
                                 .evaluation = run->eval_set,
                                 .resumes = run->options.resume,
                                 .traces = run->options.trace};
  return petra_consistency_print(&all, out);
}

static petra_status connect(petra_run *run) {
  if (run->execution)
    PETRA_TRY(petra_execution_connect(run->execution, &run->main.network));
  /* a checkpoint has parts of all ranks */
  if (run->ranks->count > 1 && run->stored && run->config->run.checkpoint_every.count > 0)
    PETRA_TRY(petra_folder_share(run->config, run->options.output, run->ranks));
  if (run->execution && run->options.print && strcmp(run->main.network.backend->ops->name, "cuda") == 0)
    petra_utf8_print(stdout, "messages between the processes: %s\n", petra_execution_link_name(run->execution));
  return PETRA_OK;
}

/* --- observers: probe, training log, weights of the best evaluation --- */

static petra_status create_probe(petra_run *run) {
  petra_probe_row_writer row = run->options.probe_row;
  void *context = run->options.context;
  if (run->config->probe.per_epoch == 0)
    return PETRA_OK;
  if (run->folder.run_h5) {
    PETRA_TRY(petra_probe_log_create(run->folder.run_h5, &run->main.network, run->resume != NULL, &run->probe_log));
    row = petra_probe_log_row;
    context = run->probe_log;
  }
  return petra_probe_create(&run->main.network, row, context, &run->probe);
}

/* Adds the observers of losses and evaluations: on rank 0 the training log, and the weights of the best evaluation. */
static void add_loss_observers(petra_run *run, petra_stage_observer **list) {
  if (petra_run_is_first(run))
    PETRA_OBSERVERS_ADD(petra_stage_observer, list, petra_training_log_observer(run->log));
  if (run->best)
    PETRA_OBSERVERS_ADD(petra_stage_observer, list, petra_best_observer(run->best));
}

/* Connects the observers to the worker of each replica that is here. The worker notifies the probe, then the observers
 * of losses. If there is an execution, its relay passes the losses on; if several replicas are in this process,
 * petra_replica_losses combines their losses. */
static petra_status observe_replicas(petra_run *run) {
  petra_stage_observer **lists = run->stage_observers;
  const int replicas = run->placement.replicas, own = run->placement.replica;
  for (int i = 0; i < replicas && run->probe; i++)
    if (run->pipelines[i])
      PETRA_OBSERVERS_ADD(petra_stage_observer, &lists[i], petra_probe_observer(run->probe, i));
  add_loss_observers(run, run->execution || run->others ? &run->loss_observers : &lists[own]);
  if (run->execution) {
    PETRA_TRY(petra_execution_relay(run->execution, run->loss_observers, run->best, &lists[own]));
  } else if (run->others) {
    PETRA_TRY(petra_replica_losses_create(replicas, run->loss_observers, &run->losses));
    for (int i = 0; i < replicas; i++)
      PETRA_OBSERVERS_ADD(petra_stage_observer, &lists[i], petra_replica_losses_of(run->losses, i));
  }
  return PETRA_OK;
}

/* Removes the earlier run after the first loss, because each stage has then done something. If a signal came before,
 * the end of the run restores the earlier run instead. */
static petra_status remove_earlier(petra_observer *base, int64_t now_ns, const petra_action *actions,
                                   const petra_action_result *results, int count) {
  petra_run *run = (petra_run *)((char *)base - offsetof(petra_run, begun));
  int64_t losses;
  (void)now_ns, (void)actions, (void)results, (void)count;
  if (!run->folder.keeps_earlier)
    return PETRA_OK;
  petra_training_log_mean_loss(run->log, &losses);
  if (losses == 0 || !petra_ranks_agreement_discard(run->ranks, false))
    return PETRA_OK;
  const int64_t began_ns = petra_clock_ns();
  petra_training_log_pause(run->log);
  PETRA_TRY(petra_folder_begun(&run->folder));
  petra_training_log_go_on(run->log);
  petra_rank_times_pause(&run->times, petra_clock_ns() - began_ns);
  return PETRA_OK;
}

/* Creates the observers. The probe is first in the list of the worker's observers. */
static petra_status create_observers(petra_run *run) {
  static const petra_observer_ops begun = {.started = remove_earlier};
  const petra_training_log_options log = {run->folder.run_h5, &run->plan, run->options.print, run->options.progress};
  if (run->folder.run_h5 && run->options.print)
    PETRA_TRY(petra_banner_print(&run->plan, &run->lr, run->first, run->folder.path, stdout));
  PETRA_TRY(create_probe(run));
  PETRA_TRY(petra_training_log_create(&log, &run->log));
  if (petra_run_keeps_best(run) && !run->best) /* rank 0 has created its object already */
    PETRA_TRY(petra_best_create(&run->main.network, NULL, -1, &run->best));
  PETRA_TRY(observe_replicas(run));
  run->begun.ops = &begun;
  if (run->folder.keeps_earlier)
    PETRA_OBSERVERS_ADD(petra_observer, &run->observers, &run->begun);
  return PETRA_OK;
}

/* --- checkpoints --- */

/* Waits until the observers know all losses, evaluations and references so far, and best.h5 is written. All ranks call
 * this at the same position of the schedule. */
static petra_status drain(void *context) {
  petra_run *run = context;
  if (run->execution)
    PETRA_TRY(petra_execution_drain(run->execution));
  PETRA_TRY(petra_probe_drain(run->probe));
  return run->best ? petra_best_save(run->best) : PETRA_OK;
}

static int64_t clock_ns(const void *context) {
  const petra_run *run = context;
  return run->execution ? petra_execution_clock_ns(run->execution) : 0;
}

static void pause_log(void *context) {
  petra_training_log_pause(((petra_run *)context)->log);
}

/* Excludes the time of a checkpoint from the time of the microbatches. */
static void pause_times(void *context, int64_t ns) {
  petra_rank_times_pause(&((petra_run *)context)->times, ns);
}

static void unpause_log(void *context, int64_t ns) {
  petra_training_log_go_on(((petra_run *)context)->log);
  pause_times(context, ns);
}

static petra_status get_image(void *context, char **image, size_t *bytes) {
  return petra_run_h5_image(((petra_run *)context)->folder.run_h5, image, bytes);
}

static petra_status archive_log(void *context, petra_archive *archive) {
  return petra_training_log_archive(((petra_run *)context)->log, archive);
}

/* Reads or writes the recorded actions of a stage. The times are adjusted as if the run had not paused. */
static petra_status archive_actions(petra_run *run, int32_t stage, int64_t written_ns, petra_archive *archive) {
  bool there;
  PETRA_TRY(petra_action_log_archive(run->execution ? run->actions : NULL, stage,
                                     run->execution ? run->resumed_ns - written_ns : 0, archive, &there));
  if (archive->reading && run->execution && !there && run->config->run.trace_actions)
    return petra_config_fail(run->config, "run.trace_actions",
                             "true, but %s has no actions by the wall clock: it was written with run.mode: emulate; "
                             "expected run.mode: emulate",
                             archive->path);
  return PETRA_OK;
}

static petra_status archive_stage(void *context, int replica, int32_t stage, int64_t written_ns,
                                  petra_tensor_archive *tensors) {
  petra_run *run = context;
  if (run->probe)
    PETRA_TRY(petra_probe_archive_stage(run->probe, replica, stage, tensors));
  return archive_actions(run, stage, written_ns, tensors->archive);
}

static petra_status archive_probe(void *context, petra_tensor_archive *tensors) {
  return petra_probe_archive(((petra_run *)context)->probe, tensors);
}

/* Creates the checkpoints and reads the checkpoint from which the run resumes; *worker is for the executor. */
static petra_status create_checkpoints(petra_run *run, petra_worker **worker) {
  const petra_checkpoint_run added = {.context = run,
                                      .drain = drain,
                                      .clock_ns = clock_ns,
                                      .pause = pause_log,
                                      .unpause = unpause_log,
                                      .waited = pause_times,
                                      .image = get_image,
                                      .log = archive_log,
                                      .stage = archive_stage,
                                      .common = run->probe ? archive_probe : NULL,
                                      .account = run->probe ? petra_probe_account(run->probe) : NULL};
  const petra_checkpoints_options options = {.files = &run->checkpoint,
                                             .plan = &run->plan,
                                             .config = run->folder.config,
                                             .pipelines = run->pipelines,
                                             .ranks = run->ranks,
                                             .data = run->data,
                                             .worker = *worker,
                                             .counting =
                                                 run->execution ? petra_execution_counting(run->execution) : NULL,
                                             .keeps_earlier = &run->folder.keeps_earlier,
                                             .command = run->options.resume_command,
                                             .by_arrival = petra_run_by_arrival(run),
                                             .resume = run->resume,
                                             .run = added};
  if (!run->stored)
    return PETRA_OK;
  PETRA_TRY(petra_checkpoints_create(&options, &run->checkpoints, worker));
  petra_checkpoint_destroy(run->resume);
  run->resume = NULL;
  PETRA_OBSERVERS_ADD(petra_observer, &run->observers, run->checkpoints);
  return PETRA_OK;
}

/* --- go --- */

/* Creates the pipelines that are here; *worker performs the actions. Replica 0 evaluates. */
static petra_status create_worker(petra_run *run, petra_worker **worker) {
  for (int i = 0; i < run->placement.replicas; i++) {
    petra_pipeline_options options = {.train = run->train_set,
                                      .evaluation = i == 0 ? run->eval_set : NULL,
                                      .first = run->first,
                                      .lr = &run->lr,
                                      .waves = petra_run_by_arrival(run),
                                      .observers = run->stage_observers[i]};
    if (!run->pipelines[i])
      continue;
    if (run->execution)
      PETRA_TRY(petra_execution_transport(run->execution, &run->pipelines[i]->network, options.evaluation,
                                          &options.transport));
    PETRA_TRY(petra_pipeline_start(run->pipelines[i], &options));
  }
  *worker = run->main.worker;
  if (run->placement.replicas > 1) {
    PETRA_TRY(petra_worker_replicas_create(run->pipelines, &run->placement, &run->replicas));
    *worker = run->replicas;
  }
  if (!run->execution)
    return PETRA_OK;
  petra_stage_observer *groups = run->probe ? petra_probe_groups(run->probe) : NULL;
  petra_observer *actions = run->actions ? petra_action_log_observer(run->actions) : NULL;
  return petra_execution_worker(run->execution, *worker, groups, actions, &run->this_rank, worker);
}

static petra_status start(petra_run *run, petra_worker **worker) {
  if (petra_run_is_first(run))
    petra_plan_warn_outputs(&run->plan, run->train_set);
  PETRA_TRY(create_worker(run, worker));
  PETRA_TRY(create_checkpoints(run, worker));
  if (!petra_run_by_arrival(run))
    return PETRA_OK;
  const petra_pipeline_cuts cuts = petra_checkpoints_cuts(run->checkpoints);
  return petra_execution_executor(run->execution, run->main.worker, &cuts, &run->executor);
}

static petra_status finish(petra_run *run, petra_status status) {
  if (status == PETRA_OK)
    status = run->execution ? petra_execution_finish(run->execution, drain, run, &run->this_rank) : drain(run);
  if (status == PETRA_OK)
    status = petra_probe_finish(run->probe);
  petra_training_log_finish(run->log, status == PETRA_OK);
  return status == PETRA_OK ? petra_folder_begun(&run->folder) : status;
}

static void destroy(petra_run *run) {
  petra_run_release_room(run);
  petra_checkpoints_destroy(run->checkpoints);
  petra_worker_replicas_destroy(run->replicas);
  petra_replica_losses_destroy(run->losses);
  petra_best_destroy(run->best);
  petra_run_drop_worker(run);
  petra_execution_destroy(run->execution); /* after the transports, which use it */
  petra_checkpoint_destroy(run->resume);
  petra_probe_destroy(run->probe);
  petra_probe_log_destroy(run->probe_log);
  petra_training_log_destroy(run->log);
  petra_checkpoint_files_fini(&run->checkpoint);
  petra_free(run->weights_path);
  for (int i = 1; run->others && i < run->placement.replicas; i++)
    petra_pipeline_fini(&run->others[i - 1]);
  petra_free(run->others);
  petra_pipeline_fini(&run->main);
  PETRA_FREE_ALL(run->pipelines, run->stage_observers);
  petra_dataset_destroy(run->eval_opened);
  petra_dataset_destroy(run->train_opened);
}

const petra_run_ops petra_run_training = {.prepare = prepare,
                                          .compare = compare,
                                          .connect = connect,
                                          .begin = petra_run_open_files,
                                          .observe = create_observers,
                                          .follow = petra_run_follow_files,
                                          .start = start,
                                          .finish = finish,
                                          .write = petra_run_write_files,
                                          .destroy = destroy};
