/* SPDX-License-Identifier: Apache-2.0 */
#include "run/run.h"

#include "base/log.h"
#include "base/mem.h"
#include "base/seal.h"
#include "base/utf8.h"
#include "data/fingerprint.h"
#include "io/checkpoint.h"
#include "run/action_log.h"
#include "run/backend_memory.h"
#include "run/best.h"
#include "run/checkpoints.h"
#include "run/cluster.h"
#include "run/execution.h"
#include "run/folder.h"
#include "run/header.h"
#include "run/libraries.h"
#include "run/probe_log.h"
#include "run/replicas.h"
#include "run/trace_observer.h"

#include <string.h>
#include <unistd.h>

struct petra_run {
  const petra_config *config;
  petra_run_options options;
  petra_plan plan;
  petra_pipeline main;                       /* of this process; of an emulated run with replicas that of replica 0 */
  petra_pipeline **pipelines;                /* of each replica; NULL: in another process */
  petra_replicas *replicas;                  /* NULL: a run without, or an executed one */
  petra_dataset *train_opened, *eval_opened; /* by the run */
  const petra_dataset *train_set, *eval_set; /* eval_set NULL: nothing is evaluated */
  petra_cluster cluster;
  petra_lr lr;
  petra_execution *execution; /* NULL: the run is emulated */
  /* Files. */
  petra_folder folder;
  char *weights_path;
  bool stored; /* there is a folder, of this rank or of rank 0 */
  petra_checkpoint_files checkpoint;
  petra_archive *resume; /* the checkpoint that the run goes on from; NULL: none */
  int64_t data[2];       /* fingerprints of the splits, where checkpoints are written or one is read */
  int64_t first;         /* the first microbatch that stage 1 reads */
  /* What works. */
  petra_executor *executor;
  /* What is told. */
  petra_training_log *log;
  petra_probe *probe;
  petra_probe_stages probed; /* what it reads, where all stages are here */
  petra_probe_log probe_log;
  petra_best *best; /* run.keep: best, of the process that writes files; else NULL */
  petra_observer *checkpoints;
  petra_observer *actions;
  petra_observer *trace;
  petra_observer *observers;
  petra_stage_observer *stage_observers;
  petra_worker *(*wrap)(void *context, petra_worker *worker);
  void *wrap_context;
};

/* --- open --- */

static bool by_arrival(const petra_run *run) {
  return run->plan.method.program->arrival;
}

/* *out: the given set, or that of the config. */
static petra_status open_set(petra_run *run, petra_split split, const petra_dataset *given, petra_dataset **opened,
                             const petra_dataset **out) {
  if (!given)
    PETRA_TRY(petra_dataset_open(run->config, split, opened));
  *out = given ? given : *opened;
  return petra_plan_check_data(&run->plan, *out);
}

/* How many microbatches, and the options of the program. */
static petra_status plan_program(petra_run *run) {
  const petra_config *config = run->config;
  const int64_t samples = petra_plan_microbatch_samples(config), batches = run->train_set->count / samples;
  if (batches == 0)
    return petra_config_fail(config, "data.batch",
                             "a %s of %lld %s, but the training set has %lld; expected at most as many",
                             config->cluster.replicas > 1 ? "batch of all replicas" : "batch", (long long)samples,
                             petra_sample_words_of(run->train_set->samples)->samples, (long long)run->train_set->count);
  int64_t microbatches = config->run.epochs * batches;
  if (config->run.max_microbatches > 0 && config->run.max_microbatches < microbatches)
    microbatches = config->run.max_microbatches;
  if (config->cluster.stages > 0)
    return petra_config_fail(
        config, "cluster.stages",
        "%lld stages without a model cannot be trained; expected 0, run.mode: execute or petra simulate",
        (long long)config->cluster.stages);
  PETRA_TRY(petra_plan_program(&run->plan, microbatches, batches));
  PETRA_TRY(petra_plan_load_profile(&run->plan));
  PETRA_TRY(petra_best_check(config, microbatches / batches));
  run->lr = petra_lr_from_config(config, batches);
  return petra_plan_check_training(&run->plan, microbatches);
}

