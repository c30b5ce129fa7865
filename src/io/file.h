/* SPDX-License-Identifier: Apache-2.0 */
/* Files that are replaced completely or not at all: they are written under a temporary name in the same folder, synced
 * and renamed. Also other file functions that the writers of this folder need. */
#pragma once

#include "base/status.h"

#include <stddef.h>
#include <sys/types.h>

/* Gets the temporary name in the folder of `path`: DIR/.NAME.tmp. It is the same at every call, so that what a killed
 * process left is overwritten by the next one; two processes must not write the same file at once. Free with
 * petra_free. */
petra_status petra_file_temporary_name(const char *path, char **out);

/* Makes `path` hold exactly these bytes. After success they are on the disk, the name included; after a failure
 * (PETRA_IO: path and why; PETRA_NO_MEMORY) what was at `path` before is still there and no temporary file is left.
 * Anything but a regular file (a device, a folder) is not replaced. The process must ignore SIGXFSZ, so that exceeding
 * a file size limit is returned as an error. */
petra_status petra_file_write_atomically(const char *path, const void *bytes, size_t size);

/* Holds disk space in the temporary file for a later petra_file_write_atomically of at most `size` bytes, if the file
 * system can reserve space. PETRA_IO, logged, if there is no room. petra_file_release gives back space that was not
 * used. */
petra_status petra_file_hold(const char *path, off_t size);
void petra_file_release(const char *path);

/* Returns PETRA_IO, logged, if `path` is a device or a pipe, such as /dev/null, which a rename would replace by a
 * regular file. */
petra_status petra_file_check_replaceable(const char *path);

/* Renames `temporary` to `path`, and syncs their folder, so that this survives a power cut. It is not a failure if the
 * folder cannot be opened or the file system cannot sync a folder. */
petra_status petra_file_replace(const char *path, const char *temporary);

/* Writes all bytes at `offset` of an open file. Returns 0 or an errno value. */
int petra_file_write_at(int fd, const void *bytes, size_t size, off_t offset);

/* Extends the open file to `size` and reserves the disk space, so that a full disk is detected now and not in the
 * middle of a change. Returns 0 or an errno value. A file system that cannot reserve space only lengthens the file. */
int petra_file_reserve(int fd, off_t size);

/* Stores DIRECTORY/NAME in *out. Free with petra_free. Errors: PETRA_NO_MEMORY. */
petra_status petra_join_path(const char *directory, const char *name, char **out);

/* Makes a folder and those above it; one that exists is fine. Errors: PETRA_IO, with the part that cannot be made and
 * why. */
petra_status petra_make_folder(const char *path);
