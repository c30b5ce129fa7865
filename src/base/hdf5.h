/* SPDX-License-Identifier: Apache-2.0 */
/* Reads HDF5 files that others may have made or may be writing. petra opens every data set that it reads here. HDF5's
 * identifiers (hid_t) are int64_t, so that its headers stay in .c files. */
#pragma once

#include "base/status.h"

#include <stdbool.h>
#include <stdint.h>

/* Put this before a local identifier that is initialised: it closes the identifier at the end of its block, unless the
 * identifier is negative. */
#define PETRA_HDF5_CLOSED __attribute__((cleanup(petra_hdf5_close_local)))
void petra_hdf5_close_local(int64_t *id);

/* Returns true if this is an HDF5 file, which may begin with a user block of 512, 1024, 2048, ... bytes. */
bool petra_hdf5_is_file(const char *path);

/* Opens the file for reading without a lock, so that a file can be read while it is written. Closing the file closes
 * everything that is open in it. Errors, one line each: PETRA_IO: another process has locked the file; PETRA_DATA: it
 * is not an HDF5 file, its writer did not close it, or it is damaged. */
petra_status petra_hdf5_open_file(const char *path, int64_t *out);

/* Opens the data set `name` of `folder`, a file or a group. *out is negative if there is none. Follows links within the
 * file. `path` is the path of the file. Returns PETRA_DATA, with a line that names the data set, if its values are in
 * another file or data set (external link, external storage, virtual data set), if it has no values (null dataspace),
 * or, if `whole`, if some of its values were never written, so that HDF5 would read its fill value for them. */
petra_status petra_hdf5_open_set(const char *path, int64_t folder, const char *name, bool whole, int64_t *out);

/* Returns PETRA_DATA if any link in the open file leads out of it. */
petra_status petra_hdf5_check_links(const char *path, int64_t file);

/* Reading a file that may crash the library: HDF5 trusts the addresses and sizes in a file, and a file that another
 * program made, or that a crash left behind, may contain arbitrary ones. petra wrote every file that has a seal
 * (base/seal.h); any other file is first read in a child process, with little memory and time. */

/* Checks the seal, and that enough memory for libraries is available (petra_reserve). Then calls read(context): for a
 * file without a seal first in a forked child and, if the child succeeds, again in this process. If the child fails,
 * its log line is logged and its status returned; returns PETRA_DATA if it crashes, or uses more memory or time than a
 * file of this size can need. `read` calls no OpenMP region and waits for no other thread. */
petra_status petra_guard(const char *path, petra_status (*read)(void *context), void *context);

/* For tests: sets the number of seconds (60 by default) after which a child that waits ends and another child is
 * started, three in all. */
void petra_guard_set_wait(unsigned seconds);
