/* SPDX-License-Identifier: Apache-2.0 */
/* The files of a run: its folder when it begins, and the results when it has ended. */
#include "run/run_private.h"

#include "io/file.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/seal.h"
#include "base/text.h"
#include "base/utf8.h"
#include "exec/pipeline.h"
#include "data/dataset.h"

#include <math.h>

/* --- the beginning --- */

static petra_status identify_data(petra_run *run) {
  const petra_dataset *sets[] = {[PETRA_SPLIT_TRAIN] = run->train_set, [PETRA_SPLIT_EVAL] = run->eval_set};
  if (!run->options.resume && run->config->run.checkpoint_every.count == 0)
    return PETRA_OK;
  for (int split = 0; split < 2; split++) {
    uint64_t fingerprint = 0;
    if (sets[split])
      PETRA_TRY(petra_dataset_fingerprint(sets[split], &fingerprint));
    run->data[split] = (int64_t)fingerprint;
  }
  return PETRA_OK;
}

/* With `resume`: finds the checkpoint, if there is one. */
static petra_status find_checkpoint(petra_run *run, petra_checkpoint_header *header) {
  if (!run->options.resume)
    return PETRA_OK;
  PETRA_TRY(petra_checkpoint_find(run->checkpoint.path, run->config, &run->resume));
  if (!run->resume)
    return PETRA_OK;
  bool other_length, by_arrival = petra_run_by_arrival(run);
  PETRA_TRY(petra_checkpoint_read_header(run->resume, &run->plan, by_arrival, header, &other_length));
  const bool measured = run->config->cluster.cost.model == PETRA_COST_MEASURED;
  if (other_length && measured &&
      (header->read % run->plan.program.batches != 0 || run->plan.program.batches < run->plan.stages))
    return petra_config_fail(
        run->config, "run.epochs",
        "%lld microbatches in all, and the run that wrote %s had another number; with cluster.cost.model: measured, "
        "within an epoch or with fewer microbatches an epoch than stages, expected a run as long, or one from the "
        "beginning",
        (long long)run->plan.program.microbatches, run->checkpoint.path);
  if (other_length && !by_arrival && !measured)
    PETRA_TRY(petra_checkpoints_check_order(&run->plan, &run->cluster.executor, header, run->checkpoint.path));
  PETRA_TRY(petra_checkpoint_check_data(run->resume, run->config, header, run->data));
  run->first = header->read;
  return PETRA_OK;
}

static void print_resumed(const petra_run *run) {
  if (!run->resume)
    petra_utf8_print(stdout, "no %s: the run starts from the beginning\n", run->checkpoint.path);
  else
    petra_utf8_print(stdout, "resumed from %s: microbatch %lld (epoch %lld)\n", run->checkpoint.path,
                     (long long)run->first, (long long)(run->first / run->plan.program.batches) + 1);
}

/* With run.keep: best, keeps the weights of the best evaluation. */
static petra_status keep_best(petra_run *run) {
  int64_t logged = -1;
  if (run->config->run.keep != PETRA_KEEP_BEST)
    return PETRA_OK;
  if (run->resume)
    PETRA_TRY(petra_training_log_archived(run->resume, &logged));
  return petra_best_create(&run->main.network, run->folder.path, logged, &run->best);
}

/* Holds disk space for the weights, so that a training cannot end without them. */
static petra_status hold_room(petra_run *run) {
  int64_t bytes;
  PETRA_TRY(petra_network_weights_bytes(&run->main.network, &bytes));
  PETRA_TRY(
      petra_join_path(run->folder.path, petra_run_keeps_best(run) ? PETRA_BEST_FILE : "weights.h5", &run->held_path));
  return petra_file_hold(run->held_path, bytes);
}

void petra_run_release_room(petra_run *run) {
  if (run->held_path)
    petra_file_release(run->held_path);
  petra_free(run->held_path);
  run->held_path = NULL;
}