static petra_status identify_data(petra_run *run) {
  const petra_dataset *sets[] = {[PETRA_SPLIT_TRAIN] = run->train_set, [PETRA_SPLIT_EVAL] = run->eval_set};
  if (!run->options.resume && run->config->run.checkpoint_every == 0)
    return PETRA_OK;
  for (int split = 0; split < 2; split++) {
    uint64_t fingerprint = 0;
    if (sets[split])
      PETRA_TRY(petra_dataset_fingerprint(sets[split], &fingerprint));
    run->data[split] = (int64_t)fingerprint;
  }
  return PETRA_OK;
}

/* With `resume`: the checkpoint, where there is one. */
static petra_status find_checkpoint(petra_run *run, petra_checkpoint_begin *begin) {
  if (!run->options.resume)
    return PETRA_OK;
  PETRA_TRY(petra_checkpoint_find(run->checkpoint.path, run->config, &run->resume));
  if (!run->resume)
    return PETRA_OK;
  PETRA_TRY(petra_checkpoint_read_begin(run->resume, run->config, &run->plan.program,
                                        run->options.ranks && by_arrival(run), begin));
  PETRA_TRY(petra_checkpoint_check_data(run->resume, run->config, begin, run->data));
  run->first = begin->read;
  return PETRA_OK;
}

static void print_resumed(const petra_run *run) {
  if (!run->resume)
    petra_utf8_print(stdout, "no %s: the run begins at its beginning\n", run->checkpoint.path);
  else
    petra_utf8_print(stdout, "resumed from %s: microbatch %lld (epoch %lld)\n", run->checkpoint.path,
                     (long long)run->first, (long long)(run->first / run->plan.program.batches) + 1);
}

/* The run's folder with run.h5 and config.yaml. */
static petra_status open_files(petra_run *run) {
  char *log = NULL;
  char backend[256], libraries[256];
  petra_runlog_about about = {.command = run->options.command_line,
                              .backend = backend,
                              .libraries = libraries,
                              .recalibrates = run->config->data.recalibrate > 0};
  petra_checkpoint_begin begin;
  const int replicas = (int)run->config->cluster.replicas;
  const petra_folder_use use = run->options.resume      ? PETRA_FOLDER_RESUME
                               : run->options.overwrite ? PETRA_FOLDER_OVERWRITE
                                                        : PETRA_FOLDER_NEW;
  PETRA_TRY(petra_folder_open(&run->folder, run->config, run->options.output, use));
  PETRA_TRY(petra_join_path(run->folder.path, "weights.h5", &run->weights_path));
  PETRA_TRY(petra_checkpoint_files_init(&run->checkpoint, run->folder.path, run->plan.stages, replicas));
  run->main.network.backend->ops->describe(run->main.network.backend, backend, sizeof backend);
  petra_libraries_describe(libraries, sizeof libraries);
  PETRA_TRY(identify_data(run));
  PETRA_TRY(find_checkpoint(run, &begin));
  if (run->resume) {
    PETRA_TRY(petra_checkpoint_read_log(run->resume, &begin, &log));
    about.image = log;
    about.image_bytes = (size_t)begin.log_bytes;
  }
  petra_status status = run->config->run.keep == PETRA_KEEP_BEST
                            ? petra_best_create(&run->main.network, run->folder.path, run->resume != NULL, &run->best)
                            : PETRA_OK;
  if (status == PETRA_OK && run->options.resume && run->options.print)
    print_resumed(run);
  if (status == PETRA_OK)
    status = petra_folder_begin(&run->folder, &run->plan, &about);
  if (status == PETRA_OK && run->options.print)
    status = petra_header_print(&run->plan, &run->lr, run->folder.path, stdout);
  petra_free(log);
  PETRA_TRY(status);
  if (!run->resume)
    PETRA_TRY(petra_folder_write_stages(&run->folder, &run->plan));
  return run->config->probe.per_epoch > 0
             ? petra_probe_log_init(&run->probe_log, &run->main.network, run->folder.runlog, run->resume != NULL)
             : PETRA_OK;
}

