/* Checkpoints of a training run: an observer writes them; a run that goes on from one has its state read here, and a
 * worker that goes through its schedule again. */
#ifndef PETRA_RUN_CHECKPOINTS_H
#define PETRA_RUN_CHECKPOINTS_H

#include "exec/observer.h"
#include "exec/probe.h"
#include "run/network.h"
#include "run/training_log.h"

typedef struct petra_checkpoints_options {
  const petra_network *network;
  petra_worker *worker; /* worker_stage's */
  petra_probe *probe;   /* NULL: none */
  petra_training_log *log;
  petra_runlog *runlog;
  const char *path, *config; /* of the file; the expanded config */
  int64_t every;             /* microbatches that stage 1 reads between two checkpoints; 0: none is written */
  bool measure;              /* the worker's results tell durations, which are kept */
  petra_archive *resume;     /* goes on from this one; NULL: from the beginning */
} petra_checkpoints_options;

/* Everything in `options` is borrowed. Reads the checkpoint into the worker, the probe and the log. *worker is for the
 * executor: that of the options, or one that first catches up with the checkpoint; valid as long as the observer. */
petra_status petra_checkpoints_create(const petra_checkpoints_options *options, petra_observer **out,
                                      petra_worker **worker);
void petra_checkpoints_destroy(petra_observer *observer); /* NULL is fine */

/* Opens DIR/checkpoint.h5 and checks that it is of a run with this config, as far as keys decide what is computed
 * up to there (PETRA_ROLE_RESULT). *out is NULL, and all is well, where there is no such file. */
petra_status petra_checkpoint_find(const char *path, const petra_config *config, petra_archive **out);

/* What is known before there is a worker: how many microbatches stage 1 had read, and the log (petra_runlog_image's;
 * free with petra_free). PETRA_CONFIG if the run ends before that. */
petra_status petra_checkpoint_begin(petra_archive *archive, const petra_config *config, int64_t microbatches,
                                    int64_t *read, char **log, size_t *bytes);

#endif
