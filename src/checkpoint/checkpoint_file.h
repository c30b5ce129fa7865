/* SPDX-License-Identifier: Apache-2.0 */
/* checkpoint.h5 and its parts: an archive (base/archive.h) in an HDF5 file that is always whole. It is built in memory
 * (a part: in a temporary file), synced, and renamed. Schema: docs/hdf5-schema.md. */
#pragma once

#include "base/archive.h"

#include <stddef.h>

/* Creates checkpoint.h5 in memory or, with `part`, a part of it; `config` is the expanded config of the run, an
 * attribute. A part is a file of its own, named by its content: STEM-DIGEST.h5, where STEM is `path`. So a new part
 * never takes the place of one that another checkpoint needs. Items put into a part go to a temporary file immediately,
 * so that only one item at a time needs memory. */
petra_status petra_checkpoint_create(const char *path, bool part, const char *config, petra_archive **out);

/* Write checkpoint.h5 to its path, or a part to its own path. PETRA_IO, with the path and the reason; an older file at
 * that path is then unchanged. */
petra_status petra_checkpoint_write(petra_archive *archive);
petra_status petra_checkpoint_write_part(petra_archive *archive, uint64_t *digest);
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
