/* petra train: emulates a training method on this device under the virtual clock. */
#include "base/json.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/utf8.h"
#include "cli/checkpoints.h"
#include "cli/cluster.h"
#include "cli/command.h"
#include "cli/epoch_json.h"
#include "cli/libraries.h"
#include "cli/probe_log.h"
#include "cli/run_folder.h"
#include "cli/setup.h"
#include "cli/training_log.h"
#include "io/checkpoint.h"

#include <jansson.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

typedef struct training {
  const petra_arguments *arguments;
  petra_config *config;
  petra_setup setup;
  petra_dataset *train_set, *eval_set;
  petra_loader *loader;
  petra_program_options program;
  petra_cluster cluster;
  petra_lr lr;
  char *directory, *weights_path, *config_text;
  size_t config_size;
  int lock; /* descriptor of the folder, locked; -1: none */
  petra_runlog *runlog;
  petra_training_log *log;
  char *checkpoint_path;
  petra_archive *resume; /* the checkpoint that the run goes on from; NULL: none */
  int64_t first;         /* the first microbatch that stage 1 reads */
  petra_checkpoints *checkpoints;
  petra_probe_log probes;
  petra_worker *worker;
  petra_executor *executor;
} training;

static petra_loader_options loader_options(const training *t, int64_t first, int64_t end) {
  const petra_config *config = t->config;
  return (petra_loader_options){.batch = (int32_t)config->data.batch,
                                .bytes = petra_backend_takes_images(t->setup.backend),
                                .shuffle = config->data.shuffle,
                                .augment = config->data.augment,
                                .drop_last = true,
                                .threads = (int)config->data.workers,
                                .seed = (uint64_t)config->run.seed,
                                .first = first,
                                .end = end};
}

/* How many microbatches, and the options of the program. */
static petra_status plan_program(training *t, int64_t batches) {
  const petra_config *config = t->config;
  int64_t microbatches = config->run.epochs * batches;
  if (config->run.max_microbatches > 0 && config->run.max_microbatches < microbatches)
    microbatches = config->run.max_microbatches;
  if (config->cluster.stages > 0)
    return petra_config_fail(config, "cluster.stages",
                             "%lld stages without a model cannot be trained; expected 0, or petra simulate",
                             (long long)config->cluster.stages);
  PETRA_TRY(petra_cluster_program(&t->setup, t->setup.partition.stages, microbatches, batches, &t->program));
  PETRA_TRY(petra_setup_check_training(&t->setup, microbatches, batches));
  if (config->probe.per_epoch > 0 && config->method.mitigation.weight_prediction != PETRA_PREDICTION_NONE)
    return petra_config_fail(
        config, "probe.per_epoch",
        "%lld with method.mitigation.weight_prediction, whose forward reads weights that no version is; expected 0",
        (long long)config->probe.per_epoch);
  t->lr = petra_lr_from_config(config, batches);
  return PETRA_OK;
}

/* Data, loader, network, stages: everything that can be wrong is found here, before anything is written. */
static petra_status prepare(training *t) {
  const petra_config *config = t->config;
  PETRA_TRY(petra_setup_plan(&t->setup, config));
  PETRA_TRY(petra_setup_read_schedule(&t->setup, t->setup.partition.stages));
  PETRA_TRY(petra_dataset_open(config, PETRA_SPLIT_TRAIN, &t->train_set));
  PETRA_TRY(petra_setup_check_data(&t->setup, t->train_set));
  if (config->run.eval_every > 0) {
    PETRA_TRY(petra_dataset_open(config, PETRA_SPLIT_EVAL, &t->eval_set));
    PETRA_TRY(petra_setup_check_data(&t->setup, t->eval_set));
  }
  int64_t batches = t->train_set->count / config->data.batch;
  if (batches == 0)
    return petra_config_fail(config, "data.batch",
                             "a batch of %lld images, but the training set has %lld; expected at most as many",
                             (long long)config->data.batch, (long long)t->train_set->count);
  PETRA_TRY(plan_program(t, batches));
  PETRA_TRY(petra_setup_stages(&t->setup));
  return petra_cluster_init(&t->cluster, &t->setup, &t->program, t->arguments->trace);
}

