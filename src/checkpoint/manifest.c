/* SPDX-License-Identifier: Apache-2.0 */
#include "checkpoint/manifest.h"

#include "base/log.h"
#include "base/mem.h"
#include "base/seal.h"
#include "io/file.h"
#include "schedule/arrival.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

petra_status petra_checkpoint_files_init(petra_checkpoint_files *files, const char *directory, int32_t stages,
                                         int replicas) {
  char name[64];
  PETRA_TRY(petra_join_path(directory, "checkpoint.h5", &files->path));
  PETRA_TRY(petra_join_path(directory, "checkpoint", &files->folder));
  const int probes = replicas * stages;
  PETRA_TRY(petra_allocate(&files->stem, (size_t)probes + 1, sizeof *files->stem));
  files->parts = probes + 1;
  for (int part = 0; part < probes; part++) {
    if (replicas > 1)
      snprintf(name, sizeof name, "replica-%d-stage-%02d", part / stages, part % stages + 1);
    else
      snprintf(name, sizeof name, "stage-%02d", part + 1);
    PETRA_TRY(petra_join_path(files->folder, name, &files->stem[part]));
  }
  return petra_join_path(files->folder, "probes", &files->stem[probes]);
}

void petra_checkpoint_files_fini(petra_checkpoint_files *files) {
  for (int i = 0; i < files->parts; i++)
    petra_free(files->stem[i]);
  petra_free(files->stem);
  PETRA_FREE_ALL(files->folder, files->path);
}

petra_status petra_checkpoint_compare(const char *path, const char *found, const petra_config *expected) {
  petra_config_difference difference;
  bool differs;
  PETRA_TRY(petra_config_compare_text(path, found, expected, PETRA_ROLE_RESULT, &differs, &difference));
  if (!differs)
    return PETRA_OK;
  return petra_fail(PETRA_CONFIG,
                    "%s: was written with %s: %s, but the config has %s; expected the config of the resumed run", path,
                    difference.key, difference.a, difference.b);
}

petra_status petra_checkpoint_find(const char *path, const petra_config *config, petra_archive **out) {
  PETRA_DESTROYED(petra_checkpoint_destroy) petra_archive *archive = NULL;
  *out = NULL;
  if (access(path, F_OK) != 0)
    return PETRA_OK;
  PETRA_TRY(petra_checkpoint_open(path, &archive));
  PETRA_TRY(petra_checkpoint_compare(path, petra_checkpoint_config(archive), config));
  *out = petra_take(&archive);
  return PETRA_OK;
}

/* Messages under way in one kind of run (emulated or executed) cannot be represented in the other kind. */
static petra_status check_arrival(const petra_archive *archive, const petra_config *config,
                                  const petra_program_options *program, bool by_arrival,
                                  const petra_checkpoint_header *header) {
  const int64_t actions = petra_arrival_actions(program, header->read);
  if (by_arrival && header->arrived_ns < 0)
    return petra_config_fail(config, "run.mode",
                             "execute, but %s was written with run.mode: emulate by a method that runs actions as "
                             "messages arrive; expected run.mode: emulate",
                             archive->path);
  if (!by_arrival && header->arrived_ns >= 0)
    return petra_config_fail(config, "run.mode",
                             "emulate, but %s was written with run.mode: execute by a method that runs actions as "
                             "messages arrive; expected run.mode: execute",
                             archive->path);
  return by_arrival ? petra_archive_within(archive, "begin", "actions", header->actions, actions, actions) : PETRA_OK;
}

/* Returns the length of the run that wrote the checkpoint. */
static petra_status length_of(petra_archive *archive, const petra_plan *plan, int64_t *microbatches) {
  const char *text = petra_checkpoint_config(archive);
  petra_config *config;
  PETRA_TRY(petra_config_load_text(&(petra_config_text){archive->path, text, strlen(text)}, NULL, 0, &config));
  *microbatches = petra_plan_microbatches(config, plan->program.batches);
  petra_config_destroy(config);
  return PETRA_OK;
}

