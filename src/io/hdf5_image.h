/* SPDX-License-Identifier: Apache-2.0 */
/* HDF5 files that are built in memory and then written whole (atomic_file.h), so that a good file is never replaced by
 * half of one. Private to src/io; HDF5's identifiers (hid_t) appear here as int64_t. All but the last are to be called
 * between petra_hdf5_begin and petra_hdf5_end. */
#pragma once

#include "io/hdf5_file.h"

#include <stddef.h>

/* An HDF5 file in memory, which nothing writes to the disk; negative on failure. The caller closes it. */
int64_t petra_hdf5_image_create(void);

/* The bytes that the file would have on the disk, sealed. Free with petra_free. PETRA_IO: `path`, which it is to be
 * written to, and why; PETRA_NO_MEMORY. */
petra_status petra_hdf5_image_copy(int64_t file, const char *path, const petra_hdf5_errors *errors, char **out,
                                   size_t *size);

/* Makes file->path hold them. Errors as of petra_file_write_atomically. */
petra_status petra_hdf5_image_put(const petra_hdf5_file *file);

/* Makes `path` hold a file into which `write` writes `what`, about `bytes` bytes; where it fails, with a line, what was at
 * `path` stays. */
petra_status petra_hdf5_image_write(const char *path,
                                    petra_status (*write)(const petra_hdf5_file *file, const void *what),
                                    const void *what, size_t bytes);