petra_status petra_run_open_files(petra_run *run, petra_run_h5_about *about) {
  PETRA_FREED char *log = NULL;
  char backend[256], libraries[256];
  petra_checkpoint_header header;
  PETRA_TRY(petra_join_path(run->folder.path, "weights.h5", &run->weights_path));
  PETRA_TRY(petra_checkpoint_files_init(&run->checkpoint, run->folder.path, run->plan.stages,
                                        (int)run->config->cluster.replicas));
  run->main.network.backend->ops->describe(run->main.network.backend, backend, sizeof backend);
  petra_libraries_describe(libraries, sizeof libraries);
  about->backend = backend;
  about->libraries = libraries;
  about->batches = run->plan.program.batches;
  about->recalibrates = run->config->data.recalibrate > 0;
  PETRA_TRY(identify_data(run));
  PETRA_TRY(find_checkpoint(run, &header));
  if (run->resume) {
    PETRA_TRY(petra_checkpoint_read_log(run->resume, &header, &log));
    about->image = log;
    about->image_bytes = (size_t)header.log_bytes;
  }
  PETRA_TRY(keep_best(run));
  PETRA_TRY(hold_room(run));
  if (run->options.resume && run->options.print)
    print_resumed(run);
  return petra_folder_begin(&run->folder, &run->plan, about);
}

/* On ranks other than 0: finds the files for their parts of checkpoints. Rank 0 has opened the folder. */
static petra_status follow_files(petra_run *run) {
  PETRA_TRY(petra_folder_of_run(run->config, run->options.output, &run->folder.path));
  PETRA_TRY(petra_folder_expand_config(run->config, &run->folder.config, &run->folder.config_size));
  return petra_checkpoint_files_init(&run->checkpoint, run->folder.path, run->plan.stages,
                                     (int)run->config->cluster.replicas);
}

/* All ranks resume from the checkpoint that rank 0 found. *digest is the digest of its file; 0: the run starts from the
 * beginning. Afterwards *digest is the same on all ranks. */
static petra_status share_resumed(petra_run *run, uint64_t *digest) {
  struct {
    uint64_t digest;
    int64_t now_ns;
  } first = {*digest, petra_clock_ns()};
  PETRA_TRY(petra_ranks_share(run->ranks, &first, sizeof first));
  *digest = first.digest;
  run->resumed_ns = first.now_ns;
  return run->best ? petra_best_resume(run->best) : PETRA_OK;
}

/* Finds on all ranks the checkpoint that rank 0 resumes from. */
static petra_status follow_checkpoint(petra_run *run) {
  petra_checkpoint_header header;
  uint64_t digest = 0, found = 0;
  petra_status status = run->resume ? petra_seal_get_digest(run->checkpoint.path, &digest) : PETRA_OK;
  PETRA_TRY(petra_ranks_agree(run->ranks, status, NULL));
  PETRA_TRY(share_resumed(run, &digest));
  if (run->resume || digest == 0)
    return PETRA_OK;
  PETRA_TRY(identify_data(run));
  PETRA_TRY(find_checkpoint(run, &header));
  if (run->resume)
    PETRA_TRY(petra_seal_get_digest(run->checkpoint.path, &found));
  return found == digest
             ? PETRA_OK
             : petra_fail(PETRA_IO, "%s: %s; expected a folder that all processes share", run->checkpoint.path,
                          run->resume ? "another checkpoint than that of rank 0" : "is not there");
}

petra_status petra_run_follow_files(petra_run *run, petra_status status) {
  petra_ranks *ranks = run->ranks;
  if (status == PETRA_OK && run->stored && ranks->rank > 0)
    status = follow_files(run);
  PETRA_TRY(petra_ranks_agree(ranks, status, NULL));
  return run->stored && run->options.resume ? petra_ranks_agree(ranks, follow_checkpoint(run), NULL) : PETRA_OK;
}

/* --- the end --- */