static petra_status create_probe(petra_run *run) {
  const petra_config *config = run->config;
  const petra_probe_options options = {.backend = run->main.network.backend,
                                       .model = &run->plan.model,
                                       .partition = &run->plan.partition,
                                       .replicas = (int)config->cluster.replicas,
                                       .source = &run->probed.base,
                                       .program = run->plan.method.program,
                                       .program_options = &run->plan.program,
                                       .per_epoch = config->probe.per_epoch,
                                       .gradients = config->probe.gradients,
                                       .context = run->folder.runlog ? &run->probe_log : run->options.context,
                                       .row = run->folder.runlog ? petra_probe_log_row : run->options.probe_row};
  const petra_stages stages = petra_network_stages(&run->main.network);
  if (config->probe.per_epoch == 0)
    return PETRA_OK;
  if (run->execution)
    return petra_execution_add_probe(run->execution, &run->main.network, &options, &run->stage_observers, &run->probe);
  run->probed = petra_probe_stages_of(&stages);
  PETRA_TRY(petra_probe_create(&options, &run->probe));
  if (!run->replicas) /* which all tell the probe */
    PETRA_OBSERVERS_ADD(petra_stage_observer, &run->stage_observers, petra_probe_observer(run->probe, 0));
  return PETRA_OK;
}

static const petra_account *account_of(const void *context, int32_t stage) {
  return petra_stage_account(((const petra_run *)context)->main.network.stage[stage - 1]);
}

static petra_status create_trace(petra_run *run) {
  const petra_trace_observer_options options = {
      .path = run->options.trace, .plan = &run->plan, .account = run->execution ? NULL : account_of, .context = run};
  PETRA_TRY(petra_trace_observer_create(&options, &run->trace));
  if (!run->execution)
    PETRA_OBSERVERS_ADD(petra_observer, &run->observers, run->trace);
  return PETRA_OK;
}

static bool keeps_best(const petra_run *run) {
  return run->stored && run->config->run.keep == PETRA_KEEP_BEST;
}

/* Those of the whole run; the list of the worker's observers begins with the probe. */
static petra_status create_observers(petra_run *run) {
  const petra_training_log_options log = {.runlog = run->folder.runlog,
                                          .program = run->plan.method.program,
                                          .program_options = &run->plan.program,
                                          .print_epochs = run->options.print,
                                          .recalibrates = run->config->data.recalibrate > 0,
                                          .samples = petra_samples_of(run->config),
                                          .progress = run->options.progress};
  PETRA_TRY(create_probe(run));
  PETRA_TRY(petra_training_log_create(&log, &run->log));
  petra_stage_observer *told = petra_training_log_observer(run->log);
  if (run->execution) /* whose actions are logged at the end, by the wall clock */
    PETRA_TRY(petra_execution_observer(run->execution, told, &told));
  PETRA_OBSERVERS_ADD(petra_stage_observer, &run->stage_observers, told);
  if (keeps_best(run) && run->execution)
    PETRA_TRY(petra_execution_keep_best(run->execution, &run->main.network, run->best, &run->stage_observers));
  else if (run->best)
    PETRA_OBSERVERS_ADD(petra_stage_observer, &run->stage_observers, petra_best_observer(run->best));
  if (!run->execution && run->config->run.trace_actions && run->folder.runlog) {
    PETRA_TRY(petra_action_log_create(run->folder.runlog, run->plan.stages, &run->actions));
    PETRA_OBSERVERS_ADD(petra_observer, &run->observers, run->actions);
  }
  return PETRA_OK;
}

