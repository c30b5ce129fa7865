/* SPDX-License-Identifier: Apache-2.0 */
/* The checkpoints of a training: what its observers add to them. */
#include "run/run_private.h"

#include "checkpoint/checkpoints.h"

petra_status petra_run_drain(void *context) {
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

/* A checkpoint does not count as time of the microbatches. */
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

/* Reads or writes the recorded actions of a stage. The times become those of a run without a pause. */
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

petra_status petra_run_create_checkpoints(petra_run *run, petra_worker **worker) {
  const petra_checkpoint_run added = {.context = run,
                                      .drain = petra_run_drain,
                                      .clock_ns = clock_ns,
                                      .pause = pause_log,
                                      .unpause = unpause_log,
                                      .waited = pause_times,
                                      .image = get_image,
                                      .log = archive_log,
                                      .stage = archive_stage,
                                      .common = run->probe ? archive_probe : NULL,
                                      .account = run->probe ? petra_probe_account(run->probe) : NULL};
  const petra_checkpoints_options options = {.state = {.files = &run->checkpoint,
                                                       .config = run->folder.config,
                                                       .pipelines = run->pipelines,
                                                       .replicas = (int)run->config->cluster.replicas,
                                                       .ranks = run->ranks,
                                                       .data = run->data,
                                                       .run = added},
                                             .plan = &run->plan,
                                             .worker = *worker,
                                             .counting =
                                                 run->execution ? petra_execution_counting(run->execution) : NULL,
                                             .every = run->config->run.checkpoint_every,
                                             .aside = &run->folder.aside,
                                             .command = run->options.resume_command,
                                             .by_arrival = petra_run_by_arrival(run),
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