static petra_status write_memory(petra_run *run) {
  PETRA_FREED petra_account *accounts = NULL;
  PETRA_TRY(petra_allocate(&accounts, (size_t)run->plan.stages, sizeof *accounts));
  for (int32_t j = 0; j < run->plan.stages; j++)
    if (run->main.network.stage[j])
      accounts[j] = *petra_stage_account(run->main.network.stage[j]);
  PETRA_TRY(petra_network_gather(&run->main.network, 1, accounts, sizeof *accounts));
  if (run->options.files)
    PETRA_TRY(petra_run_h5_memory(run->folder.run_h5, accounts, run->plan.stages));
  return PETRA_OK;
}

/* Adds the losses of the stages that are here, of all replicas, to `sums`: by stage and epoch the loss, the hits and
 * the labels. */
static void add_losses(const petra_run *run, int64_t epochs, double *sums) {
  for (int i = 0; i < run->placement.replicas; i++)
    for (int32_t j = 0; run->pipelines[i] && j < run->plan.stages; j++) {
      int64_t count;
      if (!run->pipelines[i]->network.stage[j])
        continue;
      const double *own = petra_worker_stage_losses(run->pipelines[i]->worker, j + 1, &count);
      for (int64_t v = 0; v < 3 * epochs; v++)
        sums[3 * epochs * j + v] += own[v];
    }
}

/* Writes the losses of the stages of a local program, from the sums of all ranks. */
static petra_status write_losses(petra_run *run) {
  const petra_program_options *program = &run->plan.program;
  const int64_t epochs = (program->microbatches - 1) / program->batches + 1, stages = run->plan.stages;
  const int64_t cells = epochs * stages, ranks = run->ranks->count;
  PETRA_FREED double *sums = NULL, *all = NULL;
  PETRA_TRY(petra_allocate(&sums, (size_t)(5 * cells), sizeof *sums));
  double *loss = sums + 3 * cells, *top1 = sums + 4 * cells;
  add_losses(run, epochs, sums);
  PETRA_TRY(petra_allocate(&all, (size_t)(3 * cells * ranks), sizeof *all));
  PETRA_TRY(petra_ranks_gather_rows(run->ranks, sums, (size_t)(3 * cells) * sizeof *sums, all));
  if (!run->folder.run_h5)
    return PETRA_OK;
  for (int64_t e = 0; e < epochs; e++)
    for (int64_t j = 0; j < stages; j++) {
      double sum[3] = {0};
      for (int64_t v = 0; v < 3 * ranks; v++)
        sum[v % 3] += all[v / 3 * 3 * cells + 3 * (epochs * j + e) + v % 3];
      loss[e * stages + j] = sum[2] > 0 ? sum[0] / sum[2] : NAN;
      top1[e * stages + j] = sum[2] > 0 ? sum[1] / sum[2] : NAN;
    }
  return petra_run_h5_locals(run->folder.run_h5, &(petra_run_h5_local){loss, top1}, epochs, (int32_t)stages);
}

/* Writes the last weights or, with run.keep: best, the weights of the best evaluation. */
static petra_status write_weights(petra_run *run) {
  int64_t epochs;
  const petra_run_h5_epoch *rows = petra_training_log_epochs(run->log, &epochs);
  if (petra_run_keeps_best(run)) {
    const petra_weights_moment best = petra_best_of(rows, epochs, petra_sample_kind_of(run->config));
    return petra_best_finish(run->best, &best);
  }
  return petra_network_write_weights(&run->main.network, NULL, NULL, run->weights_path);
}