/* All that can be found wrong before anything is written. */
static petra_status prepare(petra_run *run) {
  const petra_run_options *options = &run->options;
  const petra_placement *placement = NULL;
  PETRA_TRY(petra_plan_init(&run->plan, run->config));
  PETRA_TRY(petra_plan_read_order(&run->plan));
  PETRA_TRY(open_set(run, PETRA_SPLIT_TRAIN, options->train, &run->train_opened, &run->train_set));
  if (run->config->run.eval_every > 0)
    PETRA_TRY(open_set(run, PETRA_SPLIT_EVAL, options->evaluation, &run->eval_opened, &run->eval_set));
  PETRA_TRY(plan_program(run));
  if (options->program)
    run->plan.method.program = options->program;
  if (options->ranks) {
    PETRA_TRY(petra_execution_create(options->ranks, &run->plan, &run->execution));
    placement = petra_execution_placement(run->execution);
  }
  PETRA_TRY(petra_network_open(&run->main.network, &run->plan, placement, options->backend));
  PETRA_TRY(petra_network_initialise(&run->main.network));
  PETRA_TRY(petra_allocate(&run->pipelines, (size_t)run->config->cluster.replicas, sizeof(petra_pipeline *)));
  run->pipelines[run->main.network.replica] = &run->main;
  if (!options->ranks && run->config->cluster.replicas > 1)
    PETRA_TRY(petra_replicas_create(run->pipelines, &run->replicas));
  return petra_cluster_init(&run->cluster, &run->plan);
}

static petra_status open_records(petra_run *run) {
  if (run->execution && run->options.print && strcmp(run->main.network.backend->ops->name, "cuda") == 0)
    petra_utf8_print(stdout, "messages between the processes: %s\n", petra_execution_way(run->execution));
  if (run->options.trace && run->options.files)
    PETRA_TRY(create_trace(run));
  if (run->options.files)
    PETRA_TRY(open_files(run));
  return create_observers(run);
}

/* On another rank than rank 0, which has opened the folder: the files that it writes parts of checkpoints into. */
static petra_status follow_files(petra_run *run) {
  PETRA_TRY(petra_folder_of_run(run->config, run->options.output, &run->folder.path));
  PETRA_TRY(petra_folder_expand_config(run->config, &run->folder.config, &run->folder.config_size));
  return petra_checkpoint_files_init(&run->checkpoint, run->folder.path, run->plan.stages,
                                     (int)run->config->cluster.replicas);
}

/* The checkpoint that rank 0 goes on from, on all ranks. */
static petra_status follow_checkpoint(petra_run *run) {
  petra_checkpoint_begin begin;
  uint64_t digest = 0, found = 0;
  petra_status status = run->resume ? petra_seal_get_digest(run->checkpoint.path, &digest) : PETRA_OK;
  PETRA_TRY(petra_execution_agree_on(run->execution, status));
  PETRA_TRY(petra_execution_resume(run->execution, &digest));
  if (run->resume || digest == 0)
    return PETRA_OK;
  PETRA_TRY(identify_data(run));
  PETRA_TRY(find_checkpoint(run, &begin));
  if (run->resume)
    PETRA_TRY(petra_seal_get_digest(run->checkpoint.path, &found));
  return found == digest
             ? PETRA_OK
             : petra_fail(PETRA_IO, "%s: %s; expected a folder that all processes share", run->checkpoint.path,
                          run->resume ? "another checkpoint than that of rank 0" : "is not there");
}

static petra_status open_all(petra_run *run) {
  petra_ranks *ranks = run->options.ranks;
  petra_status status = open_records(run);
  if (!ranks)
    return status;
  if (status == PETRA_OK && run->stored && ranks->rank > 0)
    status = follow_files(run);
  PETRA_TRY(petra_ranks_agree(ranks, status, NULL));
  if (run->stored && run->options.resume)
    status = petra_ranks_agree(ranks, follow_checkpoint(run), NULL);
  return status;
}

petra_status petra_run_open(const petra_config *config, const petra_run_options *options, petra_run **out) {
  petra_run *run;
  petra_ranks *ranks = options->ranks;
  PETRA_TRY(petra_allocate(&run, 1, sizeof *run));
  run->config = config;
  run->options = *options;
  run->stored = options->files;
  if (ranks && ranks->rank > 0)
    run->options.files = run->options.print = false;
  run->main.network.backend = options->backend;
  run->folder.lock = -1;
  petra_status status = prepare(run);
  if (ranks)
    status = petra_execution_agree(ranks, status, &run->main.network, &run->cluster, run->train_set, run->eval_set);
  if (ranks && status == PETRA_OK)
    status = petra_execution_connect(run->execution, &run->main.network);
  if (status == PETRA_OK)
    status = open_all(run);
  if (status != PETRA_OK)
    petra_run_destroy(run);
  else
    *out = run;
  return status;
}

