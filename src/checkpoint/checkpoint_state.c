/* SPDX-License-Identifier: Apache-2.0 */
/* The content of a checkpoint: one walk over the state of a run writes it or reads it back. */
#include "checkpoint/checkpoints.h"

#include "base/log.h"
#include "base/mem.h"
#include "exec/pipeline.h"
#include "io/file.h"

#include <string.h>

/* The context of the walk. */
typedef struct walk {
  const petra_checkpoints_options *options;
  petra_tensor_archive tensors;
  /* accounts of the stages of each replica, then of the common part; NULL: in another process */
  petra_account **accounts;
  int64_t *digests; /* digests of the parts; 0: none */
  int32_t stages;
  int replicas;
  int common; /* index of the part that all processes have in common, which is the last part */
} walk;

/* Returns a pipeline of this process: the pipeline of replica 0 if all pipelines are here. */
static const petra_pipeline *any_pipeline(const petra_checkpoints_options *options) {
  int i = 0;
  while (!options->pipelines[i])
    i++;
  return options->pipelines[i];
}

/* Returns the pipeline that a part of a stage belongs to; NULL: it is in another process. */
static const petra_pipeline *pipeline_of(const walk *w, int part) {
  return w->options->pipelines[part / w->stages];
}

/* Returns true if this process writes a part. Rank 0 writes the common part, which all processes read. */
static bool has_part(const walk *w, int part) {
  if (part == w->common)
    return w->options->run.common && w->options->ranks->rank == 0;
  const petra_pipeline *pipeline = pipeline_of(w, part);
  return pipeline && pipeline->network.stage[part % w->stages];
}

static petra_status begin_walk(walk *w, const petra_checkpoints_options *options,
                               const petra_checkpoint_header *header) {
  const petra_plan *plan = options->plan;
  const int replicas = (int)plan->config->cluster.replicas;
  *w = (walk){.options = options, .stages = plan->stages, .replicas = replicas, .common = replicas * plan->stages};
  PETRA_TRY(petra_allocate(&w->accounts, (size_t)w->common + 1, sizeof *w->accounts));
  PETRA_TRY(petra_allocate(&w->digests, (size_t)w->common + 1, sizeof *w->digests));
  for (int part = 0; part < w->common; part++)
    if (has_part(w, part))
      w->accounts[part] = petra_stage_account(pipeline_of(w, part)->network.stage[part % w->stages]);
  w->accounts[w->common] = options->run.common ? options->run.account : NULL;
  w->tensors = (petra_tensor_archive){.backend = any_pipeline(options)->network.backend,
                                      .accounts = w->accounts,
                                      .account_count = w->common + 1,
                                      .read = header->read,
                                      .fused = !plan->program.split_head};
  return PETRA_OK;
}

static void end_walk(walk *w) {
  petra_tensor_archive_fini(&w->tensors);
  PETRA_FREE_ALL(w->accounts, w->digests);
}

/* Reads or writes the content of a part. */
static petra_status archive_part(walk *w, petra_archive *archive, int part, const petra_checkpoint_header *header) {
  const petra_checkpoint_run *run = &w->options->run;
  petra_tensor_archive_part(&w->tensors, archive, part + 1, w->accounts[part]);
  if (part == w->common)
    return run->common(run->context, &w->tensors);
  const int32_t stage = part % w->stages + 1;
  PETRA_TRY(petra_worker_stage_archive_stage(pipeline_of(w, part)->worker, stage, &w->tensors));
  return run->stage(run->context, part / w->stages, stage, header->clock_ns, &w->tensors);
}

/* Removes the parts that checkpoint.h5 does not name. */
static void remove_others(const walk *w) {
  const petra_checkpoint_files *files = w->options->files;
  petra_checkpoint_remove_parts(files->folder, files->stem, (const uint64_t *)w->digests, files->parts);
}

/* --- writing --- */

static petra_status write_part(walk *w, int part, const petra_checkpoint_header *header) {
  const petra_checkpoints_options *options = w->options;
  PETRA_DESTROYED(petra_checkpoint_destroy) petra_archive *archive = NULL;
  uint64_t digest;
  PETRA_TRY(petra_checkpoint_create(options->files->stem[part], true, options->config, &archive));
  PETRA_TRY(archive_part(w, archive, part, header));
  PETRA_TRY(petra_checkpoint_write_part(archive, &digest));
  w->digests[part] = (int64_t)digest;
  return PETRA_OK;
}

static petra_status write_parts(walk *w, const petra_checkpoint_header *header) {
  PETRA_TRY(petra_make_folder(w->options->files->folder));
  for (int part = 0; part <= w->common; part++)
    if (has_part(w, part))
      PETRA_TRY(write_part(w, part, header));
  return PETRA_OK;
}