/* Adds up the peaks of the probes of all processes. */
static petra_status write_probe_memory(petra_run *run) {
  petra_ranks *ranks = run->ranks;
  const petra_account *own = petra_probe_account(run->probe);
  petra_account sum = {0};
  PETRA_FREED petra_account *all = NULL;
  PETRA_TRY(petra_allocate(&all, (size_t)ranks->count, sizeof *all));
  PETRA_TRY(petra_ranks_gather_rows(ranks, own, sizeof *own, all));
  for (int rank = 0; rank < ranks->count; rank++)
    for (int c = 0; c < PETRA_MEMORY_CATEGORIES; c++)
      sum.peak_bytes[c] += all[rank].peak_bytes[c];
  if (!run->folder.run_h5)
    return PETRA_OK;
  if (petra_probe_log_rows(run->probe_log) == 0)
    petra_log(PETRA_LOG_WARNING,
              "/probe of %s/run.h5 is empty: the run ended before any of its probes was complete (probe.per_epoch: "
              "%lld); expected a longer run (run.epochs, run.max_microbatches)",
              run->folder.path, (long long)run->config->probe.per_epoch);
  return petra_probe_log_memory(run->probe_log, &sum);
}

/* Writes the memory of the backends that is not in the accounts of the stages. */
static petra_status write_backend_memory(const petra_run *run) {
  const petra_backend_memory own = petra_backend_memory_in_use(run->main.network.backend);
  PETRA_FREED petra_backend_memory *rows = NULL;
  PETRA_TRY(petra_allocate(&rows, (size_t)run->ranks->count, sizeof *rows));
  PETRA_TRY(petra_ranks_gather_rows(run->ranks, &own, sizeof own, rows));
  if (run->folder.run_h5)
    PETRA_TRY(petra_run_h5_backends(run->folder.run_h5, rows, run->ranks->count));
  return PETRA_OK;
}

static petra_status write_rows(const petra_run *run) {
  PETRA_FREED petra_rank_summary *rows = NULL;
  PETRA_TRY(petra_allocate(&rows, (size_t)run->ranks->count, sizeof *rows));
  PETRA_TRY(petra_ranks_gather_rows(run->ranks, &run->this_rank, sizeof run->this_rank, rows));
  if (run->folder.run_h5)
    PETRA_TRY(petra_run_h5_ranks(run->folder.run_h5, rows, run->ranks->count, run->placement.replica_ranks,
                                 run->placement.rank_of, run->plan.stages));
  return PETRA_OK;
}

/* For an executed run: writes the row of each rank, the actions of all, and their pace. All ranks call this. */
static petra_status write_ranks(petra_run *run) {
  PETRA_TRY(write_rows(run));
  if (run->actions) /* all replicas do the same */
    PETRA_TRY(petra_action_log_gather(run->actions, run->ranks, run->placement.replica == 0,
                                      run->config->run.trace_actions ? run->folder.run_h5 : NULL, run->trace));
  return petra_run_write_pace(run);
}

static petra_status print_cudnn_choices(const void *context, FILE *out) {
  const petra_backend *backend = context;
  backend->ops->print_engines(backend, out);
  return PETRA_OK;
}

static petra_status write_cudnn_file(const petra_run *run) {
  const petra_backend *backend = run->main.network.backend;
  PETRA_FREED char *text = NULL, *path = NULL;
  size_t size;
  if (!backend->ops->print_engines || petra_folder_reads_cudnn_file(&run->folder, run->config))
    return PETRA_OK;
  PETRA_TRY(petra_text_print(print_cudnn_choices, backend, "the text of " PETRA_CUDNN_FILE, &text, &size));
  PETRA_TRY(petra_join_path(run->folder.path, PETRA_CUDNN_FILE, &path));
  if (size > 0)
    PETRA_TRY(petra_file_write_atomically(path, text, size));
  return PETRA_OK;
}

petra_status petra_run_write_files(petra_run *run) {
  if (run->stored) /* the weights come first, because they are the result of the run */
    PETRA_TRY(write_weights(run));
  if (petra_run_executes(run))
    PETRA_TRY(write_ranks(run));
  if (run->stored)
    PETRA_TRY(write_memory(run));
  if (run->stored && run->plan.program.local)
    PETRA_TRY(write_losses(run));
  PETRA_TRY(write_backend_memory(run));
  if (run->probe)
    PETRA_TRY(write_probe_memory(run));
  if (!run->options.files)
    return PETRA_OK;
  return write_cudnn_file(run);
}