/* --- go --- */

void petra_run_observe(petra_run *run, petra_observer *observer) {
  PETRA_OBSERVERS_ADD(petra_observer, &run->observers, observer);
}

void petra_run_observe_stages(petra_run *run, petra_stage_observer *observer) {
  PETRA_OBSERVERS_ADD(petra_stage_observer, &run->stage_observers, observer);
}

void petra_run_wrap(petra_run *run, petra_worker *(*wrap)(void *context, petra_worker *worker), void *context) {
  run->wrap = wrap;
  run->wrap_context = context;
}

/* Whether an executed run keeps its actions: run.h5 or a trace wants them. */
static bool records(const petra_run *run) {
  return run->config->run.trace_actions || run->options.trace;
}

/* Of the stages that are here; *worker does the actions. */
static petra_status create_worker(petra_run *run, petra_worker **worker) {
  petra_pipeline_options options = {.train = run->train_set,
                                    .evaluation = run->main.network.replica == 0 ? run->eval_set : NULL,
                                    .first = run->first,
                                    .lr = &run->lr,
                                    .waves = run->execution && by_arrival(run),
                                    .observers = run->stage_observers};
  if (run->execution)
    PETRA_TRY(petra_execution_transport(run->execution, &run->main.network, options.evaluation, &options.transport));
  else if (run->replicas)
    PETRA_TRY(petra_replicas_observe(run->replicas, run->stage_observers, run->probe, &options.observers));
  PETRA_TRY(petra_pipeline_start(&run->main, &options));
  *worker = run->main.worker;
  if (run->execution)
    return petra_execution_worker(run->execution, run->main.worker, &run->main.network, run->main.transport,
                                  records(run), worker);
  return run->replicas ? petra_replicas_start(run->replicas, &options, worker) : PETRA_OK;
}

/* Writes checkpoints and reads the one that the run goes on from; *worker is for the executor. */
static petra_status create_checkpoints(petra_run *run, petra_worker **worker) {
  const petra_checkpoints_options options = {.state = {.files = &run->checkpoint,
                                                       .config = run->folder.config,
                                                       .pipelines = run->pipelines,
                                                       .replicas = (int)run->config->cluster.replicas,
                                                       .execution = run->execution,
                                                       .probe = run->probe,
                                                       .data = run->data,
                                                       .log = run->log,
                                                       .runlog = run->folder.runlog},
                                             .plan = &run->plan,
                                             .worker = *worker,
                                             .counting =
                                                 run->execution ? petra_execution_counting(run->execution) : NULL,
                                             .every = run->config->run.checkpoint_every * run->plan.program.batches,
                                             .by_arrival = run->execution && by_arrival(run),
                                             .measure = run->config->cluster.cost.model == PETRA_COST_MEASURED,
                                             .resume = run->resume};
  if (!run->stored)
    return PETRA_OK;
  PETRA_TRY(petra_checkpoints_create(&options, &run->checkpoints, worker));
  petra_checkpoint_destroy(run->resume);
  run->resume = NULL;
  PETRA_OBSERVERS_ADD(petra_observer, &run->observers, run->checkpoints);
  return PETRA_OK;
}

petra_status petra_run_go(petra_run *run) {
  petra_worker *worker;
  PETRA_TRY(create_worker(run, &worker));
  PETRA_TRY(create_checkpoints(run, &worker));
  if (run->wrap)
    worker = run->wrap(run->wrap_context, worker);
  const petra_executor_cuts cuts = petra_checkpoints_cuts(run->checkpoints);
  PETRA_TRY(run->execution && by_arrival(run)
                ? petra_execution_executor(run->execution, run->main.worker, &run->main.network, &cuts, &run->executor)
                : petra_executor_virtual_create(&run->cluster.executor, &run->executor));
  petra_status status =
      run->executor->ops->run(run->executor, run->plan.method.program, &run->plan.program, worker, run->observers);
  if (status == PETRA_OK && run->execution)
    status = petra_execution_finish(run->execution);
  if (status == PETRA_OK)
    status = petra_probe_finish(run->probe);
  petra_training_log_finish(run->log, status == PETRA_OK);
  return status;
}

