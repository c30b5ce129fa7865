/* checkpoint.h5: an archive (base/archive.h) as an HDF5 file that is written whole: built in memory, written aside,
 * synced, renamed, so that at its name there is always a whole one. Schema: docs/hdf5-schema.md. */
#ifndef PETRA_IO_CHECKPOINT_H
#define PETRA_IO_CHECKPOINT_H

#include "base/archive.h"

#include <stddef.h>

/* A checkpoint in memory; `config` is the expanded config of the run, an attribute. */
petra_status petra_checkpoint_create(const char *path, const char *config, petra_archive **out);

/* Writes it to its path. PETRA_IO: path, and why; an older file there is then untouched. */
petra_status petra_checkpoint_write(petra_archive *archive);

/* Opens one for reading. PETRA_IO: cannot be opened; PETRA_DATA: not a checkpoint, without a seal that holds, of another
 * schema. */
petra_status petra_checkpoint_open(const char *path, petra_archive **out);

/* The config that it was written with. */
const char *petra_checkpoint_config(const petra_archive *archive);

/* Closes either. NULL is allowed. */
void petra_checkpoint_destroy(petra_archive *archive);

#endif