static petra_status write_memory(training *t) {
  petra_account accounts[PETRA_MODEL_BLOCKS];
  for (int j = 0; j < t->setup.partition.stages; j++)
    accounts[j] = *petra_stage_account(t->setup.stage[j]);
  return petra_runlog_memory(t->runlog, accounts, t->setup.partition.stages);
}

/* With --resume: the checkpoint, where there is one, and the log in it. */
static petra_status find_checkpoint(training *t, petra_runlog_about *about, char **log) {
  size_t bytes;
  if (!t->arguments->resume)
    return PETRA_OK;
  PETRA_TRY(petra_checkpoint_find(t->checkpoint_path, t->config, &t->resume));
  bool tell = !t->arguments->json && !t->arguments->quiet;
  if (!t->resume) {
    if (tell)
      petra_utf8_print(stdout, "no %s: the run begins at its beginning\n", t->checkpoint_path);
    return PETRA_OK;
  }
  PETRA_TRY(petra_checkpoint_begin(t->resume, t->config, t->program.microbatches, &t->first, log, &bytes));
  about->image = *log;
  about->image_bytes = bytes;
  if (tell)
    petra_utf8_print(stdout, "resumed from %s: microbatch %lld (epoch %lld)\n", t->checkpoint_path, (long long)t->first,
                     (long long)(t->first / t->program.batches) + 1);
  return PETRA_OK;
}

/* The run's folder with run.h5 and config.yaml; run.h5 first, as it is the one that a full disk refuses. */
static petra_status open_log(training *t) {
  char *path = NULL, *log = NULL;
  char backend[256], libraries[256];
  petra_status status;
  PETRA_TRY(petra_setup_output(t->config, t->arguments->output, &t->directory));
  PETRA_TRY(petra_join_path(t->directory, "weights.h5", &t->weights_path));
  PETRA_TRY(petra_join_path(t->directory, "checkpoint.h5", &t->checkpoint_path));
  PETRA_TRY(petra_run_folder_lock(t->directory, &t->lock));
  PETRA_TRY(petra_run_folder_expand_config(t->config, &t->config_text, &t->config_size));
  PETRA_TRY(petra_join_path(t->directory, "run.h5", &path));
  t->setup.backend->ops->describe(t->setup.backend, backend, sizeof backend);
  petra_libraries_describe(libraries, sizeof libraries);
  petra_runlog_about about = {.command = t->arguments->command_line,
                              .backend = backend,
                              .libraries = libraries,
                              .config = t->config_text,
                              .actions = t->config->run.trace_actions,
                              .seed = (uint64_t)t->config->run.seed};
  PETRA_TRY_GOTO(status, find_checkpoint(t, &about, &log), done);
  PETRA_TRY_GOTO(status, petra_runlog_create(path, &about, &t->runlog), done);
  PETRA_TRY_GOTO(status, petra_run_folder_write_config(t->directory, t->config_text, t->config_size), done);
  if (!t->resume)
    PETRA_TRY_GOTO(status, petra_run_folder_write_stages(&t->setup, t->runlog), done);
  const petra_training_log_options options = {.runlog = t->runlog,
                                              .program = t->setup.method.program,
                                              .program_options = &t->program,
                                              .print_epochs = !t->arguments->json && !t->arguments->quiet,
                                              .progress =
                                                  t->arguments->quiet ? PETRA_PROGRESS_QUIET : PETRA_PROGRESS_AUTO};
  PETRA_TRY_GOTO(status, petra_probe_log_init(&t->probes, &t->setup, &t->program, t->runlog, t->resume != NULL), done);
  status = petra_training_log_create(&options, &t->log);
done:
  petra_free(log);
  petra_free(path);
  return status;
}

static const petra_account *account_of(const void *context, int32_t stage) {
  return petra_stage_account(((const training *)context)->setup.stage[stage - 1]);
}