void petra_run_drop_worker(petra_run *run) {
  petra_replicas_stop(run->replicas);
  petra_pipeline_stop(&run->main);
}

/* --- close --- */

static petra_status write_memory(petra_run *run) {
  petra_account *accounts;
  PETRA_TRY(petra_allocate(&accounts, (size_t)run->plan.stages, sizeof *accounts));
  for (int32_t j = 0; j < run->plan.stages; j++)
    if (run->main.network.stage[j])
      accounts[j] = *petra_stage_account(run->main.network.stage[j]);
  petra_status status = run->execution ? petra_execution_accounts(run->execution, accounts) : PETRA_OK;
  if (status == PETRA_OK && run->options.files)
    status = petra_runlog_memory(run->folder.runlog, accounts, run->plan.stages);
  petra_free(accounts);
  return status;
}

/* The last ones or, with run.keep: best, those of the best evaluation. */
static petra_status write_weights(petra_run *run) {
  int64_t epochs;
  const petra_runlog_epoch *rows = petra_training_log_epochs(run->log, &epochs);
  if (keeps_best(run))
    return run->best ? petra_best_finish(run->best, rows, epochs) : PETRA_OK; /* which rank 0 has */
  return petra_network_write_weights(&run->main.network, run->weights_path);
}

static petra_status close_records(petra_run *run) {
  if (run->options.files || run->execution) /* first: they are what the run was for */
    PETRA_TRY(write_weights(run));
  if (run->execution)
    PETRA_TRY(petra_execution_ranks(run->execution, run->folder.runlog));
  if (run->execution && records(run))
    PETRA_TRY(petra_execution_actions(run->execution, run->config->run.trace_actions ? run->folder.runlog : NULL,
                                      run->trace));
  if (run->trace)
    PETRA_TRY(petra_trace_observer_finish(run->trace));
  if (run->options.files || run->execution)
    PETRA_TRY(write_memory(run));
  PETRA_TRY(petra_backend_memory_write(run->main.network.backend, run->options.ranks, run->folder.runlog));
  if (!run->options.files)
    return PETRA_OK;
  if (run->probe)
    PETRA_TRY(petra_runlog_probe_memory(run->probe_log.log, petra_probe_account(run->probe)));
  PETRA_TRY(petra_folder_complete(&run->folder));
  return run->config->run.keep_checkpoint ? PETRA_OK : petra_folder_remove_checkpoint(&run->folder);
}

petra_status petra_run_close(petra_run *run) {
  PETRA_TRY(close_records(run));
  return run->execution ? petra_ranks_agree(run->options.ranks, PETRA_OK, NULL) : PETRA_OK; /* all wait for rank 0 */
}

void petra_run_destroy(petra_run *run) {
  if (!run)
    return;
  petra_executor_destroy(run->executor);
  petra_execution_destroy(run->execution);
  petra_trace_observer_destroy(run->trace);
  petra_action_log_destroy(run->actions);
  petra_checkpoints_destroy(run->checkpoints);
  petra_best_destroy(run->best);
  petra_run_drop_worker(run);
  petra_checkpoint_destroy(run->resume);
  petra_probe_destroy(run->probe);
  petra_probe_log_fini(&run->probe_log);
  petra_training_log_destroy(run->log);
  petra_folder_fini(&run->folder);
  petra_checkpoint_files_fini(&run->checkpoint);
  petra_free(run->weights_path);
  petra_replicas_destroy(run->replicas);
  petra_pipeline_fini(&run->main);
  petra_free(run->pipelines);
  petra_cluster_fini(&run->cluster);
  petra_dataset_destroy(run->eval_opened);
  petra_dataset_destroy(run->train_opened);
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