static petra_status fill(walk *w, petra_archive *archive, petra_checkpoint_header *header, int64_t *measured_ns) {
  PETRA_FREED char *log = NULL;
  size_t bytes;
  PETRA_TRY(w->options->run.image(w->options->run.context, &log, &bytes));
  header->log_bytes = (int64_t)bytes;
  header->batches = w->options->plan->program.batches;
  memcpy(header->data, w->options->data, sizeof header->data);
  PETRA_TRY(petra_archive_integers(archive, "begin", (int64_t *)header, sizeof *header / sizeof(int64_t)));
  PETRA_TRY(petra_archive_values(archive, "log", PETRA_ARCHIVE_U8, header->log_bytes, log));
  PETRA_TRY(petra_archive_integers(archive, "parts", w->digests, w->common + 1));
  if (measured_ns)
    PETRA_TRY(petra_archive_integers(archive, "measured_ns", measured_ns, header->actions));
  PETRA_TRY(w->options->run.log(w->options->run.context, archive));
  return petra_worker_stage_archive(any_pipeline(w->options)->worker, archive, header->read);
}

/* Writes checkpoint.h5 when all parts are there; then removes the parts of earlier checkpoints. */
static petra_status write_last(walk *w, petra_checkpoint_header *header, int64_t *measured_ns) {
  const petra_checkpoint_files *files = w->options->files;
  PETRA_DESTROYED(petra_checkpoint_destroy) petra_archive *archive = NULL;
  for (int part = 0; part < w->common; part++)
    if (w->digests[part] == 0)
      return petra_fail(PETRA_INTERNAL, "%s: the part of stage %d of replica %d is missing", files->path,
                        part % w->stages + 1, part / w->stages);
  /* All processes have ended the actions of the checkpoint. */
  header->clock_ns = w->options->run.clock_ns(w->options->run.context);
  PETRA_TRY(petra_checkpoint_create(files->path, false, w->options->config, &archive));
  PETRA_TRY(fill(w, archive, header, measured_ns));
  PETRA_TRY(petra_checkpoint_write(archive));
  remove_others(w);
  return PETRA_OK;
}

petra_status petra_checkpoint_save(const petra_checkpoints_options *options, petra_checkpoint_header *header,
                                   int64_t *measured_ns) {
  PETRA_FINISHED(end_walk) walk w;
  petra_status status = begin_walk(&w, options, header);
  if (status == PETRA_OK)
    status = options->run.drain(options->run.context);
  if (status == PETRA_OK)
    status = write_parts(&w, header);
  status = petra_ranks_agree(options->ranks, status, NULL);
  if (status == PETRA_OK)
    status = petra_network_gather(&any_pipeline(options)->network, w.replicas, w.digests, sizeof *w.digests);
  if (status == PETRA_OK) { /* after an agreement that failed or was interrupted, there is no other agreement */
    if (options->ranks->rank == 0)
      status = write_last(&w, header, measured_ns);
    status = petra_ranks_agree(options->ranks, status, NULL);
  }
  return status;
}

/* --- reading --- */

static petra_status read_part(walk *w, int part, const petra_checkpoint_header *header) {
  PETRA_DESTROYED(petra_checkpoint_destroy) petra_archive *archive = NULL;
  PETRA_TRY(petra_checkpoint_open_part(w->options->files->stem[part], (uint64_t)w->digests[part], &archive));
  return archive_part(w, archive, part, header);
}

static petra_status read_all(walk *w, const petra_checkpoint_header *header) {
  petra_archive *archive = w->options->resume;
  if (w->options->ranks->rank == 0)
    PETRA_TRY(w->options->run.log(w->options->run.context, archive));
  for (int i = 0; i < w->replicas; i++)
    if (w->options->pipelines[i])
      PETRA_TRY(petra_worker_stage_archive(w->options->pipelines[i]->worker, archive, header->read));
  PETRA_TRY(petra_archive_integers(archive, "parts", w->digests, w->common + 1));
  if (w->options->run.common)
    PETRA_TRY(read_part(w, w->common, header));
  for (int part = 0; part < w->common; part++)
    if (has_part(w, part))
      PETRA_TRY(read_part(w, part, header));
  for (int i = 0; i < w->replicas; i++)
    if (w->options->pipelines[i])
      PETRA_TRY(petra_worker_stage_archived(w->options->pipelines[i]->worker, archive));
  if (w->options->ranks->rank == 0) /* these parts are of a run that was stopped while it wrote them */
    remove_others(w);
  return PETRA_OK;
}

/* No rank resumes, and writes parts of the next checkpoint, before all ranks have read this checkpoint and rank 0 has
 * removed the parts that this checkpoint does not name. */
petra_status petra_checkpoint_load(const petra_checkpoints_options *options, const petra_checkpoint_header *header) {
  PETRA_FINISHED(end_walk) walk w;
  petra_status status = begin_walk(&w, options, header);
  if (status == PETRA_OK)
    status = read_all(&w, header);
  return petra_ranks_agree(options->ranks, status, NULL);
}