static petra_status check_length(petra_archive *archive, const petra_plan *plan, const petra_checkpoint_header *header,
                                 bool *other_length) {
  const petra_program_options *program = &plan->program;
  const petra_program_ops *ops = plan->method.program;
  int64_t microbatches;
  PETRA_TRY(length_of(archive, plan, &microbatches));
  *other_length = microbatches != program->microbatches;
  if (header->read >= program->microbatches + !*other_length)
    return petra_config_fail(
        plan->config, "run.epochs",
        "%lld microbatches in all, but the checkpoint was written after %lld; expected a longer run",
        (long long)program->microbatches, (long long)header->read);
  if (header->read == microbatches && *other_length)
    return petra_config_fail(plan->config, "run.epochs",
                             "%lld microbatches in all, but the run that wrote %s had already read all of its %lld; "
                             "expected a run of the same length, or one from the beginning",
                             (long long)program->microbatches, archive->path, (long long)microbatches);
  if (plan->config->probe.per_epoch > 0 && !petra_program_probes_alike(ops, program, microbatches, header->read))
    return petra_config_fail(plan->config, "run.epochs",
                             "%lld microbatches in all, but the run that wrote %s had %lld, and none of them made an "
                             "update after the checkpoint: end-to-end gradients of probes may use other weights than "
                             "in the longer run; expected a run of the same length, or one from the beginning",
                             (long long)program->microbatches, archive->path, (long long)microbatches);
  return PETRA_OK;
}

petra_status petra_checkpoint_read_header(petra_archive *archive, const petra_plan *plan, bool by_arrival,
                                          petra_checkpoint_header *header, bool *other_length) {
  const petra_config *config = plan->config;
  const petra_program_options *program = &plan->program;
  PETRA_TRY(petra_archive_integers(archive, "begin", (int64_t *)header, sizeof *header / sizeof(int64_t)));
  PETRA_TRY(petra_archive_within(archive, "begin", "actions", header->actions, 1, INT64_MAX));
  PETRA_TRY(petra_archive_within(archive, "begin", "microbatches read", header->read, 1, INT64_MAX));
  PETRA_TRY(petra_archive_within(archive, "begin", "bytes of the log", header->log_bytes, PETRA_SEAL_BYTES, INT64_MAX));
  PETRA_TRY(petra_archive_within(archive, "begin", "a time", header->clock_ns, 0, INT64_MAX));
  PETRA_TRY(petra_archive_within(archive, "begin", "a time", header->arrived_ns, -1, INT64_MAX));
  if (header->batches != program->batches)
    return petra_config_fail(
        config, "data.path",
        "%lld microbatches per epoch, but the run that wrote %s had %lld; expected the data that the run began with",
        (long long)program->batches, archive->path, (long long)header->batches);
  PETRA_TRY(check_length(archive, plan, header, other_length));
  return check_arrival(archive, config, program, by_arrival, header);
}

petra_status petra_checkpoint_check_data(const petra_archive *archive, const petra_config *config,
                                         const petra_checkpoint_header *header, const int64_t data[2]) {
  static const char *const names[] = {[PETRA_SPLIT_TRAIN] = "training", [PETRA_SPLIT_EVAL] = "evaluation"};
  for (int split = 0; split < 2; split++)
    if (header->data[split] != data[split])
      return petra_config_fail(config, "data.path",
                               "the samples of the %s split differ from those that %s was written with; expected the "
                               "data that the run began with",
                               names[split], archive->path);
  return PETRA_OK;
}

petra_status petra_checkpoint_read_log(petra_archive *archive, const petra_checkpoint_header *header, char **log) {
  PETRA_FREED char *image = NULL;
  PETRA_TRY(petra_archive_require(archive, "log", PETRA_ARCHIVE_U8, header->log_bytes));
  PETRA_TRY(petra_allocate_raw(&image, (size_t)header->log_bytes, 1));
  PETRA_TRY(petra_archive_values(archive, "log", PETRA_ARCHIVE_U8, header->log_bytes, image));
  PETRA_TRY(petra_seal_check_image("the log in the checkpoint", image, (size_t)header->log_bytes));
  *log = petra_take(&image);
  return PETRA_OK;
}