static petra_status run_program(training *t) {
  const petra_config *config = t->config;
  petra_loader_options evaluation_loader = loader_options(t, 0, 0);
  const petra_loader_options loader = loader_options(t, t->first, t->program.microbatches);
  PETRA_TRY(petra_loader_create(t->train_set, &loader, &t->loader));
  const petra_worker_stage_options options = {.backend = t->setup.backend,
                                              .stages = t->setup.partition.stages,
                                              .stage = t->setup.stage,
                                              .loader = t->loader,
                                              .image_height = t->train_set->height,
                                              .image_width = t->train_set->width,
                                              .evaluation = t->eval_set,
                                              .evaluation_loader = evaluation_loader,
                                              .lr = &t->lr,
                                              .program = t->setup.method.program,
                                              .program_options = &t->program,
                                              .events = petra_training_log_events(t->log),
                                              .measure = config->cluster.cost.model == PETRA_COST_MEASURED,
                                              .probe = t->probes.probe};
  PETRA_TRY(petra_worker_stage_create(&options, &t->worker));
  const petra_checkpoints_options checkpoints = {.setup = &t->setup,
                                                 .program = &t->program,
                                                 .worker = t->worker,
                                                 .log = t->log,
                                                 .runlog = t->runlog,
                                                 .path = t->checkpoint_path,
                                                 .config = t->config_text,
                                                 .every = config->run.checkpoint_every * t->program.batches,
                                                 .measure = config->cluster.cost.model == PETRA_COST_MEASURED,
                                                 .resume = t->resume};
  PETRA_TRY(petra_checkpoints_create(&checkpoints, &t->checkpoints));
  petra_checkpoint_destroy(t->resume);
  t->resume = NULL;
  PETRA_TRY(petra_executor_virtual_create(&t->cluster.executor, &t->executor));
  const petra_recorder_options recorder = {.worker = petra_checkpoints_worker(t->checkpoints),
                                           .stages = t->program.stages,
                                           .account = account_of,
                                           .account_context = t,
                                           .runlog = config->run.trace_actions ? t->runlog : NULL};
  petra_worker *worker;
  PETRA_TRY(petra_cluster_record(&t->cluster, &recorder, &worker));
  petra_trace_sink sink = t->cluster.trace || t->cluster.recorder ? petra_cluster_sink : NULL;
  petra_status status =
      t->executor->ops->run(t->executor, t->setup.method.program, &t->program, worker, sink, &t->cluster);
  petra_training_log_finish(t->log, status == PETRA_OK);
  return status == PETRA_OK ? petra_cluster_finish(&t->cluster) : status;
}

static petra_status print_json(const training *t) {
  json_t *root = json_object(), *list = json_array();
  petra_status status;
  int64_t count;
  int64_t losses;
  const petra_runlog_epoch *rows = petra_training_log_epochs(t->log, &count);
  double mean_loss = petra_training_log_mean_loss(t->log, &losses);
  PETRA_TRY_GOTO(status, petra_json_set(root, "output", petra_json_string(t->directory)), done);
  PETRA_TRY_GOTO(status, petra_json_set(root, "method", json_string(t->setup.method.name)), done);
  PETRA_TRY_GOTO(status, petra_json_set(root, "stages", json_integer(t->program.stages)), done);
  PETRA_TRY_GOTO(status, petra_json_set(root, "microbatches", json_integer(t->program.microbatches)), done);
  PETRA_TRY_GOTO(status, petra_json_set(root, "losses", json_integer(losses)), done);
  PETRA_TRY_GOTO(status, petra_json_set(root, "mean_loss", petra_json_real(mean_loss)), done);
  PETRA_TRY_GOTO(
      status, petra_json_set(root, "virtual_s", petra_json_real(1e-9 * (double)t->executor->ops->now_ns(t->executor))),
      done);
  PETRA_TRY_GOTO(status, petra_json_set(root, "epochs", json_incref(list)), done);
  for (int64_t e = 0; e < count; e++) {
    json_t *object = json_object();
    json_array_append_new(list, object);
    PETRA_TRY_GOTO(status, petra_epoch_json(&rows[e], object), done);
  }
  status = petra_json_print(root, stdout);
done:
  json_decref(list);
  json_decref(root);
  return status;
}

