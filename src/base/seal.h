/* SPDX-License-Identifier: Apache-2.0 */
/* The seal of a file: its first 512 bytes, which hold its length and a digest of the rest, so that a file that was
 * changed or cut short is refused before anything in it is used. In an HDF5 file the seal is a user block: HDF5's own
 * data follow it, and other programs read the file as usual. Layout: docs/hdf5-schema.md, "The seal". It detects
 * accidents, not forgery (docs/adr/0015-a-seal-on-every-file.md). */
#pragma once

#include "base/status.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { PETRA_SEAL_BYTES = 512, PETRA_SEAL_PARTS = 2 };

typedef enum petra_seal {
  PETRA_SEAL_NONE, /* not a file of petra, or older than seals */
  PETRA_SEAL_OPEN, /* being written, or abandoned while it was written: no digest yet */
  PETRA_SEAL_WHOLE /* as petra wrote it */
} petra_seal;

/* Bulk data within the file, bytes from its start, whose digest is stored and checked separately: images of a data set,
 * which are too large to be read before every run. */
typedef struct petra_seal_part {
  int64_t offset, bytes;
} petra_seal_part;

/* Seals a file in memory. Its first PETRA_SEAL_BYTES are reserved for the seal. */
void petra_seal_image(void *image, size_t size);

/* Returns PETRA_DATA unless `image` is sealed and complete. The line begins with `name`. */
petra_status petra_seal_check_image(const char *name, const void *image, size_t size);

/* Marks the open file as being written. Returns 0 or an errno value. */
int petra_seal_begin(int fd);

/* Syncs what was written, seals the open file with `count` parts, which do not overlap and are in rising order, and
 * syncs the seal. Returns 0 or an errno value. */
int petra_seal_finish(int fd, const petra_seal_part *parts, int count);

/* Gets the state of the file and, if it is sealed, checks its digest without the parts. Errors: PETRA_IO: it cannot be
 * read or is not a regular file; PETRA_DATA: it was changed or cut short. */
petra_status petra_seal_check(const char *path, petra_seal *out);

/* Returns true if there is a file that is neither complete nor being written. Logs nothing. */
bool petra_seal_is_damaged(const char *path);

/* Gets the digest from the seal of a complete file without verifying it. Errors: the errors of petra_seal_check, and
 * PETRA_DATA if there is no complete seal. */
petra_status petra_seal_get_digest(const char *path, uint64_t *out);

/* Like petra_seal_check, but checks only the parts, all of which are read. Succeeds if there is no seal. */
petra_status petra_seal_check_parts(const char *path);

/* Returns true if a file that begins with these bytes (the first PETRA_SEAL_BEGIN_BYTES, or the whole file) may be an
 * HDF5 file, with a seal, without one, or with reserved space for one. */
enum { PETRA_SEAL_BEGIN_BYTES = PETRA_SEAL_BYTES + 8 };
bool petra_seal_begins_hdf5(const char *start, size_t size);

/* The states of digests by XXH64 (library xxHash), with seed 0. */

struct XXH64_state_s;

/* Creates a state that has seen no bytes; XXH64_freeState destroys it. PETRA_NO_MEMORY, logged. */
petra_status petra_xxh64_create(struct XXH64_state_s **out);
