/* Checkpoints of a training run. Between the executor and the worker stands a worker that writes them, and that lets
 * a resumed run go through its schedule again without computing anything up to where its checkpoint was written: the
 * virtual clock, messages under way and all draws of luck are then as they were, and nothing of the executor is in
 * the file. */
#ifndef PETRA_CLI_CHECKPOINTS_H
#define PETRA_CLI_CHECKPOINTS_H

#include "cli/setup.h"
#include "cli/training_log.h"
#include "exec/worker_stage.h"

typedef struct petra_checkpoints_options {
  const petra_setup *setup;
  const petra_program_options *program;
  petra_worker *worker; /* worker_stage's */
  petra_training_log *log;
  petra_runlog *runlog;
  const char *path, *config; /* of the file; the expanded config */
  int64_t every;             /* microbatches that stage 1 reads between two checkpoints; 0: none is written */
  bool measure;              /* the worker's results tell durations, which are kept */
  petra_archive *resume;     /* goes on from this one; NULL: from the beginning */
} petra_checkpoints_options;

typedef struct petra_checkpoints petra_checkpoints;

/* Everything in `options` is borrowed. Reads the checkpoint into the worker and the log. */
petra_status petra_checkpoints_create(const petra_checkpoints_options *options, petra_checkpoints **out);
void petra_checkpoints_destroy(petra_checkpoints *checkpoints);
petra_worker *petra_checkpoints_worker(petra_checkpoints *checkpoints);

/* Opens DIR/checkpoint.h5 and checks that it is of a run with this config, as far as keys decide what is computed
 * up to there (PETRA_ROLE_RESULT). *out is NULL, and all is well, where there is no such file. */
petra_status petra_checkpoint_find(const char *path, const petra_config *config, petra_archive **out);

/* What is known before there is a worker: how many microbatches stage 1 had read, and the log (petra_runlog_image's;
 * free with petra_free). PETRA_CONFIG if the run ends before that. */
petra_status petra_checkpoint_begin(petra_archive *archive, const petra_config *config, int64_t microbatches,
                                    int64_t *read, char **log, size_t *bytes);

#endif
