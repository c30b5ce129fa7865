/* SPDX-License-Identifier: Apache-2.0 */
/* The seal of a file: its first 512 bytes, which tell its length and a digest of the rest, so that a file that was
 * changed or cut short is refused before anything in it is believed. For HDF5 they are a user block: its own data begin
 * behind them, and others read the file as any. Layout: docs/hdf5-schema.md, "The seal". It finds accidents; who means
 * to can make another one (docs/adr/0015-a-seal-on-every-file.md). */
#ifndef PETRA_BASE_SEAL_H
#define PETRA_BASE_SEAL_H

#include "base/status.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { PETRA_SEAL_BYTES = 512, PETRA_SEAL_PARTS = 2 };

typedef enum petra_seal {
  PETRA_SEAL_NONE, /* no file of petra, or one from before there were seals */
  PETRA_SEAL_OPEN, /* being written, or given up in the middle of that: no digest yet */
  PETRA_SEAL_WHOLE /* as petra wrote it */
} petra_seal;

/* Bulk data within the file, bytes from its start, whose digest is kept and checked by itself: images of a data set,
 * which are too many to be read before every run. */
typedef struct petra_seal_part {
  int64_t offset, bytes;
} petra_seal_part;

/* Seals a file in memory, whose first PETRA_SEAL_BYTES are free for it. */
void petra_seal_image(void *image, size_t size);

/* PETRA_DATA unless `image` is sealed and whole; the line begins with `name`. */
petra_status petra_seal_check_image(const char *name, const void *image, size_t size);

/* Marks the open file as being written. 0 or an errno value. */
int petra_seal_begin(int fd);

/* Syncs what was written, seals the open file with `count` parts, which do not overlap and are in rising order, and
 * syncs the seal. 0 or an errno value. */
int petra_seal_finish(int fd, const petra_seal_part *parts, int count);

/* Tells the state of the file and, where it is sealed, that its digest is right; parts are left out. PETRA_IO: cannot
 * be read, no regular file; PETRA_DATA: changed or cut short. */
petra_status petra_seal_check(const char *path, petra_seal *out);

/* The same without a line: whether a file is there that is neither whole nor being written. */
bool petra_seal_is_damaged(const char *path);

/* The digest in the seal of a file that is whole; it is not looked whether it is right. Errors: as above, PETRA_DATA for one
 * without a whole seal. */
petra_status petra_seal_get_digest(const char *path, uint64_t *out);

/* The same as petra_seal_check of the parts alone, reading all of them; nothing where there is no seal. */
petra_status petra_seal_check_parts(const char *path);

/* Whether a file that begins with these bytes, the first PETRA_SEAL_BEGIN_BYTES or all that it has, may be an HDF5
 * file, with a seal, with none, or with the room of one. */
enum { PETRA_SEAL_BEGIN_BYTES = PETRA_SEAL_BYTES + 8 };
bool petra_seal_begins_hdf5(const char *start, size_t size);

#endif
