/* SPDX-License-Identifier: Apache-2.0 */
/* Reads files by their bytes. */
#pragma once

#include "base/status.h"

#include <stddef.h>
#include <stdint.h>

/* Opens the file at `path`, which should be `what` ("a JPEG image"), for reading, and gets its size. Errors: PETRA_IO:
 * missing, unreadable, not a regular file. Thread-safe. */
petra_status petra_file_open(const char *path, const char *what, int *fd, int64_t *size);

/* Reads the whole file at `path`, which should be `what`. Errors: PETRA_IO: as above; PETRA_DATA: empty, or larger than
 * 1 GiB. Thread-safe. Free with petra_free. */
petra_status petra_file_bytes(const char *path, const char *what, uint8_t **out, size_t *size);

/* Reads exactly `size` bytes at `offset`. Errors: PETRA_IO: `path` and the reason. Thread-safe. */
petra_status petra_file_read_at(int fd, const char *path, int64_t offset, void *out, size_t size);