/* The closing line. A run without a whole epoch has no line of its own: its loss is told here. */
static void print_end(const training *t) {
  int64_t epochs, losses;
  double loss = petra_training_log_mean_loss(t->log, &losses);
  petra_training_log_epochs(t->log, &epochs);
  printf("%lld microbatches with %s on %d stage%s", (long long)t->program.microbatches, t->setup.method.name,
         t->program.stages, t->program.stages == 1 ? "" : "s");
  if (losses == 0)
    printf(", too few for a loss to come back");
  else if (epochs == 0)
    printf(", mean loss %.4f over %lld", loss, (long long)losses);
  petra_utf8_print(stdout, "; written: %s/{config.yaml,run.h5,weights.h5}\n", t->directory);
}

static petra_status finish(training *t) {
  PETRA_TRY(petra_setup_write_weights(&t->setup, t->weights_path)); /* first: they are what the run was for */
  PETRA_TRY(write_memory(t));
  PETRA_TRY(petra_probe_log_finish(&t->probes));
  PETRA_TRY(petra_runlog_complete(t->runlog));
  petra_runlog *runlog = t->runlog;
  t->runlog = NULL;
  PETRA_TRY(petra_runlog_close(runlog));
  if (t->arguments->json)
    return print_json(t);
  if (!t->arguments->quiet)
    print_end(t);
  return PETRA_OK;
}

static void clean_up(training *t) {
  if (t->executor)
    t->executor->ops->destroy(t->executor);
  petra_cluster_fini(&t->cluster);
  petra_checkpoints_destroy(t->checkpoints);
  petra_worker_stage_destroy(t->worker);
  petra_checkpoint_destroy(t->resume);
  petra_probe_log_fini(&t->probes);
  petra_training_log_destroy(t->log);
  petra_runlog_close(t->runlog);
  if (t->lock >= 0)
    close(t->lock);
  free(t->config_text); /* open_memstream's */
  petra_free(t->checkpoint_path);
  petra_free(t->weights_path);
  petra_free(t->directory);
  petra_loader_destroy(t->loader);
  petra_dataset_destroy(t->eval_set);
  petra_dataset_destroy(t->train_set);
  petra_setup_fini(&t->setup);
  petra_config_destroy(t->config);
}

static petra_status run(const petra_arguments *arguments) {
  training t = {.arguments = arguments, .lock = -1};
  petra_status status;
  PETRA_TRY_GOTO(status, petra_arguments_config(arguments, "train", &t.config), done);
  PETRA_TRY_GOTO(status, prepare(&t), done);
  PETRA_TRY_GOTO(status, open_log(&t), done);
  PETRA_TRY_GOTO(status, run_program(&t), done);
  status = finish(&t);
done:
  clean_up(&t);
  return status;
}

const petra_command petra_command_train = {
    .name = "train",
    .summary = "trains a network cut into stages, emulated on this device",
    .arguments = "CONFIG.yaml [--set KEY=VALUE]... [--output DIR] [--resume] [--trace FILE] [--json] [--quiet]",
    .help = "Trains the network of the config with the method of the config. All J stages are emulated on this device, "
            "in the\n"
            "order in which a virtual clock lets them act. Writes into DIR: config.yaml (every key with its value), "
            "run.h5 (losses,\n"
            "accuracies, stages, memory, probes of gradients; readable while the run goes on) and, at the end, "
            "weights.h5.\n",
    .takes_config = true,
    .options =
        (const petra_option[]){
            PETRA_OPTION("output", "DIR", output, "where files go (default: run.output/run.name of the config)"),
            PETRA_OPTION("trace", "FILE", trace, "writes a trace of every action for Chrome's or Perfetto's viewer"),
            PETRA_OPTION("resume", NULL, resume,
                         "goes on from checkpoint.h5 in DIR, to the bit; from the beginning where there is none"),
            {0}},
    .run = run};
