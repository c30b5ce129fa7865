/* SPDX-License-Identifier: Apache-2.0 */
/* The files of a checkpoint in the folder of a run. checkpoint/ contains a part for every stage (of every replica),
 * which the process with the stage writes, and one part for the state that all processes have in common. checkpoint.h5
 * is written last and names its parts by their digests. So a checkpoint is always complete or absent, and no process
 * stores the state of another process. */
#pragma once

#include "base/archive.h"
#include "base/mem.h"
#include "config/config.h"
#include "setup/plan.h"

typedef struct petra_checkpoint_files {
  char *path;   /* DIR/checkpoint.h5 */
  char *folder; /* DIR/checkpoint */
  char **stem;  /* stems of the parts: J per replica, then the part that all processes have in common */
  int parts;    /* replicas * J + 1 */
} petra_checkpoint_files;

/* Call petra_checkpoint_files_fini even on failure; it also accepts a structure of zeros. */
petra_status petra_checkpoint_files_init(petra_checkpoint_files *files, const char *directory, int32_t stages,
                                         int replicas);
void petra_checkpoint_files_fini(petra_checkpoint_files *files);

/* Returns PETRA_CONFIG unless `found`, the config in the file `path`, equals `expected` in all keys that affect results
 * (PETRA_ROLE_RESULT). */
petra_status petra_checkpoint_compare(const char *path, const char *found, const petra_config *expected);

/* Opens checkpoint.h5 and checks that it belongs to a run with this config (petra_checkpoint_compare). If there is no
 * such file, *out is NULL and the status PETRA_OK. */
petra_status petra_checkpoint_find(const char *path, const petra_config *config, petra_archive **out);

/* The header of a checkpoint, its item /begin. */
typedef struct petra_checkpoint_header {
  int64_t actions;   /* actions done, of all stages */
  int64_t read;      /* microbatches that stage 1 had read */
  int64_t log_bytes; /* size of run.h5 when the checkpoint was written */
  int64_t clock_ns;  /* rank 0's clock (base/clock.h), the reference of recorded actions; 0: no actions in the parts */
  /* For a run by arrival under the wall clock: nanoseconds since the run began. Its stages had done all microbatches
   * that were read, and nothing was under way. -1: for a run by a schedule. */
  int64_t arrived_ns;
  int64_t batches; /* microbatches per epoch */
  int64_t order;   /* a hash of all actions done, in their order; 0 for a run by arrival under the wall clock */
  int64_t data[2]; /* fingerprints of the splits (data/dataset.h), by petra_split; 0: no evaluation */
} petra_checkpoint_header;

/* Reads the header. PETRA_CONFIG in these cases: the run, of plan->program.microbatches, ends before the checkpoint;
 * its epochs are not plan->program.batches long (the data have another size); the checkpoint is of a run of another
 * length that had read its last microbatch, or whose probes used other weights (petra_program_probes_alike); only one
 * of the two runs is `by_arrival` under the wall clock. Sets *other_length if the run that wrote the checkpoint is
 * longer or shorter. */
petra_status petra_checkpoint_read_header(petra_archive *archive, const petra_plan *plan, bool by_arrival,
                                          petra_checkpoint_header *header, bool *other_length);

/* Returns PETRA_CONFIG unless the checkpoint was written with data of these fingerprints. */
petra_status petra_checkpoint_check_data(const petra_archive *archive, const petra_config *config,
                                         const petra_checkpoint_header *header, const int64_t data[2]);

/* Reads the log in the checkpoint (an image by petra_run_h5_image), of header->log_bytes bytes; free with
 * petra_free. */
petra_status petra_checkpoint_read_log(petra_archive *archive, const petra_checkpoint_header *header, char **log);

/* --- checkpoint_file.c ---
 * checkpoint.h5 and each of its parts is an archive (base/archive.h) in an HDF5 file that is always whole. It is built
 * in memory (a part: in a temporary file), synced, and renamed. Schema: docs/hdf5-schema.md. */

/* Creates checkpoint.h5 in memory or, with `part`, a part of it; `config` is the expanded config of the run, an
 * attribute. A part is a separate file, named by its content: STEM-DIGEST.h5, where STEM is `path`. So a new part never
 * replaces a part that another checkpoint needs. Items put into a part go to a temporary file immediately, so that only
 * one item at a time needs memory. */
petra_status petra_checkpoint_create(const char *path, bool part, const char *config, petra_archive **out);

/* Write checkpoint.h5, or a part, to its path. PETRA_IO, with the path and the reason; an older file at the path is
 * then unchanged. */
petra_status petra_checkpoint_write(petra_archive *archive);
petra_status petra_checkpoint_write_part(petra_archive *archive, uint64_t *digest);
petra_status petra_checkpoint_open_part(const char *stem, uint64_t digest, petra_archive **out);

/* Removes from a folder of parts, as far as possible, all files that are not named by these stems and digests; a digest
 * of 0 names no file. */
void petra_checkpoint_remove_parts(const char *folder, char *const *stems, const uint64_t *digests, int count);

/* Returns true if a file with this name in a folder of parts is a part, complete or not. */
bool petra_checkpoint_is_part(const char *name);

/* Opens a checkpoint for reading. PETRA_IO: cannot be opened. PETRA_DATA: it is not a checkpoint, has no valid seal, or
 * has another schema. */
petra_status petra_checkpoint_open(const char *path, petra_archive **out);

/* Returns the config with which the checkpoint was written. */
const char *petra_checkpoint_config(const petra_archive *archive);

/* Closes a checkpoint or a part. NULL is allowed. */
void petra_checkpoint_destroy(petra_archive *archive);
PETRA_DESTROYS(petra_checkpoint_destroy, petra_archive)
