/* SPDX-License-Identifier: Apache-2.0 */
/* The files of a checkpoint in the folder of a run: checkpoint.h5, which is written last and names the parts that it needs by
 * their digests; in checkpoint/ a part for every stage (of every replica), which the process that has the stage writes, and one for the probes. So a
 * checkpoint is whole or is none, whatever happens while it is written, and no process holds the state of another one. */
#pragma once

#include "base/archive.h"
#include "config/config.h"
#include "plan/plan.h"

typedef struct petra_checkpoint_files {
  char *path;   /* DIR/checkpoint.h5 */
  char *folder; /* DIR/checkpoint */
  char *
      *stem; /* of the parts: J of the stages of each replica, then that of the probes (checkpoint/checkpoint_file.h) */
  int parts; /* replicas * J + 1 */
} petra_checkpoint_files;

/* petra_checkpoint_files_fini is due whatever comes back, for zeros as well. */
petra_status petra_checkpoint_files_init(petra_checkpoint_files *files, const char *directory, int32_t stages,
                                         int replicas);
void petra_checkpoint_files_fini(petra_checkpoint_files *files);

/* PETRA_CONFIG unless `found`, the config in the file `path`, is `expected` as far as keys decide what is computed
 * (PETRA_ROLE_RESULT). */
petra_status petra_checkpoint_compare(const char *path, const char *found, const petra_config *expected);

/* Opens checkpoint.h5 and checks that it is of a run with this config (petra_checkpoint_compare). *out is NULL, and all is well, where there is no such file. */
petra_status petra_checkpoint_find(const char *path, const petra_config *config, petra_archive **out);

/* What a checkpoint begins with. */
typedef struct petra_checkpoint_begin {
  int64_t actions;   /* done, of all stages */
  int64_t read;      /* microbatches that stage 1 had read */
  int64_t log_bytes; /* of run.h5 at that moment */
  int64_t clock_ns; /* rank 0's clock (base/clock.h), which recorded actions count by; 0: no actions are in the parts */
  /* Of a run by arrival under the wall clock, whose stages had all done the microbatches that were read, and nothing was under
   * way: nanoseconds since it began. -1: of a run that goes through a schedule. */
  int64_t arrived_ns;
  int64_t batches; /* microbatches an epoch */
  int64_t order;   /* a hash of all actions done, in their order; 0: of a run by arrival under the wall clock */
  int64_t data[2]; /* fingerprints of the splits (data/dataset.h), by petra_split; 0: nothing is evaluated */
} petra_checkpoint_begin;

/* PETRA_CONFIG if the run, of plan->program.microbatches, ends before the checkpoint, if its epochs are not plan->program.batches
 * long (the data have another size), if it is of a run of other length that had read its last microbatch, that began with
 * probes of other weights (petra_program_probes_alike), and if one of the two is `by_arrival` under the wall clock and the other is
 * not. *other_length: the run that wrote it is longer or shorter. */
petra_status petra_checkpoint_read_begin(petra_archive *archive, const petra_plan *plan, bool by_arrival,
                                         petra_checkpoint_begin *begin, bool *other_length);

/* PETRA_CONFIG unless the checkpoint was written with data of these fingerprints. */
petra_status petra_checkpoint_check_data(const petra_archive *archive, const petra_config *config,
                                         const petra_checkpoint_begin *begin, const int64_t data[2]);

/* The log in it (petra_runlog_image's), of begin->log_bytes bytes; free with petra_free. */
petra_status petra_checkpoint_read_log(petra_archive *archive, const petra_checkpoint_begin *begin, char **log);
