/* SPDX-License-Identifier: Apache-2.0 */
/* Files that are replaced completely or not at all: they are written under a temporary name in the same folder, synced
 * and renamed. The header also has other file functions that the writers in this folder need. */
#pragma once

#include "base/status.h"

#include <stddef.h>
#include <sys/types.h>

/* Gets the temporary name in the folder of `path`: DIR/.NAME.tmp. The name is the same at every call, so that the next
 * process overwrites the file that a killed process left; two processes must not write the same file at once. Free with
 * petra_free. */
petra_status petra_file_temporary_name(const char *path, char **out);

/* Makes the file `path` contain exactly these bytes. After success the bytes and the name are on the disk. After a
 * failure (PETRA_IO, with the path and the reason; PETRA_NO_MEMORY) `path` is unchanged and no temporary file is left.
 * Only a regular file is replaced, never a device or a folder. The process must ignore SIGXFSZ, so that exceeding a
 * file size limit is returned as an error. */
petra_status petra_file_write_atomically(const char *path, const void *bytes, size_t size);

/* Holds disk space in the temporary file for a later petra_file_write_atomically of at most `size` bytes, if the file
 * system can reserve space. PETRA_IO, logged, if there is no room. petra_file_release frees space that was not used. */
petra_status petra_file_hold(const char *path, off_t size);
void petra_file_release(const char *path);

/* Returns PETRA_IO, logged, if `path` is a device or a pipe, such as /dev/null, which a rename would replace by a
 * regular file. */
petra_status petra_file_check_replaceable(const char *path);

/* Renames `temporary` to `path`, and syncs their folder, so that the new name survives a power cut. It is not a failure
 * if the folder cannot be opened or the file system cannot sync a folder. */
petra_status petra_file_replace(const char *path, const char *temporary);

/* Writes all bytes at `offset` of an open file. Returns 0 or an errno value. */
int petra_file_write_at(int fd, const void *bytes, size_t size, off_t offset);

/* Extends the open file to `size` and reserves the disk space, so that a full disk is detected now and not in the
 * middle of a change. Returns 0 or an errno value. A file system that cannot reserve space only lengthens the file. */
int petra_file_reserve(int fd, off_t size);

/* Stores DIRECTORY/NAME in *out. Free with petra_free. Errors: PETRA_NO_MEMORY. */
petra_status petra_join_path(const char *directory, const char *name, char **out);

/* Creates a folder and its parent folders; existing folders are not an error. Errors: PETRA_IO, with the folder that
 * cannot be created and the reason. */
petra_status petra_make_folder(const char *path);
