/* SPDX-License-Identifier: Apache-2.0 */
/* checkpoint.h5 and its parts: an archive (base/archive.h) in an HDF5 file that is always whole. It is built in memory
 * (a part: in a temporary file), synced, and renamed. Schema: docs/hdf5-schema.md. */
#pragma once

#include "base/archive.h"

#include <stddef.h>

/* Creates a checkpoint in memory; `config` is the expanded config of the run, an attribute. */
petra_status petra_checkpoint_create(const char *path, const char *config, petra_archive **out);

/* Writes the checkpoint to its path. PETRA_IO, with path and reason; then an older file there is unchanged. */
petra_status petra_checkpoint_write(petra_archive *archive);

/* A part of a checkpoint is a separate file, named by its content: STEM-DIGEST.h5. So a new part never replaces one
 * that another checkpoint needs. Items go to a temporary file at once, so that only one at a time needs memory. Errors
 * as for the two functions above. */
petra_status petra_checkpoint_create_part(const char *stem, const char *config, petra_archive **out);
petra_status petra_checkpoint_write_part(petra_archive *archive, uint64_t *digest);
petra_status petra_checkpoint_part_path(const char *stem, uint64_t digest, char **out);
petra_status petra_checkpoint_part_temporary(const char *stem, char **out); /* free both with petra_free */
petra_status petra_checkpoint_open_part(const char *stem, uint64_t digest, petra_archive **out);

/* Removes from a folder of parts, as far as possible, all that none of these stems and digests names; a digest of 0
 * names none. */
void petra_checkpoint_remove_parts(const char *folder, char *const *stems, const uint64_t *digests, int count);

/* Returns true if a file with this name in a folder of parts is one, complete or not. */
bool petra_checkpoint_is_part(const char *name);

/* Opens a checkpoint for reading. PETRA_IO: cannot be opened. PETRA_DATA: not a checkpoint, without a valid seal,
 * another schema. */
petra_status petra_checkpoint_open(const char *path, petra_archive **out);

/* Returns the config with which it was written. */
const char *petra_checkpoint_config(const petra_archive *archive);

/* Closes a checkpoint or a part. NULL is allowed. */
void petra_checkpoint_destroy(petra_archive *archive);
